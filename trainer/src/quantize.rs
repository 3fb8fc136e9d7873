//! Static 8-bit quantisation: ranges from training games, and the test on held-out games before a file is written.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use zeitnot_encoding::{Batch, Situation};
use zeitnot_inference::{Device, Runtime, Session, SessionOptions};
use zeitnot_network::onnx::quantize;

use crate::{
    evaluate::{self, report::Evaluation},
    feed::{Plan, Selection},
    prepare::write_atomically,
    shard,
};

/// Positions in one run.
const BATCH: usize = 64;
/// Largest loss of top-1 accuracy, in percentage points.
pub const MOST_TOP1: f64 = 0.3;
/// Largest rise of the negative log-likelihood, in nats.
pub const MOST_NLL: f64 = 0.01;

/// A model whose accuracy would suffer too much.
#[derive(Debug)]
pub struct Refused(String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// What quantisation needs to know.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Quantise the convolutions to 8 bits; refused when held-out accuracy suffers
    #[arg(long, requires_all = ["calibration", "held_out"])]
    pub int8: bool,
    /// Folder of shards of training games, for the ranges of values
    #[arg(long)]
    pub calibration: Option<PathBuf>,
    /// Positions to take the ranges from
    #[arg(long, default_value_t = 1024)]
    pub calibration_positions: usize,
    /// Held-out games for the test of accuracy, .pgn or .pgn.zst
    #[arg(long, num_args = 1..)]
    pub held_out: Vec<PathBuf>,
    /// At most this many decisions of each held-out file
    #[arg(long)]
    pub limit: Option<usize>,
}

/// Quantises a model and compares it with what it was.
///
/// # Errors
///
/// When the games cannot be read, or accuracy suffers: top-1 by more than 0.3 points or NLL by more than 0.01 nats.
pub fn quantize(bytes: &[u8], options: &Options, out: &Path) -> Result<Vec<u8>> {
    let folder = options.calibration.as_deref().context("--int8 needs --calibration, a folder of shards")?;
    let quantized = by_situations(bytes, &situations(folder, options.calibration_positions)?)?;
    let files = ["f32", "int8"].map(|kind| out.with_extension(format!("{kind}.tmp")));
    for (file, bytes) in files.iter().zip([bytes, &quantized]) {
        write_atomically(file, bytes)?;
    }
    let judged = judge(&files, options);
    for file in &files {
        std::fs::remove_file(file).with_context(|| file.display().to_string())?;
    }
    accept(&judged?)?;
    Ok(quantized)
}

/// Quantises a model by the values it has in these situations, without a test of accuracy.
///
/// # Errors
///
/// When the model cannot be run or has no convolution to quantise.
pub fn by_situations(bytes: &[u8], situations: &[Situation]) -> Result<Vec<u8>> {
    Ok(quantize::quantize(bytes, &ranges(bytes, situations)?)?)
}

/// Situations spread over the shards' decisions.
fn situations(folder: &Path, count: usize) -> Result<Vec<Situation>> {
    let mut games = Vec::new();
    for path in shard::list(folder)? {
        games.extend(shard::read(&path)?);
    }
    let plan = Plan::new(games, &Selection::default(), 0, count, 1)?;
    let decisions = plan.step(0).filter_map(|(game, ply)| plan.game(game)?.decision(usize::from(ply)));
    Ok(decisions.map(|decision| decision.situation).collect())
}

/// The range of values of every tensor around a convolution.
fn ranges(bytes: &[u8], situations: &[Situation]) -> Result<BTreeMap<String, (f32, f32)>> {
    let names = quantize::observed(bytes)?;
    let observed = quantize::with_outputs(bytes, &names)?;
    let options = SessionOptions { device: Device::Cpu, threads: 1 };
    let mut session = Session::from_bytes(&Runtime::load(None)?, "the observed model", &observed, options)?;
    let mut ranges: BTreeMap<String, (f32, f32)> = BTreeMap::new();
    for chunk in situations.chunks(BATCH) {
        let tensors = session.tensors(&Batch::of(session.encoding(), chunk), &names)?;
        for (name, values) in names.iter().zip(tensors) {
            let range = ranges.entry(name.clone()).or_insert((0.0, 0.0));
            *range = values.into_iter().fold(*range, |(least, largest), value| (least.min(value), largest.max(value)));
        }
    }
    Ok(ranges)
}

fn judge(files: &[PathBuf], options: &Options) -> Result<Evaluation> {
    evaluate::run(&evaluate::Options {
        models: files.to_vec(),
        games: options.held_out.clone(),
        limit: options.limit,
        history_lengths: vec![20],
        samples: 100,
        ..evaluate::Options::default()
    })
}

fn accept(judged: &Evaluation) -> Result<()> {
    let [before, after] = judged.models.as_slice() else { bail!("the comparison judged other than two models") };
    let (before, after) = (&before.overall, &after.overall);
    let (lost, risen) = (before.top1 - after.top1, after.nll - before.nll);
    println!("int8: top-1 {lost:+.3} points lost, NLL {risen:+.4} nats, n = {}", after.n);
    if lost > MOST_TOP1 || risen > MOST_NLL {
        bail!(Refused(format!(
            "int8 is refused: top-1 falls by {lost:.2} points (at most {MOST_TOP1}), NLL rises by {risen:.4} nats (at most \
             {MOST_NLL}); nothing is written"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::{metrics::Figures, report::ModelFigures};

    #[test]
    fn a_loss_of_accuracy_or_likelihood_is_refused() {
        let model = |top1: f64, nll: f64| ModelFigures {
            overall: Figures { n: 1000, top1, nll, ..Figures::default() },
            ..ModelFigures::default()
        };
        let judged = |after: ModelFigures| Evaluation { models: vec![model(50.0, 1.6), after] };
        assert!(accept(&judged(model(49.8, 1.605))).is_ok());
        assert!(accept(&judged(model(49.6, 1.6))).unwrap_err().to_string().contains("top-1 falls by 0.40 points"));
        assert!(accept(&judged(model(50.0, 1.62))).unwrap_err().to_string().contains("NLL rises by 0.0200"));
    }
}
