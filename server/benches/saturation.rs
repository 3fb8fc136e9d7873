//! The server against a bare ONNX Runtime loop over the same file in the same layout, in one run.
//!
//! Throughput: as many threads with a session each as the server has workers, over batches of `max_batch`, against the
//! server with enough requests under way to fill them. Latency: one session at batch 1 against one client with one
//! request at a time. Both sides alternate, round by round, and the medians of the rounds are compared.
//!
//! For the reference network (15.3M parameters, weights by formula) and the embedded model.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::{
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use common::{Server, request, slow_model};
use serde_json::{Value, json};
use zeitnot_encoding::{Batch, Conditions, Encoding, Game, TimeControl};
use zeitnot_inference::{Device, Runtime, Session, SessionOptions};

const ROUNDS: usize = 7;
const BATCH: usize = 8;
const ROUND: Duration = Duration::from_secs(4);
const MOVES: [&str; 9] = ["e4", "e5", "Nf3", "Nc6", "Bb5", "a6", "Ba4", "Nf6", "O-O"];

fn main() {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let embedded = root.join("models/zeitnot.onnx");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let models = [("reference network, 15.3M parameters", slow_model()), ("embedded model", embedded)];
    let results = models.map(|(name, path)| runtime.block_on(compare(name, path, workers)));
    let figures = json!({
        "benchmark": "saturation",
        "machine": common::machine(),
        "onnxruntime": common::onnxruntime(),
        "rounds": ROUNDS,
        "seconds_a_round": ROUND.as_secs(),
        "workers": workers,
        "threads_a_worker": 1,
        "max_batch": BATCH,
        "clients": "in the server's process and on its cores",
        "models": results,
    });
    println!("{figures:#}");
    std::fs::create_dir_all(root.join("docs/benchmarks")).unwrap();
    std::fs::write(root.join("docs/benchmarks/saturation.json"), format!("{figures:#}\n")).unwrap();
}

async fn compare(name: &str, path: PathBuf, workers: usize) -> Value {
    let (workers_flag, batch_flag) = (format!("--workers={workers}"), format!("--max-batch={BATCH}"));
    let flags = ["--model", path.to_str().unwrap(), "--device=cpu", &workers_flag, &batch_flag, "--log=warn"];
    let server = Server::start(&flags).await;
    let mut rounds = Rounds::default();
    for round in 0..ROUNDS {
        eprintln!("{name}: round {} of {ROUNDS}", round + 1);
        let bare = path.clone();
        let (throughput, latency) =
            tokio::task::spawn_blocking(move || (bare_throughput(&bare, workers), bare_latency(&bare))).await.unwrap();
        rounds.bare_throughput.push(throughput);
        rounds.bare_latency.push(latency);
        rounds.served_throughput.push(served_throughput(&server, workers).await);
        rounds.served_latency.push(served_latency(&server).await);
    }
    rounds.figures(name)
}

/// What each round measured: positions per second, and median milliseconds of a request.
#[derive(Default)]
struct Rounds {
    bare_throughput: Vec<f64>,
    served_throughput: Vec<f64>,
    bare_latency: Vec<f64>,
    served_latency: Vec<f64>,
}

impl Rounds {
    fn figures(&self, name: &str) -> Value {
        let ratios = |a: &[f64], b: &[f64]| median(&a.iter().zip(b).map(|(a, b)| a / b).collect::<Vec<_>>());
        json!({
            "model": name,
            "bare_positions_per_second": median(&self.bare_throughput),
            "served_positions_per_second": median(&self.served_throughput),
            "throughput_ratio": ratios(&self.served_throughput, &self.bare_throughput),
            "bare_batch_1_milliseconds": median(&self.bare_latency),
            "served_one_client_milliseconds": median(&self.served_latency),
            "latency_ratio": ratios(&self.served_latency, &self.bare_latency),
        })
    }
}

fn session(path: &Path) -> Session {
    let options = SessionOptions { device: Device::Cpu, threads: 1 };
    Session::open(&Runtime::load(None).unwrap(), path, options).unwrap()
}

fn input(encoding: &'static dyn Encoding, rows: usize) -> Batch {
    let conditions = Conditions {
        mover_rating: Some(1500),
        opponent_rating: Some(1520),
        time_control: Some(TimeControl { initial: 600.0, increment: 5.0 }),
        mover_clock: Some(590.0),
        ..Conditions::default()
    };
    let situation = Game::parse("", &MOVES).unwrap().situation(conditions);
    Batch::of(encoding, std::iter::repeat_n(&situation, rows))
}

/// Positions per second of one session a thread.
fn bare_throughput(path: &Path, workers: usize) -> f64 {
    let mut sessions = (0..workers).map(|_| session(path)).collect::<Vec<_>>();
    let batch = input(sessions[0].encoding(), BATCH);
    sessions.iter_mut().for_each(|session| drop(session.run(&batch).unwrap()));
    let started = Instant::now();
    let runs = thread::scope(|scope| {
        let run = |mut session: Session| {
            let batch = &batch;
            scope.spawn(move || {
                let mut runs = 0;
                while started.elapsed() < ROUND {
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

/// Median milliseconds of a run at batch 1.
fn bare_latency(path: &Path) -> f64 {
    let mut session = session(path);
    let batch = input(session.encoding(), 1);
    session.run(&batch).unwrap();
    let mut times = Vec::new();
    let started = Instant::now();
    while started.elapsed() < ROUND {
        let run = Instant::now();
        session.run(&batch).unwrap();
        times.push(run.elapsed().as_secs_f64() * 1e3);
    }
    median(&times)
}

/// Positions per second with twice as many requests under way as the workers' batches hold.
async fn served_throughput(server: &Server, workers: usize) -> f64 {
    let started = Instant::now();
    let clients = (0..2 * workers * BATCH).map(|_| {
        let mut client = server.predictions();
        tokio::spawn(async move {
            let mut answered = 0;
            while started.elapsed() < ROUND {
                client.predict(request(&MOVES)).await.unwrap();
                answered += 1;
            }
            answered
        })
    });
    let mut answered = 0;
    for client in clients.collect::<Vec<_>>() {
        answered += client.await.unwrap();
    }
    f64::from(answered) / started.elapsed().as_secs_f64()
}

/// Median milliseconds of one client's requests, one after another.
async fn served_latency(server: &Server) -> f64 {
    let mut client = server.predictions();
    client.predict(request(&MOVES)).await.unwrap();
    let mut times = Vec::new();
    let started = Instant::now();
    while started.elapsed() < ROUND {
        let sent = Instant::now();
        client.predict(request(&MOVES)).await.unwrap();
        times.push(sent.elapsed().as_secs_f64() * 1e3);
    }
    median(&times)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
