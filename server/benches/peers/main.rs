//! Zeitnot beside other ways to serve the same network: mosec, LitServe, Triton, and the reference Python package.
//!
//! All serve one file, the reference network with the same weights, with two sessions of one thread each and batches of
//! up to eight, to clients on the same two cores. The peers are sent encoded tensors, Zeitnot the situation itself: it
//! also replays the game, encodes it and names the moves. Servers run one at a time, round by round; medians are shown.
//!
//! Run by `make bench-peers`, which prepares what it needs: the model and the peers' environment.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod http;
mod servers;

use std::{
    fs,
    path::Path,
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use servers::{PEERS, Peer, Running};
use shakmaty::{CastlingMode, Chess, EnPassantMode, Position, fen::Fen, san::SanPlus, uci::UciMove};
use zeitnot_encoding::{Batch, Otter};
use zeitnot_inference::{Device, Runtime, Session, SessionOptions};
use zeitnot_load::{
    games,
    generate::{closed_loop, open_loop},
    grpc::{Connect, Grpc},
    target::Target,
};
use zeitnot_proto::v1::PredictRequest;
use zeitnot_server::wire;

const WORKERS: usize = 2;
const BATCH: usize = 8;
/// Calls under way to find a server's capacity: twice what its batches hold.
const UNDER_WAY: usize = 2 * WORKERS * BATCH;
/// Deadline of every call. What comes later is not counted as answered, whoever serves.
const DEADLINE: Duration = Duration::from_secs(1);
const GAMES: usize = 200;

fn seconds() -> f64 {
    std::env::var("BENCH_SECONDS").map_or(10.0, |seconds| seconds.parse().unwrap())
}

fn rounds() -> usize {
    std::env::var("BENCH_ROUNDS").map_or(3, |rounds| rounds.parse().unwrap())
}

#[tokio::main]
async fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let games = root.join("../shared/games/heldout-rapid.pgn.zst");
    let model = root.join("target/peers/reference.onnx");
    for (needed, how) in [(&games, "the shared games"), (&model, "`make bench-peers`")] {
        assert!(needed.exists(), "{} is missing: {how}", needed.display());
    }
    let requests = games::read(&games, GAMES).unwrap().into_iter().flatten().filter(known).collect::<Vec<_>>();
    let work = root.join("target/peers");
    fs::write(work.join("situations.jsonl"), situations(&requests)).unwrap();
    let rows = requests.iter().map(row).collect::<Vec<_>>();
    let mut all = vec![Vec::new(); PEERS.len()];
    let (mut bare, mut reference) = (Vec::new(), Vec::new());
    for round in 0..rounds() {
        eprintln!("round {} of {}", round + 1, rounds());
        let path = model.clone();
        bare.push(tokio::task::spawn_blocking(move || bare_throughput(&path)).await.unwrap());
        for (place, peer) in PEERS.iter().enumerate() {
            all[place].push(measure(root, peer, &model, &requests, &rows).await);
        }
        reference.push(measure_reference(root, &work));
    }
    let median_of = |values: &[Value], pointer: &str| {
        median(values.iter().map(|value| value.pointer(pointer).unwrap().as_f64().unwrap()).collect())
    };
    let servers = PEERS.iter().zip(&all).map(|(peer, rounds)| {
        json!({
            "name": peer.name,
            "version": peer.version(root),
            "positions_per_second": median_of(rounds, "/capacity/answered_per_second"),
            "of_bare": median_of(rounds, "/capacity/answered_per_second") / median(bare.clone()),
            "p50_ms_at_50": median_of(rounds, "/half/latency_ms/p50"),
            "p99_ms_at_50": median_of(rounds, "/half/latency_ms/p99"),
            "p50_ms_at_80": median_of(rounds, "/most/latency_ms/p50"),
            "p99_ms_at_80": median_of(rounds, "/most/latency_ms/p99"),
            "common_p50_ms": median_of(rounds, "/common/latency_ms/p50"),
            "common_p99_ms": median_of(rounds, "/common/latency_ms/p99"),
            "memory_mib": median_of(rounds, "/memory_mib"),
            "overload_goodput": median_of(rounds, "/overload/answered_per_second"),
            "overload_refused": median_of(rounds, "/overload/refused"),
            "overload_late": median_of(rounds, "/overload/late"),
            "overload_failed": median_of(rounds, "/overload_failed"),
            "overload_p99_ms": median_of(rounds, "/overload/latency_ms/p99"),
            "rounds": rounds,
        })
    });
    let figures = json!({
        "benchmark": "peers",
        "machine": common::machine(),
        "onnxruntime": common::onnxruntime(),
        "rounds": rounds(),
        "seconds_a_step": seconds(),
        "common_per_second": COMMON,
        "situations": requests.len(),
        "workers": WORKERS,
        "threads_a_worker": 1,
        "max_batch": BATCH,
        "deadline_ms": DEADLINE.as_millis(),
        "bare_positions_per_second": median(bare.clone()),
        "servers": servers.collect::<Vec<_>>(),
        "reference": {
            "version": servers::package(root, "otter-chess"),
            "positions_per_second": median_of(&reference, "/positions_per_second"),
            "median_ms": median_of(&reference, "/median_ms"),
            "p99_ms": median_of(&reference, "/p99_ms"),
            "memory_mib": median_of(&reference, "/rss_mib"),
        },
    });
    fs::write(root.join("docs/benchmarks/peers.json"), format!("{figures:#}\n")).unwrap();
}

