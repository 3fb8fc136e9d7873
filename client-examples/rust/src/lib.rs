//! An open-loop load generator for Zeitnot, and an example of a client in Rust.
//!
//! Requests arrive when a Poisson process says so, whether earlier ones were answered or not, and latency counts from
//! the moment a request was due. A slow server can therefore not make the generator wait, and look faster by it
//! (coordinated omission).
//!
//! # Layout
//!
//! - [`games`]: requests from the positions of real games.
//! - [`target`]: what is called, and how a call can end; [`grpc`]: a Zeitnot server as a target.
//! - [`generate`]: open loop, and closed loop to find a server's capacity.
//! - [`report`]: what was measured; [`picture`]: drawn.

pub mod games;
pub mod generate;
pub mod grpc;
pub mod picture;
pub mod report;
pub mod target;
