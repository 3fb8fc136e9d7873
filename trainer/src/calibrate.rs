//! `zeitnot-train calibrate`: whether a model's probabilities and think times are what happens.
//!
//! Games of even number fit one temperature, those of odd number test it.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use serde::Serialize;
use shakmaty::Position;
use zeitnot_encoding::{Batch, LegalMoves, ThinkTime, decode::softmax, think_time, vocabulary};
use zeitnot_inference::{Device, Runtime, Session, SessionOptions};

use crate::{
    evaluate::{
        HeldOut, held_out,
        judge::{CLOCKS, clock_group},
    },
    picture::{self, Curve},
    prepare::write_atomically,
    record::{Decision, GameRecord},
};

/// Decisions in one run.
const BATCH: usize = 128;
/// Bins of the reliability curve and the calibration error.
const BINS: usize = 15;

/// Middles of the groups by share of the clock left, in percent.
const MIDDLES: [f64; CLOCKS.len()] = [2.5, 7.5, 17.5, 37.5, 62.5, 87.5];

/// Options of `calibrate`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The model, an ONNX file
    #[arg(long)]
    pub model: PathBuf,
    /// Held-out games, .pgn or .pgn.zst
    #[arg(long, required = true, num_args = 1..)]
    pub games: Vec<PathBuf>,
    /// At most this many decisions of each file, in file order
    #[arg(long)]
    pub limit: Option<usize>,
    /// Write the figures as JSON
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Draw reliability and think times as SVG
    #[arg(long)]
    pub picture: Option<PathBuf>,
}

/// What a model made of one decision.
struct Sample {
    /// Whether it belongs to the games that test.
    test: bool,
    /// Logits of the legal moves.
    logits: Vec<f32>,
    /// Which of them was played.
    played: usize,
    /// Group by share of the clock left.
    clock: Option<usize>,
    /// Predicted and actual think time in seconds, where both are known.
    think: Option<(ThinkTime, f32)>,
}

/// All figures.
#[derive(Debug, Serialize)]
pub struct Calibration {
    /// Name of the model.
    pub model: String,
    /// Decisions the temperature was fitted on.
    pub fitted_on: usize,
    /// The temperature: logits are divided by it.
    pub temperature: f64,
    /// The other decisions as the model answers them.
    pub before: Reliability,
    /// The same at the fitted temperature.
    pub after: Reliability,
    /// Figures by share of the initial time left.
    pub by_clock: Vec<ClockGroup>,
    /// Think times, when the model predicts them.
    pub think_time: Option<ThinkTimes>,
}

/// How well confidence tells accuracy.
#[derive(Debug, Serialize)]
pub struct Reliability {
    /// Decisions.
    pub n: usize,
    /// Mean negative log-likelihood of the moves played, in nats.
    pub nll: f64,
    /// Expected calibration error of the most probable move, in percentage points.
    pub ece: f64,
    /// Mean confidence and accuracy, in percent, and decisions of each bin that has any.
    pub bins: Vec<(f64, f64, usize)>,
}

/// Figures of the decisions with some share of the clock left.
#[derive(Debug, Serialize)]
pub struct ClockGroup {
    /// Name of the group.
    pub clock: &'static str,
    /// Decisions.
    pub n: usize,
    /// Calibration error as the model answers, in percentage points.
    pub ece_before: f64,
    /// Calibration error at the fitted temperature.
    pub ece_after: f64,
    /// Median of the actual think times, in seconds.
    pub actual_median: Option<f32>,
    /// Median of the predicted medians, in seconds.
    pub predicted_median: Option<f32>,
    /// Percentage of think times between the predicted 10% and 90% quantiles; 80 if the prediction were perfect.
    pub coverage: Option<f64>,
    /// Middle of the group, in percent of the initial time.
    middle: f64,
}

/// Think times of all decisions that test.
#[derive(Debug, Serialize)]
pub struct ThinkTimes {
    /// Decisions.
    pub n: usize,
    /// Mean negative log-likelihood of the actual bin, in nats.
    pub nll: f64,
    /// The same for the distribution of the fitting games, whoever thinks about whatever.
    pub nll_of_the_mean: f64,
    /// Percentage of think times between the predicted 10% and 90% quantiles.
    pub coverage: f64,
}

