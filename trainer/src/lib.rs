//! From human games to a served model.
//!
//! # Layout
//!
//! - [`record`]: one game; [`pgn`], [`clk`] and [`filter`] read and choose games, [`shard`] keeps them as Parquet.
//! - [`prepare`]: PGN files to shards.
//! - [`feed`]: shards to shuffled training batches.
//! - [`train`]: batches to checkpoints, with tch.
//! - [`export`], [`import`]: checkpoints and published weights to ONNX; [`model_file`] writes, [`parity`] checks,
//!   [`quantize`] makes them faster.
//! - [`annotate`]: what an engine says of a model's candidates; [`rerank`]: re-rankers, trained on that and judged.
//! - [`evaluate`]: models against held-out games; [`calibrate`]: whether probabilities and think times are what happens;
//!   [`compare`]: many models and ensembles on the same decisions.
//! - [`picture`]: drawings as SVG.

pub mod annotate;
pub mod calibrate;
pub mod clk;
pub mod compare;
pub mod evaluate;
#[cfg(feature = "tch")]
pub mod export;
pub mod feed;
pub mod filter;
pub mod import;
pub mod model_file;
#[cfg(feature = "tch")]
pub mod parity;
pub mod pgn;
pub mod picture;
pub mod prepare;
pub mod quantize;
pub mod record;
pub mod rerank;
pub mod shard;
#[cfg(feature = "tch")]
pub mod train;
