//! A real server on free ports, in this process.
#![allow(dead_code, missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

pub(crate) mod asking;
mod chaos;
mod process;
mod sidecar;

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

#[allow(unused_imports)] // Not every test needs broken engines.
pub(crate) use chaos::Chaos;
#[allow(unused_imports)] // Nor the binary.
pub(crate) use process::{BINARY, Process, resident_kib};
#[allow(unused_imports)] // Nor a sidecar.
pub(crate) use sidecar::{Act, BlackHole, Sidecar, reranker, reranker_file};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};
use tonic::transport::Channel;
use zeitnot_encoding::Otter;
use zeitnot_inference::Metadata;
use zeitnot_network::{NetworkConfig, OtterConfig, Weights, onnx, specs};
use zeitnot_proto::v1::{
    Clock, Mover, Opponent, Position, PredictRequest, RatingSystem, TimeControl,
    model_service_client::ModelServiceClient, prediction_service_client::PredictionServiceClient,
};
use zeitnot_server::{
    cli::{Cli, Command},
    models::{self, Opener},
    server::{self, Listeners, Signals},
};

pub(crate) struct Server {
    pub(crate) channel: Channel,
    pub(crate) grpc: String,
    pub(crate) admin: String,
    /// Stands for SIGHUP.
    pub(crate) hangup: mpsc::Sender<()>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Server {
    /// Starts a server with further flags and waits until it is ready.
    pub(crate) async fn start(flags: &[&str]) -> Self {
        let server = Server::start_cold(flags).await;
        server.ready().await;
        server
    }

    /// Waits, at most a minute, until the server is ready.
    pub(crate) async fn ready(&self) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while get(&self.admin, "/ready").await.0 != 200 {
            assert!(tokio::time::Instant::now() < deadline, "not ready after a minute");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Starts a server and does not wait.
    pub(crate) async fn start_cold(flags: &[&str]) -> Self {
        Server::start_with(flags, None).await
    }

    /// Starts a server that opens its models in this way, or in ONNX Runtime, and does not wait.
    pub(crate) async fn start_with(flags: &[&str], opener: Option<Opener>) -> Self {
        let fixed = ["zeitnot", "serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--drain-delay-ms=0"];
        // Most tests send the same request again and want it computed again.
        let fixed = fixed.iter().chain(&["--cache-mib=0", "--coalesce=false"]).copied().collect::<Vec<_>>();
        let arguments = fixed.iter().chain(flags).map(std::ffi::OsString::from);
        let Command::Serve(configured) = Cli::read(arguments).unwrap().command else { unreachable!() };
        let listeners = Listeners::bind(&configured.options).await.unwrap();
        let (grpc, admin) = (listeners.grpc_address().unwrap(), listeners.admin_address().unwrap());
        let (stop, stopped) = oneshot::channel();
        let shutdown = async move {
            let _ = stopped.await;
        };
        let opener = opener.unwrap_or_else(|| models::onnx_runtime(&configured.options));
        let (hangup, hangups) = mpsc::channel(1);
        let signals = Signals { shutdown, hangups };
        let task = tokio::spawn(server::run(configured.options, listeners, opener, signals));
        let channel = Channel::from_shared(format!("http://{grpc}")).unwrap().connect_lazy();
        Server { channel, grpc: grpc.to_string(), admin: admin.to_string(), hangup, stop, task }
    }

    pub(crate) fn predictions(&self) -> PredictionServiceClient<Channel> {
        PredictionServiceClient::new(self.channel.clone())
    }

    pub(crate) fn models(&self) -> ModelServiceClient<Channel> {
        ModelServiceClient::new(self.channel.clone())
    }

    /// The sum of the figures of `/metrics` whose names with labels start so.
    pub(crate) async fn metric(&self, start: &str) -> f64 {
        total(&get(&self.admin, "/metrics").await.1, start)
    }

    /// Waits until so many Predict requests were admitted, answered or not.
    pub(crate) async fn admitted(&self, requests: f64) {
        wait_for_admitted(&self.admin, requests).await;
    }

    /// Waits, at most a minute, until a figure has a value.
    pub(crate) async fn until(&self, name: &str, value: f64) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            let now = self.metric(name).await;
            if now == value {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "{name} is {now}, not {value}, after a minute");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until the server ends by itself.
    pub(crate) async fn ended(self) -> anyhow::Result<()> {
        self.task.await.unwrap()
    }

    /// Asks for the end and waits for it.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        let _ = self.stop.send(());
        self.task.await.unwrap()
    }
}

/// The sum of all figures of a page of metrics whose names with labels start so; NaN when there is none.
pub(crate) fn total(page: &str, start: &str) -> f64 {
    let figures = page.lines().filter(|line| line.starts_with(start));
    let figures = figures.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    figures.reduce(|a, b| a + b).unwrap_or(f64::NAN)
}

/// Waits, at most a minute, until so many Predict requests were admitted, answered or not, by one page of metrics.
pub(crate) async fn wait_for_admitted(admin: &str, requests: f64) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let (_, page) = get(admin, "/metrics").await;
        let answered = total(&page, "zeitnot_requests_total{code=\"OK\",method=\"Predict\",");
        let admitted = total(&page, "zeitnot_admitted_requests{") + answered;
        if admitted >= requests {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{admitted} of {requests} admitted after a minute");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Status and body of an HTTP GET.
pub(crate) async fn get(address: &str, path: &str) -> (u16, String) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

pub(crate) fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

/// A request with everything known.
pub(crate) fn request(moves: &[&str]) -> PredictRequest {
    PredictRequest {
        position: Some(Position { initial_fen: String::new(), moves: moves.iter().map(ToString::to_string).collect() }),
        mover: Some(Mover { rating: Some(1500), rating_system: RatingSystem::Lichess.into(), style: None }),
        opponent: Some(Opponent { rating: Some(1520), rating_system: RatingSystem::Lichess.into() }),
        time_control: Some(TimeControl { initial: seconds(600), increment: seconds(5) }),
        clock: Some(Clock { mover_remaining: seconds(590), opponent_remaining: seconds(580) }),
        ..PredictRequest::default()
    }
}

/// A request for a player whose moves are re-ranked by default.
pub(crate) fn strong(moves: &[&str]) -> PredictRequest {
    let mut asked = request(moves);
    asked.mover.as_mut().unwrap().rating = Some(2600);
    asked
}

/// The reference network with weights by formula: more than 10 ms a position on one core, slow enough to fill queues.
pub(crate) fn slow_model() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let config = NetworkConfig::Otter(OtterConfig::reference());
        let weights = Weights::by_formula(&specs::of(&config));
        let metadata = Metadata::new(&Otter, "slow", "7", "nothing", "GPL-3.0-or-later");
        let bytes = onnx::export(&config, &weights, &metadata.entries()).unwrap();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (path, unfinished) = (folder.join("slow.onnx"), folder.join(format!("slow-{}.tmp", std::process::id())));
        std::fs::write(&unfinished, bytes).unwrap();
        std::fs::rename(unfinished, &path).unwrap();
        path
    })
    .clone()
}

/// The processor and its cores, for benchmarks.
pub(crate) fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {cores} cores", name.trim_start_matches([' ', '\t', ':']))
}

/// The version of ONNX Runtime, by the name of the library that is linked to.
pub(crate) fn onnxruntime() -> String {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.native/onnxruntime/libonnxruntime.so");
    let library = std::fs::read_link(library).unwrap();
    library.to_string_lossy().trim_start_matches("libonnxruntime.so.").to_owned()
}
