//! What re-ranking costs beside the engine's time: the same Predict with and without it, one client with one request at a
//! time, in turns, in one run. The sidecar in this process answers at once; gRPC to it, the candidates, the re-ranker's queue
//! and run, evidence and insight are what is measured.
//!
//! For the reference network (15.3M parameters, weights by formula) and the embedded model. The re-ranker has weights by
//! formula, which takes as long as trained ones.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::{path::Path, time::Instant};

use common::{Act, Server, Sidecar, reranker_file, slow_model, strong};
use serde_json::{Value, json};
use zeitnot_proto::v1::{PredictRequest, Rerank, RerankMode, RerankStatus};

const ROUNDS: usize = 9;
const REQUESTS: usize = 60;
const AIM: f64 = 1.15;
const MOVES: [&str; 9] = ["e4", "e5", "Nf3", "Nc6", "Bb5", "a6", "Ba4", "Nf6", "O-O"];

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let embedded = root.join("models/zeitnot.onnx");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let models = [("reference network, 15.3M parameters", slow_model()), ("embedded model", embedded)];
    let results = models.map(|(name, path)| runtime.block_on(compare(name, &path)));
    let figures = json!({
        "benchmark": "rerank",
        "machine": common::machine(),
        "onnxruntime": common::onnxruntime(),
        "rounds": ROUNDS,
        "requests_a_round_and_side": REQUESTS,
        "candidates": 16,
        "clients": "one, in the server's process and on its cores, as the sidecar",
        "aim_for_the_reference_network": AIM,
        "models": results,
    });
    println!("{figures:#}");
    std::fs::create_dir_all(root.join("docs/benchmarks")).unwrap();
    std::fs::write(root.join("docs/benchmarks/rerank.json"), format!("{figures:#}\n")).unwrap();
}

async fn compare(name: &str, path: &Path) -> Value {
    let (sidecar, reranker) = (Sidecar::start(Act::Score(vec![])), reranker_file());
    let flags = ["--model", path.to_str().unwrap(), "--device=cpu", "--log=warn", &sidecar.flag()];
    let server = Server::start(&[&flags[..], &["--reranker", reranker.to_str().unwrap()]].concat()).await;
    let sides = [(RerankMode::Off, RerankStatus::PriorOnly), (RerankMode::Required, RerankStatus::Applied)];
    let mut medians = [Vec::new(), Vec::new()];
    let mut parts = [Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..REQUESTS {
            for (side, (mode, status)) in sides.into_iter().enumerate() {
                let rerank = Some(Rerank { mode: mode.into(), ..Rerank::default() });
                let asked = PredictRequest { rerank, ..strong(&MOVES) };
                let sent = Instant::now();
                let answer = server.predictions().predict(asked).await.unwrap().into_inner();
                times[side].push(sent.elapsed().as_secs_f64() * 1e3);
                assert_eq!(answer.rerank_status(), status);
                let timings = answer.timings.unwrap();
                for (part, spent) in [timings.engine, timings.rerank].into_iter().enumerate() {
                    parts[part].extend(spent.map(|spent| f64::from(spent.nanos) / 1e6));
                }
            }
        }
        // The first round warms both up.
        if round > 0 {
            eprintln!("{name}: round {round} of {ROUNDS}");
            (0..2).for_each(|side| medians[side].push(median(&times[side])));
        }
    }
    let ratios = medians[1].iter().zip(&medians[0]).map(|(with, without)| with / without).collect::<Vec<_>>();
    json!({
        "model": name,
        "prior_milliseconds": median(&medians[0]),
        "reranked_milliseconds": median(&medians[1]),
        "overhead_ratio": median(&ratios),
        "overhead_milliseconds": median(&medians[1]) - median(&medians[0]),
        "of_it_waiting_for_the_sidecar_milliseconds": median(&parts[0]),
        "of_it_reranker_milliseconds": median(&parts[1]),
    })
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
