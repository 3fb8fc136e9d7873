//! Games and recipes that the tests share.
#![allow(dead_code, missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

pub(crate) mod pytorch;
pub(crate) mod serving;

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use shakmaty::{Chess, Position, san::SanPlus};
use zeitnot_trainer::{filter::Filter, prepare};

/// PGN of games with random legal moves, ratings, and a clock after every move.
pub(crate) fn random_games(count: usize, plies: usize, seed: u64) -> String {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut text = String::new();
    for game in 0..count {
        let (white, black) = (random.random_range(900..2300), random.random_range(900..2300));
        let result = ["1-0", "0-1", "1/2-1/2"][game % 3];
        writeln!(text, "[Event \"Rated Rapid game\"]\n[GameId \"g{game}\"]\n[White \"w{}\"]", game % 7).unwrap();
        writeln!(text, "[Black \"b{}\"]\n[Result \"{result}\"]\n[UTCDate \"2024.01.02\"]", game % 5).unwrap();
        writeln!(text, "[WhiteElo \"{white}\"]\n[BlackElo \"{black}\"]\n[TimeControl \"600+5\"]\n").unwrap();
        let mut position = Chess::default();
        for ply in 0..plies {
            let moves = position.legal_moves();
            if moves.is_empty() {
                break;
            }
            let mv = moves[random.random_range(0..moves.len())];
            let san = SanPlus::from_move_and_play_unchecked(&mut position, mv);
            let left = 600 - 3 * ply;
            let number = ply / 2 + 1;
            let dots = if ply % 2 == 0 { "." } else { "..." };
            write!(text, "{number}{dots} {san} {{ [%clk 0:{:02}:{:02}] }} ", left / 60, left % 60).unwrap();
        }
        writeln!(text, "{result}\n").unwrap();
    }
    text
}

/// A recipe for a network that trains in seconds, with dropout so that resuming must restore the random numbers.
pub(crate) fn tiny_recipe(folder: &Path, steps: u64) -> PathBuf {
    let path = folder.join("tiny.toml");
    let text = format!(
        r#"
name = "tiny"

[network]
encoding = "otter/1"
stem = [8, 16]
residual_blocks = 1
time = true
rating = 4
time_control = 4
clock = 4
heads = 2
cross_feed_forward = 16
self_blocks = 1
self_feed_forward = 16
policy = {{ kind = "from-to", width = 8 }}
auxiliary = 16
value = 8
dropout = 0.1

[network.history]
width = 8
heads = 2
feed_forward = 16
layers = 1
embedding = "squares"
planes = 4

[training]
seed = 7
batch_size = 32
steps = {steps}
checkpoint_every = 1000
log_every = 2
hide = {{ history = 0.1, time = 0.1 }}
optimizer = {{ learning_rate = 1e-2 }}
"#
    );
    fs::write(&path, text).unwrap();
    path
}

/// Random games as shards; the PGN stays beside them as `random.pgn`.
pub(crate) fn shards(folder: &Path, games: usize) -> PathBuf {
    let (input, out) = (folder.join("random.pgn"), folder.join("shards"));
    fs::create_dir_all(folder).unwrap();
    fs::write(&input, random_games(games, 30, 5)).unwrap();
    let inputs = vec![input];
    prepare::run(&prepare::Options { inputs, out: out.clone(), filter: Filter::default(), jobs: 1, shard_games: 1000 })
        .unwrap();
    out
}

/// The folder of shared data, when it is there.
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared").join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {} is not there", path.display());
    None
}

/// How the tests train.
#[cfg(feature = "tch")]
pub(crate) mod training {
    use std::{
        path::Path,
        sync::{Arc, atomic::AtomicBool},
    };

    use zeitnot_trainer::train::{Compute, Options, Precision};

    pub(crate) fn options(config: &Path, data: &Path, out: &Path) -> Options {
        Options {
            config: config.to_owned(),
            data: data.to_owned(),
            out: out.to_owned(),
            resume: false,
            init: None,
            without: Vec::new(),
            teachers: Vec::new(),
            steps: None,
            stop_after: None,
            device: Compute::Cpu,
            precision: Precision::Full,
            threads: 1,
            feed_threads: 2,
        }
    }

    pub(crate) fn stop(now: bool) -> Arc<AtomicBool> {
        Arc::new(AtomicBool::new(now))
    }
}
