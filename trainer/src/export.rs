//! `zeitnot-train export`: a checkpoint to a served ONNX file.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::{
    model_file::{self, About},
    quantize,
    train::checkpoint::Checkpoint,
};

/// Options of `export`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// A checkpoint's folder, or a run's, which means its newest
    #[arg(long)]
    pub checkpoint: PathBuf,
    /// What the file says of itself
    #[command(flatten)]
    pub about: About,
    /// Quantisation
    #[command(flatten)]
    pub int8: quantize::Options,
    /// The ONNX file to write
    #[arg(long)]
    pub out: PathBuf,
}

/// Exports a checkpoint.
///
/// # Errors
///
/// When the checkpoint cannot be read, or ONNX Runtime answers otherwise than tch; then nothing is written.
pub fn export(options: &Options) -> Result<()> {
    let checkpoint = Checkpoint::find(&options.checkpoint)?;
    let state = checkpoint.state()?;
    let metadata = options.about.metadata(state.config.network.encoding(), &state.config.name)?;
    model_file::write(&state.config.network, &checkpoint.weights()?, &metadata, &options.int8, &options.out)
}
