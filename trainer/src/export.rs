//! `zeitnot-train export` and `import`: trained weights to a served ONNX file, checked before it is written.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use shakmaty::Position;
use tch::{Device, Kind, Tensor, no_grad};
use zeitnot_encoding::{Conditions, OtterBatch, Situation, TimeControl};
use zeitnot_inference::{Answer, Metadata, Runtime, Session, SessionOptions};
use zeitnot_network::{OtterConfig, Weights, onnx};

use crate::{
    prepare::write_atomically,
    train::{
        checkpoint::{Checkpoint, State},
        config::{TrainConfig, Training},
        eager::Network,
        optimizer::AdamW,
        scaler::LossScaler,
    },
};

/// Largest difference between tch and ONNX Runtime that a file may show, absolute or relative to the value.
pub const TOLERANCE: f32 = 1e-4;

/// Options of `export`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// A checkpoint's folder, or a run's, which means its newest
    #[arg(long)]
    pub checkpoint: PathBuf,
    /// What the file says of itself
    #[command(flatten)]
    pub about: About,
    /// The ONNX file to write
    #[arg(long)]
    pub out: PathBuf,
}

/// What a model file says of itself.
#[derive(Args, Clone, Debug, Default)]
pub struct About {
    /// Name of the model; the recipe's when not given
    #[arg(long)]
    pub name: Option<String>,
    /// Version of the model
    #[arg(long, default_value = "1")]
    pub model_version: String,
    /// What it was trained on
    #[arg(long, default_value = "")]
    pub trained_on: String,
    /// Licence of the weights
    #[arg(long, default_value = "")]
    pub license: String,
    /// JSON of an evaluation, as `evaluate --json` writes it
    #[arg(long)]
    pub metrics: Option<PathBuf>,
}

/// Published weights to read.
#[derive(Subcommand, Clone, Debug)]
pub enum Import {
    /// The published Otter safetensors layout (reference network)
    Otter {
        /// The safetensors file
        file: PathBuf,
        /// The ONNX file to write
        #[arg(long)]
        out: PathBuf,
        /// Also write a checkpoint into this run folder, to train on from
        #[arg(long)]
        checkpoint: Option<PathBuf>,
        /// What the file says of itself
        #[command(flatten)]
        about: About,
    },
}

/// Exports a checkpoint.
///
/// # Errors
///
/// When the checkpoint cannot be read, or ONNX Runtime answers otherwise than tch; then nothing is written.
pub fn export(options: &Options) -> Result<()> {
    let checkpoint = Checkpoint::find(&options.checkpoint)?;
    let state = checkpoint.state()?;
    let metadata = options.about.metadata(&state.config.name)?;
    write(&state.config.network, &checkpoint.weights()?, &metadata, &options.out)
}

/// Imports published weights.
///
/// # Errors
///
/// When the file does not hold the network's tensors, or ONNX Runtime answers otherwise than tch.
pub fn import(import: &Import) -> Result<()> {
    let Import::Otter { file, out, checkpoint, about } = import;
    let config = OtterConfig::reference();
    let weights = Weights::read(file)?;
    let metadata = about.metadata("otter")?;
    write(&config, &weights, &metadata, out).with_context(|| file.display().to_string())?;
    if let Some(run) = checkpoint {
        let network = Network::with_weights(&config, Device::Cpu, &weights)?;
        let training = Training::continuing();
        let config = TrainConfig { name: metadata.name, network: config, training };
        let state = State { step: 0, config, scaler: LossScaler::for_device(Device::Cpu) };
        std::fs::create_dir_all(run)?;
        Checkpoint::save(run, &state, &network, &AdamW::new(&network))?;
    }
    Ok(())
}

impl About {
    fn metadata(&self, name: &str) -> Result<Metadata> {
        let name = self.name.as_deref().unwrap_or(name);
        let mut metadata = Metadata::new(name, &self.model_version, &self.trained_on, &self.license);
        if let Some(path) = &self.metrics {
            let shown = || path.display().to_string();
            let text = std::fs::read_to_string(path).with_context(shown)?;
            metadata.metrics = serde_json::from_str::<serde_json::Value>(&text).with_context(shown)?.to_string();
        }
        Ok(metadata)
    }
}

fn write(config: &OtterConfig, weights: &Weights, metadata: &Metadata, out: &std::path::Path) -> Result<()> {
    let bytes = onnx::export(config, weights, &metadata.entries())?;
    let network = Network::with_weights(config, Device::Cpu, weights)?;
    let difference = difference(&network, &bytes, &samples(16))?;
    if difference > TOLERANCE {
        bail!("ONNX Runtime differs from tch by {difference:.2e}, more than {TOLERANCE:.0e}; nothing is written");
    }
    write_atomically(out, &bytes)?;
    println!("{}: {} KiB, differs from tch by {difference:.1e}", out.display(), bytes.len() / 1024);
    Ok(())
}

/// The largest difference between tch and ONNX Runtime over all outputs of a batch, absolute or relative to the
/// value, whichever is smaller.
///
/// # Errors
///
/// When either cannot run the network.
pub fn difference(network: &Network, onnx: &[u8], batch: &OtterBatch) -> Result<f32> {
    let runtime = Runtime::load(None)?;
    let options = SessionOptions { device: zeitnot_inference::Device::Cpu, threads: 1 };
    let theirs = Session::from_bytes(&runtime, "the exported network", onnx, options)?.run(batch)?;
    let ours = answer(network, batch)?;
    let pairs = [(&ours.policy, &theirs.policy), (&ours.value, &theirs.value), (&ours.auxiliary, &theirs.auxiliary)];
    let gap = |(a, b): (&f32, &f32)| {
        let gap = (a - b).abs() / a.abs().max(1.0);
        if gap.is_nan() { f32::INFINITY } else { gap }
    };
    Ok(pairs.into_iter().flat_map(|(a, b)| a.iter().zip(b)).map(gap).fold(0.0, f32::max))
}

/// What the network answers on tch.
///
/// # Errors
///
/// When the network lacks a tensor.
pub fn answer(network: &Network, batch: &OtterBatch) -> Result<Answer> {
    let outputs = no_grad(|| network.forward(batch, false))?;
    let values = |tensor: &Tensor| Vec::<f32>::try_from(tensor.to_kind(Kind::Float).contiguous().view(-1));
    Ok(Answer {
        policy: values(&outputs.policy)?,
        value: values(&outputs.value)?,
        auxiliary: values(&outputs.auxiliary)?,
    })
}

/// Situations of growing length under changing conditions, for checks: the first has no history and no clock.
pub fn samples(rows: usize) -> OtterBatch {
    let mut batch = OtterBatch::with_capacity(rows);
    let mut situation = Situation::default();
    for row in 0..rows {
        situation.conditions = Conditions {
            mover_rating: Some(1000 + 97 * row as u16),
            opponent_rating: Some(2100 - 83 * row as u16),
            time_control: (row > 0).then_some(TimeControl { initial: 60.0 * row as f32, increment: 2.0 }),
            mover_clock: (row > 0).then_some(31.0 * row as f32),
        };
        batch.push(&situation);
        for ply in 0..3 {
            let moves = situation.position.legal_moves();
            let choice = (row * 7 + ply * 5) % moves.len().max(1);
            match moves.into_iter().nth(choice) {
                Some(mv) => situation.play(mv),
                None => situation = Situation::default(),
            }
        }
    }
    batch
}
