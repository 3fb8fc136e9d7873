//! Metrics of a run: a bar, `metrics.jsonl` and `curves.svg`.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use tch::Tensor;

use super::{config::Training, loss::Losses};
use crate::{
    picture::{self, Curve},
    prepare::write_atomically,
};

/// Means over the steps since the line before.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// Steps done.
    pub step: u64,
    /// Decisions seen.
    pub positions: u64,
    /// Weighted loss.
    pub loss: f64,
    /// Cross-entropy of the moves played, in nats.
    pub policy_loss: f64,
    /// Squared error, or cross-entropy in nats, of the results.
    pub value_loss: f64,
    /// Cross-entropy of the think times, in nats; 0 when the network does not predict them.
    #[serde(default)]
    pub think_time_loss: f64,
    /// Cross-entropy of the auxiliary targets, in nats.
    pub auxiliary_loss: f64,
    /// Percentage of moves that had the highest logit.
    pub accuracy: f64,
    /// Learning rate of the last step.
    pub learning_rate: f64,
    /// Norm of the gradients of the last step, before clipping.
    pub gradient_norm: f64,
    /// Decisions a second.
    pub positions_per_second: f64,
}

/// Reports a run.
pub struct Progress {
    bar: ProgressBar,
    metrics: File,
    folder: PathBuf,
    training: Training,
    /// Sums of loss, policy, value, think time, auxiliary and accuracy.
    sums: [f64; 6],
    count: u64,
    since: Instant,
}

impl Progress {
    /// Goes on from a step; lines of later steps, from a run that was cut short, are removed.
    ///
    /// # Errors
    ///
    /// When the metrics cannot be read or written.
    pub fn new(folder: &Path, training: &Training, step: u64) -> Result<Self> {
        let path = folder.join("metrics.jsonl");
        let kept = lines(&path)?.into_iter().filter(|line| line.step <= step);
        let mut text = String::new();
        for line in kept {
            text += &serde_json::to_string(&line)?;
            text.push('\n');
        }
        write_atomically(&path, text.as_bytes())?;
        let bar = ProgressBar::new(training.steps).with_position(step).with_elapsed(std::time::Duration::ZERO);
        bar.set_style(ProgressStyle::with_template("{elapsed_precise} {bar:30} {pos}/{len} {msg} left {eta}")?);
        bar.reset_eta();
        Ok(Progress {
            bar,
            metrics: OpenOptions::new().append(true).open(&path)?,
            folder: folder.to_owned(),
            training: training.clone(),
            sums: [0.0; 6],
            count: 0,
            since: Instant::now(),
        })
    }

    /// Takes in one step and gives its loss.
    ///
    /// # Errors
    ///
    /// When the metrics cannot be written.
    pub fn step(&mut self, step: u64, losses: &Losses, rate: f64, norm: f64) -> Result<f64> {
        let Losses { total, policy, value, think_time, auxiliary, accuracy } = losses;
        let figures =
            [total, policy, value, think_time, auxiliary, accuracy].map(|tensor: &Tensor| tensor.double_value(&[]));
        self.sums.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
        self.count += 1;
        self.bar.set_position(step);
        if step.is_multiple_of(self.training.log_every) || step == self.training.steps {
            self.line(step, rate, norm)?;
        }
        let [loss, ..] = figures;
        Ok(loss)
    }

    fn line(&mut self, step: u64, rate: f64, norm: f64) -> Result<()> {
        let [loss, policy, value, think_time, auxiliary, accuracy] = self.sums.map(|sum| sum / self.count as f64);
        let batch = self.training.batch_size as u64;
        let line = Line {
            step,
            positions: step * batch,
            loss,
            policy_loss: policy,
            value_loss: value,
            think_time_loss: think_time,
            auxiliary_loss: auxiliary,
            accuracy: 100.0 * accuracy,
            learning_rate: rate,
            // JSON has no infinity, which an overflow in half precision gives.
            gradient_norm: norm.min(f64::MAX),
            positions_per_second: (self.count * batch) as f64 / self.since.elapsed().as_secs_f64(),
        };
        writeln!(self.metrics, "{}", serde_json::to_string(&line)?)?;
        let message = format!(
            "loss {:.3} policy {:.3} top-1 {:.1}% {:.0} positions/s",
            line.loss, line.policy_loss, line.accuracy, line.positions_per_second
        );
        self.bar.set_message(message.clone());
        if self.bar.is_hidden() {
            let left = (self.training.steps - step) as f64 * batch as f64 / line.positions_per_second;
            println!("step {step}/{}: {message}, {:.0} min left", self.training.steps, left / 60.0);
        }
        self.sums = [0.0; 6];
        self.count = 0;
        self.since = Instant::now();
        Ok(())
    }

    /// Draws the curves of the whole run so far.
    ///
    /// # Errors
    ///
    /// When the picture cannot be written.
    pub fn picture(&self) -> Result<()> {
        let lines = lines(&self.folder.join("metrics.jsonl"))?;
        let curve = |name: &str, figure: fn(&Line) -> f64| Curve {
            name: name.to_owned(),
            points: lines.iter().map(|line| (line.positions as f64, figure(line))).collect(),
        };
        let losses = vec![curve("loss", |line| line.loss), curve("policy loss (nats)", |line| line.policy_loss)];
        let accuracy = vec![curve("top-1 (%)", |line| line.accuracy)];
        picture::curves(
            &self.folder.join("curves.svg"),
            &[("training loss", "positions seen", losses), ("training accuracy", "positions seen", accuracy)],
        )
    }
}

/// The lines of a metrics file; none when there is no file.
fn lines(path: &Path) -> Result<Vec<Line>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}
