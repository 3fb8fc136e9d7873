//! Every option of the server: a flag, an environment variable and a key of a TOML file, all of one name.
//!
//! A flag beats the variable, the variable beats the file, the file beats the default.

use std::{
    ffi::OsString,
    fmt::Write,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::{Args, Command, ValueEnum};
use zeitnot_inference::Device;

/// The options.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of the server")]
pub struct Config {
    /// Where gRPC is served
    #[arg(long, env = "ZEITNOT_LISTEN", default_value = "0.0.0.0:50051")]
    pub listen: SocketAddr,
    /// Where /live, /ready and /metrics are served over HTTP
    #[arg(long, env = "ZEITNOT_ADMIN_LISTEN", default_value = "0.0.0.0:9090")]
    pub admin_listen: SocketAddr,
    /// Model file (ONNX); the embedded model when not given
    #[arg(long, env = "ZEITNOT_MODEL")]
    pub model: Option<PathBuf>,
    /// ONNX Runtime library; where ORT_DYLIB_PATH points when not given
    #[arg(long, env = "ZEITNOT_ONNXRUNTIME")]
    pub onnxruntime: Option<PathBuf>,
    /// Where to run the model: auto, cpu or cuda
    #[arg(long, env = "ZEITNOT_DEVICE", default_value = "auto")]
    pub device: Device,
    /// Worker threads, one session each; 0 fills the CPU quota
    #[arg(long, env = "ZEITNOT_WORKERS", default_value_t = 0)]
    pub workers: usize,
    /// Threads inside one run of a worker
    #[arg(long, env = "ZEITNOT_THREADS", default_value_t = 1)]
    pub threads: usize,
    /// Most requests in one batch
    #[arg(long, env = "ZEITNOT_MAX_BATCH", default_value_t = 8)]
    pub max_batch: usize,
    /// Most requests waiting or computed at the same time; further ones are refused
    #[arg(long, env = "ZEITNOT_QUEUE", default_value_t = 1024)]
    pub queue: usize,
    /// Longest time a request may take, in milliseconds
    #[arg(long, env = "ZEITNOT_MAX_DEADLINE_MS", default_value_t = 10_000)]
    pub max_deadline_ms: u64,
    /// Largest request, in bytes
    #[arg(long, env = "ZEITNOT_MAX_MESSAGE_BYTES", default_value_t = 65_536)]
    pub max_message_bytes: usize,
    /// Most moves in one game
    #[arg(long, env = "ZEITNOT_MAX_MOVES", default_value_t = 1024)]
    pub max_moves: usize,
    /// How long to go on serving after a request to terminate, while balancers learn of it, in milliseconds
    #[arg(long, env = "ZEITNOT_DRAIN_DELAY_MS", default_value_t = 3_000)]
    pub drain_delay_ms: u64,
    /// How long accepted requests may take after that, in milliseconds
    #[arg(long, env = "ZEITNOT_DRAIN_LIMIT_MS", default_value_t = 15_000)]
    pub drain_limit_ms: u64,
    /// Whether the server describes its services to clients
    #[arg(long, env = "ZEITNOT_REFLECTION", default_value_t = true, action = clap::ArgAction::Set)]
    pub reflection: bool,
    /// What to log, such as info or zeitnot_server=debug
    #[arg(long, env = "ZEITNOT_LOG", default_value = "info,ort=warn")]
    pub log: String,
    /// How to log
    #[arg(long, env = "ZEITNOT_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// How to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Config {
    /// What is wrong with the values, naming the option.
    ///
    /// # Errors
    ///
    /// A sentence for people.
    pub fn check(&self) -> Result<()> {
        let counts = [
            ("threads", self.threads),
            ("max-batch", self.max_batch),
            ("queue", self.queue),
            ("max-moves", self.max_moves),
            ("max-message-bytes", self.max_message_bytes),
        ];
        for (name, value) in counts {
            if value == 0 {
                bail!("--{name}: must be at least 1");
            }
        }
        for (name, value) in [("workers", self.workers), ("threads", self.threads), ("max-batch", self.max_batch)] {
            if value > 4096 {
                bail!("--{name}: {value} is more than 4096");
            }
        }
        if self.max_deadline_ms == 0 {
            bail!("--max-deadline-ms: must be at least 1");
        }
        Ok(())
    }

    /// The number of workers meant.
    pub fn worker_count(&self) -> usize {
        // Follows the CPU affinity and the cgroup's quota, v1 and v2.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if self.workers == 0 { (cores / self.threads).max(1) } else { self.workers }
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
    pub fn drain_limit(&self) -> Duration {
        Duration::from_millis(self.drain_limit_ms)
    }

    /// The values as a TOML file that means the same.
    pub fn to_toml(&self) -> String {
        let text = |value: &dyn std::fmt::Display| toml::Value::String(value.to_string());
        let number = |value: u64| toml::Value::Integer(i64::try_from(value).unwrap_or(i64::MAX));
        let device = match self.device {
            Device::Auto => "auto",
            Device::Cpu => "cpu",
            Device::Cuda => "cuda",
        };
        let format = match self.log_format {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        };
        let values = [
            ("listen", Some(text(&self.listen))),
            ("admin-listen", Some(text(&self.admin_listen))),
            ("model", self.model.as_ref().map(|path| text(&path.display()))),
            ("onnxruntime", self.onnxruntime.as_ref().map(|path| text(&path.display()))),
            ("device", Some(text(&device))),
            ("workers", Some(number(self.workers as u64))),
            ("threads", Some(number(self.threads as u64))),
            ("max-batch", Some(number(self.max_batch as u64))),
            ("queue", Some(number(self.queue as u64))),
            ("max-deadline-ms", Some(number(self.max_deadline_ms))),
            ("max-message-bytes", Some(number(self.max_message_bytes as u64))),
            ("max-moves", Some(number(self.max_moves as u64))),
            ("drain-delay-ms", Some(number(self.drain_delay_ms))),
            ("drain-limit-ms", Some(number(self.drain_limit_ms))),
            ("reflection", Some(toml::Value::Boolean(self.reflection))),
            ("log", Some(text(&self.log))),
            ("log-format", Some(text(&format))),
        ];
        let mut lines = String::new();
        for (key, value) in values {
            match value {
                Some(value) => {
                    let _ = writeln!(lines, "{key} = {value}"); // Writing to a String cannot fail.
                }
                None => {
                    let _ = writeln!(lines, "# {key} = \"\"");
                }
            }
        }
        lines
    }
}

/// Reads a TOML file as the flags it stands for, except where the environment already gives a value.
///
/// # Errors
///
/// Names the file, and the line or the key.
pub fn file_as_flags(path: &Path, command: &Command) -> Result<Vec<OsString>> {
    let shown = || path.display().to_string();
    let text = fs::read_to_string(path).with_context(shown)?;
    let table: toml::Table = toml::from_str(&text).with_context(shown)?;
    let mut flags = Vec::new();
    for (key, value) in &table {
        let Some(argument) = command.get_arguments().find(|argument| argument.get_long() == Some(key)) else {
            bail!("{}: there is no option `{key}`", path.display());
        };
        if argument.get_env().is_some_and(|variable| std::env::var_os(variable).is_some()) {
            continue;
        }
        let value = match value {
            toml::Value::String(text) => text.clone(),
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Boolean(on) => on.to_string(),
            other => bail!("{}: `{key}` is a {}, not a text, number or true/false", path.display(), other.type_str()),
        };
        flags.push(OsString::from(format!("--{key}={value}")));
    }
    Ok(flags)
}
