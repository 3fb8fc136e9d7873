//! The admin port: `/live`, `/ready` and `/metrics` over HTTP.

use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};

use crate::{cache::Cache, metrics::Metrics};

/// Routes of the admin port.
pub fn routes(metrics: Metrics, cache: Cache) -> Router {
    Router::new()
        // The process answers, so it lives; the engine has no say in that.
        .route("/live", get(|| async { "live\n" }))
        .route("/ready", get(ready))
        .route("/metrics", get(text))
        .with_state((metrics, cache))
}

async fn ready(State((metrics, _)): State<(Metrics, Cache)>) -> impl IntoResponse {
    match metrics.ready.get() {
        1 => (StatusCode::OK, "ready\n"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
    }
}

async fn text(State((metrics, cache)): State<(Metrics, Cache)>) -> impl IntoResponse {
    metrics.cache_entries.set(i64::try_from(cache.entries()).unwrap_or(i64::MAX));
    metrics.text().map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}
