//! The Zeitnot prediction service.
//!
//! # Layout
//!
//! One request: [`service`] -> [`deadline`] -> [`wire`] (validation) -> [`batcher`] (admission, queue) -> [`worker`]
//! (ONNX Runtime) -> [`wire`] (answer); errors become statuses in [`error`].
//!
//! - [`server`]: sockets, start, drain. [`shutdown`]: signals. [`readiness`]: health, told everywhere at once.
//! - [`models`]: the models being served.
//! - [`config`], [`cli`]: options and commands.
//! - [`counting`], [`metrics`], [`admin`], [`telemetry`]: what operators see.

pub mod admin;
pub mod batcher;
pub mod cli;
pub mod config;
pub mod counting;
pub mod deadline;
pub mod error;
pub mod metrics;
pub mod models;
pub mod readiness;
pub mod server;
pub mod service;
pub mod shutdown;
pub mod telemetry;
pub mod wire;
pub mod worker;
