//! Counts, traces and logs every request that reaches the gRPC port, also those refused before a service sees them, and
//! ends those whose deadline passes, wherever they are: also those whose message never comes.
//!
//! A request ends with the end of its answer's body; when that is dropped before, its client went away.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use http_body::Frame;
use tonic::{
    Code, Status,
    body::Body,
    codegen::http::{Request, Response},
};
use tower::{Layer, Service};
use tracing::{Instrument, Span, field::Empty};

use crate::{
    deadline::{self, Deadline},
    error::ServiceError,
    metrics::{self, METHODS, Metrics, NO_MODEL, UNKNOWN_METHOD},
    telemetry,
};

/// Longest time of a reload, which loads models that may be large.
const RELOAD_LIMIT: Duration = Duration::from_secs(600);

/// Wraps services so that their requests are observed.
#[derive(Clone, Debug)]
pub struct ObserveLayer {
    metrics: Metrics,
    share: f64,
    limit: Duration,
}

/// Where a service notes which model a request is for; an extension of every request.
#[derive(Clone, Debug, Default)]
pub struct ModelNote(Arc<OnceLock<String>>);

impl ModelNote {
    /// Notes the model.
    pub fn set(&self, model: &str) {
        let _ = self.0.set(model.to_owned()); // The first note stays.
        Span::current().record("model", model);
    }

    fn get(&self) -> &str {
        self.0.get().map_or(NO_MODEL, String::as_str)
    }
}

impl ObserveLayer {
    /// Counts into these metrics, logs this share of the requests, and gives each at most `limit`.
    pub fn new(metrics: Metrics, share: f64, limit: Duration) -> Self {
        ObserveLayer { metrics, share, limit }
    }
}

impl<S> Layer<S> for ObserveLayer {
    type Service = Observe<S>;

    fn layer(&self, inner: S) -> Observe<S> {
        Observe { inner, layer: self.clone() }
    }
}

/// A service whose requests are observed.
#[derive(Clone, Debug)]
pub struct Observe<S> {
    inner: S,
    layer: ObserveLayer,
}

impl<S, B> Service<Request<B>> for Observe<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let Some(method) = method(request.uri().path()) else { return Box::pin(self.inner.call(request)) };
        let span = tracing::info_span!(
            "request",
            id = request_id(),
            otel.kind = "server",
            method,
            model = Empty,
            client = Empty,
            queue_ms = Empty,
            inference_ms = Empty,
            batch_size = Empty,
            rerank_status = Empty,
            engine_ms = Empty,
            code = Empty
        );
        telemetry::follow(&span, request.headers());
        let model = ModelNote::default();
        request.extensions_mut().insert(model.clone());
        let counted = self.layer.metrics.request(method);
        let logged = sampled(self.layer.share);
        let mut ending = Ending { counted: Some(counted), model, span: span.clone(), logged };
        let limit = if method == "ReloadModels" { RELOAD_LIMIT } else { self.layer.limit };
        let deadline = deadline::of(request.headers(), limit);
        request.extensions_mut().insert(Deadline(deadline));
        let answer = span.in_scope(|| self.inner.call(request)).instrument(span);
        Box::pin(async move {
            let answer = match tokio::time::timeout_at(deadline.into(), answer).await {
                Ok(answer) => answer?,
                Err(_) => Status::from(ServiceError::DeadlineExceeded).into_http(),
            };
            let (parts, body) = answer.into_parts();
            if let Some(status) = Status::from_header_map(&parts.headers) {
                ending.end(status.code(), status.message());
            }
            Ok(Response::from_parts(parts, Body::new(Watched { body, ending })))
        })
    }
}

/// What is left to do when a request ends. Dropped before, the client went away.
struct Ending {
    counted: Option<metrics::Request>,
    model: ModelNote,
    span: Span,
    logged: bool,
}

