//! The admin port: `/live`, `/ready` and `/metrics` over HTTP.

use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};

use crate::metrics::Metrics;

/// Routes of the admin port.
pub fn routes(metrics: Metrics) -> Router {
    Router::new()
        // The process answers, so it lives; a model has no say in that.
        .route("/live", get(|| async { "live\n" }))
        .route("/ready", get(ready))
        .route("/metrics", get(text))
        .with_state(metrics)
}

async fn ready(State(metrics): State<Metrics>) -> impl IntoResponse {
    match metrics.ready.get() {
        1 => (StatusCode::OK, "ready\n"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
    }
}

async fn text(State(metrics): State<Metrics>) -> impl IntoResponse {
    metrics.text().map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}
