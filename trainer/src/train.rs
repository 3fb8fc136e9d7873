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
    config::TrainConfig,
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

/// Trains until the last step, or until `stop` is set; then a checkpoint is saved. Gives the loss of the last step.
///
/// # Errors
///
/// When the recipe or the shards cannot be read, or the output folder holds another run.
pub fn run(options: &Options, stop: &Arc<AtomicBool>) -> Result<f64> {
    let config = TrainConfig::read(&options.config)?;
    let device = options.device.device()?;
    if options.threads > 0 {
        tch::set_num_threads(i32::from(options.threads));
    }
    std::fs::create_dir_all(&options.out).with_context(|| format!("cannot create {}", options.out.display()))?;
    let mut run = Run::start(config, device, options)?;
    let games = games(&options.data)?;
    let plan = Plan::new(games, run.config.training.seed, run.config.training.batch_size)?;
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
    network: Network,
    optimizer: AdamW,
    scaler: LossScaler,
    step: u64,
}

impl Run {
    fn start(config: TrainConfig, device: Device, options: &Options) -> Result<Self> {
        let newest = Checkpoint::newest(&options.out)?;
        match newest {
            Some(checkpoint) if options.resume => Run::resume(config, device, &checkpoint),
            Some(checkpoint) => bail!(
                "{} already holds {}; go on with --resume or choose another folder",
                options.out.display(),
                checkpoint.folder.display()
            ),
            None => {
                let seed = config.training.seed as i64;
                let network = Network::new(&config.network, device, seed);
                let optimizer = AdamW::new(&network);
                Ok(Run { config, network, optimizer, scaler: LossScaler::for_device(device), step: 0 })
            }
        }
    }

    fn resume(config: TrainConfig, device: Device, checkpoint: &Checkpoint) -> Result<Self> {
        let state = checkpoint.state()?;
        if state.config.network != config.network || state.config.training.seed != config.training.seed {
            bail!("{} was made with another network or seed than the recipe's", checkpoint.folder.display());
        }
        let network = Network::with_weights(&config.network, device, &checkpoint.weights()?)?;
        let mut optimizer = AdamW::new(&network);
        optimizer.restore(checkpoint.optimizer()?, device)?;
        Ok(Run { config, network, optimizer, scaler: state.scaler, step: state.step })
    }

    fn train(&mut self, plan: Plan, options: &Options, stop: &Arc<AtomicBool>) -> Result<f64> {
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
        let mut last = f64::NAN;
        for batch in plan.start(self.step, training.steps, options.feed_threads) {
            last = self.one_step(&batch, &mut progress)?;
            let stopped = stop.load(std::sync::atomic::Ordering::Relaxed);
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
        Ok(last)
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
        let state = State { step: self.step, config: self.config.clone(), scaler: self.scaler.clone() };
        Checkpoint::save(&options.out, &state, &self.network, &self.optimizer)
    }
}
