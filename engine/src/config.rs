//! Every option of the sidecar: a flag, an environment variable and a key of a TOML file, all of one name.

mod engine_option;
pub mod file;
mod program;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;
use tracing_subscriber::EnvFilter;
use zeitnot_uci::EngineConfig;

pub use engine_option::EngineOption;

use crate::tls;

/// The options.
#[derive(Args, Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Options of the sidecar")]
pub struct Config {
    /// Where gRPC is served
    #[arg(long, env = "ZEITNOT_ENGINE_LISTEN", default_value_t = Config::default().listen)]
    pub listen: SocketAddr,
    /// Where /live, /ready and /metrics are served over HTTP
    #[arg(long, env = "ZEITNOT_ENGINE_ADMIN_LISTEN", default_value_t = Config::default().admin_listen)]
    pub admin_listen: SocketAddr,
    /// The engine; when not given `stockfish` in PATH, /usr/games/stockfish or .native/bin/stockfish, whichever is there
    /// first
    #[arg(long, env = "ZEITNOT_ENGINE_PROGRAM")]
    pub program: Option<PathBuf>,
    /// Arguments of the engine, separated by commas or repeated
    #[arg(long, env = "ZEITNOT_ENGINE_ARGS", value_delimiter = ',', allow_hyphen_values = true)]
    pub args: Vec<String>,
    /// Options to set on the engine as Name=Value, separated by commas or repeated; Threads=1 and Hash=64 unless given
    #[arg(long, env = "ZEITNOT_ENGINE_ENGINE_OPTION", value_delimiter = ',', value_name = "NAME=VALUE")]
    pub engine_option: Vec<EngineOption>,
    /// Engine processes, one search each; 0 for one a core
    #[arg(long, env = "ZEITNOT_ENGINE_PROCESSES", default_value_t = Config::default().processes)]
    pub processes: usize,
    /// Most requests that wait for a process; further ones are refused
    #[arg(long, env = "ZEITNOT_ENGINE_QUEUE", default_value_t = Config::default().queue)]
    pub queue: usize,
    /// Deepest search that a request may ask for, in plies
    #[arg(long, env = "ZEITNOT_ENGINE_MAX_DEPTH", default_value_t = Config::default().max_depth)]
    pub max_depth: u32,
    /// Most nodes that a request may ask for
    #[arg(long, env = "ZEITNOT_ENGINE_MAX_NODES", default_value_t = Config::default().max_nodes)]
    pub max_nodes: u64,
    /// Longest search that a request may ask for, in milliseconds
    #[arg(long, env = "ZEITNOT_ENGINE_MAX_MOVETIME_MS", default_value_t = Config::default().max_movetime_ms)]
    pub max_movetime_ms: u64,
    /// Longest time a request may take, in milliseconds
    #[arg(long, env = "ZEITNOT_ENGINE_MAX_DEADLINE_MS", default_value_t = Config::default().max_deadline_ms)]
    pub max_deadline_ms: u64,
    /// Evaluations to keep; 0 keeps none
    #[arg(long, env = "ZEITNOT_ENGINE_CACHE_ENTRIES", default_value_t = Config::default().cache_entries)]
    pub cache_entries: u64,
    /// Longest time until an engine has greeted, in milliseconds
    #[arg(long, env = "ZEITNOT_ENGINE_START_LIMIT_MS", default_value_t = Config::default().start_limit_ms)]
    pub start_limit_ms: u64,
    /// Longest time until an engine that was told to stop has stopped, in milliseconds; then it is killed
    #[arg(long, env = "ZEITNOT_ENGINE_STOP_LIMIT_MS", default_value_t = Config::default().stop_limit_ms)]
    pub stop_limit_ms: u64,
    /// Longest time that a searching engine may be silent before it is told to stop, in milliseconds
    #[arg(long, env = "ZEITNOT_ENGINE_SILENCE_LIMIT_MS", default_value_t = Config::default().silence_limit_ms)]
    pub silence_limit_ms: u64,
    /// How long to go on serving after a request to terminate, while balancers learn of it, in milliseconds
    #[arg(long, env = "ZEITNOT_ENGINE_DRAIN_DELAY_MS", default_value_t = Config::default().drain_delay_ms)]
    pub drain_delay_ms: u64,
    /// How long accepted requests may take after that, in milliseconds
    #[arg(long, env = "ZEITNOT_ENGINE_SHUTDOWN_LIMIT_MS", default_value_t = Config::default().shutdown_limit_ms)]
    pub shutdown_limit_ms: u64,
    /// Certificate chain (PEM); with it connections are encrypted
    #[arg(long, env = "ZEITNOT_ENGINE_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, env = "ZEITNOT_ENGINE_TLS_KEY")]
    pub tls_key: Option<PathBuf>,
    /// Authority (PEM) that must have signed the clients' certificates; without it clients need none
    #[arg(long, env = "ZEITNOT_ENGINE_TLS_CLIENT_CA")]
    pub tls_client_ca: Option<PathBuf>,
    /// What to log, such as info or zeitnot_uci=debug
    #[arg(long, env = "ZEITNOT_ENGINE_LOG", default_value_t = Config::default().log)]
    pub log: String,
    /// How to log
    #[arg(long, env = "ZEITNOT_ENGINE_LOG_FORMAT", value_enum, default_value_t = Config::default().log_format)]
    pub log_format: LogFormat,
}

