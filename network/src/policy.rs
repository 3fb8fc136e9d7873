//! Policy heads: logits of the 4,208 vocabulary moves.

use zeitnot_encoding::vocabulary::{self, Entry, PROMOTIONS};

use crate::{Graph, PolicyConfig, graph::Linear, history::token_of};

/// Slots of the promotion term: none, then [`PROMOTIONS`].
const SLOTS: i64 = 1 + PROMOTIONS.len() as i64;

/// Scores moves from the board tokens `[B, 64, width]` and their mean `[B, width]`.
pub fn score<G: Graph>(
    g: &mut G,
    config: &PolicyConfig,
    width: i64,
    dropout: f64,
    tokens: &G::Value,
    pooled: &G::Value,
) -> G::Value {
    match *config {
        PolicyConfig::Pooled { hidden } => {
            let moves = vocabulary::SIZE as i64;
            let x = g.layer_norm(pooled, "policy_proj.0", width);
            let x = g.linear(&x, &Linear::new("policy_proj.1", width, hidden));
            let x = g.relu(&x);
            let x = g.dropout(&x, dropout);
            let x = g.exact(&x);
            g.linear(&x, &Linear::new("policy_proj.4", hidden, moves))
        }
        PolicyConfig::FromTo { width: keys } => from_to(g, width, keys, tokens),
    }
}

fn from_to<G: Graph>(g: &mut G, width: i64, keys: i64, tokens: &G::Value) -> G::Value {
    let x = g.layer_norm(tokens, "policy.norm", width);
    let from = g.linear(&x, &Linear::new("policy.from", width, keys));
    let from = g.affine(&from, 1.0 / (keys as f32).sqrt(), 0.0);
    let to = g.linear(&x, &Linear::new("policy.to", width, keys));
    let [from, to] = [from, to].map(|x| g.exact(&x));
    let scores = g.outer(&from, &to);
    let scores = g.reshape(&scores, &[-1, 64 * 64]);
    let scores = g.select(&scores, 1, &positions(|entry| token_of(entry.from) * 64 + token_of(entry.to)));

    let promotion = g.linear(&x, &Linear::new("policy.promotion", width, SLOTS));
    let promotion = g.reshape(&promotion, &[-1, 64 * SLOTS]);
    let promotion = g.select(&promotion, 1, &positions(|entry| token_of(entry.to) * SLOTS + promotion_slot(entry)));
    g.add(&scores, &promotion)
}

fn positions(position: fn(&Entry) -> i64) -> Vec<i64> {
    vocabulary::entries().iter().map(position).collect()
}

fn promotion_slot(entry: &Entry) -> i64 {
    let slot = entry.promotion.and_then(|role| (1..).zip(PROMOTIONS).find(|&(_, candidate)| candidate == role));
    slot.map_or(0, |(slot, _)| slot)
}
