//! Structured logs on standard error.

use std::io::IsTerminal;

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;

use crate::config::{Config, LogFormat};

/// Starts logging.
///
/// # Errors
///
/// When `--log` cannot be read.
pub fn start(config: &Config) -> Result<()> {
    let filter = EnvFilter::try_new(&config.log).with_context(|| format!("--log: cannot read `{}`", config.log))?;
    let colours = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    match config.log_format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().init(),
    }
    Ok(())
}
