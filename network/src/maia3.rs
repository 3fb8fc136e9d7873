//! The forward pass of the `maia3/1` family: transformers over the squares whose attention is biased by what the board
//! says as a whole.

mod config;

use zeitnot_encoding::{maia3, rerank, vocabulary};

pub use config::{BiasConfig, Maia3Config};

use crate::{
    Graph, Outputs,
    graph::{Heads, Linear, Scores},
    specs::{Init, Spec},
};

/// Ratings are shares of this one.
const HIGHEST_RATING: f32 = 5000.0;
/// First squares of the ranks between which promotions go.
const RANK_7: i64 = 48;
const RANK_8: i64 = 56;

/// Runs the network.
pub fn forward<G: Graph>(g: &mut G, config: &Maia3Config) -> Outputs<G::Value> {
    let width = config.width;
    let mut x = embed(g, config);
    for layer in 0..config.blocks {
        x = block(g, config, &format!("transformer.layers.{layer}"), &x);
    }
    let x = g.layer_norm(&x, "transformer.norm", width);
    let policy = policy(g, config, &x);
    let mean = g.mean(&x, 1);
    let pooled = g.layer_norm(&mean, "last_ln", width);
    let value = head(g, "fc_value", &pooled, width, 3);
    let wdl = g.select(&value, 1, &[2, 1, 0]); // Loss, draw, win in the published networks.
    let ponder = head(g, "fc_ponder", &pooled, width, 1);
    let ponder = g.reshape(&ponder, &[-1]);
    let pooled = (width <= rerank::POOLED as i64).then_some(pooled);
    Outputs { policy, value: None, wdl: Some(wdl), think_time: None, auxiliary: None, pooled, ponder: Some(ponder) }
}

/// Each square's token beside both ratings, projected: `[B, 64, width]`.
fn embed<G: Graph>(g: &mut G, config: &Maia3Config) -> G::Value {
    let ratings = ["mover_elo", "opponent_elo"].map(|input| rating(g, config, input));
    let ratings = g.concat(&ratings, 1);
    let ratings = g.reshape(&ratings, &[-1, 1, 2 * config.rating]);
    let everywhere = g.constant(&[1, 64, 1], &[0.0; 64]);
    let ratings = g.add(&ratings, &everywhere);
    let tokens = g.input("tokens");
    let x = g.concat(&[tokens, ratings], 2);
    g.linear(&x, &Linear::new("token_projection", config.input(), config.width))
}

/// A point on the way from the embedding of the lowest rating to that of the highest: `[B, rating]`.
fn rating<G: Graph>(g: &mut G, config: &Maia3Config, input: &'static str) -> G::Value {
    let mut end = |name: &str| g.weight(Spec::new(name, &[1, config.rating], Init::Normal(1.0)));
    let [low, high] = ["elo_embedding_low.weight", "elo_embedding_high.weight"].map(&mut end);
    let elo = g.input(input);
    let elo = g.reshape(&elo, &[-1, 1]);
    let share = g.affine(&elo, 1.0 / HIGHEST_RATING, 0.0);
    let rest = g.affine(&share, -1.0, 1.0);
    // The published networks have it so: `low` is weighed by the share, `high` by the rest.
    let low = g.multiply(&share, &low);
    let high = g.multiply(&rest, &high);
    g.add(&low, &high)
}

fn block<G: Graph>(g: &mut G, config: &Maia3Config, name: &str, x: &G::Value) -> G::Value {
    let (width, hidden) = (config.width, config.feed_forward);
    let attended = attend(g, config, &format!("{name}.self_attn"), x);
    let sum = g.add(x, &attended);
    let x = g.rms_norm(&sum, &format!("{name}.norm1"), width);
    let inner = g.linear(&x, &Linear::new(&format!("{name}.linear1"), width, hidden));
    let inner = g.gelu(&inner);
    let inner = g.linear(&inner, &Linear::new(&format!("{name}.linear2"), hidden, width));
    let sum = g.add(&x, &inner);
    g.rms_norm(&sum, &format!("{name}.norm2"), width)
}

