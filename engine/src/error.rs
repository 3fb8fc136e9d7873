//! Why a request fails, and the one place where that becomes a gRPC status.

use std::{collections::HashMap, time::Duration};

use thiserror::Error;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};
use zeitnot_uci::UciError;

/// Domain of the machine-readable reasons.
const DOMAIN: &str = "zeitnot.engine.v1";

/// A field of a request and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field, such as `candidates[17]`.
    pub field: String,
    /// What is wrong.
    pub problem: String,
}

impl Violation {
    /// Something wrong with a field.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Violation { field: field.into(), problem: problem.into() }
    }
}

/// Why a request fails.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EngineError {
    /// The request makes no sense.
    #[error("{}", .0.iter().map(|v| format!("{}: {}", v.field, v.problem)).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<Violation>),
    /// The engine is still being started.
    #[error("the engine is being started")]
    Starting,
    /// For a while no engine process has been ready.
    #[error("no engine process is ready")]
    NoProcess,
    /// The deadline passed before anything was scored.
    #[error("the deadline passed before anything was scored")]
    Deadline,
    /// The pool failed.
    #[error("{error}")]
    Pool {
        /// What it says.
        error: UciError,
        /// When a process may be free.
        retry_after: Duration,
    },
}

/// Whether the process was at fault, so that another one may do better.
pub fn is_engines_fault(error: &UciError) -> bool {
    match error {
        UciError::Spawn { .. } | UciError::Handshake(_) | UciError::Crashed => true,
        UciError::Hung | UciError::Flood | UciError::Lied(_) => true,
        UciError::Full | UciError::Deadline | UciError::Closed => false,
        UciError::NoCandidates | UciError::IllegalCandidate(_) | UciError::NoLimit => false,
    }
}

impl EngineError {
    /// The gRPC code, and the machine-readable reason.
    fn verdict(&self) -> (Code, &'static str) {
        match self {
            EngineError::Invalid(_) => (Code::InvalidArgument, "INVALID_REQUEST"),
            EngineError::Starting => (Code::Unavailable, "STARTING"),
            EngineError::NoProcess => (Code::Unavailable, "NO_PROCESS"),
            EngineError::Deadline => (Code::DeadlineExceeded, "DEADLINE"),
            EngineError::Pool { error, .. } => match error {
                UciError::Spawn { .. } => (Code::Unavailable, "ENGINE_NOT_RUN"),
                UciError::Handshake(_) => (Code::Unavailable, "ENGINE_DOES_NOT_GREET"),
                UciError::Crashed => (Code::Unavailable, "ENGINE_CRASHED"),
                UciError::Hung => (Code::Unavailable, "ENGINE_HUNG"),
                UciError::Flood => (Code::Unavailable, "ENGINE_FLOODED"),
                UciError::Lied(_) => (Code::Unavailable, "ENGINE_LIED"),
                UciError::Closed => (Code::Unavailable, "DRAINING"),
                UciError::Full => (Code::ResourceExhausted, "QUEUE_FULL"),
                UciError::Deadline => (Code::DeadlineExceeded, "DEADLINE"),
                UciError::NoCandidates | UciError::IllegalCandidate(_) | UciError::NoLimit => {
                    (Code::InvalidArgument, "INVALID_REQUEST")
                }
            },
        }
    }
}

impl From<EngineError> for Status {
    fn from(error: EngineError) -> Self {
        let (code, reason) = error.verdict();
        let mut details = ErrorDetails::new();
        details.set_error_info(reason, DOMAIN, HashMap::<String, String>::new());
        if let EngineError::Invalid(violations) = &error {
            for Violation { field, problem } in violations {
                details.add_bad_request_violation(field, problem);
            }
        }
        if let EngineError::Pool { error: UciError::Full, retry_after } = &error {
            details.set_retry_info(Some(*retry_after));
        }
        Status::with_error_details(code, error.to_string(), details)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_says_when_to_come_again() {
        let retry_after = Duration::from_millis(120);
        let status = Status::from(EngineError::Pool { error: UciError::Full, retry_after });
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.get_error_details().retry_info().unwrap().retry_delay, Some(retry_after));
    }

    #[test]
    fn engines_at_fault_are_unavailable_and_say_why() {
        let spawn = UciError::Spawn { program: "x".into(), problem: "y".into() };
        let at_fault = [
            (spawn, "ENGINE_NOT_RUN"),
            (UciError::Handshake(String::new()), "ENGINE_DOES_NOT_GREET"),
            (UciError::Crashed, "ENGINE_CRASHED"),
            (UciError::Hung, "ENGINE_HUNG"),
            (UciError::Flood, "ENGINE_FLOODED"),
            (UciError::Lied(String::new()), "ENGINE_LIED"),
        ];
        for (error, reason) in at_fault {
            assert!(is_engines_fault(&error), "{error}");
            let status = Status::from(EngineError::Pool { error, retry_after: Duration::ZERO });
            assert_eq!(status.code(), Code::Unavailable);
            assert_eq!(status.get_error_details().error_info().unwrap().reason, reason);
        }
        assert!(!is_engines_fault(&UciError::Closed) && !is_engines_fault(&UciError::Full));
    }
}