/// How to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: SocketAddr::from(([0, 0, 0, 0], 50052)),
            admin_listen: SocketAddr::from(([0, 0, 0, 0], 9091)),
            program: None,
            args: Vec::new(),
            engine_option: Vec::new(),
            processes: 0,
            queue: 256,
            max_depth: 64,
            max_nodes: 1_000_000_000,
            max_movetime_ms: 30_000,
            max_deadline_ms: 30_000,
            cache_entries: 16_384,
            start_limit_ms: 10_000,
            stop_limit_ms: 1_000,
            silence_limit_ms: 60_000,
            drain_delay_ms: 3_000,
            shutdown_limit_ms: 15_000,
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
            log: "info".to_owned(),
            log_format: LogFormat::Text,
        }
    }
}

impl Config {
    /// What is wrong with the values, naming the option.
    ///
    /// # Errors
    ///
    /// A sentence for people.
    pub fn check(&self) -> Result<()> {
        // Times longer than a day are slips of the keyboard, and some would overflow a clock.
        const DAY_MS: u64 = 86_400_000;
        let ranges = [
            ("processes", self.processes as u64, 0, 1024),
            ("queue", self.queue as u64, 1, 1 << 20),
            ("max-depth", self.max_depth.into(), 1, 1000),
            ("max-nodes", self.max_nodes, 1, i64::MAX.unsigned_abs()),
            ("max-movetime-ms", self.max_movetime_ms, 1, DAY_MS),
            ("max-deadline-ms", self.max_deadline_ms, 1, DAY_MS),
            ("cache-entries", self.cache_entries, 0, 1 << 24),
            ("start-limit-ms", self.start_limit_ms, 1, DAY_MS),
            ("stop-limit-ms", self.stop_limit_ms, 1, DAY_MS),
            ("silence-limit-ms", self.silence_limit_ms, 1, DAY_MS),
            ("drain-delay-ms", self.drain_delay_ms, 0, DAY_MS),
            ("shutdown-limit-ms", self.shutdown_limit_ms, 0, DAY_MS),
        ];
        for (name, value, least, most) in ranges {
            if value < least {
                bail!("--{name}: must be at least {least}");
            }
            if value > most {
                bail!("--{name}: {value} is more than {most}");
            }
        }
        EnvFilter::try_new(&self.log).with_context(|| format!("--log: cannot read `{}`", self.log))?;
        Ok(())
    }

    /// What is wrong with the files the options name, before anything listens.
    ///
    /// # Errors
    ///
    /// A sentence for people, naming the option and the file.
    pub fn check_files(&self) -> Result<()> {
        program::check(self.program.as_deref())?;
        tls::read(self).map(drop)
    }

    /// The options with what they leave open: the program, the number of processes, the engine's options.
    pub fn effective(&self) -> Config {
        Config {
            program: self.program.clone().or_else(program::find),
            engine_option: engine_option::merged(&self.engine_option),
            processes: self.process_count(),
            ..self.clone()
        }
    }

    /// Engine processes.
    pub fn process_count(&self) -> usize {
        match self.processes {
            // The standard library follows the CPU affinity and the cgroup's quota, v1 and v2.
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            processes => processes,
        }
    }

    /// How the engine is run.
    pub fn engine(&self) -> EngineConfig {
        let Config { program, args, engine_option, .. } = self.effective();
        // Without a program the system's message at its start says what is missing.
        let mut engine = EngineConfig::new(program.unwrap_or_else(|| PathBuf::from(program::NAME)));
        engine.args = args;
        engine.options = engine_option.into_iter().map(|option| (option.name, option.value)).collect();
        engine.handshake = Duration::from_millis(self.start_limit_ms);
        engine.grace = Duration::from_millis(self.stop_limit_ms);
        engine.silence = Duration::from_millis(self.silence_limit_ms);
        engine
    }

    /// The longest search that a request may ask for.
    pub fn max_movetime(&self) -> Duration {
        Duration::from_millis(self.max_movetime_ms)
    }

    /// Longest time a request may take.
    pub fn max_deadline(&self) -> Duration {
        Duration::from_millis(self.max_deadline_ms)
    }

    /// How long to go on serving after a request to terminate.
    pub fn drain_delay(&self) -> Duration {
        Duration::from_millis(self.drain_delay_ms)
    }

    /// How long accepted requests may take after that.
    pub fn shutdown_limit(&self) -> Duration {
        Duration::from_millis(self.shutdown_limit_ms)
    }

    /// The values as a TOML file that means the same. Options without a value are left out.
    ///
    /// # Errors
    ///
    /// When a path is not valid Unicode.
    pub fn to_toml(&self) -> Result<String> {
        Ok(toml::to_string(self)?)
    }
}
