//! The admin port: `/live`, `/startup`, `/ready` and `/metrics` over HTTP.

use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};

use crate::{cache::Cache, metrics::Metrics};

/// Routes of the admin port.
pub fn routes(metrics: Metrics, cache: Cache) -> Router {
    Router::new()
        // The process answers, so it lives; a model has no say in that.
        .route("/live", get(|| async { "live\n" }))
        .route("/startup", get(started))
        .route("/ready", get(ready))
        .with_state(metrics.clone())
        .merge(Router::new().route("/metrics", get(text)).with_state((metrics, cache)))
}

/// Whether the models have been loaded once.
async fn started(State(metrics): State<Metrics>) -> impl IntoResponse {
    match metrics.started.get() {
        1 => (StatusCode::OK, "started\n"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "the models are being loaded\n"),
    }
}

async fn ready(State(metrics): State<Metrics>) -> impl IntoResponse {
    match metrics.ready.get() {
        1 => (StatusCode::OK, "ready\n"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
    }
}

async fn text(State((metrics, cache)): State<(Metrics, Cache)>) -> impl IntoResponse {
    let (entries, bytes) = cache.size();
    metrics.cache_entries.set(i64::try_from(entries).unwrap_or(i64::MAX));
    metrics.cache_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    metrics.text().map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}
