//! `zeitnot-train train`: shards in, checkpoints out.
//!
//! # Layout
//!
//! - [`config`]: the recipe, a TOML file.
//! - [`eager`]: the network on tch tensors.
//! - [`loss`], [`optimizer`], [`scaler`]: what a step minimises and how.
//! - [`checkpoint`]: what is saved, atomically, and how a run goes on from it.
//! - [`progress`]: metrics as lines, JSON and a picture.

pub mod checkpoint;
pub mod config;
pub mod eager;
pub mod loss;
pub mod optimizer;
pub mod progress;
pub mod scaler;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use tch::{Cuda, Device, autocast};

use self::{
    checkpoint::{Checkpoint, State},
    config::{Condition, TrainConfig, Training},
    eager::Network,
    optimizer::AdamW,
    progress::Progress,
    scaler::LossScaler,
};
use crate::{
    feed::{Batch, Plan},
    record::GameRecord,
    shard,
};

/// Options of `train`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Recipe, a TOML file
    #[arg(long)]
    pub config: PathBuf,
    /// Folder of Parquet shards
    #[arg(long)]
    pub data: PathBuf,
    /// Folder for checkpoints, metrics and curves
    #[arg(long)]
    pub out: PathBuf,
    /// Go on from the newest checkpoint in the output folder
    #[arg(long)]
    pub resume: bool,
    /// Start from these weights instead of random ones: a checkpoint, or a safetensors file
    #[arg(long)]
    pub init: Option<PathBuf>,
    /// Train a variant that does not see these conditions
    #[arg(long, value_enum, value_delimiter = ',')]
    pub without: Vec<Condition>,
    /// Steps of the run, instead of the recipe's
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
    /// Where to compute
    #[arg(long, value_enum, default_value_t = Compute::Auto)]
    pub device: Compute,
    /// libtorch's threads on a CPU; 0 leaves it to libtorch
    #[arg(long, default_value_t = 0)]
    pub threads: u16,
    /// Threads that make batches
    #[arg(long, default_value_t = 1)]
    pub feed_threads: usize,
}

/// Where to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compute {
    /// CUDA when there is a device, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// The first CUDA device, or an error.
    Cuda,
}

