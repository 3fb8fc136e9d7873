//! `zeitnot-train`: prepares games and trains, exports, imports and evaluates models.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "zeitnot-train", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// PGN files to Parquet shards
    Prepare(zeitnot_trainer::prepare::Options),
    /// Shards to a trained network
    #[cfg(feature = "tch")]
    Train(zeitnot_trainer::train::Options),
    /// A checkpoint to an ONNX file
    #[cfg(feature = "tch")]
    Export(zeitnot_trainer::export::Options),
    /// Published weights to an ONNX file
    #[cfg(feature = "tch")]
    #[command(subcommand)]
    Import(zeitnot_trainer::export::Import),
    /// Models against held-out games
    Evaluate(zeitnot_trainer::evaluate::Options),
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zeitnot-train: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    match Cli::parse().command {
        Command::Prepare(options) => zeitnot_trainer::prepare::run(&options).map(drop),
        #[cfg(feature = "tch")]
        Command::Train(options) => zeitnot_trainer::train::run(&options, &interrupted()?).map(drop),
        #[cfg(feature = "tch")]
        Command::Export(options) => zeitnot_trainer::export::export(&options),
        #[cfg(feature = "tch")]
        Command::Import(import) => zeitnot_trainer::export::import(&import),
        Command::Evaluate(options) => zeitnot_trainer::evaluate::run(&options).map(drop),
    }
}

/// Set by Ctrl-C or a request to terminate; a second one ends the process at once.
#[cfg(feature = "tch")]
fn interrupted() -> Result<std::sync::Arc<std::sync::atomic::AtomicBool>> {
    use signal_hook::{
        consts::{SIGINT, SIGTERM},
        flag,
    };
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 130, std::sync::Arc::clone(&stop))?;
        flag::register(signal, std::sync::Arc::clone(&stop))?;
    }
    Ok(stop)
}