/// Calls a second that all servers are also given alike, well below what each can bear.
const COMMON: f64 = 90.0;

/// Situations that the reference package can be asked, too: both ratings and the time control known.
fn known(request: &PredictRequest) -> bool {
    let rated = request.mover.as_ref().and_then(|mover| mover.rating).is_some()
        && request.opponent.as_ref().and_then(|opponent| opponent.rating).is_some();
    rated && request.time_control.as_ref().is_some_and(|control| control.initial.unwrap().seconds > 0)
}

/// The encoded situation of a request, as bytes.
fn row(request: &PredictRequest) -> Vec<u8> {
    let query = wire::query(request.clone(), 1024).unwrap();
    let mut bytes = Vec::new();
    Batch::of(&Otter, [&query.situation]).write_bytes(&mut bytes);
    bytes
}

/// Requests as the script of the reference package reads them.
fn situations(requests: &[PredictRequest]) -> String {
    let line = |request: &PredictRequest| {
        let (fen, moves) = replay(request);
        let control = request.time_control.unwrap();
        let seconds = |duration: Option<prost_types::Duration>| duration.map_or(0.0, |time| time.seconds as f64);
        json!({
            "fen": fen,
            "moves": moves,
            "mover_rating": request.mover.as_ref().unwrap().rating,
            "opponent_rating": request.opponent.unwrap().rating,
            "initial": seconds(control.initial),
            "increment": seconds(control.increment),
            "mover_remaining": seconds(request.clock.unwrap().mover_remaining),
        })
    };
    requests.iter().map(|request| format!("{}\n", line(request))).collect()
}

/// The position of a request as FEN, and its moves in UCI.
fn replay(request: &PredictRequest) -> (String, Vec<String>) {
    let mut position = Chess::default();
    let mut moves = Vec::new();
    for san in &request.position.as_ref().unwrap().moves {
        let mv = san.parse::<SanPlus>().unwrap().san.to_move(&position).unwrap();
        moves.push(UciMove::from_move(mv, CastlingMode::Standard).to_string());
        position.play_unchecked(mv);
    }
    (Fen::from_position(&position, EnPassantMode::Legal).to_string(), moves)
}

