//! `zeitnot-train import`: published weights to a served ONNX file.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Subcommand;
use zeitnot_network::{NetworkConfig, OtterConfig, Weights, lc0::reader};

use crate::{
    model_file::{self, About},
    quantize,
};

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
    /// Weights of Leela Chess Zero, such as Maia-1: residual networks with the policy of 80 planes
    Lc0 {
        /// The .pb.gz file
        file: PathBuf,
        /// The ONNX file to write
        #[arg(long)]
        out: PathBuf,
        /// What the file says of itself
        #[command(flatten)]
        about: About,
        /// Quantisation
        #[command(flatten)]
        int8: quantize::Options,
    },
}

/// Imports published weights.
///
/// # Errors
///
/// When the file does not hold the network's tensors, or ONNX Runtime answers otherwise than tch.
pub fn run(import: &Import) -> Result<()> {
    match import {
        Import::Otter { file, out, about, .. } => {
            let config = NetworkConfig::Otter(OtterConfig::reference());
            let weights = Weights::read(file)?;
            let metadata = about.metadata(config.encoding(), "otter")?;
            model_file::write(&config, &weights, &metadata, &quantize::Options::default(), out)
                .with_context(|| file.display().to_string())?;
            #[cfg(feature = "tch")]
            if let Import::Otter { checkpoint: Some(folder), .. } = import {
                use crate::train::{checkpoint::write_weights, eager::Network};
                write_weights(folder, &Network::with_weights(&config, tch::Device::Cpu, &weights)?)?;
            }
            Ok(())
        }
        Import::Lc0 { file, out, about, int8 } => {
            let shown = || file.display().to_string();
            let (config, weights) = reader::read(file).with_context(shown)?;
            let config = NetworkConfig::Lc0(config);
            let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let name = name.split('.').next().unwrap_or_default();
            let metadata = about.metadata(config.encoding(), name)?;
            model_file::write(&config, &weights, &metadata, int8, out).with_context(shown)
        }
    }
}
