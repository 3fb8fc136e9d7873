//! Re-ranking: engine evidence and styles change the prior's moves, or the answer says why not.
//!
//! # Layout
//!
//! - [`stage`]: whether and how a prediction is re-ranked. [`budget`]: how long an engine may search for it.
//! - [`engines`]: asks the sidecars. [`endpoints`]: which there are, at an [`address`] each, and how they are.
//!   [`breaker`]: leaves alone those that fail.
//! - [`reranker`]: the threads that run the network. [`styles`]: players' styles. [`kit`]: loads both.

use zeitnot_encoding::rerank::Style;

pub mod address;
pub mod breaker;
pub mod budget;
pub mod endpoints;
pub mod engines;
pub mod kit;
pub mod reranker;
pub mod stage;
pub mod styles;

/// What a request says of re-ranking.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// Whether to ask an engine; none: as the server is configured.
    pub mode: Option<Mode>,
    /// How to search.
    pub wish: budget::Wish,
    /// Whose style to apply.
    pub style: Option<StyleAsked>,
}

/// Whether an engine is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No.
    Off,
    /// From a rating up, where a search is worth its time.
    Auto,
    /// Yes, and without evidence there is no answer.
    Required,
}

/// A style, as a request names it.
#[derive(Clone, Debug, PartialEq)]
pub enum StyleAsked {
    /// One of the server's.
    Name(String),
    /// The request's own.
    Vector(Box<Style>),
}

/// A style to apply.
#[derive(Clone, Debug, PartialEq)]
pub struct ChosenStyle {
    /// What the answer calls it.
    pub name: String,
    /// Its numbers.
    pub values: Style,
}

/// What became of the re-ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Engine evidence re-ranked the moves.
    Applied,
    /// Off, not configured, not worth a search, or no re-ranker for the evidence there is.
    PriorOnly,
    /// No engine could be reached, or none gave scores.
    EngineUnavailable,
    /// The deadline left no time to search.
    Deadline,
    /// The mover's rating is unknown or too low.
    BelowRating,
    /// There is nothing to rank.
    OneLegalMove,
}

impl Outcome {
    /// Its name in metrics and logs.
    pub fn label(self) -> &'static str {
        match self {
            Outcome::Applied => "applied",
            Outcome::PriorOnly => "prior_only",
            Outcome::EngineUnavailable => "engine_unavailable",
            Outcome::Deadline => "deadline",
            Outcome::BelowRating => "below_rating",
            Outcome::OneLegalMove => "one_legal_move",
        }
    }
}
