//! `zeitnot-train import`: published weights to a served ONNX file.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Subcommand;
use zeitnot_network::{OtterConfig, Weights};

use crate::model_file::{self, About};

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
        /// Also write the weights into this folder, for `train --init`
        #[cfg(feature = "tch")]
        #[arg(long)]
        checkpoint: Option<PathBuf>,
        /// What the file says of itself
        #[command(flatten)]
        about: About,
    },
}

/// Imports published weights.
///
/// # Errors
///
/// When the file does not hold the network's tensors, or ONNX Runtime answers otherwise than tch.
pub fn run(import: &Import) -> Result<()> {
    let Import::Otter { file, out, about, .. } = import;
    let config = OtterConfig::reference();
    let weights = Weights::read(file)?;
    let metadata = about.metadata("otter")?;
    model_file::write(&config, &weights, &metadata, out).with_context(|| file.display().to_string())?;
    #[cfg(feature = "tch")]
    {
        use crate::train::{checkpoint::write_weights, eager::Network};
        let Import::Otter { checkpoint, .. } = import;
        if let Some(folder) = checkpoint {
            write_weights(folder, &Network::with_weights(&config, tch::Device::Cpu, &weights)?)?;
        }
    }
    Ok(())
}
