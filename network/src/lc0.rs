//! The forward pass of the `lc0-112/1` family: Maia-1 and other residual networks of Leela Chess Zero.

pub mod reader;

use zeitnot_encoding::{lc0, vocabulary};

use crate::{
    Graph, Lc0Config, Outputs,
    excitation::excite,
    graph::{Convolution, Linear},
};

/// Planes of the convolutional policy.
const POLICY_PLANES: i64 = 80;
/// Where the inputs say that the mover's king stands on e1: plane 5, square 4.
const KING_AT_HOME: i64 = 5 * 64 + 4;

/// Runs the network.
pub fn forward<G: Graph>(g: &mut G, config: &Lc0Config) -> Outputs<G::Value> {
    let planes = g.input("planes");
    let mut x = g.convolution(&planes, &layer("input", lc0::PLANES as i64, config.width));
    x = g.relu(&x);
    for number in 0..config.blocks {
        x = block(g, config, number, &x);
    }
    let policy = policy(g, config, &planes, &x);
    let value = value(g, config, &x);
    let (value, wdl) = if config.wdl {
        (None, Some(value))
    } else {
        let value = g.tanh(&value);
        (Some(g.reshape(&value, &[-1])), None)
    };
    Outputs { policy, value, wdl, think_time: None, auxiliary: None, pooled: None, ponder: None }
}

fn layer(name: &str, input: i64, output: i64) -> Convolution {
    Convolution { convolution: format!("{name}.conv"), norm: format!("{name}.norm"), input, output }
}

fn block<G: Graph>(g: &mut G, config: &Lc0Config, number: i64, x: &G::Value) -> G::Value {
    let width = config.width;
    let name = format!("blocks.{number}");
    let inner = g.convolution(x, &layer(&format!("{name}.1"), width, width));
    let inner = g.relu(&inner);
    let mut inner = g.convolution(&inner, &layer(&format!("{name}.2"), width, width));
    if let Some(squeeze) = config.squeeze {
        inner = excite(g, &format!("{name}.excitation"), &inner, width, squeeze, None);
    }
    let sum = g.add(&inner, x);
    g.relu(&sum)
}

/// Logits of 80 planes of from squares, brought into the order of the vocabulary.
fn policy<G: Graph>(g: &mut G, config: &Lc0Config, planes: &G::Value, x: &G::Value) -> G::Value {
    let x = g.convolution(x, &layer("policy.1", config.width, config.width));
    let x = g.relu(&x);
    let x = g.convolution(&x, &layer("policy.2", config.width, POLICY_PLANES));
    let x = g.reshape(&x, &[-1, lc0::POLICY as i64]);
    let places = lc0::policy();
    let mut castling = places.clone();
    for (index, place) in lc0::castling() {
        if let Some(cell) = castling.get_mut(index) {
            *cell = place;
        }
    }
    // e1g1 is castling when the king stands on e1, and any other piece's move when it does not.
    let otherwise = g.select(&x, 1, &places);
    let castles = g.select(&x, 1, &castling);
    let king = g.reshape(planes, &[-1, lc0::PLANES as i64 * 64]);
    let king = g.slice(&king, 1, KING_AT_HOME, 1);
    let negative = g.affine(&otherwise, -1.0, 0.0);
    let difference = g.add(&castles, &negative);
    let change = g.multiply(&difference, &king);
    let policy = g.add(&otherwise, &change);
    g.reshape(&policy, &[-1, vocabulary::SIZE as i64])
}

/// One value, or three logits: `[B, 1]` or `[B, 3]`.
fn value<G: Graph>(g: &mut G, config: &Lc0Config, x: &G::Value) -> G::Value {
    let channels = config.value_channels;
    let x = g.reshape(x, &[0, config.width, 64]);
    let x = g.transpose(&x, &[0, 2, 1]);
    let x = g.linear(&x, &Linear::new("value.conv", config.width, channels));
    let x = g.relu(&x);
    let x = g.transpose(&x, &[0, 2, 1]);
    let x = g.reshape(&x, &[-1, channels * 64]);
    let x = g.linear(&x, &Linear::new("value.0", channels * 64, config.value_hidden));
    let x = g.relu(&x);
    g.linear(&x, &Linear::new("value.1", config.value_hidden, if config.wdl { 3 } else { 1 }))
}
