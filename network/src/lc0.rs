//! The forward pass of the `lc0-112/1` family: Maia-1 and other residual networks of Leela Chess Zero.

mod format;
pub mod reader;

use zeitnot_encoding::{
    lc0::{self, Policy},
    vocabulary,
};

use crate::{
    Graph, Lc0Config, Outputs,
    excitation::excite,
    graph::{Convolution, Linear},
};

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

/// The logits in the order of the vocabulary.
fn policy<G: Graph>(g: &mut G, config: &Lc0Config, planes: &G::Value, x: &G::Value) -> G::Value {
    let (order, x) = match config.policy_channels {
        Some(channels) => (Policy::Moves, connected_policy(g, config.width, channels, x)),
        None => (Policy::Planes, convolutional_policy(g, config.width, x)),
    };
    let places = order.places();
    let mut castling = places.clone();
    for (index, place) in order.castling() {
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

/// `[B, 5120]`: 80 planes of from squares.
fn convolutional_policy<G: Graph>(g: &mut G, width: i64, x: &G::Value) -> G::Value {
    let size = Policy::Planes.size() as i64;
    let x = g.convolution(x, &layer("policy.1", width, width));
    let x = g.relu(&x);
    let x = g.convolution(&x, &layer("policy.2", width, size / 64));
    g.reshape(&x, &[-1, size])
}

/// `[B, 1858]`: a layer over the squares of a few channels.
fn connected_policy<G: Graph>(g: &mut G, width: i64, channels: i64, x: &G::Value) -> G::Value {
    let x = squares(g, "policy.conv", width, channels, x);
    g.linear(&x, &Linear::new("policy.0", channels * 64, Policy::Moves.size() as i64))
}

/// One value, or three logits: `[B, 1]` or `[B, 3]`.
fn value<G: Graph>(g: &mut G, config: &Lc0Config, x: &G::Value) -> G::Value {
    let channels = config.value_channels;
    let x = squares(g, "value.conv", config.width, channels, x);
    let x = g.linear(&x, &Linear::new("value.0", channels * 64, config.value_hidden));
    let x = g.relu(&x);
    g.linear(&x, &Linear::new("value.1", config.value_hidden, if config.wdl { 3 } else { 1 }))
}

/// A 1x1 convolution, as a layer over the channels of each square, and a ReLU: `[B, channels * 64]`.
fn squares<G: Graph>(g: &mut G, name: &str, width: i64, channels: i64, x: &G::Value) -> G::Value {
    let x = g.reshape(x, &[0, width, 64]);
    let x = g.transpose(&x, &[0, 2, 1]);
    let x = g.linear(&x, &Linear::new(name, width, channels));
    let x = g.relu(&x);
    let x = g.transpose(&x, &[0, 2, 1]);
    g.reshape(&x, &[-1, channels * 64])
}
