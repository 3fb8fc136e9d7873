//! Decisions per second of `annotate` on one core, beside the plain engine given the same searches on the same core.
//!
//! Reads games of the shared data and needs the engine of `make setup`; says so and stops where they are not there.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use serde_json::json;
use shakmaty::{CastlingMode, EnPassantMode, fen::Fen, uci::UciMove};
use zeitnot_encoding::LegalMoves;
use zeitnot_trainer::{
    annotate::shard::{self as evidence, Evidence},
    filter::Filter,
    prepare, shard,
};

const ROUNDS: usize = 3;
const DEPTH: &str = "8";
const DECISIONS: &str = "512";

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (games, engine) = (root.join("../shared/games"), root.join(".native/bin/stockfish"));
    for needed in [&games, &engine] {
        if !needed.exists() {
            println!("skipped: {} is not there", needed.display());
            return;
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("shards");
    let inputs = vec![games.join("heldout-rapid.pgn.zst")];
    prepare::run(&prepare::Options {
        inputs,
        out: data.clone(),
        filter: Filter::default(),
        jobs: 1,
        shard_games: 100_000,
    })
    .unwrap();
    let mut best = [f64::INFINITY; 2];
    let mut searches = Vec::new();
    for round in 0..ROUNDS {
        let out = folder.path().join(format!("evidence-{round}"));
        let started = Instant::now();
        annotate(root, &data, &engine, &out);
        best[0] = best[0].min(started.elapsed().as_secs_f64());
        if searches.is_empty() {
            searches = commands(&data, &evidence::read_folder(&out).unwrap());
        }
        let started = Instant::now();
        plain(&engine, &searches);
        best[1] = best[1].min(started.elapsed().as_secs_f64());
    }
    let rate = |seconds: f64| searches.len() as f64 / seconds;
    let figures = json!({
        "benchmark": "annotate",
        "machine": machine(),
        "engine": "Stockfish 15.1, one thread, Hash 16, MultiPV 16",
        "depth": DEPTH.parse::<u32>().unwrap(),
        "decisions": searches.len(),
        "rounds": ROUNDS,
        "cores": 1,
        "annotate_decisions_per_second": rate(best[0]),
        "plain_decisions_per_second": rate(best[1]),
        "ratio": best[1] / best[0],
    });
    println!("{figures:#}");
    std::fs::write(root.join("docs/benchmarks/annotate.json"), format!("{figures:#}\n")).unwrap();
}

/// The whole of `annotate`: reading the shards, the prior, the engine and the writing, on one core.
fn annotate(root: &Path, data: &Path, engine: &Path, out: &Path) {
    let status = Command::new("taskset")
        .args(["-c", "0", env!("CARGO_BIN_EXE_zeitnot-train")])
        .args(["annotate", "--engines", "1", "--depth", DEPTH, "--limit", DECISIONS, "--from-ply", "6"])
        .arg("--model")
        .arg(root.join("models/zeitnot.onnx"))
        .arg("--data")
        .arg(data)
        .arg("--engine")
        .arg(engine)
        .arg("--out")
        .arg(out)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
}

/// What the engine is told for each row: number of lines, position and search.
fn commands(data: &Path, rows: &[Evidence]) -> Vec<(usize, String)> {
    let games = shard::list(data).unwrap().into_iter().flat_map(|path: PathBuf| shard::read(&path).unwrap());
    let games = games.map(|game| (game.id.clone(), game)).collect::<HashMap<_, _>>();
    let command = |row: &Evidence| {
        let position = games[&row.game_id].decision(usize::from(row.ply)).unwrap().situation.position;
        let legal = LegalMoves::of(&position);
        let name = |index: &u16| {
            let place = legal.indices().iter().position(|own| own == index).unwrap();
            UciMove::from_move(legal.moves()[place], CastlingMode::Standard).to_string()
        };
        let moves = row.candidates.iter().map(name).collect::<Vec<_>>().join(" ");
        let fen = Fen::from_position(&position, EnPassantMode::Legal);
        (row.candidates.len(), format!("position fen {fen}\ngo depth {DEPTH} searchmoves {moves}\n"))
    };
    rows.iter().map(command).collect()
}

/// The engine alone: a process that is told one search after the other, and whose lines are read and thrown away.
fn plain(engine: &Path, searches: &[(usize, String)]) {
    let mut child = Command::new("taskset")
        .args(["-c", "0"])
        .arg(engine)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    input.write_all(b"uci\nsetoption name Threads value 1\nsetoption name Hash value 16\n").unwrap();
    for (count, search) in searches {
        write!(input, "ucinewgame\nsetoption name MultiPV value {count}\nisready\n{search}").unwrap();
        assert!(lines.by_ref().any(|line| line.unwrap().starts_with("bestmove")));
    }
    input.write_all(b"quit\n").unwrap();
    child.wait().unwrap();
}

/// Processor and number of cores.
fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {cores} cores", name.trim_start_matches([' ', '\t', ':']))
}
