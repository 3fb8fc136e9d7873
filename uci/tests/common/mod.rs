//! A pool of scripted engines, and what the tests ask of it.
#![allow(dead_code, reason = "each file of tests uses a part")]

use std::{fs, path::Path, time::Duration};

use shakmaty::{CastlingMode, Chess, Move, Position, fen::Fen, uci::UciMove};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use zeitnot_uci::{EngineConfig, Evaluation, Limits, Pool, Score, Search};

/// Long enough for anything that ends at all, also on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A scripted engine and the file that holds its mode.
pub(crate) struct Fake {
    folder: TempDir,
    pub(crate) config: EngineConfig,
}

impl Fake {
    pub(crate) fn new(mode: &str) -> Fake {
        let folder = TempDir::new().unwrap();
        let mut config = EngineConfig::new(env!("CARGO_BIN_EXE_zeitnot-fake-engine").into());
        let file = folder.path().join("mode").display().to_string();
        config.args = vec!["--mode".into(), mode.into(), "--mode-file".into(), file];
        config.handshake = PATIENCE;
        config.backoff = Duration::from_millis(20);
        Fake { folder, config }
    }

    /// One process and a queue of 16.
    pub(crate) async fn pool(&self) -> Pool {
        Pool::start(self.config.clone(), 1, 16).await.unwrap()
    }

    /// Changes how the engine behaves from the next search or start on.
    pub(crate) fn switch(&self, mode: &str) {
        let (new, file) = (self.folder.path().join("new"), self.folder.path().join("mode"));
        fs::write(&new, mode).unwrap();
        fs::rename(new, file).unwrap();
    }

    /// Processes that run with this script: engines and what they started. Those that have died but are still listed have
    /// no command line.
    pub(crate) fn processes(&self) -> Vec<(u32, String)> {
        let mark = self.folder.path().display().to_string();
        let command =
            |path: &Path| fs::read(path.join("cmdline")).map(|line| String::from_utf8_lossy(&line).into_owned());
        let entries = fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let entry = entry.ok()?;
            let id = entry.file_name().to_str()?.parse().ok()?;
            Some((id, command(&entry.path()).ok()?))
        });
        entries.filter(|(_, command)| command.contains(&mark)).collect()
    }
}

/// A search of the start position, among moves of pawns and knights.
pub(crate) fn search(depth: u32) -> Search {
    let limits = Limits { depth: Some(depth), ..Limits::default() };
    search_of("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1", "e2e4 a2a3 g1f3 h2h4", limits)
}

/// A search that a deadline alone ends.
pub(crate) fn endless() -> Search {
    Search { limits: Limits::default(), ..search(1) }
}

pub(crate) fn search_of(fen: &str, candidates: &str, limits: Limits) -> Search {
    let position = position(fen);
    let candidates = candidates.split_ascii_whitespace().map(|name| named(&position, name)).collect();
    Search { position, candidates, limits, fresh: true }
}

pub(crate) fn position(fen: &str) -> Chess {
    fen.parse::<Fen>().unwrap().into_position(CastlingMode::Standard).unwrap()
}

pub(crate) fn named(position: &Chess, name: &str) -> Move {
    let mv = name.parse::<UciMove>().unwrap().to_move(position).unwrap();
    assert!(position.is_legal(mv), "{name}");
    mv
}

/// A deadline in so many milliseconds.
pub(crate) fn within(milliseconds: u64) -> Option<Instant> {
    Some(Instant::now() + Duration::from_millis(milliseconds))
}

/// A deadline that does not pass.
pub(crate) fn late() -> Option<Instant> {
    Some(Instant::now() + PATIENCE)
}

/// Waits until something holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let last = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < last, "{what}");
        sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn scores(evaluation: &Evaluation) -> Vec<Option<Score>> {
    evaluation.lines.iter().map(|line| line.as_ref().map(|line| line.score)).collect()
}

/// Asserts that all candidates are scored, at every depth up to this one.
pub(crate) fn assert_whole(evaluation: &Evaluation, depth: u32) {
    assert!(evaluation.complete && evaluation.depth == depth, "{evaluation:?}");
    assert!(
        evaluation.lines.iter().all(|line| line.as_ref().is_some_and(|line| line.depth == depth)),
        "{evaluation:?}"
    );
    let mut ranks = evaluation.lines.iter().flatten().map(|line| line.rank as usize).collect::<Vec<_>>();
    ranks.sort_unstable();
    assert!(ranks.iter().copied().eq(1..=evaluation.lines.len()), "{evaluation:?}");
    assert_ascending(evaluation);
}

/// Asserts that iterations are complete, in order, and end with the lines' scores.
pub(crate) fn assert_ascending(evaluation: &Evaluation) {
    let iterations = &evaluation.iterations;
    assert!(iterations.windows(2).all(|pair| pair[0].depth < pair[1].depth), "{evaluation:?}");
    assert!(iterations.windows(2).all(|pair| pair[0].nodes <= pair[1].nodes), "{evaluation:?}");
    assert!(iterations.iter().all(|own| own.nodes <= evaluation.nodes), "{evaluation:?}");
    let whole = |scores: &[Option<Score>]| scores.len() == evaluation.lines.len() && scores.iter().all(Option::is_some);
    assert!(iterations.iter().all(|own| whole(&own.scores)), "{evaluation:?}");
    if let Some(last) = iterations.last() {
        assert_eq!((last.depth, &last.scores), (evaluation.depth, &scores(evaluation)));
    }
}
