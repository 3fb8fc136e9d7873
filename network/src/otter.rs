//! The forward pass of the `otter/1` family.
//!
//! Convolutions over the board give 64 tokens. One block lets them attend to the recent moves, further blocks to each
//! other; ratings, time control, clock and pooled history are added to the queries of every block.

use zeitnot_encoding::otter::{RATING_BUCKETS, TIME_CONTROL_BUCKETS};

use crate::{
    Graph, OtterConfig, Outputs,
    attention::{Block, Context},
    graph::{Convolution, Heads, Linear},
    history, policy,
    specs::{Init, Spec},
};

/// Runs the network.
pub fn forward<G: Graph>(g: &mut G, config: &OtterConfig) -> Outputs<G::Value> {
    let width = config.width();
    let seen = config.history.as_ref().map(|history| history::encode(g, history, config.dropout, width));
    let condition = condition(g, config, seen.as_ref().map(|history| &history.pooled));
    let mut x = board_tokens(g, config);

    if let Some(history) = &seen {
        let context = Context::Tokens(&history.tokens, &history.mask);
        x = block(config, "cross_block", config.cross_feed_forward).apply(g, &x, &condition, context);
    }
    for number in 0..config.self_blocks {
        let name = format!("self_blocks.{number}");
        x = block(config, &name, config.self_feed_forward).apply(g, &x, &condition, Context::Board);
    }

    let pooled = g.mean(&x, 1);
    Outputs {
        policy: policy::score(g, &config.policy, width, config.dropout, &x, &pooled),
        value: Some(value(g, config, &pooled)),
        wdl: None,
        think_time: None,
        auxiliary: Some(auxiliary(g, config, &pooled)),
        pooled: Some(pooled),
        ponder: None,
    }
}

fn block<'a>(config: &OtterConfig, name: &'a str, feed_forward: i64) -> Block<'a> {
    let heads = Heads { count: config.heads, width: config.width() / config.heads };
    Block { name, condition: config.condition(), heads, feed_forward, dropout: config.dropout }
}

/// Ratings, time control, clock and pooled history, side by side: `[B, condition]`.
fn condition<G: Graph>(g: &mut G, config: &OtterConfig, history: Option<&G::Value>) -> G::Value {
    let mut table = |name: &str, rows, width, input| {
        let ids = g.input(input);
        let table = g.weight(Spec::new(&format!("{name}.weight"), &[rows, width], Init::Normal(0.1)));
        g.take(&table, &ids)
    };
    let mut parts = vec![
        table("active_elo_embedding", RATING_BUCKETS, config.rating, "mover_elo"),
        table("opponent_elo_embedding", RATING_BUCKETS, config.rating, "opponent_elo"),
    ];
    if config.time {
        parts.push(table("time_control_embedding", TIME_CONTROL_BUCKETS, config.time_control, "time_control"));
        let clock = g.input("clock");
        let clock = g.linear(&clock, &Linear::new("clock_mlp.0", 2, config.clock));
        let clock = g.relu(&clock);
        let clock = g.linear(&clock, &Linear::new("clock_mlp.2", config.clock, config.clock));
        parts.push(g.relu(&clock));
    }
    parts.extend(history.map(|history| g.alias(history)));
    g.concat(&parts, 1)
}

/// Convolutions over the board, then rank and file embeddings: `[B, 64, width]`, a8 first.
fn board_tokens<G: Graph>(g: &mut G, config: &OtterConfig) -> G::Value {
    let width = config.width();
    let planes = config.history.as_ref().map_or(0, |history| history.planes);
    let mut x = g.input("board");
    let mut channels = zeitnot_encoding::board::PLANES as i64;
    if planes > 0 {
        let recent = history::planes(g, planes);
        x = g.concat(&[x, recent], 1);
        channels += 2 * planes;
    }
    let last = config.stem.len() - 1;
    for (number, &output) in config.stem.iter().enumerate() {
        // Names count the layers of the published stem: convolution, norm, ReLU, dropout.
        let layer = Convolution {
            convolution: format!("board_encoder.stem.{}", 4 * number),
            norm: format!("board_encoder.stem.{}", 4 * number + 1),
            input: channels,
            output,
        };
        x = g.convolution(&x, &layer);
        x = g.relu(&x);
        if number < last {
            x = g.dropout_channels(&x, config.dropout);
        }
        channels = output;
    }
    for number in 0..config.residual_blocks {
        x = residual_block(g, config, number, &x);
    }

    let tokens = g.reshape(&x, &[0, width, 64]);
    let tokens = g.transpose(&tokens, &[0, 2, 1]);
    let ranks = (0..64).map(|token| token / 8).collect::<Vec<_>>();
    let files = (0..64).map(|token| token % 8).collect::<Vec<_>>();
    let [ranks, files] = [("rank_embedding", ranks), ("file_embedding", files)].map(|(name, positions)| {
        let table = g.weight(Spec::new(&format!("{name}.weight"), &[8, width], Init::Normal(0.02)));
        g.select(&table, 0, &positions)
    });
    let place = g.add(&ranks, &files);
    g.add(&tokens, &place)
}

fn residual_block<G: Graph>(g: &mut G, config: &OtterConfig, number: i64, x: &G::Value) -> G::Value {
    let width = config.width();
    let layer = |part: i64| Convolution {
        convolution: format!("board_encoder.blocks.{number}.conv{part}"),
        norm: format!("board_encoder.blocks.{number}.bn{part}"),
        input: width,
        output: width,
    };
    let inner = g.convolution(x, &layer(1));
    let inner = g.relu(&inner);
    let inner = g.dropout_channels(&inner, config.dropout);
    let inner = g.convolution(&inner, &layer(2));
    let sum = g.add(&inner, x);
    g.relu(&sum)
}

fn value<G: Graph>(g: &mut G, config: &OtterConfig, pooled: &G::Value) -> G::Value {
    let x = g.layer_norm(pooled, "value_proj.0", config.width());
    let x = g.linear(&x, &Linear::new("value_proj.1", config.width(), config.value));
    let x = g.relu(&x);
    let x = g.linear(&x, &Linear::new("value_proj.3", config.value, 1));
    let x = g.tanh(&x);
    g.reshape(&x, &[-1])
}

fn auxiliary<G: Graph>(g: &mut G, config: &OtterConfig, pooled: &G::Value) -> G::Value {
    let outputs = zeitnot_encoding::targets::AUXILIARY as i64;
    let x = g.layer_norm(pooled, "aux_proj.0", config.width());
    let x = g.linear(&x, &Linear::new("aux_proj.1", config.width(), config.auxiliary));
    let x = g.relu(&x);
    let x = g.dropout(&x, config.dropout);
    g.linear(&x, &Linear::new("aux_proj.4", config.auxiliary, outputs))
}