impl Ending {
    fn end(&mut self, code: Code, message: &str) {
        let Some(counted) = self.counted.take() else { return };
        let (method, took) = (counted.method(), counted.arrived().elapsed());
        let name = counted.ended(code, self.model.get());
        self.span.record("code", name);
        let _entered = self.span.enter();
        let took_ms = took.as_secs_f64() * 1e3;
        match code {
            Code::Internal | Code::Unknown => tracing::error!(method, code = name, took_ms, message, "failed"),
            Code::Ok if self.logged => tracing::info!(method, code = name, took_ms, "answered"),
            _ if self.logged => tracing::info!(method, code = name, took_ms, message, "refused"),
            _ => {}
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.end(Code::Cancelled, "the client went away");
    }
}

/// A body whose end is the end of its request.
struct Watched {
    body: Body,
    ending: Ending,
}

impl http_body::Body for Watched {
    type Data = <Body as http_body::Body>::Data;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(status) = frame.trailers_ref().and_then(Status::from_header_map) {
                    self.ending.end(status.code(), status.message());
                }
            }
            Some(Err(status)) => self.ending.end(status.code(), status.message()),
            None => self.ending.end(Code::Ok, ""),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
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

/// A number that names a request in this process's logs.
fn request_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// True for this share of the calls, evenly spread.
fn sampled(share: f64) -> bool {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed) as f64;
    ((call + 1.0) * share).floor() > (call * share).floor()
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tonic::codegen::http::HeaderMap;

    use super::*;

    const PATH: &str = "/zeitnot.v1.PredictionService/Predict";

    fn request() -> Request<()> {
        Request::builder().uri(PATH).body(()).unwrap()
    }

    fn counted(metrics: &Metrics, code: &str) -> bool {
        let line = format!("zeitnot_requests_total{{code=\"{code}\",method=\"Predict\",model=\"none\"}} 1");
        metrics.text().unwrap().contains(&line)
    }

    #[test]
    fn requests_are_counted_under_known_names_alone() {
        assert_eq!(method(PATH), Some("Predict"));
        assert_eq!(method("/zeitnot.v1.PredictionService/Banana"), Some(UNKNOWN_METHOD));
        assert_eq!(method("/grpc.health.v1.Health/Check"), None);
        assert_eq!(method("/"), None);
    }

    #[test]
    fn a_share_of_the_requests_is_logged() {
        assert!((0..100).all(|_| !sampled(0.0)));
        assert!((0..100).all(|_| sampled(1.0)));
    }

    #[tokio::test]
    async fn a_request_whose_client_goes_away_counts_as_cancelled() {
        let metrics = Metrics::new().unwrap();
        let never = tower::service_fn(|_: Request<()>| std::future::pending::<Result<Response<Body>, ()>>());
        let mut service = ObserveLayer::new(metrics.clone(), 0.0, Duration::from_secs(9)).layer(never);
        drop(service.call(request()));
        assert!(counted(&metrics, "CANCELLED"));
    }

    #[tokio::test]
    async fn an_answer_counts_when_it_has_ended_and_not_before() {
        let metrics = Metrics::new().unwrap();
        let trailers = |code: Code| {
            let mut headers = HeaderMap::new();
            Status::new(code, "").add_header(&mut headers).unwrap();
            let frame = Ok::<_, Status>(Frame::<tonic::codegen::Bytes>::trailers(headers));
            Body::new(http_body_util::StreamBody::new(tokio_stream::iter([frame])))
        };
        let service = tower::service_fn(|_: Request<()>| async move { Ok::<_, ()>(Response::new(trailers(Code::Ok))) });
        let mut service = ObserveLayer::new(metrics.clone(), 0.0, Duration::from_secs(9)).layer(service);
        let body = service.call(request()).await.unwrap().into_body();
        assert!(!counted(&metrics, "OK") && !counted(&metrics, "CANCELLED"));
        body.collect().await.unwrap();
        assert!(counted(&metrics, "OK"));
        drop(service.call(request()).await.unwrap());
        assert!(counted(&metrics, "CANCELLED"), "nobody read the answer");
    }
}
