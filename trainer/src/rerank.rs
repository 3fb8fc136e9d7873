//! Re-rankers: from annotated decisions to a file that is served, and how they are judged.
//!
//! # Layout
//!
//! - [`known`]: decisions joined with the prior's answers and the engine's.
//! - [`train`]: `train-reranker`; [`loss`]: what a step minimises; [`style`]: `fit-style`.
//! - [`kept`]: a trained re-ranker as files.
//! - [`judge`], [`slices`], [`report`]: `evaluate --reranker`.
//! - [`allocate`]: predictors of what a search gains, and what they are worth.

pub mod allocate;
pub mod judge;
#[cfg(feature = "tch")]
pub mod kept;
pub mod known;
#[cfg(feature = "tch")]
pub mod loss;
pub mod report;
pub mod slices;
#[cfg(feature = "tch")]
pub mod style;
#[cfg(feature = "tch")]
pub mod train;
