//! The recipe of a training run.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use zeitnot_network::OtterConfig;

use crate::feed::Hide;

use super::{loss::LossConfig, optimizer::OptimizerConfig};

/// A recipe: what to train and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Name of the model.
    pub name: String,
    /// The network.
    pub network: OtterConfig,
    /// The run.
    pub training: Training,
}

/// How a network is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// Decides initial weights, the order of decisions and dropout.
    pub seed: u64,
    /// Decisions in a step.
    pub batch_size: usize,
    /// Steps of the whole run.
    pub steps: u64,
    /// Shares of decisions with hidden conditions.
    #[serde(default)]
    pub hide: Hide,
    /// Steps between checkpoints.
    pub checkpoint_every: u64,
    /// Steps between lines of metrics; figures are means over them.
    pub log_every: u64,
    /// AdamW and its schedule.
    #[serde(default)]
    pub optimizer: OptimizerConfig,
    /// Weights of the losses.
    #[serde(default)]
    pub loss: LossConfig,
}

/// A condition that a network can be trained without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Condition {
    /// The recent moves.
    History,
    /// Time control and clock.
    Time,
}

impl TrainConfig {
    /// Reads and checks a recipe.
    ///
    /// # Errors
    ///
    /// Names the file, and the line or the field.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let config: TrainConfig = toml::from_str(&text).with_context(|| path.display().to_string())?;
        if let Err(problem) = config.check() {
            bail!("{}: {problem}", path.display());
        }
        Ok(config)
    }

    /// The same without some conditions: one of the ablation variants.
    pub fn without(mut self, conditions: &[Condition]) -> Self {
        for condition in conditions {
            match condition {
                Condition::History => self.network.history = None,
                Condition::Time => self.network.time = false,
            }
        }
        self
    }

    fn check(&self) -> Result<(), String> {
        self.network.check()?;
        let training = &self.training;
        let counts = [
            ("batch_size", training.batch_size as u64),
            ("steps", training.steps),
            ("checkpoint_every", training.checkpoint_every),
            ("log_every", training.log_every),
        ];
        for (name, value) in counts {
            if value == 0 {
                return Err(format!("training.{name}: must be at least 1"));
            }
        }
        for (name, share) in [("history", training.hide.history), ("time", training.hide.time)] {
            if !(0.0..1.0).contains(&share) {
                return Err(format!("training.hide.{name}: {share} is not a share below 1"));
            }
        }
        let optimizer = &training.optimizer;
        let rates = [("learning_rate", optimizer.learning_rate), ("clip", optimizer.clip)];
        for (name, value) in rates {
            if !(value.is_finite() && value > 0.0) {
                return Err(format!("training.optimizer.{name}: {value} is not above 0"));
            }
        }
        Ok(())
    }
}
