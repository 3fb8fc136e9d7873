//! `zeitnot-train import`: published weights to a served ONNX file.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use sha2::{Digest, Sha256};
use zeitnot_network::{Maia3Config, NetworkConfig, OtterConfig, Weights, lc0::reader};

use crate::{
    model_file::{self, About},
    quantize,
};

/// Published weights to read.
#[derive(Subcommand, Clone, Debug)]
pub enum Import {
    /// Otter, the published network: a safetensors file or a PyTorch checkpoint
    Otter {
        /// What to read and write
        #[command(flatten)]
        files: Files,
        /// Also write the weights into this folder, for `train --init`
        #[cfg(feature = "tch")]
        #[arg(long)]
        checkpoint: Option<PathBuf>,
    },
    /// Residual networks of Leela Chess Zero, such as Maia-1: a .pb.gz file
    Lc0(Files),
    /// Maia-3 of any size: a PyTorch checkpoint or a safetensors file
    Maia3(Files),
}

/// What to read and write.
#[derive(Args, Clone, Debug)]
pub struct Files {
    /// The published weights
    pub file: PathBuf,
    /// The ONNX file to write
    #[arg(long)]
    pub out: PathBuf,
    /// What the file says of itself
    #[command(flatten)]
    pub about: About,
    /// Quantisation
    #[command(flatten)]
    pub int8: quantize::Options,
}

/// A network as published.
struct Published {
    config: NetworkConfig,
    weights: Weights,
    name: String,
    license: String,
}

impl Import {
    fn files(&self) -> &Files {
        match self {
            Import::Otter { files, .. } | Import::Lc0(files) | Import::Maia3(files) => files,
        }
    }

    fn read(&self) -> Result<Published> {
        let file = &self.files().file;
        Ok(match self {
            Import::Otter { .. } => Published {
                config: NetworkConfig::Otter(OtterConfig::reference()),
                weights: Weights::read(file)?,
                name: "otter".to_owned(),
                license: "MIT".to_owned(),
            },
            Import::Lc0(_) => {
                let read = reader::read(file).with_context(|| file.display().to_string())?;
                let (config, weights, license) = (NetworkConfig::Lc0(read.config), read.weights, read.license);
                Published { config, weights, name: stem(file), license }
            }
            Import::Maia3(_) => {
                let weights = Weights::read(file)?;
                let sizes = Maia3Config::of(&weights).map_err(anyhow::Error::msg);
                let sizes = sizes.with_context(|| file.display().to_string())?;
                let name = sizes.published().map_or_else(|| stem(file), str::to_owned);
                Published { config: NetworkConfig::Maia3(sizes), weights, name, license: "AGPL-3.0-only".to_owned() }
            }
        })
    }
}

/// Imports published weights.
///
/// # Errors
///
/// When the file does not hold the network's tensors, or ONNX Runtime answers otherwise than tch; then nothing is
/// written.
pub fn run(import: &Import) -> Result<()> {
    let Files { file, out, about, int8 } = import.files();
    let shown = || file.display().to_string();
    let published = import.read()?;
    let mut metadata = about.metadata(published.config.encoding(), &published.name)?;
    if metadata.license.is_empty() {
        metadata.license = published.license;
    }
    metadata.source = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    metadata.source_sha256 = sha256(file).with_context(shown)?;
    model_file::write(&published.config, &published.weights, &metadata, int8, out).with_context(shown)?;
    #[cfg(feature = "tch")]
    if let Import::Otter { checkpoint: Some(folder), .. } = import {
        use crate::train::{checkpoint::write_weights, eager::Network};
        write_weights(folder, &Network::with_weights(&published.config, tch::Device::Cpu, &published.weights)?)?;
    }
    Ok(())
}

/// A file's name up to the first dot.
fn stem(file: &Path) -> String {
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// Fingerprint of a file, in hexadecimal.
fn sha256(file: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    io::copy(&mut File::open(file)?, &mut hasher)?;
    Ok(format!("{:x}", hasher.finalize()))
}
