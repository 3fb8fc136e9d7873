//! The command that tries the engine.

use std::time::Duration;

use anyhow::{Context, Result};
use shakmaty::{Chess, Position};
use tokio::time::Instant;
use zeitnot_uci::{Limits, Pool, Search};

use crate::config::Config;

/// How long the engine searches.
const PROBE: Duration = Duration::from_millis(300);
/// Moves it scores.
const CANDIDATES: usize = 8;

/// Starts the engine, lets it score moves, and says in a few lines what it is and how it does.
///
/// # Errors
///
/// When it does not start or does not score.
pub async fn check(config: &Config) -> Result<String> {
    let engine = config.engine();
    let program = engine.program.display().to_string();
    let patience = engine.handshake + engine.grace + PROBE;
    let pool = Pool::start(engine, 1, 1).await.context(program.clone())?;
    let position = Chess::default();
    let candidates = position.legal_moves().into_iter().take(CANDIDATES).collect();
    let limits = Limits { movetime: Some(PROBE), ..Limits::default() };
    let search = Search { position, candidates, limits, fresh: false };
    let found = pool.evaluate(search, Some(Instant::now() + patience)).await.context(program.clone())?;
    let info = pool.info();
    pool.shutdown().await;
    let how = if info.together { "by one search" } else { "one by one" };
    let speed = found.nodes as f64 / found.time.as_secs_f64().max(1e-3);
    Ok(format!(
        "{program}: {} by {}\n  scores candidates {how}; {CANDIDATES} in {} ms to depth {}, {speed:.0} nodes/s\n  {} processes",
        info.name,
        info.author,
        found.time.as_millis(),
        found.depth,
        config.process_count(),
    ))
}
