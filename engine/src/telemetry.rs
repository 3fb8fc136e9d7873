//! Structured logs on standard error.

use std::io::IsTerminal;

use anyhow::Result;
use tracing_subscriber::{EnvFilter, Layer, layer::SubscriberExt, util::SubscriberInitExt};

use crate::config::{Config, LogFormat};

/// Starts the logs.
///
/// # Errors
///
/// When `--log` cannot be read, which [`Config::check`] has seen before, or logs have been started.
pub fn start(config: &Config) -> Result<()> {
    let filter = EnvFilter::try_new(&config.log)?;
    let lines =
        tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
    let lines = match config.log_format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    Ok(tracing_subscriber::registry().with(lines.with_filter(filter)).try_init()?)
}
