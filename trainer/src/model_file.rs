//! A model as one ONNX file: what it says of itself, and the check before it is written.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use shakmaty::Position;
use zeitnot_encoding::{Batch, Conditions, Encoding, Situation, TimeControl};
use zeitnot_inference::Metadata;
use zeitnot_network::{NetworkConfig, Weights, onnx};

use crate::{prepare::write_atomically, quantize};

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

impl About {
    /// As metadata of a file; `name` stands in when none is given.
    ///
    /// # Errors
    ///
    /// When the metrics cannot be read, naming the file.
    pub fn metadata(&self, encoding: &dyn Encoding, name: &str) -> Result<Metadata> {
        let name = self.name.as_deref().unwrap_or(name);
        let mut metadata = Metadata::new(encoding, name, &self.model_version, &self.trained_on, &self.license);
        if let Some(path) = &self.metrics {
            let shown = || path.display().to_string();
            let text = std::fs::read_to_string(path).with_context(shown)?;
            metadata.metrics = serde_json::from_str::<serde_json::Value>(&text).with_context(shown)?.to_string();
        }
        Ok(metadata)
    }
}

/// Writes a network with its weights, after a check of what ONNX Runtime answers, and quantised where asked for.
///
/// # Errors
///
/// When a tensor is missing, ONNX Runtime answers otherwise than tch, or quantisation costs too much accuracy; then
/// nothing is written.
pub fn write(
    config: &NetworkConfig,
    weights: &Weights,
    metadata: &Metadata,
    int8: &quantize::Options,
    out: &Path,
) -> Result<()> {
    let mut bytes = onnx::export(config, weights, &metadata.entries())?;
    let finding = check(config, weights, &bytes)?;
    if int8.int8 {
        bytes = quantize::quantize(&bytes, int8, out)?;
    }
    write_atomically(out, &bytes)?;
    println!("{}: {} KiB, {finding}", out.display(), bytes.len() / 1024);
    Ok(())
}

/// Compares ONNX Runtime with tch.
#[cfg(feature = "tch")]
fn check(config: &NetworkConfig, weights: &Weights, bytes: &[u8]) -> Result<String> {
    use crate::parity::{TOLERANCE, difference};
    let network = crate::train::eager::Network::with_weights(config, tch::Device::Cpu, weights)?;
    let difference = difference(&network, bytes, &samples(config.encoding(), 16))?;
    anyhow::ensure!(
        difference <= TOLERANCE,
        "ONNX Runtime differs from tch by {difference:.2e}, more than {TOLERANCE:.0e}; nothing is written"
    );
    Ok(format!("differs from tch by {difference:.1e}"))
}

/// Runs the file and looks for numbers that are none, since there is no tch to compare with.
#[cfg(not(feature = "tch"))]
fn check(config: &NetworkConfig, _: &Weights, bytes: &[u8]) -> Result<String> {
    use zeitnot_inference::{Device, Runtime, Session, SessionOptions};
    let options = SessionOptions { device: Device::Cpu, threads: 1 };
    let mut session = Session::from_bytes(&Runtime::load(None)?, "the new file", bytes, options)?;
    let answer = session.run(&samples(config.encoding(), 16))?;
    anyhow::ensure!(
        answer.policy.iter().all(|logit| logit.is_finite()),
        "the file answers with logits that are no numbers"
    );
    Ok("runs; not compared with tch, which this build lacks".to_owned())
}

/// Situations of growing length under changing conditions, for checks: the first has no history and no clock.
pub fn samples(encoding: &'static dyn Encoding, rows: usize) -> Batch {
    let mut batch = Batch::new(encoding, rows);
    let mut situation = Situation::default();
    for row in 0..rows {
        situation.conditions = Conditions {
            mover_rating: Some(1000 + 97 * row as u16),
            opponent_rating: Some(2100 - 83 * row as u16),
            time_control: (row > 0).then_some(TimeControl { initial: 60.0 * row as f32, increment: 2.0 }),
            mover_clock: (row > 0).then_some(31.0 * row as f32),
            opponent_clock: (row > 1).then_some(29.0 * row as f32),
            ..Conditions::default()
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
