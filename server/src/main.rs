//! `zeitnot`: serves predictions, prints its options, checks a model.

use std::process::ExitCode;

use anyhow::Result;
use zeitnot_inference::{Runtime, Session, SessionOptions};
use zeitnot_server::{
    cli::{Cli, Command},
    config::Config,
    models, server, shutdown, telemetry,
};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zeitnot: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    match Cli::read(std::env::args_os())?.command {
        Command::Serve(configured) => serve(configured.options),
        Command::Config(configured) => {
            print!("{}", configured.options.to_toml());
            Ok(())
        }
        Command::Check(configured) => check(&configured.options),
    }
}

fn serve(config: Config) -> Result<()> {
    telemetry::start(&config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listeners = server::Listeners::bind(&config).await?;
        tracing::info!(grpc = %listeners.grpc_address()?, admin = %listeners.admin_address()?, "listening");
        server::run(config, listeners, shutdown::requested()?).await
    })
}

/// Opens the model, runs it once and prints what it is.
fn check(config: &Config) -> Result<()> {
    let runtime = Runtime::load(config.onnxruntime.as_deref())?;
    let (file, bytes) = models::read(config.model.as_deref())?;
    let options = SessionOptions { device: config.device, threads: config.threads };
    let mut session = Session::from_bytes(&runtime, &file, &bytes, options)?;
    let start = zeitnot_encoding::Situation::default();
    let answer = session.run(&zeitnot_encoding::Batch::of(session.encoding(), [&start]))?;
    let answer = answer.row(0).ok_or_else(|| anyhow::anyhow!("{file}: answers with numbers that are not finite"))?;
    let metadata = session.metadata();
    println!("{file}: {} version {}, {}", metadata.name, metadata.version, metadata.encoding);
    println!("runs on {}, {} bytes", session.provider().name(), bytes.len());
    println!("trained on: {}", metadata.trained_on);
    println!("expected score of the standard start: {:.3}", answer.outlook.expected_score);
    Ok(())
}
