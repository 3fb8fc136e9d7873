//! Four times what the server can compute, for half a minute.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::{path::PathBuf, sync::Arc, time::Duration};

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
    let capacity_before = capacity(&patient).await;
    let before = resident_kib(process.id());
    let load = open_loop(&target, 4.0 * capacity_before, SECONDS, 1, 0).await.unwrap().figures();
    let after = resident_kib(process.id());
    // Before and after, so that a machine that changes its pace meanwhile is not taken for the server's fault.
    let capacity = (capacity_before + capacity(&patient).await) / 2.0;
    let summary = format!(
        "capacity {:.1} positions/s, goodput {:.1} of {:.1}, {} refused, {} late, p99 {:.0} ms, memory {before} -> {after} KiB",
        capacity, load.answered_per_second, load.offered_per_second, load.refused, load.late, load.latency_ms.p99
    );
    println!("{summary}");
    assert!(load.answered_per_second >= 0.9 * capacity, "{summary}");
    assert!(load.failures.is_empty(), "every refusal is RESOURCE_EXHAUSTED: {:?}", load.failures);
    assert_eq!(load.late, 0, "what is accepted is in time: {summary}");
    assert_eq!(load.answered + load.refused, load.sent, "{summary}");
    assert!((after as f64) < 1.05 * before as f64, "memory is flat: {summary}");
}

async fn connect(process: &Process, deadline: Duration) -> Arc<Grpc> {
    let address = format!("http://{}", process.grpc);
    // The clients share the server's cores, and one connection costs least.
    let connect = Connect { address, connections: 1, deadline, key: None, tls_ca: None };
    Arc::new(Grpc::connect(&connect, vec![request(&["e4"])]).await.unwrap())
}

/// Positions a second, with always enough under way to fill its batches.
async fn capacity(target: &Arc<Grpc>) -> f64 {
    let report = closed_loop(target, 64, 8.0, 0).await.unwrap().figures();
    assert_eq!(report.answered, report.sent, "{report:?}");
    report.answered_per_second
}