/// Measures, prints, and writes JSON and picture where asked.
///
/// # Errors
///
/// When the model or the games cannot be read.
pub fn run(options: &Options) -> Result<Calibration> {
    let mut games = Vec::new();
    for path in &options.games {
        games.extend(held_out(path, options.limit)?);
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let how = SessionOptions { device: Device::Cpu, threads };
    let mut session = Session::open(&Runtime::load(None)?, &options.model, how)?;
    let samples = samples(&mut session, &games)?;
    if !samples.iter().any(|sample| sample.test) || samples.iter().all(|sample| sample.test) {
        bail!("calibrate needs at least two games: some to fit, others to test");
    }
    let calibration = measure(&session.metadata().name, &samples);
    println!("{}", serde_json::to_string_pretty(&calibration)?);
    if let Some(path) = &options.json {
        write_atomically(path, &serde_json::to_vec_pretty(&calibration)?)?;
    }
    if let Some(path) = &options.picture {
        draw(&calibration, path)?;
    }
    Ok(calibration)
}

fn samples(session: &mut Session, games: &[HeldOut]) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    let mut waiting = Vec::new();
    for (number, HeldOut { game, plies }) in games.iter().enumerate() {
        for decision in game.decisions().take(*plies) {
            waiting.push((number % 2 == 1, game, decision));
            if waiting.len() == BATCH {
                judge(session, &mut waiting, &mut samples)?;
            }
        }
    }
    judge(session, &mut waiting, &mut samples)?;
    Ok(samples)
}

fn judge(
    session: &mut Session,
    waiting: &mut Vec<(bool, &GameRecord, Decision)>,
    samples: &mut Vec<Sample>,
) -> Result<()> {
    if waiting.is_empty() {
        return Ok(());
    }
    let situations = waiting.iter().map(|(_, _, decision)| &decision.situation);
    let answer = session.run(&Batch::of(session.encoding(), situations))?;
    for (row, (test, game, decision)) in waiting.drain(..).enumerate() {
        let answer = answer.row(row).ok_or_else(|| anyhow!("the model answers with numbers that are not finite"))?;
        let position = &decision.situation.position;
        let legal = LegalMoves::of(position);
        let index = vocabulary::index_of(decision.played, position.turn());
        let played = legal.indices().iter().position(|&legal| Some(legal) == index);
        let logits = legal.indices().iter().filter_map(|&index| answer.policy.get(usize::from(index)).copied());
        samples.push(Sample {
            test,
            logits: logits.collect(),
            played: played.ok_or_else(|| anyhow!("game {} holds an illegal move", game.id))?,
            clock: clock_group(&decision.situation.conditions),
            think: answer.think_time.zip(game.think_time(decision.ply)),
        });
    }
    Ok(())
}

fn measure(model: &str, samples: &[Sample]) -> Calibration {
    let fit = samples.iter().filter(|sample| !sample.test).collect::<Vec<_>>();
    let test = samples.iter().filter(|sample| sample.test).collect::<Vec<_>>();
    let candidates = (50..=200).map(|percent| f64::from(percent) / 100.0);
    let nll = |temperature: &f64| fit.iter().map(|sample| sample.nll(*temperature)).sum::<f64>();
    let temperature = candidates.map(|t| (nll(&t), t)).min_by(|a, b| a.0.total_cmp(&b.0)).map_or(1.0, |best| best.1);
    let groups = CLOCKS.iter().enumerate().filter_map(|(number, clock)| {
        let own = test.iter().copied().filter(|sample| sample.clock == Some(number)).collect::<Vec<_>>();
        let middle = MIDDLES.get(number).copied().unwrap_or_default();
        (!own.is_empty()).then(|| group(clock, middle, &own, temperature))
    });
    Calibration {
        model: model.to_owned(),
        fitted_on: fit.len(),
        temperature,
        before: reliability(&test, 1.0),
        after: reliability(&test, temperature),
        by_clock: groups.collect(),
        think_time: think_times(&fit, &test),
    }
}

impl Sample {
    fn probabilities(&self, temperature: f64) -> Vec<f32> {
        softmax(self.logits.iter().map(|logit| (f64::from(*logit) / temperature) as f32))
    }

    fn nll(&self, temperature: f64) -> f64 {
        let probability = self.probabilities(temperature).get(self.played).copied().unwrap_or_default();
        -f64::from(probability).max(1e-9).ln()
    }

    /// How much of the second that the think time was rounded to lies between the predicted 10% and 90% quantiles.
    fn covered(&self) -> Option<f64> {
        let (predicted, actual) = self.think.as_ref()?;
        let (from, to) = ((actual - 0.5).max(0.0), actual + 0.5);
        let inside = to.min(predicted.quantile(0.9)) - from.max(predicted.quantile(0.1));
        Some(f64::from((inside / (to - from)).clamp(0.0, 1.0)))
    }
}

