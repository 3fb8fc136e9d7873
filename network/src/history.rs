//! The recent moves: tokens for the transformer, planes for the stem.

use zeitnot_encoding::{situation::HISTORY, vocabulary, zeitnot::NOWHERE};

use crate::{
    Graph, HistoryConfig, HistoryEmbedding,
    graph::{Heads, Linear, Scores},
    specs::{Init, Spec},
};

const LENGTH: i64 = HISTORY as i64;

/// What the rest of the network sees of the history.
pub struct History<V> {
    /// `[B, 20, width of the board tokens]`.
    pub tokens: V,
    /// `[B, width of the board tokens]`; the projection of zeros when there is no move.
    pub pooled: V,
    /// `[B, 1, 1, 20]`: 1 where a move is, else 0.
    pub mask: V,
}

/// Encodes the history: embedding and positions, transformer layers, projections to the board tokens' width.
///
/// With an empty history the last slot is opened, for the transformer only, so that no softmax is over nothing.
pub fn encode<G: Graph>(g: &mut G, config: &HistoryConfig, dropout: f64, output: i64) -> History<G::Value> {
    let width = config.width;
    let mask = g.input("history_mask");
    let mask = g.to_float(&mask);

    let any = g.max(&mask, 1);
    let none = g.affine(&any, -1.0, 1.0);
    let mut last = [0.0; HISTORY];
    last.iter_mut().rev().take(1).for_each(|slot| *slot = 1.0);
    let last = g.constant(&[1, LENGTH], &last);
    let opened = g.multiply(&none, &last);
    let opened = g.add(&mask, &opened);
    let open = g.reshape(&opened, &[-1, 1, 1, LENGTH]);

    let history = g.input("history");
    let mut x = embed(g, config, &history);
    let positions = Spec::new("history_encoder.position_embedding", &[1, LENGTH, width], Init::Normal(0.02));
    let positions = g.weight(positions);
    x = g.add(&x, &positions);
    for layer in 0..config.layers {
        let name = format!("history_encoder.transformer.layers.{layer}");
        x = transformer_layer(g, config, dropout, &name, &x, &open);
    }

    let moves = g.reshape(&mask, &[-1, LENGTH, 1]);
    let seen = g.multiply(&x, &moves);
    let total = g.sum(&seen, 1);
    // The count of moves, but 1 when there is none.
    let count = g.sum(&opened, 1);
    let count = g.reshape(&count, &[-1, 1]);
    let mean = g.divide(&total, &count);
    let pooled = g.linear(&mean, &Linear::new("history_encoder.pool_proj", width, output));
    History {
        tokens: g.linear(&x, &Linear::new("history_encoder.token_proj", width, output)),
        pooled,
        mask: g.reshape(&mask, &[-1, 1, 1, LENGTH]),
    }
}

/// From and to squares of the newest moves as planes, newest first: `[B, 2 * planes, 8, 8]`.
pub fn planes<G: Graph>(g: &mut G, count: i64) -> G::Value {
    let history = g.input("history");
    let newest = (0..count).map(|age| LENGTH - 1 - age).collect::<Vec<_>>();
    let planes = squares(g, &history).map(|ids| {
        let ids = g.select(&ids, 1, &newest);
        let planes = planes_of(g, &ids);
        g.reshape(&planes, &[-1, count, 8, 8])
    });
    g.concat(&planes, 1)
}

/// The 64 cells of each square's plane: 1 on the square, 0 elsewhere and for no square.
pub(crate) fn planes_of<G: Graph>(g: &mut G, ids: &G::Value) -> G::Value {
    let mut one_hot = vec![0.0; (NOWHERE as usize + 1) * 64];
    one_hot.iter_mut().step_by(65).for_each(|cell| *cell = 1.0);
    let one_hot = g.constant(&[NOWHERE + 1, 64], &one_hot);
    g.take(&one_hot, ids)
}

