//! A real sidecar on free ports, in this process.
#![allow(dead_code, missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, sleep},
};
use tonic::{Request, Status, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
use tonic_types::StatusExt;
use zeitnot_engine::{
    config::Config,
    server::{self, Listeners},
};
use zeitnot_proto::engine::v1::{
    CandidateScore, EvaluateCandidatesRequest, EvaluateCandidatesResponse, GetEngineRequest, GetEngineResponse, Limits,
    candidate_score::Score, engine_service_client::EngineServiceClient,
};

pub(crate) const START: &str = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1";

pub(crate) struct Sidecar {
    pub(crate) channel: Channel,
    pub(crate) grpc: String,
    pub(crate) admin: String,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Sidecar {
    /// Starts a sidecar and waits until it is ready.
    pub(crate) async fn start(config: Config) -> Self {
        let sidecar = Sidecar::start_cold(config).await;
        sidecar.until_health(ServingStatus::Serving).await;
        sidecar
    }

    /// Starts a sidecar and does not wait.
    pub(crate) async fn start_cold(config: Config) -> Self {
        let any = "127.0.0.1:0".parse().unwrap();
        let config = Config { listen: any, admin_listen: any, ..config };
        let listeners = Listeners::bind(&config).await.unwrap();
        let (grpc, admin) = (listeners.grpc_address().unwrap(), listeners.admin_address().unwrap());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server::run(config, listeners, async move { drop(stopped.await) }));
        let channel = Channel::from_shared(format!("http://{grpc}")).unwrap().connect_lazy();
        Sidecar { channel, grpc: grpc.to_string(), admin: admin.to_string(), stop: Some(stop), task }
    }

    pub(crate) fn client(&self) -> EngineServiceClient<Channel> {
        EngineServiceClient::new(self.channel.clone())
    }

    /// Asks for scores in half a minute.
    pub(crate) async fn ask(&self, request: EvaluateCandidatesRequest) -> Result<EvaluateCandidatesResponse, Status> {
        self.ask_within(request, Duration::from_secs(30)).await
    }

    pub(crate) async fn ask_within(
        &self,
        request: EvaluateCandidatesRequest,
        time: Duration,
    ) -> Result<EvaluateCandidatesResponse, Status> {
        let mut request = Request::new(request);
        request.set_timeout(time);
        Ok(self.client().evaluate_candidates(request).await?.into_inner())
    }

    pub(crate) async fn engine(&self) -> GetEngineResponse {
        self.client().get_engine(GetEngineRequest {}).await.unwrap().into_inner()
    }

    pub(crate) async fn health(&self, service: &str) -> ServingStatus {
        let mut client = HealthClient::new(self.channel.clone());
        client.check(HealthCheckRequest { service: service.to_owned() }).await.unwrap().into_inner().status()
    }

    /// Waits until health says so.
    pub(crate) async fn until_health(&self, status: ServingStatus) {
        eventually("health changes", async || self.health("").await == status).await;
    }

    /// Waits until a figure has at least a value.
    pub(crate) async fn until(&self, name: &str, value: f64) {
        eventually(name, async || self.metric(name).await >= value).await;
    }

    /// A figure of `/metrics`, by its name with labels.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let (_, page) = get(&self.admin, "/metrics").await;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} is missing in\n{page}")).parse().unwrap()
    }

    /// Asks for the end.
    pub(crate) fn signal(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// Waits for the end.
    pub(crate) async fn ended(self) -> anyhow::Result<()> {
        self.task.await.unwrap()
    }
}

/// Waits, at most half a minute, until something holds.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(Instant::now() < deadline, "not within half a minute: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// The engine that `make setup` installs; nothing, said aloud, where it is absent.
pub(crate) fn stockfish() -> Option<Config> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.native/bin/stockfish");
    if !program.exists() {
        eprintln!("skipped: {} is absent, `make setup` installs it", program.display());
        return None;
    }
    Some(Config { program: Some(program), processes: 1, drain_delay_ms: 0, ..Config::default() })
}

/// The engine that misbehaves, in the way that a file says.
pub(crate) struct Fake {
    folder: tempfile::TempDir,
}

impl Fake {
    pub(crate) fn new(mode: &str) -> Self {
        let fake = Fake { folder: tempfile::tempdir().unwrap() };
        fake.set(mode);
        fake
    }

    /// Changes the mode of starts and searches from now on.
    pub(crate) fn set(&self, mode: &str) {
        let unfinished = self.folder.path().join("unfinished");
        std::fs::write(&unfinished, mode).unwrap();
        std::fs::rename(unfinished, self.file()).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("mode")
    }

    pub(crate) fn args(&self) -> [String; 2] {
        ["--mode-file".to_owned(), self.file().to_str().unwrap().to_owned()]
    }

    /// One process of it, which is not waited for long.
    pub(crate) fn config(&self) -> Config {
        Config {
            program: Some(fake_engine()),
            args: self.args().into(),
            processes: 1,
            stop_limit_ms: 200,
            drain_delay_ms: 0,
            cache_entries: 0,
            ..Config::default()
        }
    }

    /// Its processes that run.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let file = self.file();
        let ids =
            std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let is_ours = |id: &u32| {
            let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            // The sidecar's own arguments name the file, too.
            line.split(|byte| *byte == 0).next().is_some_and(|program| program.ends_with(b"fake-engine"))
                && line.split(|byte| *byte == 0).any(|word| word == file.as_os_str().as_encoded_bytes())
        };
        ids.filter(is_ours).collect()
    }

    /// Waits until none runs: who is killed still takes a moment to die.
    pub(crate) async fn all_gone(&self) {
        eventually("no engine runs", async || self.processes().is_empty()).await;
    }
}

/// The program, built where it is absent.
pub(crate) fn fake_engine() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let own = std::env::current_exe().unwrap();
        let path = own.parent().unwrap().parent().unwrap().join("zeitnot-fake-engine");
        if !path.exists() {
            let build = ["build", "--release", "-p", "zeitnot-uci", "--bin", "zeitnot-fake-engine"];
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let built = Command::new(cargo).args(build).current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap();
            assert!(built.success() && path.exists(), "{} is not there", path.display());
        }
        path
    })
    .clone()
}

/// Sends a signal.
pub(crate) fn kill(id: u32, signal: &str) {
    let sent = Command::new("kill").args([format!("-{signal}"), id.to_string()]).status().unwrap();
    assert!(sent.success());
}

/// A request for a search to a depth.
pub(crate) fn request(fen: &str, candidates: &[&str], depth: u32) -> EvaluateCandidatesRequest {
    EvaluateCandidatesRequest {
        fen: fen.to_owned(),
        candidates: candidates.iter().map(ToString::to_string).collect(),
        limits: Some(Limits { depth, ..Limits::default() }),
    }
}

pub(crate) fn centipawns(score: &CandidateScore) -> i32 {
    match score.score {
        Some(Score::Centipawns(centipawns)) => centipawns,
        other => panic!("{}: {other:?}", score.uci),
    }
}

/// The machine-readable reason of an error.
pub(crate) fn reason(status: &Status) -> String {
    status.get_error_details().error_info().unwrap().reason.clone()
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
