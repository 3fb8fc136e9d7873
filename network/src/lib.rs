//! Networks, written once and interpreted three ways.
//!
//! A forward pass is generic over [`Graph`]. [`specs::of`] runs it to learn which tensors it needs, the trainer runs it
//! eagerly on tch tensors, and [`onnx::export`] runs it to write nodes and trained weights.
//!
//! # Layout
//!
//! - [`graph`]: the operations a network is made of.
//! - [`config`]: sizes and switches, read from TOML.
//! - [`otter`]: the network family `otter/1`, and its parts [`history`] and [`attention`].
//! - [`zeitnot`]: the network family `zeitnot/1`.
//! - [`policy`]: the policy heads of these two.
//! - [`lc0`]: the network family `lc0-112/1`, and the reader of its weights files.
//! - [`maia3`]: the network family `maia3/1`.
//! - [`reranker`]: the network `rerank/1`.
//! - [`excitation`]: the gates of both residual families.
//! - [`specs`]: names, shapes and initial values of the tensors.
//! - [`weights`]: trained tensors by name, from safetensors files and PyTorch checkpoints.
//! - [`onnx`]: the ONNX file.

pub mod attention;
pub mod config;
pub mod excitation;
pub mod graph;
pub mod history;
pub mod lc0;
pub mod maia3;
pub mod onnx;
pub mod otter;
pub mod policy;
pub mod reranker;
pub mod specs;
pub mod weights;
pub mod zeitnot;

pub use config::{HistoryConfig, HistoryEmbedding, Lc0Config, NetworkConfig, OtterConfig, PolicyConfig, ZeitnotConfig};
pub use graph::{Graph, Outputs};
pub use maia3::Maia3Config;
pub use reranker::RerankerConfig;
pub use weights::{Weights, WeightsError};
