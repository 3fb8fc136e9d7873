//! An engine sidecar that does as it is told, well or badly.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::runtime::Runtime;
use tonic::{Request, Response, Status, transport::server::TcpIncoming};
use zeitnot_inference::RerankerMetadata;
use zeitnot_network::{RerankerConfig, Weights, onnx};
use zeitnot_proto::engine::v1::{
    CandidateScore, EvaluateCandidatesRequest, EvaluateCandidatesResponse, GetEngineRequest, GetEngineResponse,
    candidate_score::Score,
    engine_service_server::{EngineService, EngineServiceServer},
};

/// What a sidecar does when it is asked.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Scores every candidate: the first one 100 centipawns, each next 10 less, and those named as said.
    Score(Vec<(&'static str, i32)>),
    /// The same, later.
    Slow(Duration),
    /// Never answers.
    Hang,
    /// Answers with a status.
    Refuse(tonic::Code),
    /// Scores every second candidate.
    Half,
    /// Scores nothing.
    Nothing,
    /// Scores all, in the opposite order.
    Backwards,
    /// Scores a move that was not asked for.
    WrongMove,
    /// Scores the first candidate twice and the last not at all.
    Twice,
    /// Scores one move more than asked for.
    TooMany,
    /// Scores beyond all measure.
    Absurd,
    /// Answers with megabytes.
    Flood,
}

/// A sidecar on a port of its own and, so that it can be killed like a process, in a runtime of its own.
pub(crate) struct Sidecar {
    pub(crate) address: SocketAddr,
    act: Arc<Mutex<Act>>,
    seen: Arc<Seen>,
    runtime: Option<Runtime>,
}

#[derive(Default)]
struct Seen {
    asked: AtomicUsize,
    abandoned: AtomicUsize,
    last: Mutex<Option<EvaluateCandidatesRequest>>,
}

impl Sidecar {
    pub(crate) fn start(act: Act) -> Self {
        Sidecar::start_at("127.0.0.1:0".parse().unwrap(), act)
    }

    pub(crate) fn start_at(address: SocketAddr, act: Act) -> Self {
        Sidecar::start_with(address, act, tonic::transport::Server::builder())
    }

    /// With this server, such as one with a certificate.
    pub(crate) fn start_with(address: SocketAddr, act: Act, mut server: tonic::transport::Server) -> Self {
        let (act, seen) = (Arc::new(Mutex::new(act)), Arc::<Seen>::default());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let service = EngineServiceServer::new(Actor { act: Arc::clone(&act), seen: Arc::clone(&seen) });
        let listener = bind(address);
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move {
            let incoming = TcpIncoming::from(tokio::net::TcpListener::from_std(listener).unwrap());
            server.add_service(service).serve_with_incoming(incoming).await.unwrap();
        });
        Sidecar { address, act, seen, runtime: Some(runtime) }
    }

    /// As an option of the server.
    pub(crate) fn flag(&self) -> String {
        format!("--engines=http://{}", self.address)
    }

    /// From now on.
    pub(crate) fn act(&self, act: Act) {
        *self.act.lock().unwrap() = act;
    }

    pub(crate) fn asked(&self) -> usize {
        self.seen.asked.load(Ordering::SeqCst)
    }

    /// How often nobody waited for an answer any more.
    pub(crate) fn abandoned(&self) -> usize {
        self.seen.abandoned.load(Ordering::SeqCst)
    }

    /// The last question.
    pub(crate) fn last(&self) -> EvaluateCandidatesRequest {
        self.seen.last.lock().unwrap().clone().unwrap()
    }

    /// Ends as a killed process does, with its connections.
    pub(crate) fn kill(mut self) -> SocketAddr {
        self.runtime.take().unwrap().shutdown_background();
        self.address
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Takes a port, from a sidecar that may not have let go of it yet.
fn bind(address: SocketAddr) -> std::net::TcpListener {
    let mut tries = 0;
    loop {
        match std::net::TcpListener::bind(address) {
            Ok(listener) => return listener,
            Err(error) if tries > 500 => panic!("{address}: {error}"),
            Err(_) => tries += 1,
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

struct Actor {
    act: Arc<Mutex<Act>>,
    seen: Arc<Seen>,
}

/// Notes a question that ends before it is answered.
struct Waiting<'a>(&'a AtomicUsize, bool);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[tonic::async_trait]
impl EngineService for Actor {
    async fn evaluate_candidates(
        &self,
        request: Request<EvaluateCandidatesRequest>,
    ) -> Result<Response<EvaluateCandidatesResponse>, Status> {
        let question = request.into_inner();
        self.seen.asked.fetch_add(1, Ordering::SeqCst);
        *self.seen.last.lock().unwrap() = Some(question.clone());
        let act = self.act.lock().unwrap().clone();
        let mut waiting = Waiting(&self.seen.abandoned, false);
        match act {
            Act::Slow(time) => tokio::time::sleep(time).await,
            Act::Hang => std::future::pending().await,
            _ => {}
        }
        waiting.1 = true;
        answer(&act, &question).map(Response::new)
    }

    async fn get_engine(&self, _: Request<GetEngineRequest>) -> Result<Response<GetEngineResponse>, Status> {
        Ok(Response::new(GetEngineResponse::default()))
    }
}

fn answer(act: &Act, question: &EvaluateCandidatesRequest) -> Result<EvaluateCandidatesResponse, Status> {
    let named = |uci: &str| match act {
        Act::Score(named) => named.iter().find(|(own, _)| *own == uci).map(|(_, cp)| *cp),
        _ => None,
    };
    let score = |(place, uci): (usize, &String)| {
        let cp = named(uci).unwrap_or(100 - 10 * place as i32);
        CandidateScore { uci: uci.clone(), score: Some(Score::Centipawns(cp)), rank: 1 + place as u32, depth: 12 }
    };
    let mut scores = question.candidates.iter().enumerate().map(score).collect::<Vec<_>>();
    let last = scores.len() - 1;
    let mut engine = "scripted".to_owned();
    match act {
        Act::Refuse(code) => return Err(Status::new(*code, "as it was told")),
        Act::Half => scores.iter_mut().skip(1).step_by(2).for_each(|score| score.score = None),
        Act::Nothing => scores.iter_mut().for_each(|score| score.score = None),
        Act::Backwards => scores.reverse(),
        Act::WrongMove => scores[last].uci = "a1a1".to_owned(),
        Act::Twice => scores[last] = scores[0].clone(),
        Act::TooMany => scores.push(scores[0].clone()),
        Act::Absurd => scores[0].score = Some(Score::Centipawns(i32::MAX)),
        Act::Flood => engine = "x".repeat(3 << 20),
        Act::Score(_) | Act::Slow(_) | Act::Hang => {}
    }
    let complete = !matches!(act, Act::Half | Act::Nothing);
    Ok(EvaluateCandidatesResponse { scores, depth: 12, complete, engine, ..EvaluateCandidatesResponse::default() })
}

/// Accepts connections and never says a word.
pub(crate) struct BlackHole {
    pub(crate) address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl BlackHole {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut accepted = Vec::new();
            loop {
                accepted.push(listener.accept().await.unwrap());
            }
        });
        BlackHole { address, task }
    }

    pub(crate) async fn end(self) -> SocketAddr {
        self.task.abort();
        let _ = self.task.await; // With it the port is free.
        self.address
    }
}

/// A re-ranker with weights by formula: its residuals mean nothing, and are not zero.
pub(crate) fn reranker(name: &str, allocator: &str) -> Vec<u8> {
    let config = RerankerConfig::default();
    let weights = Weights::by_formula(&config.specs());
    let metadata = RerankerMetadata {
        name: name.to_owned(),
        version: "1".to_owned(),
        prior: "zeitnot".to_owned(),
        allocator: allocator.to_owned(),
        ..RerankerMetadata::default()
    };
    onnx::export_reranker(&config, &weights, &metadata.entries()).unwrap()
}

/// The file of such a re-ranker, named `scripted`.
pub(crate) fn reranker_file() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
        let unfinished = folder.join(format!("reranker-{}.tmp", std::process::id()));
        std::fs::write(&unfinished, reranker("scripted", "")).unwrap();
        std::fs::rename(unfinished, folder.join("reranker.onnx")).unwrap();
        folder.join("reranker.onnx")
    })
    .clone()
}
