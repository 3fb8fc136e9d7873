//! Coaching traffic with the cache and coalescing on and off: the positions of the held-out games, in three ways.
//!
//! - once: each game is stepped through once. Nothing but shared openings repeats; this is what the cache costs.
//! - twice: each game is stepped through again after 64 others, as by the other player.
//! - live: each position is asked by eight at the same time, as by those who follow a game.
//!
//! Sixty-four callers ask one position after the other. Servers with and without alternate, round by round.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::{fs, path::Path, sync::Arc, time::Duration};

use common::{Process, get, total};
use serde_json::{Value, json};
use zeitnot_load::{
    games::{self, Game},
    generate::closed_loop,
    grpc::{Connect, Grpc},
};
use zeitnot_proto::v1::PredictRequest;

const ROUNDS: usize = 3;
const SECONDS: f64 = 5.0;
const CALLERS: usize = 64;

#[tokio::main]
async fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let shared = root.join("../shared/games");
    let files = ["heldout-rapid.pgn.zst", "heldout-blitz.pgn.zst"].map(|name| shared.join(name));
    if files.iter().any(|file| !file.exists()) {
        eprintln!("replay: the shared games are missing, nothing is measured");
        return;
    }
    let games = files.iter().flat_map(|file| games::read(file, usize::MAX).unwrap()).collect::<Vec<_>>();
    let traces = [("once", once(&games)), ("twice", twice(&games)), ("live", live(&games))];
    let mut results = Vec::new();
    for (name, requests) in traces {
        let mut rounds = Vec::new();
        for round in 0..ROUNDS {
            eprintln!("{name}: round {} of {ROUNDS}", round + 1);
            let off = replay(&["--cache-mib=0", "--coalesce=false"], &requests).await;
            let on = replay(&[], &requests).await;
            rounds.push(json!({ "off": off, "on": on }));
        }
        let median = |pointer: &str| {
            let mut values = rounds.iter().map(|round| number(round, pointer)).collect::<Vec<_>>();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let mut ratios = rounds
            .iter()
            .map(|round| number(round, "/on/per_second") / number(round, "/off/per_second"))
            .collect::<Vec<_>>();
        ratios.sort_by(f64::total_cmp);
        results.push(json!({
            "trace": name,
            "positions": requests.len(),
            "off_per_second": median("/off/per_second"),
            "on_per_second": median("/on/per_second"),
            "ratio": ratios[ROUNDS / 2],
            "hits": median("/on/hits"),
            "coalesced": median("/on/coalesced"),
        }));
    }
    let figures = json!({
        "benchmark": "replay", "games": games.len(), "rounds": ROUNDS, "seconds_a_round": SECONDS, "callers": CALLERS,
        "machine": common::machine(), "onnxruntime": common::onnxruntime(), "traces": results,
    });
    println!("{figures:#}");
    fs::write(root.join("docs/benchmarks/replay.json"), format!("{figures:#}\n")).unwrap();
}

fn number(value: &Value, pointer: &str) -> f64 {
    value.pointer(pointer).unwrap().as_f64().unwrap()
}

fn once(games: &[Game]) -> Vec<PredictRequest> {
    games.iter().flatten().cloned().collect()
}

fn twice(games: &[Game]) -> Vec<PredictRequest> {
    games.chunks(64).flat_map(|chunk| [once(chunk), once(chunk)].concat()).collect()
}

fn live(games: &[Game]) -> Vec<PredictRequest> {
    games.iter().flatten().flat_map(|request| std::iter::repeat_n(request.clone(), 8)).collect()
}

/// Positions answered a second by a new server, and which share of them was kept or shared.
async fn replay(flags: &[&str], requests: &[PredictRequest]) -> Value {
    let process = Process::start(&[&["--access-log=0"], flags].concat()).await;
    let connect = Connect {
        address: format!("http://{}", process.grpc),
        connections: 4,
        deadline: Duration::from_secs(10),
        key: None,
        tls_ca: None,
    };
    let target = Arc::new(Grpc::connect(&connect, requests.to_vec()).await.unwrap());
    let report = closed_loop(&target, CALLERS, SECONDS, 0).await.unwrap().figures();
    assert_eq!(report.answered, report.sent, "{report:?}");
    let page = get(&process.admin, "/metrics").await.1;
    let count =
        |result: &str| total(&page, &format!("zeitnot_cache_requests_total{{model=\"zeitnot\",result=\"{result}\"}}"));
    // Of all requests since the start, which are more than those that count.
    let all = ["hit", "miss", "coalesced"].map(count).iter().sum::<f64>().max(1.0);
    let share = |result: &str| count(result) / all;
    json!({ "per_second": report.answered_per_second, "hits": share("hit"), "coalesced": share("coalesced") })
}