async fn measure(root: &Path, peer: &Peer, model: &Path, requests: &[PredictRequest], rows: &[Vec<u8>]) -> Value {
    eprintln!("  {}", peer.name);
    let running = Running::start(root, peer, model);
    match peer.http {
        Some(path) => {
            let header = peer.header(rows[0].len());
            let target = http::Http::new(running.port, path, header, rows, DEADLINE);
            running.ready(|| target.call(0)).await;
            steps(&running, &Arc::new(target)).await
        }
        None => {
            let connect = Connect {
                address: format!("http://127.0.0.1:{}", running.port),
                connections: 4,
                deadline: DEADLINE,
                key: None,
                tls_ca: None,
            };
            running
                .ready(|| async { Grpc::connect(&connect, requests.to_vec()).await.map_or_else(failed, |_| ok()) })
                .await;
            let target = Arc::new(Grpc::connect(&connect, requests.to_vec()).await.unwrap());
            running.ready(|| target.call(0)).await;
            steps(&running, &target).await
        }
    }
}

fn ok() -> zeitnot_load::target::Outcome {
    zeitnot_load::target::Outcome::Answered
}

fn failed(error: anyhow::Error) -> zeitnot_load::target::Outcome {
    zeitnot_load::target::Outcome::Failed(error.to_string())
}

/// Capacity, then latency at half and at four fifths of it and at a rate common to all, memory, and three times too much.
async fn steps<T: Target>(running: &Running, target: &Arc<T>) -> Value {
    closed_loop(target, UNDER_WAY, 2.0, 0).await.unwrap();
    let capacity = closed_loop(target, UNDER_WAY, seconds(), 0).await.unwrap().figures();
    let rate = capacity.answered_per_second;
    let half = open_loop(target, 0.5 * rate, seconds(), 1, 0).await.unwrap().figures();
    let most = open_loop(target, 0.8 * rate, seconds(), 2, 0).await.unwrap().figures();
    let common = open_loop(target, COMMON, seconds(), 3, 0).await.unwrap().figures();
    let memory = running.memory_mib();
    let overload = open_loop(target, 3.0 * rate, seconds(), 4, 0).await.unwrap().figures();
    let overload_failed = overload.failures.values().sum::<u64>();
    json!({
        "capacity": capacity, "half": half, "most": most, "common": common, "overload": overload,
        "overload_failed": overload_failed, "memory_mib": memory,
    })
}

/// Positions a second of bare sessions, one a thread, over full batches.
fn bare_throughput(model: &Path) -> f64 {
    let options = SessionOptions { device: Device::Cpu, threads: 1 };
    let situation = zeitnot_encoding::Situation::default();
    let batch = Batch::of(&Otter, std::iter::repeat_n(&situation, BATCH));
    let sessions = (0..WORKERS).map(|_| Session::open(&Runtime::load(None).unwrap(), model, options).unwrap());
    let mut sessions = sessions.collect::<Vec<_>>();
    sessions.iter_mut().for_each(|session| drop(session.run(&batch).unwrap()));
    let (started, limit) = (Instant::now(), Duration::from_secs_f64(seconds()));
    let runs = thread::scope(|scope| {
        let run = |mut session: Session| {
            let batch = &batch;
            scope.spawn(move || {
                let mut runs = 0;
                while started.elapsed() < limit {
                    session.run(batch).unwrap();
                    runs += 1;
                }
                runs
            })
        };
        let handles = sessions.into_iter().map(run).collect::<Vec<_>>();
        handles.into_iter().map(|handle| handle.join().unwrap()).sum::<usize>()
    });
    (runs * BATCH) as f64 / started.elapsed().as_secs_f64()
}

fn measure_reference(root: &Path, work: &Path) -> Value {
    eprintln!("  reference package");
    let output = Command::new(servers::python(root))
        .arg(root.join("scripts/peers/reference.py"))
        .arg("measure")
        .args([work.join("reference.safetensors"), work.join("situations.jsonl")])
        .arg(seconds().to_string())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
