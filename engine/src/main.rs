//! `zeitnot-engine`: serves an engine, prints its options, tries the engine.

use std::process::ExitCode;

use anyhow::Result;
use zeitnot_engine::{
    check,
    cli::{Cli, Command},
    config::Config,
    server::{self, Listeners},
    shutdown, telemetry,
};

/// What sysexits.h calls EX_CONFIG.
const WRONG_CONFIGURATION: u8 = 78;

fn main() -> ExitCode {
    let cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return wrong(&error),
    };
    let outcome = match cli.command {
        Command::Config(configured) => configured.options.effective().to_toml().map(|text| print!("{text}")),
        Command::Check(configured) => match configured.options.check_files() {
            Ok(()) => check(&configured.options),
            Err(error) => return wrong(&error),
        },
        Command::Serve(configured) => match configured.options.check_files() {
            Ok(()) => serve(configured.options),
            Err(error) => return wrong(&error),
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zeitnot-engine: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Says what is wrong with the configuration; help and version are asked for in the same way.
fn wrong(error: &anyhow::Error) -> ExitCode {
    match error.downcast_ref::<clap::Error>() {
        Some(usage) => {
            let _ = usage.print(); // There is nowhere else to say it.
            ExitCode::from(if usage.use_stderr() { WRONG_CONFIGURATION } else { 0 })
        }
        None => {
            eprintln!("zeitnot-engine: {error:#}");
            ExitCode::from(WRONG_CONFIGURATION)
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

fn serve(config: Config) -> Result<()> {
    runtime()?.block_on(async {
        telemetry::start(&config)?;
        let listeners = Listeners::bind(&config).await?;
        tracing::info!(grpc = %listeners.grpc_address()?, admin = %listeners.admin_address()?, "listening");
        server::run(config, listeners, shutdown::requested()?).await
    })
}

fn check(config: &Config) -> Result<()> {
    let text = runtime()?.block_on(check::check(config))?;
    println!("{text}");
    Ok(())
}
