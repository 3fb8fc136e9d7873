//! The command line: `zeitnot serve | config | check`.

use std::{ffi::OsString, path::PathBuf};

use anyhow::Result;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::{Config, file_as_flags};

/// Predicts the move a human would play, over gRPC.
#[derive(Parser, Debug)]
#[command(name = "zeitnot", version, about)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Serve predictions
    Serve(Configured),
    /// Print the effective options as a TOML file
    Config(Configured),
    /// Open the models, check them, and say what they are
    Check(Configured),
}

/// Options, and the file they may come from.
#[derive(Args, Debug)]
#[command(args_override_self = true)]
pub struct Configured {
    /// TOML file of options
    #[arg(long, env = "ZEITNOT_CONFIG")]
    pub config: Option<PathBuf>,
    /// The options themselves
    #[command(flatten)]
    pub options: Config,
}

impl Cli {
    /// Reads the command line; options of a `--config` file come before those typed, which win.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or an option is out of range. A [`clap::Error`] for wrong flags, or a wish for help.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self> {
        let arguments = arguments.into_iter().collect::<Vec<_>>();
        let first = Cli::from_arg_matches(&Cli::command().try_get_matches_from(&arguments)?)?;
        let cli = match &first.command.configured().config {
            None => first,
            Some(path) => {
                let command = Cli::command();
                let serve = command.find_subcommand("serve").cloned().unwrap_or_default();
                let from_file = file_as_flags(path, &serve)?;
                let (program, typed) = arguments.split_at(2.min(arguments.len()));
                let all = program.iter().chain(&from_file).chain(typed);
                Cli::from_arg_matches(&Cli::command().try_get_matches_from(all)?)?
            }
        };
        cli.command.configured().options.check()?;
        Ok(cli)
    }
}

impl Command {
    fn configured(&self) -> &Configured {
        match self {
            Command::Serve(configured) | Command::Config(configured) | Command::Check(configured) => configured,
        }
    }
}
