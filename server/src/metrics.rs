//! All metrics of the server, registered with all their labels before the first request.

use std::time::Instant;

use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};
use tonic::Code;

/// What a method that does not exist is counted as.
pub const UNKNOWN_METHOD: &str = "unknown";
/// Methods that are counted.
pub const METHODS: [&str; 3] = ["Predict", "ListModels", "GetModel"];
/// How a request can end.
const CODES: [(Code, &str); 10] = [
    (Code::Ok, "OK"),
    (Code::Cancelled, "CANCELLED"),
    (Code::InvalidArgument, "INVALID_ARGUMENT"),
    (Code::DeadlineExceeded, "DEADLINE_EXCEEDED"),
    (Code::NotFound, "NOT_FOUND"),
    (Code::ResourceExhausted, "RESOURCE_EXHAUSTED"),
    (Code::OutOfRange, "OUT_OF_RANGE"),
    (Code::Unimplemented, "UNIMPLEMENTED"),
    (Code::Internal, "INTERNAL"),
    (Code::Unavailable, "UNAVAILABLE"),
];
const SECONDS: [f64; 14] =
    [0.000_25, 0.000_5, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 4.0];
const ROWS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// The metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    /// Requests that ended, by method and code; every request counts once.
    requests: IntCounterVec,
    /// Seconds from arrival to answer, by method.
    latency: HistogramVec,
    /// Seconds from admission to hand-over to a worker.
    pub queue_seconds: Histogram,
    /// Seconds of a model's run.
    pub inference_seconds: Histogram,
    /// Requests in a batch.
    pub batch_rows: Histogram,
    /// Requests admitted and not yet answered.
    pub admitted: IntGauge,
    /// Requests dropped at hand-over because nobody waits any more.
    pub dropped_cancelled: IntCounter,
    /// Requests dropped at hand-over because their deadline passed.
    pub dropped_expired: IntCounter,
    /// Batches whose run failed.
    pub failed_batches: IntCounter,
    /// Workers that run.
    pub workers: IntGauge,
    /// 1 when ready.
    pub ready: IntGauge,
    /// 1 for every served model, with its version, encoding and the provider it really runs on.
    pub models: IntGaugeVec,
}

impl Metrics {
    /// Registers everything.
    ///
    /// # Errors
    ///
    /// When two metrics share a name, which a test would show.
    pub fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let drops = IntCounterVec::new(
            Opts::new("zeitnot_dropped_requests_total", "Requests dropped at hand-over, never computed"),
            &["reason"],
        )?;
        let seconds =
            |name: &str, help: &str| Histogram::with_opts(HistogramOpts::new(name, help).buckets(SECONDS.to_vec()));
        let metrics = Metrics {
            requests: IntCounterVec::new(
                Opts::new("zeitnot_requests_total", "Requests that ended, by method and gRPC code"),
                &["method", "code"],
            )?,
            latency: HistogramVec::new(
                HistogramOpts::new("zeitnot_request_seconds", "Seconds from arrival to answer")
                    .buckets(SECONDS.to_vec()),
                &["method"],
            )?,
            queue_seconds: seconds("zeitnot_queue_seconds", "Seconds from admission to hand-over to a worker")?,
            inference_seconds: seconds("zeitnot_inference_seconds", "Seconds of one run of the model")?,
            batch_rows: Histogram::with_opts(
                HistogramOpts::new("zeitnot_batch_rows", "Requests in a batch").buckets(ROWS.to_vec()),
            )?,
            admitted: IntGauge::new("zeitnot_admitted_requests", "Requests admitted and not yet answered")?,
            dropped_cancelled: drops.with_label_values(&["cancelled"]),
            dropped_expired: drops.with_label_values(&["expired"]),
            failed_batches: IntCounter::new("zeitnot_failed_batches_total", "Batches whose run failed")?,
            workers: IntGauge::new("zeitnot_workers", "Workers that run")?,
            ready: IntGauge::new("zeitnot_ready", "1 when requests are served")?,
            models: IntGaugeVec::new(
                Opts::new("zeitnot_model_info", "Served models and where they really run"),
                &["name", "version", "encoding", "provider"],
            )?,
            registry,
        };
        for method in METHODS.into_iter().chain([UNKNOWN_METHOD]) {
            metrics.latency.with_label_values(&[method]);
            for (_, code) in CODES {
                metrics.requests.with_label_values(&[method, code]);
            }
        }
        let Metrics { registry, .. } = &metrics;
        registry.register(Box::new(metrics.requests.clone()))?;
        registry.register(Box::new(metrics.latency.clone()))?;
        registry.register(Box::new(metrics.queue_seconds.clone()))?;
        registry.register(Box::new(metrics.inference_seconds.clone()))?;
        registry.register(Box::new(metrics.batch_rows.clone()))?;
        registry.register(Box::new(metrics.admitted.clone()))?;
        registry.register(Box::new(drops))?;
        registry.register(Box::new(metrics.failed_batches.clone()))?;
        registry.register(Box::new(metrics.workers.clone()))?;
        registry.register(Box::new(metrics.ready.clone()))?;
        registry.register(Box::new(metrics.models.clone()))?;
        Ok(metrics)
    }

    /// The metrics in Prometheus' text format.
    ///
    /// # Errors
    ///
    /// When they cannot be written.
    pub fn text(&self) -> prometheus::Result<String> {
        let mut bytes = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Counts one request until it ends.
    pub fn request(&self, method: &'static str) -> Request {
        Request { metrics: self.clone(), method, arrived: Instant::now(), code: Code::Cancelled }
    }
}

/// A request being counted. When it is dropped without an end, its client went away.
#[derive(Debug)]
pub struct Request {
    metrics: Metrics,
    method: &'static str,
    arrived: Instant,
    code: Code,
}

impl Request {
    /// The request ended with this code.
    pub fn ended(mut self, code: Code) {
        self.code = code;
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let name = CODES.iter().find(|(code, _)| *code == self.code).map_or("INTERNAL", |(_, name)| name);
        self.metrics.requests.with_label_values(&[self.method, name]).inc();
        self.metrics.latency.with_label_values(&[self.method]).observe(self.arrived.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_is_there_before_the_first_request() {
        let text = Metrics::new().unwrap().text().unwrap();
        for line in [
            "zeitnot_requests_total{code=\"RESOURCE_EXHAUSTED\",method=\"Predict\"} 0",
            "zeitnot_dropped_requests_total{reason=\"cancelled\"} 0",
            "zeitnot_request_seconds_count{method=\"GetModel\"} 0",
            "zeitnot_workers 0",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn a_request_counts_once_and_an_abandoned_one_as_cancelled() {
        let metrics = Metrics::new().unwrap();
        metrics.request("Predict").ended(Code::Ok);
        drop(metrics.request("Predict"));
        let text = metrics.text().unwrap();
        assert!(text.contains("zeitnot_requests_total{code=\"OK\",method=\"Predict\"} 1"));
        assert!(text.contains("zeitnot_requests_total{code=\"CANCELLED\",method=\"Predict\"} 1"));
        assert!(text.contains("zeitnot_request_seconds_count{method=\"Predict\"} 2"));
    }
}
