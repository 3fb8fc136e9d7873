//! Why a request fails, and the one place where that becomes a gRPC status.

use std::time::Duration;

use thiserror::Error;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// Domain of the machine-readable reasons.
const DOMAIN: &str = "zeitnot.v1";

/// A field of a request and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field, such as `position.moves[17]`.
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
pub enum ServiceError {
    /// The request makes no sense.
    #[error("{}", .0.iter().map(|v| format!("{}: {}", v.field, v.problem)).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<Violation>),
    /// No model of this name is served.
    #[error("model: there is no model `{0}`")]
    UnknownModel(String),
    /// No style of this name is served.
    #[error("mover.style.name: there is no style `{0}`")]
    UnknownStyle(String),
    /// A style was given, and no re-ranker is served that could apply it.
    #[error("mover.style: no re-ranker is served, which styles need")]
    NoReranker,
    /// Evidence is required and no engine is configured.
    #[error("rerank.mode: no engine is configured, and evidence is required")]
    NoEngines,
    /// Evidence is required, and no engine could be reached or gave scores that make sense.
    #[error("no engine gave the evidence that is required")]
    EngineUnavailable,
    /// Evidence is required, and none came in time.
    #[error("no engine gave the evidence that is required in time")]
    EngineTooLate,
    /// As many requests as allowed are waiting.
    #[error("the queue is full")]
    Overloaded {
        /// When trying again may succeed.
        retry_after: Duration,
    },
    /// The request could not be ready by its deadline, with what is before it in the queue.
    #[error("the queue is too long for the request's deadline")]
    NotInTime {
        /// When trying again may succeed.
        retry_after: Duration,
    },
    /// The client has used up what its key may.
    #[error("the key's limit of {what} is reached")]
    ClientLimit {
        /// Which limit.
        what: &'static str,
        /// When trying again may succeed.
        retry_after: Duration,
    },
    /// The request's key is missing, unknown or expired.
    #[error("not authenticated: {0}")]
    Unauthenticated(&'static str),
    /// The caller may not do this.
    #[error("not permitted: {0}")]
    Forbidden(&'static str),
    /// The models could not be reloaded; what was served is served on.
    #[error("nothing was changed: {0}")]
    ReloadFailed(String),
    /// The client's or the server's deadline passed.
    #[error("the deadline passed before the prediction was ready")]
    DeadlineExceeded,
    /// The models are still being loaded.
    #[error("the models are being loaded")]
    Starting,
    /// Other reloads are under way.
    #[error("other reloads are under way")]
    Reloading,
    /// No worker can open the model.
    #[error("no worker can open the model")]
    NoWorker,
    /// The model could not be run.
    #[error("the model could not be run")]
    Inference,
}

impl ServiceError {
    fn code(&self) -> Code {
        match self {
            ServiceError::Invalid(_) => Code::InvalidArgument,
            ServiceError::UnknownModel(_) | ServiceError::UnknownStyle(_) => Code::NotFound,
            ServiceError::Overloaded { .. } | ServiceError::NotInTime { .. } | ServiceError::ClientLimit { .. } => {
                Code::ResourceExhausted
            }
            ServiceError::Unauthenticated(_) => Code::Unauthenticated,
            ServiceError::Forbidden(_) => Code::PermissionDenied,
            ServiceError::ReloadFailed(_) | ServiceError::NoReranker => Code::FailedPrecondition,
            ServiceError::DeadlineExceeded => Code::DeadlineExceeded,
            ServiceError::Starting
            | ServiceError::Reloading
            | ServiceError::NoWorker
            | ServiceError::NoEngines
            | ServiceError::EngineUnavailable
            | ServiceError::EngineTooLate => Code::Unavailable,
            ServiceError::Inference => Code::Internal,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            ServiceError::Invalid(_) => "INVALID_REQUEST",
            ServiceError::UnknownModel(_) => "UNKNOWN_MODEL",
            ServiceError::UnknownStyle(_) => "UNKNOWN_STYLE",
            ServiceError::NoReranker => "NO_RERANKER",
            ServiceError::NoEngines => "NO_ENGINES",
            ServiceError::EngineUnavailable => "ENGINE_UNAVAILABLE",
            ServiceError::EngineTooLate => "ENGINE_TOO_LATE",
            ServiceError::Overloaded { .. } => "QUEUE_FULL",
            ServiceError::DeadlineExceeded => "DEADLINE",
            ServiceError::Starting => "STARTING",
            ServiceError::Reloading => "RELOADING",
            ServiceError::NoWorker => "NO_WORKER",
            ServiceError::NotInTime { .. } => "QUEUE_TOO_LONG",
            ServiceError::ClientLimit { .. } => "CLIENT_LIMIT",
            ServiceError::Unauthenticated(_) => "UNAUTHENTICATED",
            ServiceError::Forbidden(_) => "FORBIDDEN",
            ServiceError::ReloadFailed(_) => "RELOAD_FAILED",
            ServiceError::Inference => "INFERENCE_FAILED",
        }
    }
}

impl From<ServiceError> for Status {
    fn from(error: ServiceError) -> Self {
        let mut details = ErrorDetails::new();
        details.set_error_info(error.reason(), DOMAIN, std::collections::HashMap::<String, String>::new());
        match &error {
            ServiceError::Invalid(violations) => {
                for Violation { field, problem } in violations {
                    details.add_bad_request_violation(field, problem);
                }
            }
            ServiceError::Overloaded { retry_after }
            | ServiceError::NotInTime { retry_after }
            | ServiceError::ClientLimit { retry_after, .. } => {
                details.set_retry_info(Some(*retry_after));
            }
            ServiceError::UnknownModel(_)
            | ServiceError::UnknownStyle(_)
            | ServiceError::NoReranker
            | ServiceError::NoEngines
            | ServiceError::EngineUnavailable
            | ServiceError::EngineTooLate
            | ServiceError::DeadlineExceeded
            | ServiceError::Starting
            | ServiceError::NoWorker
            | ServiceError::Reloading
            | ServiceError::Unauthenticated(_)
            | ServiceError::Forbidden(_)
            | ServiceError::ReloadFailed(_)
            | ServiceError::Inference => {}
        }
        Status::with_error_details(error.code(), error.to_string(), details)
    }
}
