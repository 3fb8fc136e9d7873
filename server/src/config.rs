//! Every option of the server: a flag, an environment variable and a key of a TOML file, all of one name.
//!
//! A flag beats the variable, the variable beats the file, the file beats the default.

mod rerank;

use std::{
    ffi::OsString,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::{Args, Command, ValueEnum};
use serde::{Serialize, Serializer};
use tonic::codegen::http::Uri;
use tracing_subscriber::EnvFilter;
use zeitnot_inference::{Device, Provider, runtime::PATH_VARIABLE};

pub use rerank::{DefaultMode, RerankOptions};

use crate::{batcher::Limits, keys::Keys, model_files, rerank::kit, tls};

/// The options.
#[derive(Args, Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Options of the server")]
pub struct Config {
    /// Where gRPC is served
    #[arg(long, env = "ZEITNOT_LISTEN", default_value = "0.0.0.0:50051")]
    pub listen: SocketAddr,
    /// Where /live, /ready and /metrics are served over HTTP
    #[arg(long, env = "ZEITNOT_ADMIN_LISTEN", default_value = "0.0.0.0:9090")]
    pub admin_listen: SocketAddr,
    /// Model files (ONNX) and directories of them, separated by commas; the first model is the default one. The embedded
    /// model when not given
    #[arg(long, env = "ZEITNOT_MODEL", value_delimiter = ',', num_args = 1, action = clap::ArgAction::Set)]
    pub model: Vec<PathBuf>,
    /// Name of the model for requests that name none; the first when not given
    #[arg(long, env = "ZEITNOT_DEFAULT_MODEL")]
    pub default_model: Option<String>,
    /// How often to look whether files of models, keys and certificates have changed, in milliseconds; 0: at SIGHUP alone
    #[arg(long, env = "ZEITNOT_WATCH_MS", default_value_t = 5_000)]
    pub watch_ms: u64,
    /// ONNX Runtime library; where ORT_DYLIB_PATH points when not given
    #[arg(long, env = "ZEITNOT_ONNXRUNTIME")]
    pub onnxruntime: Option<PathBuf>,
    /// Where to run the model: auto, cpu or cuda
    #[serde(serialize_with = "device_name")]
    #[arg(long, env = "ZEITNOT_DEVICE", default_value = "auto")]
    pub device: Device,
    /// Worker threads of each model, one session each; 0 fills the CPU quota, and is one on CUDA
    #[arg(long, env = "ZEITNOT_WORKERS", default_value_t = 0)]
    pub workers: usize,
    /// Threads inside one run of a worker
    #[arg(long, env = "ZEITNOT_THREADS", default_value_t = 1)]
    pub threads: usize,
    /// Most requests in one batch
    #[arg(long, env = "ZEITNOT_MAX_BATCH", default_value_t = 8)]
    pub max_batch: usize,
    /// How long a worker waits for a batch to fill, in microseconds
    #[arg(long, env = "ZEITNOT_BATCH_DELAY_US", default_value_t = 0)]
    pub batch_delay_us: u64,
    /// Memory for recent predictions, in MiB; 0 keeps none
    #[arg(long, env = "ZEITNOT_CACHE_MIB", default_value_t = 32)]
    pub cache_mib: u64,
    /// Whether identical requests under way at the same time are computed once
    #[arg(long, env = "ZEITNOT_COALESCE", default_value_t = true, action = clap::ArgAction::Set)]
    pub coalesce: bool,
    /// Most requests of each model waiting or computed at the same time; further ones are refused
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
    /// Most connections at the same time; further ones are closed
    #[arg(long, env = "ZEITNOT_MAX_CONNECTIONS", default_value_t = 4_096)]
    pub max_connections: usize,
    /// Most requests at the same time on one connection
    #[arg(long, env = "ZEITNOT_MAX_STREAMS", default_value_t = 1_024)]
    pub max_streams: u32,
    /// How long a connection may take to say its first word and agree on TLS, in milliseconds
    #[arg(long, env = "ZEITNOT_HANDSHAKE_MS", default_value_t = 10_000)]
    pub handshake_ms: u64,
    /// Certificate chain (PEM); with it connections are encrypted
    #[arg(long, env = "ZEITNOT_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, env = "ZEITNOT_TLS_KEY")]
    pub tls_key: Option<PathBuf>,
    /// Authority (PEM) that must have signed the clients' certificates; without it clients need none
    #[arg(long, env = "ZEITNOT_TLS_CLIENT_CA")]
    pub tls_client_ca: Option<PathBuf>,
    /// File of API keys (TOML); without it nobody is asked for one
    #[arg(long, env = "ZEITNOT_API_KEYS")]
    pub api_keys: Option<PathBuf>,
    /// How long to go on serving after a request to terminate, while balancers learn of it, in milliseconds
    #[arg(long, env = "ZEITNOT_DRAIN_DELAY_MS", default_value_t = 3_000)]
    pub drain_delay_ms: u64,
    /// How long accepted requests may take after that, in milliseconds
    #[arg(long, env = "ZEITNOT_DRAIN_LIMIT_MS", default_value_t = 15_000)]
    pub drain_limit_ms: u64,
    /// Whether the server describes its services to clients
    #[arg(long, env = "ZEITNOT_REFLECTION", default_value_t = true, action = clap::ArgAction::Set)]
    pub reflection: bool,
    /// Share of the requests that are logged, from 0 to 1; those that end as INTERNAL always are
    #[arg(long, env = "ZEITNOT_ACCESS_LOG", default_value_t = 0.01)]
    pub access_log: f64,
    /// Where traces are sent by OTLP over gRPC, such as http://localhost:4317; nowhere when not given
    #[arg(long, env = "ZEITNOT_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,
    /// Share of the requests that are traced when their callers do not say, from 0 to 1
    #[arg(long, env = "ZEITNOT_OTLP_SAMPLE", default_value_t = 1.0)]
    pub otlp_sample: f64,
    /// What to log, such as info or zeitnot_server=debug
    #[arg(long, env = "ZEITNOT_LOG", default_value = "info,ort=warn")]
    pub log: String,
    /// How to log
    #[arg(long, env = "ZEITNOT_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// How moves are re-ranked
    #[command(flatten)]
    #[serde(flatten)]
    pub rerank: RerankOptions,
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
            ("max-connections", self.max_connections),
            ("max-streams", self.max_streams as usize),
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
        for (name, value) in [("max-deadline-ms", self.max_deadline_ms), ("handshake-ms", self.handshake_ms)] {
            if value == 0 {
                bail!("--{name}: must be at least 1");
            }
        }
        let most = [("cache-mib", self.cache_mib, 1 << 24), ("max-connections", self.max_connections as u64, 1 << 24)];
        for (name, value, most) in most {
            if value > most {
                bail!("--{name}: {value} is more than {most}");
            }
        }
        for (name, value) in [("access-log", self.access_log), ("otlp-sample", self.otlp_sample)] {
            if !(0.0..=1.0).contains(&value) {
                bail!("--{name}: {value} is not between 0 and 1");
            }
        }
        EnvFilter::try_new(&self.log).with_context(|| format!("--log: cannot read `{}`", self.log))?;
        if let Some(endpoint) = &self.otlp_endpoint {
            // Traces go to a collector beside the server, which knows about TLS.
            let uri = endpoint.parse::<Uri>().ok().filter(|uri| uri.scheme_str() == Some("http"));
            uri.with_context(|| format!("--otlp-endpoint: `{endpoint}` is not like http://localhost:4317"))?;
        }
        self.rerank.check()
    }

    /// What is wrong with the files the options name, before anything listens. Models are looked for, not loaded.
    ///
    /// # Errors
    ///
    /// A sentence for people, naming the option and the file.
    pub fn check_files(&self) -> Result<()> {
        model_files::find(&self.model)?;
        tls::read(self)?;
        self.api_keys.as_deref().map(Keys::read).transpose()?;
        self.rerank.check_files()?;
        let variable = std::env::var_os(PATH_VARIABLE).map(PathBuf::from);
        let library = self.onnxruntime.clone().or(variable);
        let library = library.with_context(|| format!("--onnxruntime: give its path, or set {PATH_VARIABLE}"))?;
        if !library.is_file() {
            bail!("--onnxruntime: {}: there is no such file; `make setup` installs it", library.display());
        }
        Ok(())
    }

    /// Bounds of a model's queue.
    pub fn limits(&self, provider: Provider) -> Limits {
        Limits {
            capacity: self.queue,
            max_batch: self.max_batch,
            delay: Duration::from_micros(self.batch_delay_us),
            workers: self.worker_count(provider),
            coalesce: self.coalesce,
            pooled: kit::is_wanted(&self.rerank),
        }
    }

    /// Files of keys and certificates.
    pub fn credential_files(&self) -> Vec<PathBuf> {
        let files = [&self.tls_cert, &self.tls_key, &self.tls_client_ca, &self.api_keys];
        files.into_iter().flatten().cloned().collect()
    }

    /// How often files are looked at; zero for never.
    pub fn watch_interval(&self) -> Duration {
        Duration::from_millis(self.watch_ms)
    }

    /// How long a connection may take until it can be used.
    pub fn handshake_limit(&self) -> Duration {
        Duration::from_millis(self.handshake_ms)
    }

    /// The number of workers of each model that runs there.
    pub fn worker_count(&self, provider: Provider) -> usize {
        // The standard library follows the CPU affinity and the cgroup's quota, v1 and v2.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        match (self.workers, provider) {
            (0, Provider::Cpu) => (cores / self.threads).max(1),
            // One session fills a GPU with its batches; several would share them out and the memory, too.
            (0, Provider::Cuda) => 1,
            (workers, _) => workers,
        }
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

    /// The values as a TOML file that means the same. Options without a value are left out.
    ///
    /// # Errors
    ///
    /// When a path is not valid Unicode.
    pub fn to_toml(&self) -> Result<String> {
        Ok(toml::to_string(self)?)
    }
}

fn device_name<S: Serializer>(device: &Device, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match device {
        Device::Auto => "auto",
        Device::Cpu => "cpu",
        Device::Cuda => "cuda",
    })
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
        if matches!(value, toml::Value::Array(texts) if texts.is_empty()) {
            continue;
        }
        let value = match value {
            toml::Value::String(text) => text.clone(),
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Boolean(on) => on.to_string(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Array(texts) => {
                let texts = texts.iter().map(toml::Value::as_str).collect::<Option<Vec<_>>>();
                texts.with_context(|| format!("{}: `{key}` holds something else than texts", path.display()))?.join(",")
            }
            other => bail!(
                "{}: `{key}` is a {}, not a text, number, true/false or list of texts",
                path.display(),
                other.type_str()
            ),
        };
        flags.push(OsString::from(format!("--{key}={value}")));
    }
    Ok(flags)
}
