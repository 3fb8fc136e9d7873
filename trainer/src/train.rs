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
    time::Instant,
};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use tch::{Cuda, Device};

use self::{
    checkpoint::{Checkpoint, State},
    config::{Condition, TrainConfig, Training},
    eager::Network,
    optimizer::Optimizer,
    progress::Progress,
    scaler::LossScaler,
};
use crate::{
    feed::{Batch, Feed, Feeding, Plan, TeacherFile},
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
    /// Learn from a served model's probabilities too: FILE, or RATING=FILE several times to choose the nearest rating
    #[arg(long = "teacher")]
    pub teachers: Vec<TeacherFile>,
    /// Steps of the run, instead of the recipe's
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
    /// Save a checkpoint and end well after so many seconds, as the slices of a lent machine need it
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub stop_after: Option<u64>,
    /// Where to compute
    #[arg(long, value_enum, default_value_t = Compute::Auto)]
    pub device: Compute,
    /// Precision of most operations
    #[arg(long, value_enum, default_value_t = Precision::Auto)]
    pub precision: Precision,
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

/// Precision of most operations; weights, statistics and losses are always f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Precision {
    /// Half where it is fast: on CUDA f16, on CPUs with AVX-512 BF16 bf16.
    Auto,
    /// f32.
    Full,
    /// f16 on CUDA, bf16 on a CPU.
    Half,
}

impl Precision {
    fn is_half(self, device: Device) -> bool {
        match self {
            Precision::Auto => device.is_cuda() || has_bf16(),
            Precision::Full => false,
            Precision::Half => true,
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn has_bf16() -> bool {
    is_x86_feature_detected!("avx512bf16")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_bf16() -> bool {
    false
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ended {
    /// Loss of the last step; NaN when no step was left to do.
    pub loss: f64,
    /// Why it ended.
    pub why: End,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The last step of the recipe is done.
    Finished,
    /// The time of `--stop-after` is up.
    TimeUp,
    /// It was asked to stop.
    Interrupted,
}

/// Trains until the last step, or until `stop` is set; then a checkpoint is saved.
///
/// # Errors
///
/// When the recipe or the shards cannot be read, the output folder holds another run, or the loss is no number.
pub fn run(options: &Options, stop: &Arc<AtomicBool>) -> Result<Ended> {
    let started = Instant::now();
    let mut config = TrainConfig::read(&options.config)?.without(&options.without)?;
    config.training.steps = options.steps.unwrap_or(config.training.steps);
    let device = options.device.device()?;
    if options.threads > 0 {
        tch::set_num_threads(i32::from(options.threads));
    }
    std::fs::create_dir_all(&options.out).with_context(|| format!("cannot create {}", options.out.display()))?;
    let Training { seed, batch_size, steps, data, .. } = &config.training;
    let plan = Plan::new(games(&options.data)?, data, *seed, *batch_size, *steps)?;
    let mut run = Run::start(config, plan.decisions(), device, options)?;
    run.network.parameters.half = options.precision.is_half(device);
    run.train(plan, options, started, stop)
}

fn names(teachers: &[TeacherFile]) -> Vec<String> {
    teachers.iter().map(ToString::to_string).collect()
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
    optimizer: Optimizer,
    scaler: LossScaler,
    step: u64,
}

impl Run {
    fn start(config: TrainConfig, decisions: usize, device: Device, options: &Options) -> Result<Self> {
        let newest = Checkpoint::newest(&options.out)?;
        match newest {
            Some(checkpoint) if options.resume => Run::resume(config, decisions, device, options, &checkpoint),
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
                let optimizer = Optimizer::new(&network.parameters);
                Ok(Run { config, decisions, network, optimizer, scaler: LossScaler::for_device(device), step: 0 })
            }
        }
    }

    fn resume(
        config: TrainConfig,
        decisions: usize,
        device: Device,
        options: &Options,
        checkpoint: &Checkpoint,
    ) -> Result<Self> {
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
        let teachers = names(&options.teachers);
        if state.teachers != teachers {
            bail!("{folder} was made with other teachers: {:?}, not {teachers:?}", state.teachers);
        }
        let network = Network::with_weights(&config.network, device, &checkpoint.weights()?)?;
        let mut optimizer = Optimizer::new(&network.parameters);
        optimizer.restore(checkpoint.optimizer()?, device)?;
        Ok(Run { config, decisions, network, optimizer, scaler: state.scaler.on(device), step: state.step })
    }

    fn train(&mut self, plan: Plan, options: &Options, started: Instant, stop: &Arc<AtomicBool>) -> Result<Ended> {
        let training = self.config.training.clone();
        println!(
            "{}: {} parameters on {:?}, {} decisions, step {} of {}",
            self.config.name,
            self.network.parameters.count(),
            self.network.parameters.device,
            plan.decisions(),
            self.step,
            training.steps
        );
        match options.teachers.len() {
            0 => println!("no teacher: the moves played are all there is to learn"),
            count => println!("{count} teachers, share {} of the policy's target", training.loss.teacher),
        }
        let mut progress = Progress::new(&options.out, &training, self.step)?;
        let mut loss = f64::NAN;
        let encoding = self.config.network.encoding();
        let feeding = Feeding { encoding, hide: training.hide, leak_clock: training.leak_clock };
        for batch in Feed::start(plan, feeding, &options.teachers, self.step, options.feed_threads)? {
            loss = self.one_step(&batch?, &mut progress)?;
            if !loss.is_finite() && self.scaler.scale() <= 1.0 {
                bail!("the loss of step {} is {loss}; lower training.optimizer.learning_rate", self.step);
            }
            let done = self.step == training.steps;
            let late = options.stop_after.is_some_and(|seconds| started.elapsed().as_secs() >= seconds);
            let why = match stop.load(std::sync::atomic::Ordering::Relaxed) {
                _ if done => Some(End::Finished),
                true => Some(End::Interrupted),
                false => late.then_some(End::TimeUp),
            };
            if why.is_some() || self.step.is_multiple_of(training.checkpoint_every) {
                self.save(options)?;
                progress.picture()?;
            }
            if let Some(why) = why {
                if why != End::Finished {
                    println!("stopped at step {}; go on with --resume", self.step);
                }
                return Ok(Ended { loss, why });
            }
        }
        // No step was left to do.
        anyhow::ensure!(self.step >= training.steps, "the batches ended at step {}", self.step);
        Ok(Ended { loss, why: End::Finished })
    }

    fn one_step(&mut self, batch: &Batch, progress: &mut Progress) -> Result<f64> {
        let training = &self.config.training;
        // Dropout depends on the step alone, so a resumed run draws what an undisturbed one would.
        tch::manual_seed((training.seed ^ self.step.wrapping_mul(0x9e37_79b9)) as i64);
        let rate = training.optimizer.rate(self.step, training.steps);
        let outputs = self.network.forward(&batch.inputs, true)?;
        let losses = loss::of(&outputs, batch, &training.loss);
        (&losses.total * self.scaler.scale()).backward();
        let norm =
            self.optimizer.step(&self.network.parameters, &training.optimizer, rate, self.step, self.scaler.scale());
        self.scaler.update(norm.is_finite());
        self.step += 1;
        progress.step(self.step, &losses, rate, norm)
    }

    fn save(&self, options: &Options) -> Result<()> {
        let state = State {
            step: self.step,
            decisions: self.decisions,
            config: self.config.clone(),
            teachers: names(&options.teachers),
            scaler: self.scaler.clone(),
        };
        Checkpoint::save(&options.out, &state, &self.network, &self.optimizer)
    }
}
