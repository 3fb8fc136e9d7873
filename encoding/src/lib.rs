//! From a chess situation to the inputs of a network, and from its logits back to move probabilities.
//!
//! Trainer and server both call this crate, so what a model is trained on is what it is served.
//!
//! ```
//! use zeitnot_encoding::{Conditions, Game, LegalMoves, OtterBatch, TimeControl};
//!
//! let game = Game::parse("", &["e2e4", "c5"])?;
//! let situation = game.situation(Conditions {
//!     mover_rating: Some(1500),
//!     opponent_rating: Some(1520),
//!     time_control: Some(TimeControl { initial: 600.0, increment: 0.0 }),
//!     mover_clock: Some(590.0),
//! });
//! let mut batch = OtterBatch::with_capacity(1);
//! batch.push(&situation);
//!
//! let legal = LegalMoves::of(game.position());
//! let logits = vec![0.0; zeitnot_encoding::vocabulary::SIZE]; // what a network would answer
//! let moves = legal.rank(game.position(), &logits);
//! assert_eq!(moves.len(), 30);
//! # Ok::<(), zeitnot_encoding::GameError>(())
//! ```
//!
//! # Layout
//!
//! - [`game`]: an initial position and the moves from it, checked; errors name the ply.
//! - [`clock`]: time controls, the clocks before each move, think times.
//! - [`situation`]: what the predictor knows: position, recent moves, conditions.
//! - [`vocabulary`]: the 4,208 moves a policy speaks of.
//! - [`otter`]: the `otter/1` tensors.
//! - [`targets`]: what a human decision teaches: policy, value and auxiliary targets.
//! - [`decode`]: softmax over the legal moves, names in UCI and SAN.

pub mod clock;
pub mod decode;
pub mod game;
pub mod otter;
pub mod situation;
pub mod targets;
pub mod vocabulary;

pub use clock::TimeControl;
pub use decode::{LegalMoves, RankedMove};
pub use game::{Game, GameError, GameOver};
pub use otter::OtterBatch;
pub use situation::{Conditions, History, Situation};
pub use targets::Targets;
