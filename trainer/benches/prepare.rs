//! Positions per second of `prepare` on one core, beside reading the same files without checking a move.
//!
//! Reads the held-out lichess games of the shared data; says so and stops where they are not there.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

use std::{io::Read, path::Path, time::Instant};

use serde_json::json;
use zeitnot_encoding::Zeitnot;
use zeitnot_trainer::{
    feed::{Feed, Feeding, Hide, Plan, Selection},
    filter::Filter,
    pgn,
    prepare::{self, Options},
    shard,
};

const FILES: [&str; 4] =
    ["heldout-blitz.pgn.zst", "heldout-rapid.pgn.zst", "heldout-bullet.pgn.zst", "heldout-noclock-lichess.pgn.zst"];
const ROUNDS: usize = 3;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let games = root.join("../shared/games");
    if !games.is_dir() {
        println!("skipped: {} is not there", games.display());
        return;
    }
    let inputs = FILES.map(|name| games.join(name)).to_vec();
    let folder = tempfile::tempdir().unwrap();
    let mut best_decode = f64::INFINITY;
    let mut best_prepare = f64::INFINITY;
    let mut positions = 0;
    for round in 0..ROUNDS {
        best_decode = best_decode.min(time(|| inputs.iter().for_each(|path| decode(path))));
        let out = folder.path().join(round.to_string());
        let options = Options { inputs: inputs.clone(), out, filter: Filter::default(), jobs: 1, shard_games: 200_000 };
        best_prepare = best_prepare.min(time(|| positions = prepare::run(&options).unwrap().positions));
    }
    let feed = feed(&folder.path().join("0"));
    let figures = json!({
        "benchmark": "prepare",
        "machine": machine(),
        "files": FILES,
        "positions": positions,
        "rounds": ROUNDS,
        "threads": 1,
        "prepare_positions_per_second": (positions as f64 / best_prepare).round(),
        "decompress_only_positions_per_second": (positions as f64 / best_decode).round(),
        "share_of_decompression": best_decode / best_prepare,
        "feed_positions_per_second_one_thread": feed.round(),
    });
    println!("{figures:#}");
    let path = root.join("docs/benchmarks/prepare.json");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, format!("{figures:#}\n")).unwrap();
}

/// Decompresses a file and throws it away: what no reader can be faster than.
fn decode(path: &Path) {
    let mut text = pgn::open(path, |_| ()).unwrap();
    let mut buffer = vec![0; 1 << 16];
    while text.read(&mut buffer).unwrap() > 0 {}
}

/// Training positions per second that one feeding thread replays, encodes and batches.
fn feed(shards: &Path) -> f64 {
    let games = shard::list(shards).unwrap().iter().take(2).flat_map(|path| shard::read(path).unwrap()).collect();
    let (batch, steps) = (256, 200);
    let plan = Plan::new(games, &Selection::default(), 1, batch, steps).unwrap();
    let hide = Hide { history: 0.1, time: 0.1, ratings: 0.1, systems: 0.1, all: 0.02 };
    let feeding = Feeding { encoding: &Zeitnot, hide, leak_clock: false };
    let seconds =
        time(|| assert_eq!(Feed::start(plan, feeding, &[], 0, 1).unwrap().map(Result::unwrap).count() as u64, steps));
    (batch as u64 * steps) as f64 / seconds
}

fn time(work: impl FnOnce()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_secs_f64()
}

/// Processor and number of cores.
fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {cores} cores", name.trim_start_matches([' ', '\t', ':']))
}
