//! From a chess situation to the inputs of a network, and from its logits back to move probabilities.
//!
//! Trainer and server both call this crate, so what a model is trained on is what it is served.
//!
//! ```
//! use zeitnot_encoding::{Batch, Conditions, Game, LegalMoves, TimeControl, Zeitnot};
//!
//! let game = Game::parse("", &["e2e4", "c5"])?;
//! let situation = game.situation(Conditions {
//!     mover_rating: Some(1500),
//!     opponent_rating: Some(1520),
//!     time_control: Some(TimeControl { initial: 600.0, increment: 0.0 }),
//!     mover_clock: Some(590.0),
//!     ..Conditions::default()
//! });
//! let batch = Batch::of(&Zeitnot, [&situation]);
//! assert_eq!(batch.floats("board").len(), 18 * 64);
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
//! - [`situation`]: what the predictor knows: position, recent moves, conditions; [`past`]: the positions before.
//! - [`vocabulary`]: the 4,208 moves a policy speaks of.
//! - [`encodings`]: what an encoding is, and which there are.
//! - [`batch`]: encoded situations as named tensors.
//! - [`zeitnot`], [`otter`]: the inputs of `zeitnot/1` and `otter/1`; [`board`]: the planes they share.
//! - [`lc0`]: the inputs and the policy of `lc0-112/1`.
//! - [`maia3`]: the inputs and the policy of `maia3/1`.
//! - [`targets`]: what a human decision teaches: policy, value and auxiliary targets.
//! - [`think_time`]: the bins of think times.
//! - [`outlook`]: win, draw and loss.
//! - [`mixture`]: several networks' answers as one.
//! - [`evidence`]: what an engine says of moves, and what follows for a human; [`rerank`]: the inputs of `rerank/1`.
//! - [`decode`]: softmax over the legal moves, names in UCI and SAN.

pub mod batch;
pub mod board;
pub mod clock;
pub mod decode;
pub mod encodings;
pub mod evidence;
pub mod game;
pub mod lc0;
pub mod maia3;
pub mod mixture;
pub mod otter;
pub mod outlook;
pub mod past;
pub mod rerank;
pub mod situation;
pub mod targets;
pub mod think_time;
pub mod vocabulary;
pub mod zeitnot;

pub use batch::Batch;
pub use clock::TimeControl;
pub use decode::{LegalMoves, RankedMove};
pub use encodings::Encoding;
pub use game::{Game, GameError, GameOver};
pub use lc0::Lc0;
pub use maia3::Maia3;
pub use otter::Otter;
pub use outlook::Outlook;
pub use situation::{Conditions, History, RatingSystem, Situation};
pub use targets::Targets;
pub use think_time::ThinkTime;
pub use zeitnot::Zeitnot;
