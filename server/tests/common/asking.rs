//! Asking a server that re-ranks.

use std::time::Duration;

use tonic::Code;
use tonic_types::StatusExt;
use zeitnot_proto::v1::{PredictRequest, PredictResponse, Rerank, RerankMode, RerankStatus};

use super::{Server, sidecar::reranker_file, strong};

pub(crate) const GAME: [&str; 4] = ["e4", "e5", "Nf3", "Nc6"];

/// A server with these sidecars and the re-ranker by formula.
pub(crate) async fn server_with(engines: &str) -> Server {
    let file = reranker_file();
    Server::start(&[engines, "--reranker", file.to_str().unwrap(), "--workers=1"]).await
}

/// The answer, whose probabilities sum to 1.
pub(crate) async fn ask(server: &Server, asked: PredictRequest) -> PredictResponse {
    let answer = server.predictions().predict(asked).await.unwrap().into_inner();
    let total = answer.moves.iter().map(|mv| f64::from(mv.probability)).sum::<f64>();
    assert!((total - 1.0).abs() < 1e-5, "{total}");
    answer
}

pub(crate) fn with(mode: RerankMode, asked: PredictRequest) -> PredictRequest {
    PredictRequest { rerank: Some(Rerank { mode: mode.into(), ..Rerank::default() }), ..asked }
}

pub(crate) fn is_the_prior(answer: &PredictResponse) -> bool {
    answer.moves.iter().all(|mv| mv.probability == mv.prior_probability && mv.evidence.is_none())
        && answer.insight.is_none()
}

/// Code and machine-readable reason.
pub(crate) fn reason(status: &tonic::Status) -> (Code, String) {
    (status.code(), status.get_error_details().error_info().unwrap().reason.clone())
}

/// Asks until it is answered like this, at most a minute.
pub(crate) async fn until(server: &Server, expected: RerankStatus) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while ask(server, strong(&GAME)).await.rerank_status() != expected {
        assert!(tokio::time::Instant::now() < deadline, "not {expected:?} after a minute");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
