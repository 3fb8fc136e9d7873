//! The Zeitnot prediction service.
//!
//! # Layout
//!
//! One request: [`connections`] -> [`observe`] (counts, traces, logs, [`deadline`]) -> [`access`] (keys, limits) ->
//! [`service`] -> [`wire`] (validation) -> [`cache`] -> [`batcher`] (admission; what waits is in [`jobs`]) -> [`worker`]
//! (ONNX Runtime; what runs [`cost`]) -> [`rerank`] (engines, styles) -> [`wire`] (answer); errors become statuses in [`error`].
//!
//! - [`server`]: sockets, start, drain. [`shutdown`]: signals. [`readiness`]: health, told everywhere at once.
//! - [`models`]: what is served and how it is loaded, from [`model_files`], after a [`selfcheck`]. [`entries`]: what a name
//!   stands for, a model or an ensemble. [`reload`]: changes what is served.
//!   [`memory`]: gives back what old models leave.
//! - [`credentials`]: API [`keys`] and [`tls`], kept current. [`watch`]: notices changed files.
//! - [`config`], [`cli`]: options and commands.
//! - [`metrics`], [`admin`], [`telemetry`]: what operators see.

pub mod access;
pub mod admin;
pub mod batcher;
pub mod cache;
pub mod cli;
pub mod config;
pub mod connections;
pub mod cost;
pub mod credentials;
pub mod deadline;
pub mod entries;
pub mod error;
pub mod jobs;
pub mod keys;
pub mod memory;
pub mod metrics;
pub mod model_files;
pub mod models;
pub mod observe;
pub mod readiness;
pub mod reload;
pub mod rerank;
pub mod selfcheck;
pub mod server;
pub mod service;
pub mod shutdown;
pub mod telemetry;
pub mod tls;
pub mod watch;
pub mod wire;
pub mod worker;
