//! The command line: `zeitnot-engine serve | config | check`.

use std::{ffi::OsString, path::PathBuf};

use anyhow::Result;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, parser::ValueSource};

use crate::config::{Config, file};

/// Scores chess moves by a UCI engine, over gRPC.
#[derive(Parser, Debug)]
#[command(name = "zeitnot-engine", version, about)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Serve the engine
    Serve(Configured),
    /// Print the effective options as a TOML file
    Config(Configured),
    /// Start the engine, let it score moves, and say how it does
    Check(Configured),
}

/// Options, and the file they may come from.
#[derive(Args, Debug)]
pub struct Configured {
    /// TOML file of options
    #[arg(long, env = "ZEITNOT_ENGINE_CONFIG")]
    pub config: Option<PathBuf>,
    /// The options themselves
    #[command(flatten)]
    pub options: Config,
}

impl Cli {
    /// Reads the command line. A flag beats the variable, the variable beats the `--config` file, the file beats the
    /// default.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or an option is out of range. A [`clap::Error`] for wrong flags, or a wish for help.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self> {
        let arguments = arguments.into_iter().collect::<Vec<_>>();
        let matches = Cli::command().try_get_matches_from(&arguments)?;
        let first = Cli::from_arg_matches(&matches)?;
        let cli = match &first.command.configured().config {
            None => first,
            Some(path) => {
                let command = Cli::command();
                let serve = command.find_subcommand("serve").cloned().unwrap_or_default();
                let from_file = file::as_flags(path, &serve, |option| is_given(&matches, option))?;
                let all = arguments.iter().chain(&from_file);
                Cli::from_arg_matches(&Cli::command().try_get_matches_from(all)?)?
            }
        };
        cli.command.configured().options.check()?;
        Ok(cli)
    }
}

/// Whether a flag or a variable gives the option a value.
fn is_given(matches: &ArgMatches, option: &str) -> bool {
    let source = matches.subcommand().and_then(|(_, own)| own.value_source(option));
    matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
}

impl Command {
    fn configured(&self) -> &Configured {
        match self {
            Command::Serve(configured) | Command::Config(configured) | Command::Check(configured) => configured,
        }
    }
}
