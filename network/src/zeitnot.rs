//! The forward pass of the `zeitnot/1` family.
//!
//! A small residual trunk of 3x3 convolutions over the board and the squares of the recent moves. In every block a
//! squeeze-and-excitation unit turns what the board says on average and the conditions (ratings, clocks, recent moves)
//! into a gate and a bias of each channel. Moves are scored from their from and to squares.

use zeitnot_encoding::{
    board::PLANES,
    situation::HISTORY,
    think_time,
    zeitnot::{CONDITIONS, NOWHERE, RATINGS},
};

use crate::{
    Graph, Outputs, ZeitnotConfig,
    excitation::excite,
    graph::{Convolution, Linear},
    history::planes_of as squares,
    policy,
    specs::{Init, Spec},
};

/// Runs the network.
pub fn forward<G: Graph>(g: &mut G, config: &ZeitnotConfig) -> Outputs<G::Value> {
    let width = config.width;
    let condition = condition(g, config);
    let mut x = stem(g, config, &condition);
    for number in 0..config.blocks {
        x = block(g, config, number, &x, &condition);
    }
    let tokens = g.reshape(&x, &[0, width, 64]);
    let tokens = g.transpose(&tokens, &[0, 2, 1]);
    let pooled = g.mean(&tokens, 1);

    let mean = g.alias(&pooled);
    let summary = g.concat(&[mean, condition], 1);
    let summary = g.linear(&summary, &Linear::new("heads.hidden", width + config.condition, config.heads));
    let summary = g.relu(&summary);
    let bins = think_time::BINS.len() as i64;
    Outputs {
        policy: policy::score(g, &config.policy, width, 0.0, &tokens, &pooled),
        value: None,
        wdl: Some(g.linear(&summary, &Linear::new("heads.wdl", config.heads, 3))),
        think_time: Some(g.linear(&summary, &Linear::new("heads.think_time", config.heads, bins))),
        auxiliary: Some(auxiliary(g, config, &tokens, &summary)),
        pooled: Some(summary),
        ponder: None,
    }
}

/// Ratings, time and the mean of the recent moves' tokens: `[B, condition]`.
fn condition<G: Graph>(g: &mut G, config: &ZeitnotConfig) -> G::Value {
    let given = (if config.time { CONDITIONS } else { RATINGS }) as i64;
    let mut x = g.input("conditions");
    x = g.slice(&x, 1, 0, given);
    let mut width = given;
    if config.move_tokens > 0 {
        let moves = move_tokens(g, config.move_tokens);
        x = g.concat(&[x, moves], 1);
        width += config.move_tokens;
    }
    let x = g.linear(&x, &Linear::new("condition.0", width, config.condition));
    let x = g.relu(&x);
    let x = g.linear(&x, &Linear::new("condition.1", config.condition, config.condition));
    g.relu(&x)
}

/// The mean of the recent moves' tokens, each made of from square, to square and age: `[B, width]`.
fn move_tokens<G: Graph>(g: &mut G, width: i64) -> G::Value {
    let moves = g.input("moves");
    let ends = [("from", 0), ("to", 1)].map(|(end, place)| {
        let name = format!("moves.{end}.weight");
        let table = g.weight(Spec::new(&name, &[NOWHERE + 1, width], Init::Normal(0.1)));
        let ids = g.slice(&moves, 2, place, 1);
        let ids = g.reshape(&ids, &[0, HISTORY as i64]);
        g.take(&table, &ids)
    });
    let [from, to] = &ends;
    let x = g.add(from, to);
    let age = g.weight(Spec::new("moves.age", &[1, HISTORY as i64, width], Init::Normal(0.1)));
    let x = g.add(&x, &age);
    let x = g.relu(&x);
    g.mean(&x, 1)
}

/// The first convolution, over the board and the squares of the newest moves: `[B, width, 8, 8]`.
fn stem<G: Graph>(g: &mut G, config: &ZeitnotConfig, condition: &G::Value) -> G::Value {
    let mut x = g.input("board");
    let planes = config.move_planes;
    if planes > 0 {
        let moves = move_planes(g, planes);
        x = g.concat(&[x, moves], 1);
    }
    let layer = Convolution {
        convolution: "stem.conv".to_owned(),
        norm: "stem.norm".to_owned(),
        input: PLANES as i64 + 2 * planes,
        output: config.width,
    };
    let x = g.convolution(&x, &layer);
    let bias = g.linear(condition, &Linear::without_bias("stem.condition", config.condition, config.width));
    let bias = g.reshape(&bias, &[-1, config.width, 1, 1]);
    let x = g.add(&x, &bias);
    g.relu(&x)
}

/// From and to squares of the newest moves as planes, newest first: `[B, 2 * count, 8, 8]`.
fn move_planes<G: Graph>(g: &mut G, count: i64) -> G::Value {
    let moves = g.input("moves");
    let newest = g.slice(&moves, 1, 0, count);
    let planes = squares(g, &newest);
    g.reshape(&planes, &[-1, 2 * count, 8, 8])
}

/// Two convolutions whose sum with `x` is gated and shifted by channel.
fn block<G: Graph>(g: &mut G, config: &ZeitnotConfig, number: i64, x: &G::Value, condition: &G::Value) -> G::Value {
    let width = config.width;
    let layer = |part: i64| Convolution {
        convolution: format!("blocks.{number}.conv{part}"),
        norm: format!("blocks.{number}.norm{part}"),
        input: width,
        output: width,
    };
    let inner = g.convolution(x, &layer(1));
    let inner = g.relu(&inner);
    let inner = g.convolution(&inner, &layer(2));

    let name = format!("blocks.{number}.excitation");
    let inner = excite(g, &name, &inner, width, config.squeeze, Some((condition, config.condition)));
    let sum = g.add(&inner, x);
    g.relu(&sum)
}

/// The 141 auxiliary logits: pieces and check from the summary, squares from their own tokens.
fn auxiliary<G: Graph>(g: &mut G, config: &ZeitnotConfig, tokens: &G::Value, summary: &G::Value) -> G::Value {
    let pieces = g.linear(summary, &Linear::new("heads.pieces", config.heads, 13));
    let squares = g.linear(tokens, &Linear::new("heads.squares", config.width, 2));
    let squares = g.transpose(&squares, &[0, 2, 1]);
    // Tokens start with rank 8, targets with rank 1.
    let order = (0..64).map(|square| square ^ 56).collect::<Vec<_>>();
    let squares = g.select(&squares, 2, &order);
    let squares = g.reshape(&squares, &[-1, 128]);
    g.concat(&[pieces, squares], 1)
}
