//! Four times what the server can compute, for half a minute.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use common::{Process, request, resident_kib, slow_model};
use zeitnot_load::{
    generate::{closed_loop, open_loop},
    grpc::{Connect, Grpc},
};

const SECONDS: f64 = 30.0;

#[tokio::test]
async fn four_times_the_load_it_can_bear_costs_no_goodput() {
    overload(start().await).await;
}

async fn start() -> Process {
    let slow: PathBuf = slow_model();
    // Nothing is answered from memory: every answer is a computation.
    let flags = ["--cache-mib=0", "--coalesce=false", "--access-log=0", "--model", slow.to_str().unwrap()];
    Process::start(&flags).await
}

async fn overload(process: Process) {
    let patient = connect(&process, Duration::from_secs(20)).await;
    let target = connect(&process, Duration::from_secs(1)).await;
    let (capacity_before, per_free_before) = capacity(&patient).await;
    let memory_before = resident_kib(process.id());
    let clients = Clients::start();
    let load = open_loop(&target, 4.0 * capacity_before, SECONDS, 1, 0).await.unwrap().figures();
    let goodput_per_free = load.answered_per_second / clients.free();
    let memory_after = resident_kib(process.id());
    // Before and after, so that a machine that changes its pace meanwhile is not taken for the server's fault.
    let (capacity_after, per_free_after) = capacity(&patient).await;
    let summary = format!(
        "capacity {capacity_before:.1} and {capacity_after:.1} positions/s, goodput {:.1} of {:.1}, {} refused, {} late, \
         p99 {:.0} ms, for each core left by the clients {:.3} of capacity, memory {memory_before} -> {memory_after} KiB",
        load.answered_per_second,
        load.offered_per_second,
        load.refused,
        load.late,
        load.latency_ms.p99,
        2.0 * goodput_per_free / (per_free_before + per_free_after)
    );
    println!("{summary}");
    assert!(goodput_per_free >= 0.9 * (per_free_before + per_free_after) / 2.0, "{summary}");
    assert!(load.failures.is_empty(), "every refusal is RESOURCE_EXHAUSTED: {:?}", load.failures);
    assert_eq!(load.late, 0, "what is accepted is in time: {summary}");
    assert_eq!(load.answered + load.refused, load.sent, "{summary}");
    assert!((memory_after as f64) < 1.05 * memory_before as f64, "memory is flat: {summary}");
}

/// The clients, which run in this process and on the server's cores: four times the calls are four times their work, and
/// what they use the server cannot.
struct Clients {
    started: Instant,
    used: f64,
}

impl Clients {
    fn start() -> Self {
        Clients { started: Instant::now(), used: used_seconds() }
    }

    /// Cores left to the server since the start.
    fn free(&self) -> f64 {
        let cores = std::thread::available_parallelism().unwrap().get() as f64;
        cores - (used_seconds() - self.used) / self.started.elapsed().as_secs_f64()
    }
}

/// Processor time of this process so far, in seconds.
fn used_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    let ticks = |place: usize| after_name.split_whitespace().nth(place).unwrap().parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0 // User and system time in hundredths of a second, on every Linux.
}

async fn connect(process: &Process, deadline: Duration) -> Arc<Grpc> {
    let address = format!("http://{}", process.grpc);
    // The clients share the server's cores, and one connection costs least.
    let connect = Connect { address, connections: 1, deadline, key: None, tls_ca: None };
    Arc::new(Grpc::connect(&connect, vec![request(&["e4"])]).await.unwrap())
}

/// Positions a second, with always enough under way to fill its batches, and the same for each core left by the clients.
async fn capacity(target: &Arc<Grpc>) -> (f64, f64) {
    let clients = Clients::start();
    let report = closed_loop(target, 64, 8.0, 0).await.unwrap().figures();
    assert_eq!(report.answered, report.sent, "{report:?}");
    (report.answered_per_second, report.answered_per_second / clients.free())
}
