//! Counts every request that reaches the gRPC port, also those refused before a service sees them.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tonic::{
    Code, Status,
    codegen::http::{HeaderMap, Request, Response},
};
use tower::{Layer, Service};

use crate::metrics::{METHODS, Metrics, UNKNOWN_METHOD};

/// Wraps services so that their requests are counted.
#[derive(Clone, Debug)]
pub struct CountLayer {
    metrics: Metrics,
}

impl CountLayer {
    /// Counts into these metrics.
    pub fn new(metrics: Metrics) -> Self {
        CountLayer { metrics }
    }
}

impl<S> Layer<S> for CountLayer {
    type Service = Count<S>;

    fn layer(&self, inner: S) -> Count<S> {
        Count { inner, metrics: self.metrics.clone() }
    }
}

/// A service whose requests are counted.
#[derive(Clone, Debug)]
pub struct Count<S> {
    inner: S,
    metrics: Metrics,
}

impl<S, B, R> Service<Request<B>> for Count<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let counted = method(request.uri().path()).map(|method| self.metrics.request(method));
        let answer = self.inner.call(request);
        Box::pin(async move {
            let response = answer.await?;
            if let Some(counted) = counted {
                counted.ended(code(response.headers()));
            }
            Ok(response)
        })
    }
}

/// The name a request is counted under; health and reflection are not counted.
fn method(path: &str) -> Option<&'static str> {
    let (service, method) = path.trim_start_matches('/').split_once('/')?;
    if !service.starts_with("zeitnot.") {
        return None;
    }
    Some(METHODS.into_iter().find(|known| *known == method).unwrap_or(UNKNOWN_METHOD))
}

/// The code of a unary answer: errors come as headers, and what has none goes well.
fn code(headers: &HeaderMap) -> Code {
    Status::from_header_map(headers).map_or(Code::Ok, |status| status.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_under_known_names_alone() {
        assert_eq!(method("/zeitnot.v1.PredictionService/Predict"), Some("Predict"));
        assert_eq!(method("/zeitnot.v1.PredictionService/Banana"), Some(UNKNOWN_METHOD));
        assert_eq!(method("/grpc.health.v1.Health/Check"), None);
        assert_eq!(method("/"), None);
    }

    #[tokio::test]
    async fn a_request_whose_client_goes_away_counts_as_cancelled() {
        let metrics = Metrics::new().unwrap();
        let never = tower::service_fn(|_: Request<()>| std::future::pending::<Result<Response<()>, ()>>());
        let mut service = CountLayer::new(metrics.clone()).layer(never);
        let request = Request::builder().uri("/zeitnot.v1.PredictionService/Predict").body(()).unwrap();
        drop(service.call(request));
        let text = metrics.text().unwrap();
        assert!(text.contains("zeitnot_requests_total{code=\"CANCELLED\",method=\"Predict\"} 1"), "{text}");
    }
}
