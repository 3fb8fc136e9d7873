//! Pre-norm attention blocks whose queries carry the condition.

use crate::{
    Graph,
    graph::{Heads, Linear, Scores},
};

/// Sizes of one block.
pub struct Block<'a> {
    /// Prefix of the tensors' names.
    pub name: &'a str,
    /// Width of the condition vector.
    pub condition: i64,
    /// Attention heads; together as wide as the board tokens.
    pub heads: Heads,
    /// Hidden width of the feed-forward part.
    pub feed_forward: i64,
    /// Share of values zeroed while training.
    pub dropout: f64,
}

/// What a block attends to.
pub enum Context<'a, V> {
    /// The board tokens themselves.
    Board,
    /// Other tokens `[B, S, width]` and which of them count, `[B, 1, 1, S]`.
    Tokens(&'a V, &'a V),
}

impl Block<'_> {
    /// Attention, then the feed-forward part, each added to `x` `[B, 64, width]`.
    pub fn apply<G: Graph>(
        &self,
        g: &mut G,
        x: &G::Value,
        condition: &G::Value,
        context: Context<'_, G::Value>,
    ) -> G::Value {
        let attended = self.attend(g, x, condition, context);
        let x = g.add(x, &attended);
        let fed = self.feed_forward(g, &x);
        g.add(&x, &fed)
    }

    fn attend<G: Graph>(
        &self,
        g: &mut G,
        x: &G::Value,
        condition: &G::Value,
        context: Context<'_, G::Value>,
    ) -> G::Value {
        let (name, width) = (self.name, self.heads.total());
        let linear = |part: &str| Linear::without_bias(&format!("{name}.attn.{part}"), width, width);
        let (tokens, scores) = match context {
            Context::Board => (x, Scores::Plain),
            Context::Tokens(tokens, mask) => (tokens, Scores::Masked(mask)),
        };
        let tokens = g.layer_norm(tokens, &format!("{name}.attn.context_norm"), width);
        let x = g.layer_norm(x, &format!("{name}.attn.x_norm"), width);
        let q = g.linear(&x, &linear("to_q"));
        let shift =
            g.linear(condition, &Linear::without_bias(&format!("{name}.attn.cond_to_q"), self.condition, width));
        let shift = g.reshape(&shift, &[-1, 1, width]);
        let q = g.add(&q, &shift);
        let k = g.linear(&tokens, &linear("to_k"));
        let v = g.linear(&tokens, &linear("to_v"));
        let out = g.attention([&q, &k, &v], self.heads, scores);
        let out = g.linear(&out, &Linear::new(&format!("{name}.attn.to_out.0"), width, width));
        g.dropout(&out, self.dropout)
    }

    fn feed_forward<G: Graph>(&self, g: &mut G, x: &G::Value) -> G::Value {
        let (name, width, hidden) = (self.name, self.heads.total(), self.feed_forward);
        let x = g.layer_norm(x, &format!("{name}.ff.net.0"), width);
        let x = g.linear(&x, &Linear::new(&format!("{name}.ff.net.1"), width, hidden));
        let x = g.gelu(&x);
        let x = g.dropout(&x, self.dropout);
        let x = g.linear(&x, &Linear::new(&format!("{name}.ff.net.4"), hidden, width));
        g.dropout(&x, self.dropout)
    }
}
