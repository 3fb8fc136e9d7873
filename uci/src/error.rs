//! What can go wrong between a request and its scores.

use thiserror::Error;

/// Why there are no scores.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum UciError {
    /// The engine's program cannot be run.
    #[error("the engine {program} cannot be run: {problem}")]
    Spawn {
        /// The program.
        program: String,
        /// What the system says.
        problem: String,
    },
    /// The engine did not answer `uci` and `isready` in time, or ended before.
    #[error("the engine does not greet: {0}")]
    Handshake(String),
    /// The engine ended during the search.
    #[error("the engine ended during the search")]
    Crashed,
    /// The engine neither finished nor answered `stop`.
    #[error("the engine hangs")]
    Hung,
    /// The engine writes without end.
    #[error("the engine writes too much")]
    Flood,
    /// The engine answers what cannot be.
    #[error("the engine answers nonsense: {0}")]
    Lied(String),
    /// As many requests wait as may.
    #[error("as many requests wait as may")]
    Full,
    /// The deadline passed before anything was scored.
    #[error("the deadline passed before anything was scored")]
    Deadline,
    /// There is nothing to score.
    #[error("there are no candidates")]
    NoCandidates,
    /// A candidate cannot be played.
    #[error("the candidate {0} is not legal or named twice")]
    IllegalCandidate(String),
    /// Nothing would end the search.
    #[error("the search has neither a limit nor a deadline")]
    NoLimit,
    /// The pool is shut down.
    #[error("the pool is shut down")]
    Closed,
}

impl UciError {
    /// Whether the process that caused it must not be used again.
    pub(crate) fn is_fatal(&self) -> bool {
        match self {
            UciError::Spawn { .. } | UciError::Handshake(_) | UciError::Crashed => true,
            UciError::Hung | UciError::Flood | UciError::Lied(_) => true,
            UciError::Full | UciError::Deadline | UciError::NoCandidates => false,
            UciError::IllegalCandidate(_) | UciError::NoLimit | UciError::Closed => false,
        }
    }
}
