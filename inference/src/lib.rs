//! Opens a served model in ONNX Runtime and runs batches of encoded situations.
//!
//! Server and trainer both use it, so a model is judged by the code that serves it.
//!
//! # Layout
//!
//! - [`runtime`]: the ONNX Runtime library, loaded once.
//! - [`metadata`]: what a model file says of itself, checked.
//! - [`session`]: a session and its runs.
//! - [`answer`]: what it answers to each row.
//! - [`ensemble`]: one name over several models, chosen by rating.
//! - [`reranker`]: a session of a re-ranker; [`allocation`]: whether a search is worth its nodes.

pub mod allocation;
pub mod answer;
pub mod ensemble;
pub mod metadata;
pub mod reranker;
pub mod runtime;
pub mod session;

pub use allocation::Allocator;
pub use answer::{Answer, RowAnswer};
pub use ensemble::Ensemble;
pub use metadata::Metadata;
pub use reranker::{Reranker, RerankerMetadata};
pub use runtime::Runtime;
pub use session::{Device, Provider, Session, SessionOptions};

use thiserror::Error;

/// Why a model cannot be opened or run.
#[derive(Debug, Error)]
pub enum InferenceError {
    /// The ONNX Runtime library cannot be loaded.
    #[error("ONNX Runtime cannot be loaded from {path}: {problem}")]
    Library {
        /// Path tried.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// The file cannot be read.
    #[error("{file}: {source}")]
    Read {
        /// Path of the file.
        file: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file is not a model that can be served.
    #[error("{file}: {problem}")]
    Model {
        /// Path or name of the file.
        file: String,
        /// What is wrong, naming the metadata key, input or output.
        problem: String,
    },
    /// CUDA was asked for and is not there.
    #[error("CUDA cannot be used: {0}")]
    Cuda(String),
    /// ONNX Runtime reports an error.
    #[error("ONNX Runtime: {0}")]
    Run(#[from] ort::Error),
    /// The batch was encoded for another model.
    #[error("the batch is encoded as {found}, the model needs {expected}")]
    Encoding {
        /// Encoding of the batch.
        found: &'static str,
        /// Encoding of the model.
        expected: &'static str,
    },
    /// A model answered with another number of values than its outputs promise.
    #[error("output {output} has {found} values, expected {expected}")]
    Output {
        /// Name of the output.
        output: &'static str,
        /// Values found.
        found: usize,
        /// Values expected.
        expected: usize,
    },
}