fn embed<G: Graph>(g: &mut G, config: &HistoryConfig, history: &G::Value) -> G::Value {
    let name = "history_encoder.embedding";
    match config.embedding {
        HistoryEmbedding::Vocabulary => {
            let rows = vocabulary::SIZE as i64 + 1;
            let table = g.weight(Spec::new(&format!("{name}.weight"), &[rows, config.width], Init::Normal(0.1)));
            g.take(&table, history)
        }
        HistoryEmbedding::Squares => {
            let [from, to] = squares(g, history);
            let [from_table, to_table] = ["from", "to"].map(|end| {
                g.weight(Spec::new(&format!("{name}.{end}.weight"), &[NOWHERE + 1, config.width], Init::Normal(0.1)))
            });
            let from = g.take(&from_table, &from);
            let to = g.take(&to_table, &to);
            g.add(&from, &to)
        }
    }
}

/// From and to squares of every history move in the mover's frame, as board tokens number them (a8 = 0, h1 = 63), 64
/// where there is no move: `[B, 20]` each.
///
/// The newest move is the opponent's, the one before it the mover's own, and so on; the opponent's are mirrored.
fn squares<G: Graph>(g: &mut G, history: &G::Value) -> [G::Value; 2] {
    let tokens = vocabulary::SIZE as i64 + 1;
    let opponents = (0..LENGTH).map(|slot| if slot % 2 == 1 { tokens } else { 0 }).collect::<Vec<_>>();
    let opponents = g.integers(&[1, LENGTH], &opponents);
    let ids = g.add(history, &opponents);
    let table = |end: fn(&vocabulary::Entry) -> shakmaty::Square| {
        let own = vocabulary::entries().iter().map(|entry| token_of(end(entry)));
        let mirrored = vocabulary::entries().iter().map(|entry| token_of(end(entry).flip_vertical()));
        let nowhere = || std::iter::once(NOWHERE);
        nowhere().chain(own).chain(nowhere()).chain(mirrored).collect::<Vec<_>>()
    };
    [table(|entry| entry.from), table(|entry| entry.to)].map(|table| {
        let table = g.integers(&[2 * tokens], &table);
        g.take(&table, &ids)
    })
}

/// The board token of a square in the mover's frame: row 0 is rank 8.
pub(crate) fn token_of(square: shakmaty::Square) -> i64 {
    i64::from(u32::from(square.flip_vertical()))
}

/// One post-norm layer: attention and a ReLU feed-forward part, each added and normalised.
fn transformer_layer<G: Graph>(
    g: &mut G,
    config: &HistoryConfig,
    dropout: f64,
    name: &str,
    x: &G::Value,
    mask: &G::Value,
) -> G::Value {
    let width = config.width;
    let projection = Linear {
        weight: format!("{name}.self_attn.in_proj_weight"),
        bias: Some(format!("{name}.self_attn.in_proj_bias")),
        input: width,
        output: 3 * width,
    };
    let qkv = g.linear(x, &projection);
    let [q, k, v] = [0, 1, 2].map(|part| g.slice(&qkv, 2, part * width, width));
    let heads = Heads { count: config.heads, width: width / config.heads };
    let attended = g.attention([&q, &k, &v], heads, Scores::Masked(mask));
    let attended = g.linear(&attended, &Linear::new(&format!("{name}.self_attn.out_proj"), width, width));
    let attended = g.dropout(&attended, dropout);
    let x = g.add(x, &attended);
    let x = g.layer_norm(&x, &format!("{name}.norm1"), width);

    let hidden = g.linear(&x, &Linear::new(&format!("{name}.linear1"), width, config.feed_forward));
    let hidden = g.relu(&hidden);
    let hidden = g.dropout(&hidden, dropout);
    let hidden = g.linear(&hidden, &Linear::new(&format!("{name}.linear2"), config.feed_forward, width));
    let hidden = g.dropout(&hidden, dropout);
    let x = g.add(&x, &hidden);
    g.layer_norm(&x, &format!("{name}.norm2"), width)
}
