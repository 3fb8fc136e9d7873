//! The forward pass of `rerank/1`: a small transformer over the prior's candidates.
//!
//! Each candidate is a token of its prior block, its engine block and an embedding of its move; one more token carries
//! what is known of the situation. Without positions, permuting the candidates permutes the answer. The head and the
//! style's projection start at zero, so an untrained re-ranker gives the prior back.

use serde::{Deserialize, Serialize};
use zeitnot_encoding::{
    rerank::{CANDIDATES, ENGINE, POOLED, PRIOR, STYLE},
    vocabulary,
};

use crate::{
    Graph,
    graph::{Heads, Linear, Scores},
    specs::{self, Init, Spec},
};

/// Sizes and switches of a re-ranker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RerankerConfig {
    /// Width of a token.
    pub width: i64,
    /// Attention heads.
    pub heads: i64,
    /// Hidden width of the feed-forward parts.
    pub feed_forward: i64,
    /// Transformer layers.
    pub layers: i64,
    /// Width of a move's embedding.
    pub moves: i64,
    /// Whether it looks at the engine block. Without it, this is the search-free model.
    pub engine: bool,
    /// Whether it looks at the prior's pooled hidden state.
    pub pooled: bool,
    /// Share of values zeroed while training.
    pub dropout: f64,
}

impl Default for RerankerConfig {
    fn default() -> Self {
        RerankerConfig {
            width: 128,
            heads: 8,
            feed_forward: 256,
            layers: 2,
            moves: 32,
            engine: true,
            pooled: true,
            dropout: 0.1,
        }
    }
}

impl RerankerConfig {
    /// What is wrong with the sizes, naming the field.
    ///
    /// # Errors
    ///
    /// A sentence for people.
    pub fn check(&self) -> Result<(), String> {
        let sizes = [
            ("width", self.width),
            ("heads", self.heads),
            ("feed_forward", self.feed_forward),
            ("layers", self.layers),
            ("moves", self.moves),
        ];
        if let Some((name, size)) = sizes.into_iter().find(|(_, size)| !(1..=4096).contains(size)) {
            return Err(format!("network.{name}: {size} is not between 1 and 4096"));
        }
        if self.width % self.heads != 0 {
            return Err(format!("network.width: {} cannot be divided by {} heads", self.width, self.heads));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(format!("network.dropout: {} is not at least 0 and below 1", self.dropout));
        }
        Ok(())
    }

    /// The tensors it needs, sorted by name.
    pub fn specs(&self) -> Vec<Spec> {
        specs::record(|g| forward(g, self))
    }
}

/// Runs the network. Gives the residuals `[B, 16]`; those of absent candidates mean nothing.
pub fn forward<G: Graph>(g: &mut G, config: &RerankerConfig) -> G::Value {
    let context = context(g, config);
    let candidates = candidates(g, config);
    let mut x = g.concat(&[context, candidates], 1);
    let mask = mask(g);
    for number in 0..config.layers {
        x = layer(g, config, number, &x, &mask);
    }
    let x = g.slice(&x, 1, 1, CANDIDATES as i64);
    let x = g.layer_norm(&x, "head.norm", config.width);
    let weight = g.weight(Spec::new("head.weight", &[config.width], Init::Zeros));
    let x = g.multiply(&x, &weight);
    g.sum(&x, 2)
}

/// What is known of the situation, as one token: `[B, 1, width]`.
fn context<G: Graph>(g: &mut G, config: &RerankerConfig) -> G::Value {
    let part = |g: &mut G, name: &'static str, size: i64| {
        let x = g.input(name);
        g.linear(&x, &Linear::without_bias(&format!("context.{name}"), size, config.width))
    };
    let mut x = part(g, "policy", vocabulary::SIZE as i64);
    if config.pooled {
        let pooled = part(g, "pooled", POOLED as i64);
        x = g.add(&x, &pooled);
    }
    let time = g.input("time_control");
    let time = g.linear(&time, &Linear::new("context.time_control", 2, config.width));
    x = g.add(&x, &time);
    let style = style(g, config);
    x = g.add(&x, &style);
    g.reshape(&x, &[-1, 1, config.width])
}

/// The style's part of the context, through a projection that starts at zero: `[B, width]`.
fn style<G: Graph>(g: &mut G, config: &RerankerConfig) -> G::Value {
    let style = g.input("style");
    let style = g.reshape(&style, &[-1, STYLE as i64, 1]);
    let projection = g.weight(Spec::new("context.style.weight", &[STYLE as i64, config.width], Init::Zeros));
    let projected = g.multiply(&style, &projection);
    g.sum(&projected, 1)
}

/// The candidates as tokens: `[B, 16, width]`.
fn candidates<G: Graph>(g: &mut G, config: &RerankerConfig) -> G::Value {
    let ids = g.input("candidates");
    let moves = Spec::new("moves.embedding", &[vocabulary::SIZE as i64 + 1, config.moves], Init::Normal(0.1));
    let moves = g.weight(moves);
    let moves = g.take(&moves, &ids);
    let moves = g.linear(&moves, &Linear::without_bias("candidates.moves", config.moves, config.width));
    let prior = g.input("prior");
    let prior = g.linear(&prior, &Linear::new("candidates.prior", PRIOR as i64, config.width));
    let mut x = g.add(&moves, &prior);
    if config.engine {
        let engine = g.input("engine");
        let engine = g.linear(&engine, &Linear::without_bias("candidates.engine", ENGINE as i64, config.width));
        x = g.add(&x, &engine);
    }
    x
}

/// 1 for the context and for each candidate that is there, as its rank in the prior block shows: `[B, 1, 1, 17]`.
fn mask<G: Graph>(g: &mut G) -> G::Value {
    let prior = g.input("prior");
    let rank = g.slice(&prior, 2, 1, 1);
    let rank = g.reshape(&rank, &[-1, CANDIDATES as i64]);
    let none = g.affine(&rank, 0.0, 0.0);
    let none = g.sum(&none, 1);
    let none = g.reshape(&none, &[-1, 1]);
    let one = g.affine(&none, 1.0, 1.0);
    let mask = g.concat(&[one, rank], 1);
    g.reshape(&mask, &[-1, 1, 1, CANDIDATES as i64 + 1])
}

/// Attention among the tokens, then the feed-forward part, each normalised before and added after.
fn layer<G: Graph>(g: &mut G, config: &RerankerConfig, number: i64, x: &G::Value, mask: &G::Value) -> G::Value {
    let width = config.width;
    let name = |part: &str| format!("layers.{number}.{part}");
    let heads = Heads { count: config.heads, width: width / config.heads };
    let normed = g.layer_norm(x, &name("attention.norm"), width);
    let [q, k, v] = ["q", "k", "v"]
        .map(|part| g.linear(&normed, &Linear::without_bias(&name(&format!("attention.{part}")), width, width)));
    let attended = g.attention([&q, &k, &v], heads, Scores::Masked(mask));
    let attended = g.linear(&attended, &Linear::new(&name("attention.out"), width, width));
    let attended = g.dropout(&attended, config.dropout);
    let x = g.add(x, &attended);

    let fed = g.layer_norm(&x, &name("feed_forward.norm"), width);
    let fed = g.linear(&fed, &Linear::new(&name("feed_forward.0"), width, config.feed_forward));
    let fed = g.gelu(&fed);
    let fed = g.linear(&fed, &Linear::new(&name("feed_forward.1"), config.feed_forward, width));
    let fed = g.dropout(&fed, config.dropout);
    g.add(&x, &fed)
}
