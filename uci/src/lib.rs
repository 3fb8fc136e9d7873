//! Asynchronous UCI engines: processes that may hang, crash, flood and lie, behind a pool that answers anyway.
//!
//! ```no_run
//! # async fn example() -> Result<(), zeitnot_uci::UciError> {
//! use shakmaty::{Chess, Position};
//! use zeitnot_uci::{EngineConfig, Limits, Pool, Search};
//!
//! let pool = Pool::start(EngineConfig::new("/usr/games/stockfish".into()), 2, 64).await?;
//! let position = Chess::default();
//! let candidates = position.legal_moves().into_iter().take(4).collect();
//! let limits = Limits { depth: Some(8), ..Limits::default() };
//! let evaluation = pool.evaluate(Search { position, candidates, limits, fresh: true }, None).await?;
//! assert_eq!(evaluation.lines.len(), 4);
//! # Ok(())
//! # }
//! ```
//!
//! # Layout
//!
//! - [`search`]: what is asked for and what comes of it.
//! - `info`: the engine's lines; `collect`: from lines to scores.
//! - `process`: the engine's process, its group and its bounded output.
//! - `engine`: handshake and searches on one process; `reply`: whom a search is for.
//! - `queue`: who is next; [`pool`]: the processes' tasks, respawn and backoff.
//! - [`error`]: what can go wrong.

mod collect;
mod engine;
pub mod error;
mod info;
pub mod pool;
mod process;
mod queue;
mod reply;
pub mod search;

pub use error::UciError;
pub use pool::{EngineConfig, EngineInfo, Pool, Stats};
pub use search::{Evaluation, Iteration, Limits, Line, Score, Search};
