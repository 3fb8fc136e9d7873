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
    #[command(subcommand)]
    Import(zeitnot_trainer::import::Import),
    /// Models against held-out games
    Evaluate(zeitnot_trainer::evaluate::Options),
    /// Several models and ensembles on the same decisions, in one table
    Compare(zeitnot_trainer::compare::Options),
    /// What an engine says of a model's most probable moves, as Parquet shards
    Annotate(zeitnot_trainer::annotate::Options),
    /// Annotated decisions to a re-ranker
    #[cfg(feature = "tch")]
    TrainReranker(zeitnot_trainer::rerank::train::Options),
    /// A player's games to a style
    #[cfg(feature = "tch")]
    FitStyle(zeitnot_trainer::rerank::style::Options),
    /// Predictors of what a search gains
    Allocate(zeitnot_trainer::rerank::allocate::Options),
    /// Whether a model's probabilities and think times are what happens
    Calibrate(zeitnot_trainer::calibrate::Options),
}

fn main() -> ExitCode {
    // ONNX Runtime keeps usage data on disk, to be sent, unless told otherwise.
    #[allow(unsafe_code)] // Sound: no other thread is there yet that could read the environment.
    unsafe {
        std::env::set_var("ORT_DISABLE_TELEMETRY", "1");
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zeitnot-train: {error:#}");
            // Scripts tell a model that is refused for its accuracy from all that can go wrong.
            match error.is::<zeitnot_trainer::quantize::Refused>() {
                true => ExitCode::from(3),
                false => ExitCode::FAILURE,
            }
        }
    }
}

fn run() -> Result<()> {
    tracing_subscriber::fmt().with_env_filter("warn,zeitnot_inference=info").with_writer(std::io::stderr).init();
    match Cli::parse().command {
        Command::Prepare(options) => zeitnot_trainer::prepare::run(&options).map(drop),
        #[cfg(feature = "tch")]
        Command::Train(options) => {
            use zeitnot_trainer::train::End;
            let ended = zeitnot_trainer::train::run(&options, &interrupted()?)?;
            // Scripts must not take a run that was stopped for one that ended as it was asked to.
            anyhow::ensure!(ended.why != End::Interrupted, "the run is not finished");
            Ok(())
        }
        #[cfg(feature = "tch")]
        Command::Export(options) => zeitnot_trainer::export::export(&options),
        Command::Import(import) => zeitnot_trainer::import::run(&import),
        Command::Evaluate(options) if !options.rerank.rerankers.is_empty() => {
            let (json, picture) = (options.json.as_deref(), options.picture.as_deref());
            let report = zeitnot_trainer::rerank::report::run;
            report(&options.rerank, &options.models, options.samples, json, picture).map(drop)
        }
        Command::Evaluate(options) => zeitnot_trainer::evaluate::run(&options).map(drop),
        Command::Compare(options) => zeitnot_trainer::compare::run(&options).map(drop),
        Command::Annotate(options) => {
            let report = zeitnot_trainer::annotate::run(&options, &interrupted()?)?;
            anyhow::ensure!(!report.interrupted, "the run is not finished");
            Ok(())
        }
        #[cfg(feature = "tch")]
        Command::TrainReranker(options) => {
            zeitnot_trainer::rerank::train::run(&options, interrupted()?.as_ref()).map(drop)
        }
        #[cfg(feature = "tch")]
        Command::FitStyle(options) => zeitnot_trainer::rerank::style::run(&options).map(drop),
        Command::Allocate(options) => zeitnot_trainer::rerank::allocate::run(&options).map(drop),
        Command::Calibrate(options) => zeitnot_trainer::calibrate::run(&options).map(drop),
    }
}

/// Set by Ctrl-C or a request to terminate; a second one ends the process at once.
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