fn reliability(samples: &[&Sample], temperature: f64) -> Reliability {
    let mut bins = [(0.0, 0.0, 0usize); BINS];
    let mut nll = 0.0;
    for sample in samples {
        let probabilities = sample.probabilities(temperature);
        let confidence = probabilities.iter().copied().fold(0.0, f32::max);
        let hit = probabilities.get(sample.played).is_some_and(|&own| own >= confidence);
        nll += sample.nll(temperature);
        if let Some(bin) = bins.get_mut(((confidence * BINS as f32) as usize).min(BINS - 1)) {
            bin.0 += 100.0 * f64::from(confidence);
            bin.1 += 100.0 * f64::from(u8::from(hit));
            bin.2 += 1;
        }
    }
    let n = samples.len();
    let filled = bins.iter().filter(|bin| bin.2 > 0);
    Reliability {
        n,
        nll: nll / n.max(1) as f64,
        ece: bins.iter().map(|(confidence, hits, _)| (confidence - hits).abs()).sum::<f64>() / n.max(1) as f64,
        bins: filled.map(|&(confidence, hits, n)| (confidence / n as f64, hits / n as f64, n)).collect(),
    }
}

fn group(clock: &'static str, middle: f64, samples: &[&Sample], temperature: f64) -> ClockGroup {
    let think = samples.iter().filter_map(|sample| sample.think.as_ref());
    ClockGroup {
        clock,
        n: samples.len(),
        ece_before: reliability(samples, 1.0).ece,
        ece_after: reliability(samples, temperature).ece,
        actual_median: median(think.clone().map(|(_, actual)| *actual)),
        predicted_median: median(think.map(|(predicted, _)| predicted.quantile(0.5))),
        coverage: coverage(samples),
        middle,
    }
}

fn median(values: impl Iterator<Item = f32>) -> Option<f32> {
    let mut values = values.collect::<Vec<_>>();
    values.sort_by(f32::total_cmp);
    values.get(values.len() / 2).copied()
}

fn coverage(samples: &[&Sample]) -> Option<f64> {
    let covered = samples.iter().filter_map(|sample| sample.covered()).collect::<Vec<_>>();
    (!covered.is_empty()).then(|| 100.0 * covered.iter().sum::<f64>() / covered.len() as f64)
}

fn think_times(fit: &[&Sample], test: &[&Sample]) -> Option<ThinkTimes> {
    let mut counts = [1.0; think_time::BINS.len()];
    for (_, actual) in fit.iter().filter_map(|sample| sample.think.as_ref()) {
        if let Some(count) = counts.get_mut(think_time::bin(*actual)) {
            *count += 1.0;
        }
    }
    let total = counts.iter().sum::<f64>();
    let (mut n, mut nll, mut mean) = (0, 0.0, 0.0);
    for (predicted, actual) in test.iter().filter_map(|sample| sample.think.as_ref()) {
        let bin = think_time::bin(*actual);
        let probability = predicted.probabilities().get(bin).copied().unwrap_or_default();
        n += 1;
        nll -= f64::from(probability).max(1e-9).ln();
        mean -= (counts.get(bin).copied().unwrap_or(1.0) / total).ln();
    }
    let count = f64::from(n);
    let coverage = coverage(test)?;
    Some(ThinkTimes { n: n as usize, nll: nll / count, nll_of_the_mean: mean / count, coverage })
}

fn draw(calibration: &Calibration, path: &Path) -> Result<()> {
    let curve = |name: &str, points: Vec<(f64, f64)>| Curve { name: name.to_owned(), points };
    let bins = |reliability: &Reliability| reliability.bins.iter().map(|&(x, y, _)| (x, y)).collect();
    let reliability = vec![
        curve("as answered", bins(&calibration.before)),
        curve(&format!("at temperature {:.2}", calibration.temperature), bins(&calibration.after)),
        curve("perfect", vec![(0.0, 0.0), (100.0, 100.0)]),
    ];
    let times = |of: fn(&ClockGroup) -> Option<f32>| {
        calibration.by_clock.iter().filter_map(|group| Some((group.middle, f64::from(of(group)?)))).collect()
    };
    let think = vec![
        curve("actual median (s)", times(|group| group.actual_median)),
        curve("predicted median (s)", times(|group| group.predicted_median)),
    ];
    picture::curves(
        path,
        &[
            ("accuracy (%) by confidence", "confidence (%)", reliability),
            ("think time", "share of the clock left (%)", think),
        ],
    )
}

#[cfg(test)]
mod tests;
