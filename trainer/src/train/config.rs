//! The recipe of a training run.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use zeitnot_network::NetworkConfig;

use crate::feed::{Hide, Selection};

use super::{loss::LossConfig, optimizer::OptimizerConfig};

/// A recipe: what to train and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Name of the model.
    pub name: String,
    /// The network.
    pub network: NetworkConfig,
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
    /// What to learn from.
    #[serde(default)]
    pub data: Selection,
    /// Shares of decisions with hidden conditions.
    #[serde(default)]
    pub hide: Hide,
    /// Shows the network the clock after the move instead of before it, which tells how long the player thought. Only
    /// for measuring what that leak is worth.
    #[serde(default)]
    pub leak_clock: bool,
    /// Steps between checkpoints.
    pub checkpoint_every: u64,
    /// Steps between lines of metrics; figures are means over them.
    pub log_every: u64,
    /// How weights change, and the schedule.
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
    ///
    /// # Errors
    ///
    /// When the network's family cannot do without.
    pub fn without(mut self, conditions: &[Condition]) -> Result<Self> {
        for condition in conditions {
            let encoding = self.network.encoding().name();
            let network = match condition {
                Condition::History => self.network.without_history(),
                Condition::Time => self.network.without_time(),
            };
            self.network = network.with_context(|| format!("--without: {encoding} cannot do without {condition:?}"))?;
        }
        Ok(self)
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
        training.data.check().map_err(|problem| format!("training.{problem}"))?;
        for (name, share) in training.hide.shares() {
            if !(0.0..1.0).contains(&share) {
                return Err(format!("training.hide.{name}: {share} is not a share below 1"));
            }
        }
        let optimizer = &training.optimizer;
        for (name, share) in [("warm_up", optimizer.warm_up), ("decay", optimizer.decay), ("floor", optimizer.floor)] {
            if !(0.0..=1.0).contains(&share) {
                return Err(format!("training.optimizer.{name}: {share} is not a share"));
            }
        }
        let loss = &training.loss;
        if !(0.0..=1.0).contains(&loss.teacher) {
            return Err(format!("training.loss.teacher: {} is not a share", loss.teacher));
        }
        let weights = [
            ("loss.policy", loss.policy),
            ("loss.value", loss.value),
            ("loss.think_time", loss.think_time),
            ("loss.auxiliary", loss.auxiliary),
            ("optimizer.weight_decay", optimizer.weight_decay),
        ];
        if let Some((name, value)) = weights.into_iter().find(|(_, value)| !(value.is_finite() && *value >= 0.0)) {
            return Err(format!("training.{name}: {value} is not 0 or more"));
        }
        let rates = [("learning_rate", optimizer.learning_rate), ("clip", optimizer.clip)];
        for (name, value) in rates {
            if !(value.is_finite() && value > 0.0) {
                return Err(format!("training.optimizer.{name}: {value} is not above 0"));
            }
        }
        Ok(())
    }
}