impl Compute {
    /// The device meant.
    ///
    /// # Errors
    ///
    /// When CUDA is asked for and not there.
    pub fn device(self) -> Result<Device> {
        match (self, Cuda::is_available()) {
            (Compute::Cpu, _) | (Compute::Auto, false) => Ok(Device::Cpu),
            (Compute::Auto | Compute::Cuda, true) => Ok(Device::Cuda(0)),
            (Compute::Cuda, false) => bail!("--device cuda: this libtorch sees no CUDA device"),
        }
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ended {
    /// Loss of the last step; NaN when no step was left to do.
    pub loss: f64,
    /// Whether the last step of the recipe is done.
    pub finished: bool,
}

/// Trains until the last step, or until `stop` is set; then a checkpoint is saved.
///
/// # Errors
///
/// When the recipe or the shards cannot be read, the output folder holds another run, or the loss is no number.
pub fn run(options: &Options, stop: &Arc<AtomicBool>) -> Result<Ended> {
    let mut config = TrainConfig::read(&options.config)?.without(&options.without);
    config.training.steps = options.steps.unwrap_or(config.training.steps);
    let device = options.device.device()?;
    if options.threads > 0 {
        tch::set_num_threads(i32::from(options.threads));
    }
    std::fs::create_dir_all(&options.out).with_context(|| format!("cannot create {}", options.out.display()))?;
    let Training { seed, batch_size, hide, .. } = config.training;
    let plan = Plan::new(games(&options.data)?, seed, batch_size, hide)?;
    let mut run = Run::start(config, plan.decisions(), device, options)?;
    run.train(plan, options, stop)
}

/// The games of all shards of a folder.
fn games(folder: &Path) -> Result<Vec<GameRecord>> {
    let mut games = Vec::new();
    for path in shard::list(folder)? {
        games.extend(shard::read(&path)?);
    }
    Ok(games)
}

/// A run in progress.
struct Run {
    config: TrainConfig,
    decisions: usize,
    network: Network,
    optimizer: AdamW,
    scaler: LossScaler,
    step: u64,
}

impl Run {
    fn start(config: TrainConfig, decisions: usize, device: Device, options: &Options) -> Result<Self> {
        let newest = Checkpoint::newest(&options.out)?;
        match newest {
            Some(checkpoint) if options.resume => Run::resume(config, decisions, device, &checkpoint),
            Some(checkpoint) => bail!(
                "{} already holds {}; go on with --resume or choose another folder",
                options.out.display(),
                checkpoint.folder.display()
            ),
            None => {
                let network = match &options.init {
                    Some(path) => {
                        let weights = checkpoint::read_weights(path)?;
                        Network::with_weights(&config.network, device, &weights)?
                    }
                    None => Network::new(&config.network, device, config.training.seed as i64),
                };
                let optimizer = AdamW::new(&network);
                Ok(Run { config, decisions, network, optimizer, scaler: LossScaler::for_device(device), step: 0 })
            }
        }
    }

    fn resume(config: TrainConfig, decisions: usize, device: Device, checkpoint: &Checkpoint) -> Result<Self> {
        let state = checkpoint.state()?;
        let folder = checkpoint.folder.display();
        if state.config.network != config.network {
            bail!("{folder} was made with another network than the recipe's");
        }
        if state.config.training != config.training {
            bail!("{folder} was made with other [training] values than the recipe's");
        }
        if state.decisions != decisions {
            bail!("{folder} was made from {} decisions, the shards hold {decisions}", state.decisions);
        }
        let network = Network::with_weights(&config.network, device, &checkpoint.weights()?)?;
        let mut optimizer = AdamW::new(&network);
        optimizer.restore(checkpoint.optimizer()?, device)?;
        Ok(Run { config, decisions, network, optimizer, scaler: state.scaler.on(device), step: state.step })
    }

    fn train(&mut self, plan: Plan, options: &Options, stop: &Arc<AtomicBool>) -> Result<Ended> {
        let training = self.config.training.clone();
        println!(
            "{}: {} parameters on {:?}, {} decisions, step {} of {}",
            self.config.name,
            self.network.parameters(),
            self.network.device,
            plan.decisions(),
            self.step,
            training.steps
        );
        let mut progress = Progress::new(&options.out, &training, self.step)?;
        let mut loss = f64::NAN;
        let mut stopped = false;
        for batch in plan.start(self.step, training.steps, options.feed_threads) {
            loss = self.one_step(&batch, &mut progress)?;
            if !loss.is_finite() && self.scaler.scale() <= 1.0 {
                bail!("the loss of step {} is {loss}; lower training.optimizer.learning_rate", self.step);
            }
            stopped = stop.load(std::sync::atomic::Ordering::Relaxed);
            let done = self.step == training.steps;
            if stopped || done || self.step.is_multiple_of(training.checkpoint_every) {
                self.save(options)?;
                progress.picture()?;
            }
            if stopped && !done {
                println!("stopped at step {}; go on with --resume", self.step);
                break;
            }
        }
        let finished = self.step >= training.steps;
        if !finished && !stopped {
            bail!("the shards hold a game that cannot be replayed near step {}", self.step);
        }
        Ok(Ended { loss, finished })
    }

    fn one_step(&mut self, batch: &Batch, progress: &mut Progress) -> Result<f64> {
        let training = &self.config.training;
        // Dropout depends on the step alone, so a resumed run draws what an undisturbed one would.
        tch::manual_seed((training.seed ^ self.step.wrapping_mul(0x9e37_79b9)) as i64);
        let rate = training.optimizer.rate(self.step, training.steps);
        let half = self.network.device.is_cuda();
        let losses = autocast(half, || self.network.forward(&batch.inputs, true))
            .map(|outputs| loss::of(&outputs, batch, &training.loss))?;
        (&losses.total * self.scaler.scale()).backward();
        let norm = self.optimizer.step(&self.network, &training.optimizer, rate, self.step, self.scaler.scale());
        self.scaler.update(norm.is_finite());
        self.step += 1;
        progress.step(self.step, &losses, rate, norm)
    }

    fn save(&self, options: &Options) -> Result<()> {
        let state = State {
            step: self.step,
            decisions: self.decisions,
            config: self.config.clone(),
            scaler: self.scaler.clone(),
        };
        Checkpoint::save(&options.out, &state, &self.network, &self.optimizer)
    }
}
