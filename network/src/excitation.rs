//! Squeeze and excitation: gates and biases of channels from what the board says on average.

use crate::{Graph, graph::Linear};

/// Gates and shifts the channels of `x` `[B, width, 8, 8]` by their means and, if given, a condition `[B, size]`.
///
/// Tensors `{name}.0` and `{name}.1`: to `squeeze` values and ReLU, then to `width` gates, which pass a sigmoid, and
/// `width` biases.
pub fn excite<G: Graph>(
    g: &mut G,
    name: &str,
    x: &G::Value,
    width: i64,
    squeeze: i64,
    condition: Option<(&G::Value, i64)>,
) -> G::Value {
    let cells = g.reshape(x, &[0, width, 64]);
    let mut seen = g.mean(&cells, 2);
    let mut size = width;
    if let Some((condition, more)) = condition {
        let condition = g.alias(condition);
        seen = g.concat(&[seen, condition], 1);
        size += more;
    }
    let hidden = g.linear(&seen, &Linear::new(&format!("{name}.0"), size, squeeze));
    let hidden = g.relu(&hidden);
    let both = g.linear(&hidden, &Linear::new(&format!("{name}.1"), squeeze, 2 * width));
    let gate = g.slice(&both, 1, 0, width);
    let gate = g.sigmoid(&gate);
    let gate = g.reshape(&gate, &[-1, width, 1, 1]);
    let bias = g.slice(&both, 1, width, width);
    let bias = g.reshape(&bias, &[-1, width, 1, 1]);
    let gated = g.multiply(x, &gate);
    g.add(&gated, &bias)
}
