//! The engine sidecar: scores candidate moves by a pool of UCI engines, over gRPC.
//!
//! # Layout
//!
//! One request: [`connections`] -> [`deadline`] -> [`service`] -> [`wire`] (validation) -> [`cache`] -> [`engines`] (the
//! pool of `zeitnot_uci`, a second try) -> [`wire`] (answer); errors become statuses in [`error`].
//!
//! - [`server`]: sockets, start, drain. [`shutdown`]: signals. [`readiness`]: health, told everywhere at once.
//! - [`config`], [`cli`]: options and commands. [`check`]: the command that tries the engine. [`tls`]: certificates.
//! - [`metrics`], [`admin`], [`telemetry`]: what operators see.

pub mod admin;
pub mod cache;
pub mod check;
pub mod cli;
pub mod config;
pub mod connections;
pub mod deadline;
pub mod engines;
pub mod error;
pub mod metrics;
pub mod readiness;
pub mod server;
pub mod service;
pub mod shutdown;
pub mod telemetry;
pub mod tls;
pub mod wire;
