//! A long run at 80% of what the server can bear, with reloads, cancellations, bad requests, and engines that are killed,
//! hang and lie: nothing fails, nothing grows. A minute in the tests, ten by `make soak`.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use common::{Chaos, Process, get, request, reranker_file, resident_kib, total};
use tonic::{Code, transport::Channel};
use zeitnot_load::{
    generate::{closed_loop, open_loop},
    grpc::{Connect, Grpc},
    target::{Outcome, Target},
};
use zeitnot_proto::v1::{PredictRequest, ReloadModelsRequest, prediction_service_client::PredictionServiceClient};

/// Different requests, more than the cache has room for.
const SITUATIONS: usize = 20_000;

/// How long its capacity is measured.
const CAPACITY_SECONDS: f64 = 10.0;

/// A server whose callers sometimes leave and sometimes ask nonsense.
///
/// Those who leave have connections of their own: after a thousand answers to calls that it has forgotten, the client's
/// HTTP/2 library (h2) closes a connection with ENHANCE_YOUR_CALM, and takes the other calls on it along.
struct Mixed {
    asking: Grpc,
    leaving: Grpc,
    nonsense: PredictionServiceClient<Channel>,
}

impl Target for Mixed {
    async fn call(&self, number: usize) -> Outcome {
        match number % 20 {
            0 => {
                drop(tokio::time::timeout(Duration::from_micros(200), self.leaving.call(number)).await);
                Outcome::Answered // As intended: nobody waits for it.
            }
            1 => match self.nonsense.clone().predict(request(&["e4", "e4"])).await {
                Err(status) if status.code() == Code::InvalidArgument => Outcome::Answered,
                other => Outcome::Failed(format!("{other:?}")),
            },
            _ => self.asking.call(number).await,
        }
    }
}

fn seconds() -> f64 {
    std::env::var("SOAK_SECONDS").map_or(42.0, |seconds| seconds.parse().unwrap())
}

/// Requests that differ in the ratings and the clocks.
fn situations() -> Vec<PredictRequest> {
    let vary = |number: usize| {
        let mut asked = request(&["e4", "e5", "Nf3", "Nc6", "Bb5"][..number % 6]);
        asked.mover.as_mut().unwrap().rating = Some(800 + (number % 1700) as u32);
        asked.clock.as_mut().unwrap().mover_remaining = common::seconds((number % 601) as i64);
        asked
    };
    (0..SITUATIONS).map(vary).collect()
}

/// Memory in KiB, threads and descriptors of the server.
fn size(process: &Process) -> [f64; 3] {
    [resident_kib(process.id()) as f64, process.count("task") as f64, process.count("fd") as f64]
}

/// What it is down to within some time that has reloads in it. A reload holds two models for a moment, requests queue up
/// meanwhile, each with its tensors, and what they leave is only given back at the next; what leaks is there at all times.
async fn sample(process: Arc<Process>, time: Duration) -> [f64; 3] {
    let (started, mut samples) = (Instant::now(), [Vec::new(), Vec::new(), Vec::new()]);
    while started.elapsed() < time {
        let sizes = size(&process);
        samples.iter_mut().zip(sizes).for_each(|(samples, size)| samples.push(size));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    samples.map(|samples| samples.into_iter().fold(f64::INFINITY, f64::min))
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_fails_and_nothing_grows() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("a.onnx");
    let embedded = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/zeitnot.onnx")).unwrap();
    std::fs::write(&model, &embedded).unwrap();
    // A twentieth of the players is strong enough for engines to be asked.
    let (chaos, reranker) = (Chaos::start(), reranker_file());
    let mut flags = vec![
        "--watch-ms=0",
        "--access-log=0",
        "--log=info,zeitnot_server::rerank=error",
        "--cache-mib=4",
        "--queue=8192",
    ];
    flags.extend(["--rerank-rating=2415", &chaos.flag, "--reranker", reranker.to_str().unwrap()]);
    flags.extend(["--model", model.to_str().unwrap()]);
    let process = Arc::new(Process::start(&flags).await);
    let connect = Connect {
        address: format!("http://{}", process.grpc),
        connections: 4,
        deadline: Duration::from_secs(5),
        key: None,
        tls_ca: None,
    };
    let asking = Grpc::connect(&connect, situations()).await.unwrap();
    let leaving = Grpc::connect(&connect, situations()).await.unwrap();
    let mut models = process.models().await;
    let target = Arc::new(Mixed { asking, leaving, nonsense: process.client().await });
    // Reloads and what they cost are part of what it can bear.
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let reloading = tokio::spawn(async move {
        let mut reloads = 0;
        while !stopped.load(Ordering::SeqCst) {
            // Another file with the same content would be no reload: a byte that ONNX ignores makes it another.
            let mut bytes = embedded.clone();
            bytes.extend([0xfa, 0x7d, 1, u8::try_from(reloads % 200).unwrap()]);
            std::fs::write(folder.path().join("a.tmp"), bytes).unwrap();
            std::fs::rename(folder.path().join("a.tmp"), &model).unwrap();
            let answer = models.reload_models(ReloadModelsRequest {}).await.unwrap().into_inner();
            assert_eq!(answer.loaded, ["zeitnot"]);
            reloads += 1;
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        reloads
    });
    let capacity = closed_loop(&target, 32, CAPACITY_SECONDS, 0).await.unwrap().figures();
    let rate = 0.8 * capacity.answered_per_second;
    // The first fifth fills caches and arenas; what comes after must not grow.
    let part = seconds() / 5.0;
    let mut sizes = Vec::new();
    for round in 0..5 {
        let sampling = tokio::spawn(sample(Arc::clone(&process), Duration::from_secs_f64(part)));
        let report = open_loop(&target, rate, part, round, round as usize * 1_000_000).await.unwrap().figures();
        let problems = (report.failures.clone(), report.refused, report.late);
        assert_eq!(problems, (std::collections::BTreeMap::new(), 0, 0), "{report:?}");
        sizes.push(sampling.await.unwrap());
    }
    stop.store(true, Ordering::SeqCst);
    let reloads = reloading.await.unwrap();
    let page = get(&process.admin, "/metrics").await.1;
    let reranked = |status: &str| total(&page, &format!("zeitnot_rerank_total{{status=\"{status}\"}}"));
    let (applied, unavailable) = (reranked("applied"), reranked("engine_unavailable"));
    let changes = tokio::task::spawn_blocking(|| chaos.stop()).await.unwrap();
    println!("{rate:.0} calls/s for {} s, {reloads} reloads; KiB, threads, descriptors: {sizes:?}", seconds());
    println!("{changes} changes of engines, {applied} predictions re-ranked, {unavailable} not for want of engines");
    assert!(applied > 100.0 && unavailable > 0.0, "{applied}, {unavailable}");
    let (first, last) = (sizes[0], sizes[4]);
    // The floor itself goes up and down by some percent from one part to the next; what grows is above all of the early
    // ones in all of the late ones.
    let (early, late) = (sizes[0][0].max(sizes[1][0]), sizes[3][0].min(sizes[4][0]));
    assert!(late <= 1.05 * early, "memory: {sizes:?}");
    assert!(last[1] <= first[1] + 2.0, "threads: {sizes:?}");
    assert!(last[2] <= first[2] + 4.0, "descriptors: {sizes:?}");
}
