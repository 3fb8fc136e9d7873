//! `zeitnot-train evaluate`: models against held-out games, on identical decisions.
//!
//! # Layout
//!
//! - [`contender`]: a model or an ensemble of several.
//! - [`judge`]: runs the models over the games' decisions.
//! - [`metrics`]: accuracy, NLL, calibration error, and intervals by a bootstrap over players.
//! - [`report`]: table, JSON and picture.

pub mod contender;
pub mod judge;
pub mod metrics;
pub mod report;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use zeitnot_inference::{Device, Runtime};

use crate::{
    filter::Filter,
    pgn::{self, Games},
    record::GameRecord,
    rerank,
};

/// Options of `evaluate`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Models, ONNX files or the .toml files of ensembles
    #[arg(long = "model", required = true, num_args = 1..)]
    pub models: Vec<PathBuf>,
    /// Held-out games, .pgn or .pgn.zst
    #[arg(long, required_unless_present = "rerankers", num_args = 1..)]
    pub games: Vec<PathBuf>,
    /// At most this many decisions of each file, in file order
    #[arg(long)]
    pub limit: Option<usize>,
    /// History lengths to judge, the newest moves kept; the last one is the overall figure
    #[arg(long, value_delimiter = ',', default_value = "0,5,10,20")]
    pub history_lengths: Vec<usize>,
    /// Show the models the clock after the move instead of before it, which tells how long the player thought
    #[arg(long)]
    pub leak_clock: bool,
    /// Write the figures as JSON
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Draw accuracy by rating, phase and clock as SVG
    #[arg(long)]
    pub picture: Option<PathBuf>,
    /// Bootstrap samples behind each interval
    #[arg(long, default_value_t = 1000)]
    pub samples: usize,
    /// Threads, one session each; 0 is one per core
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
    /// Where to run the models: auto, cpu or cuda
    #[arg(long, default_value = "cpu")]
    pub device: Device,
    /// Re-rankers on annotated decisions instead
    #[command(flatten)]
    pub rerank: rerank::report::Options,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            models: Vec::new(),
            games: Vec::new(),
            limit: None,
            leak_clock: false,
            history_lengths: vec![0, 5, 10, 20],
            json: None,
            picture: None,
            samples: 1000,
            threads: 0,
            device: Device::Cpu,
            rerank: rerank::report::Options::default(),
        }
    }
}

/// A held-out game, and how many of its plies to judge.
#[derive(Clone, Debug)]
pub struct HeldOut {
    /// The game.
    pub game: GameRecord,
    /// Plies judged, from the first.
    pub plies: usize,
}

/// Judges the models, prints the table, and writes JSON and picture where asked.
///
/// # Errors
///
/// When a model or a file of games cannot be read.
pub fn run(options: &Options) -> Result<report::Evaluation> {
    let runtime = Runtime::load(None)?;
    let mut games = Vec::new();
    for path in &options.games {
        games.extend(held_out(path, options.limit)?);
    }
    if games.is_empty() {
        bail!("the files hold no game to judge");
    }
    let verdicts = judge::judge(&runtime, &games, options)?;
    let evaluation = report::Evaluation::of(&verdicts, options);
    print!("{}", evaluation.table());
    if let Some(path) = &options.json {
        crate::prepare::write_atomically(path, &serde_json::to_vec_pretty(&evaluation)?)?;
    }
    if let Some(path) = &options.picture {
        evaluation.picture(path)?;
    }
    Ok(evaluation)
}

/// The games of a file until they hold `limit` decisions.
///
/// # Errors
///
/// When the file cannot be read.
pub fn held_out(path: &Path, limit: Option<usize>) -> Result<Vec<HeldOut>> {
    let shown = || path.display().to_string();
    let text = pgn::open(path, |_| ()).with_context(shown)?;
    let mut left = limit.unwrap_or(usize::MAX);
    let mut games = Vec::new();
    for outcome in Games::new(text, Filter { min_plies: 1, ..Filter::default() }) {
        if left == 0 {
            break;
        }
        if let Ok(game) = outcome.with_context(shown)? {
            let plies = game.moves.len().min(left);
            left -= plies;
            games.push(HeldOut { game, plies });
        }
    }
    Ok(games)
}