fn attend<G: Graph>(g: &mut G, config: &Maia3Config, name: &str, x: &G::Value) -> G::Value {
    let width = config.width;
    let bias = bias(g, config, name, x);
    let weight = format!("{name}.mha.in_proj_weight");
    let qkv = g.linear(x, &Linear { weight, bias: None, input: width, output: 3 * width });
    let [q, k, v] = [0, 1, 2].map(|part| g.slice(&qkv, 2, part * width, width));
    let heads = Heads { count: config.heads, width: width / config.heads };
    let out = g.attention([&q, &k, &v], heads, Scores::Biased(&bias));
    g.linear(&out, &Linear::without_bias(&format!("{name}.mha.out_proj"), width, width))
}

/// What is added to the attention of each square to each, by what all tokens say together: `[B, heads, 64, 64]`.
fn bias<G: Graph>(g: &mut G, config: &Maia3Config, name: &str, x: &G::Value) -> G::Value {
    let BiasConfig { hidden, generated, per_square } = config.bias;
    let (all, all_width) = match per_square {
        0 => (g.mean(x, 1), config.width),
        size => {
            let name = format!("{name}.sm1");
            let layer = Linear::new(&name, config.width, size);
            let bias = layer.bias.filter(|_| config.per_square_bias);
            let squeezed = g.linear(x, &Linear { bias, ..layer });
            (g.reshape(&squeezed, &[0, 64 * size]), 64 * size)
        }
    };
    let y = g.linear(&all, &Linear::new(&format!("{name}.sm2"), all_width, hidden));
    let y = g.gelu(&y);
    let y = g.layer_norm(&y, &format!("{name}.ln1"), hidden);
    let y = g.linear(&y, &Linear::new(&format!("{name}.sm3"), hidden, config.heads * generated));
    let y = g.gelu(&y);
    let y = g.layer_norm(&y, &format!("{name}.ln2"), config.heads * generated);
    let y = g.reshape(&y, &[-1, config.heads, generated]);
    // One tensor for all blocks.
    let shared = Linear { weight: "gab_shared_weight".to_owned(), bias: None, input: generated, output: 64 * 64 };
    let y = g.linear(&y, &shared);
    g.reshape(&y, &[0, 0, 64, 64])
}

/// Scores of all pairs of squares and of the promotions, brought into the order of the vocabulary.
fn policy<G: Graph>(g: &mut G, config: &Maia3Config, x: &G::Value) -> G::Value {
    let (width, hidden) = (config.width, config.policy);
    let from = g.linear(x, &Linear::without_bias("proj_sq_from", width, hidden));
    let to = g.linear(x, &Linear::without_bias("proj_sq_to", width, hidden));
    let root = (hidden as f32).sqrt();
    let scores = g.outer(&from, &to);
    let scores = g.affine(&scores, 1.0 / root, 0.0);
    let last_step = g.slice(&scores, 1, RANK_7, 8);
    let last_step = g.slice(&last_step, 2, RANK_8, 8);
    let last_step = g.reshape(&last_step, &[-1, 8, 8, 1]);
    let pieces = g.slice(&to, 1, RANK_8, 8);
    let pieces = g.linear(&pieces, &Linear::without_bias("promo_bias_proj", hidden, 4));
    let pieces = g.affine(&pieces, root, 0.0);
    let pieces = g.reshape(&pieces, &[-1, 1, 8, 4]);
    let promotions = g.add(&last_step, &pieces);
    let promotions = g.reshape(&promotions, &[-1, maia3::POLICY as i64 - 64 * 64]);
    let scores = g.reshape(&scores, &[-1, 64 * 64]);
    let all = g.concat(&[scores, promotions], 1);
    let policy = g.select(&all, 1, &maia3::policy());
    g.reshape(&policy, &[-1, vocabulary::SIZE as i64])
}

fn head<G: Graph>(g: &mut G, name: &str, x: &G::Value, width: i64, output: i64) -> G::Value {
    let x = g.linear(x, &Linear::new(&format!("{name}_hid"), width, width));
    let x = g.relu(&x);
    g.linear(&x, &Linear::new(name, width, output))
}
