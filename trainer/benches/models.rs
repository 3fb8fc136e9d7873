//! Positions per second of the default network in ONNX Runtime on one core: f32 beside int8, batch by batch in one run.
//!
//! Weights are by formula, since speed does not depend on them.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

use std::{path::Path, time::Instant};

use serde_json::json;
use zeitnot_encoding::{Batch, Encoding, Situation};
use zeitnot_inference::{Device, Metadata, Runtime, Session, SessionOptions};
use zeitnot_network::{Weights, onnx, specs};
use zeitnot_trainer::{quantize, train::config::TrainConfig};

const BATCHES: [usize; 3] = [1, 16, 64];
const ROUNDS: usize = 7;
/// Positions in one round of one model.
const POSITIONS: usize = 1024;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let config = TrainConfig::read(&root.join("trainer/recipes/zeitnot.toml")).unwrap().network;
    let weights = Weights::by_formula(&specs::of(&config));
    let parameters = specs::of(&config).iter().filter(|spec| spec.learnt).map(|spec| spec.size()).sum::<usize>();
    let metadata = Metadata::new(config.encoding(), "formula", "1", "", "");
    let f32 = onnx::export(&config, &weights, &metadata.entries()).unwrap();
    let situations = situations(256);
    let int8 = quantize::by_situations(&f32, &situations).unwrap();
    let mut models = [("f32", &f32), ("int8", &int8)].map(|(name, bytes)| (name, session(bytes)));

    let mut rows = Vec::new();
    for batch in BATCHES {
        // The best of interleaved rounds, so that other work on the machine touches both alike.
        let mut best = [f64::INFINITY; 2];
        for _ in 0..ROUNDS {
            for ((_, session), best) in models.iter_mut().zip(&mut best) {
                *best = best.min(seconds(session, config.encoding(), &situations, batch));
            }
        }
        let speed = best.map(|seconds| POSITIONS as f64 / seconds);
        rows.push(json!({
            "batch": batch,
            "f32_positions_per_second": speed[0].round(),
            "int8_positions_per_second": speed[1].round(),
            "int8_by_f32": (1000.0 * speed[1] / speed[0]).round() / 1000.0,
        }));
    }
    let figures = json!({
        "benchmark": "models",
        "machine": machine(),
        "network": "trainer/recipes/zeitnot.toml",
        "parameters": parameters,
        "threads": 1,
        "rounds": ROUNDS,
        "batches": rows,
    });
    println!("{figures:#}");
    std::fs::write(root.join("docs/benchmarks/models.json"), format!("{figures:#}\n")).unwrap();
}

fn session(bytes: &[u8]) -> Session {
    let options = SessionOptions { device: Device::Cpu, threads: 1 };
    Session::from_bytes(&Runtime::load(None).unwrap(), "formula", bytes, options).unwrap()
}

/// Situations of games of ever other moves.
fn situations(count: usize) -> Vec<Situation> {
    use shakmaty::Position;
    let mut situation = Situation::default();
    let mut situations = Vec::new();
    for number in 0..count {
        let moves = situation.position.legal_moves();
        match moves.get(number * 7 % moves.len().max(1)) {
            Some(&mv) if number % 60 != 59 => situation.play(mv),
            _ => situation = Situation::default(),
        }
        situations.push(situation.clone());
    }
    situations
}

fn seconds(session: &mut Session, encoding: &'static dyn Encoding, situations: &[Situation], batch: usize) -> f64 {
    let batch = Batch::of(encoding, &situations[..batch]);
    session.run(&batch).unwrap();
    let started = Instant::now();
    for _ in 0..POSITIONS / batch.rows() {
        session.run(&batch).unwrap();
    }
    started.elapsed().as_secs_f64()
}

/// Processor and number of cores.
fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {cores} cores", name.trim_start_matches([' ', '\t', ':']))
}
