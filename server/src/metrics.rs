//! All metrics of the server. Those of requests are registered with all their labels before the first request, those of
//! a model when it is loaded, those of an engine sidecar when it is known.

mod rerank;

use std::time::Instant;

use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder, core::Collector, process_collector::ProcessCollector,
};
use tonic::Code;

pub use rerank::{EngineMetrics, RerankMetrics};

/// What a method that does not exist is counted as.
pub const UNKNOWN_METHOD: &str = "unknown";
/// The model of requests that ended before one was found for them.
pub const NO_MODEL: &str = "none";
/// Methods that are counted.
pub const METHODS: [&str; 4] = ["Predict", "ListModels", "GetModel", "ReloadModels"];
/// How a request can end.
const CODES: [(Code, &str); 13] = [
    (Code::Ok, "OK"),
    (Code::Cancelled, "CANCELLED"),
    (Code::InvalidArgument, "INVALID_ARGUMENT"),
    (Code::DeadlineExceeded, "DEADLINE_EXCEEDED"),
    (Code::NotFound, "NOT_FOUND"),
    (Code::PermissionDenied, "PERMISSION_DENIED"),
    (Code::ResourceExhausted, "RESOURCE_EXHAUSTED"),
    (Code::FailedPrecondition, "FAILED_PRECONDITION"),
    (Code::OutOfRange, "OUT_OF_RANGE"),
    (Code::Unimplemented, "UNIMPLEMENTED"),
    (Code::Internal, "INTERNAL"),
    (Code::Unavailable, "UNAVAILABLE"),
    (Code::Unauthenticated, "UNAUTHENTICATED"),
];
/// What a reload can come to.
const RELOADS: [&str; 3] = ["changed", "unchanged", "failed"];
/// Why a connection is not served.
const CONNECTION_REFUSALS: [&str; 3] = ["limit", "handshake", "timeout"];
const SECONDS: [f64; 14] =
    [0.000_25, 0.000_5, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 4.0];
const ROWS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// The metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    /// Requests that ended, by method, code and model; every request counts once.
    requests: IntCounterVec,
    /// Seconds from arrival to the answer's end, by method and model.
    latency: HistogramVec,
    /// Requests that arrived and have not ended.
    in_flight: IntGauge,
    /// 1 once the models have been loaded.
    pub started: IntGauge,
    /// 1 when ready.
    pub ready: IntGauge,
    /// 1 for every served model, with its version, encoding and the provider it really runs on.
    pub models: IntGaugeVec,
    /// Reloads, by what they came to.
    pub reloads: IntCounterVec,
    /// Reloads of keys and certificates, by what they came to.
    pub credential_reloads: IntCounterVec,
    /// Open connections.
    pub connections: IntGauge,
    /// Connections that were not served, by reason.
    pub refused_connections: IntCounterVec,
    /// Predictions kept.
    pub cache_entries: IntGauge,
    /// Their bytes.
    pub cache_bytes: IntGauge,
    /// Those of the re-ranking.
    pub rerank: RerankMetrics,
    by_model: ByModel,
}

/// Metrics with a label `model`.
#[derive(Clone, Debug)]
struct ByModel {
    queue_seconds: HistogramVec,
    inference_seconds: HistogramVec,
    batch_rows: HistogramVec,
    admitted: IntGaugeVec,
    queue_depth: IntGaugeVec,
    workers: IntGaugeVec,
    dropped: IntCounterVec,
    failed_batches: IntCounterVec,
    failed_rows: IntCounterVec,
    replaced_workers: IntCounterVec,
    cache_requests: IntCounterVec,
}

/// The metrics of one model.
#[derive(Clone, Debug)]
pub struct ModelMetrics {
    /// Seconds from admission to hand-over to a worker.
    pub queue_seconds: Histogram,
    /// Seconds of a run.
    pub inference_seconds: Histogram,
    /// Situations in a batch.
    pub batch_rows: Histogram,
    /// Situations that wait for a worker.
    pub queue_depth: IntGauge,
    /// Workers that can work.
    pub workers: IntGauge,
    /// Requests dropped at hand-over.
    pub drops: Drops,
    /// Batches whose run failed.
    pub failed_batches: IntCounter,
    /// Situations answered with something else than finite numbers.
    pub failed_rows: IntCounter,
    /// Workers replaced after a panic.
    pub replaced_after_panic: IntCounter,
    /// Workers replaced after an error.
    pub replaced_after_error: IntCounter,
    /// Requests answered from the cache.
    pub cache_hits: IntCounter,
    /// Requests that were not in the cache.
    pub cache_misses: IntCounter,
    /// Requests that joined an identical one that was under way.
    pub coalesced: IntCounter,
    /// Requests admitted and not yet answered.
    pub admitted: IntGauge,
}

/// Requests dropped at hand-over, never computed.
#[derive(Clone, Debug)]
pub struct Drops {
    /// Nobody waits any more.
    pub cancelled: IntCounter,
    /// The deadline passed.
    pub expired: IntCounter,
    /// The deadline would pass during the run, and others need not be late.
    pub hopeless: IntCounter,
}

/// Counts something in a gauge while it lives.
#[derive(Debug)]
pub struct Held(IntGauge);

impl Held {
    /// Counts one more.
    pub fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Held(gauge.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Makes metrics and registers them.
struct Maker(Registry);

impl Maker {
    fn register<T: Collector + Clone + 'static>(&self, metric: T) -> prometheus::Result<T> {
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
        self.register(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
        self.register(IntGaugeVec::new(Opts::new(name, help), labels)?)
    }

    fn gauge(&self, name: &str, help: &str) -> prometheus::Result<IntGauge> {
        self.register(IntGauge::new(name, help)?)
    }

    fn histograms(&self, name: &str, help: &str, buckets: &[f64], labels: &[&str]) -> prometheus::Result<HistogramVec> {
        self.register(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)?)
    }
}

impl Metrics {
    /// Registers everything.
    ///
    /// # Errors
    ///
    /// When two metrics share a name, which a test would show.
    pub fn new() -> prometheus::Result<Self> {
        let make = Maker(Registry::new());
        make.0.register(Box::new(ProcessCollector::for_self()))?;
        let build = make.gauges("zeitnot_build_info", "1, with the server's version", &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let metrics = Metrics {
            requests: make.counters(
                "zeitnot_requests_total",
                "Requests that ended, by method, gRPC code and model",
                &["method", "code", "model"],
            )?,
            latency: make.histograms(
                "zeitnot_request_seconds",
                "Seconds from arrival to the end of the answer",
                &SECONDS,
                &["method", "model"],
            )?,
            in_flight: make.gauge("zeitnot_requests_in_flight", "Requests that arrived and have not ended")?,
            started: make.gauge("zeitnot_started", "1 once the models have been loaded")?,
            ready: make.gauge("zeitnot_ready", "1 when requests are served")?,
            models: make.gauges(
                "zeitnot_model_info",
                "Served models and where they really run",
                &["model", "version", "encoding", "provider"],
            )?,
            reloads: make.counters("zeitnot_reloads_total", "Reloads of the models, by result", &["result"])?,
            credential_reloads: make.counters(
                "zeitnot_credential_reloads_total",
                "Reloads of API keys and certificates, by result",
                &["what", "result"],
            )?,
            connections: make.gauge("zeitnot_connections", "Open connections")?,
            refused_connections: make.counters(
                "zeitnot_refused_connections_total",
                "Connections that were not served",
                &["reason"],
            )?,
            cache_entries: make.gauge("zeitnot_cache_entries", "Predictions kept")?,
            cache_bytes: make.gauge("zeitnot_cache_bytes", "Bytes of the predictions kept")?,
            rerank: RerankMetrics::new(&make)?,
            by_model: ByModel::new(&make)?,
            registry: make.0,
        };
        metrics.pre_register(NO_MODEL, &[&METHODS[..], &[UNKNOWN_METHOD]].concat());
        RELOADS.iter().for_each(|result| drop(metrics.reloads.with_label_values(&[result])));
        let credentials = &metrics.credential_reloads;
        for what in ["keys", "certificates"] {
            ["changed", "failed"].iter().for_each(|result| drop(credentials.with_label_values(&[what, result])));
        }
        CONNECTION_REFUSALS.iter().for_each(|reason| drop(metrics.refused_connections.with_label_values(&[reason])));
        Ok(metrics)
    }

    fn pre_register(&self, model: &str, methods: &[&str]) {
        for method in methods {
            self.latency.with_label_values(&[method, model]);
            for (_, code) in CODES {
                self.requests.with_label_values(&[method, code, model]);
            }
        }
    }

    /// The metrics of a model, registered now.
    pub fn model(&self, model: &str) -> ModelMetrics {
        self.pre_register(model, &["Predict", "GetModel"]);
        self.by_model.of(model)
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
        let in_flight = Held::new(&self.in_flight);
        Request { metrics: self.clone(), method, arrived: Instant::now(), _in_flight: in_flight }
    }
}

impl ByModel {
    fn new(make: &Maker) -> prometheus::Result<Self> {
        let model = &["model"];
        Ok(ByModel {
            queue_seconds: make.histograms(
                "zeitnot_queue_seconds",
                "Seconds from admission to hand-over to a worker",
                &SECONDS,
                model,
            )?,
            inference_seconds: make.histograms(
                "zeitnot_inference_seconds",
                "Seconds of one run of the model",
                &SECONDS,
                model,
            )?,
            batch_rows: make.histograms("zeitnot_batch_rows", "Situations in a batch", &ROWS, model)?,
            admitted: make.gauges("zeitnot_admitted_requests", "Requests admitted and not yet answered", model)?,
            queue_depth: make.gauges("zeitnot_queue_depth", "Situations that wait for a worker", model)?,
            workers: make.gauges("zeitnot_workers", "Workers that can work", model)?,
            dropped: make.counters(
                "zeitnot_dropped_requests_total",
                "Requests dropped at hand-over, never computed",
                &["model", "reason"],
            )?,
            failed_batches: make.counters("zeitnot_failed_batches_total", "Batches whose run failed", model)?,
            failed_rows: make.counters(
                "zeitnot_failed_rows_total",
                "Situations answered with something else than finite numbers",
                model,
            )?,
            replaced_workers: make.counters(
                "zeitnot_replaced_workers_total",
                "Workers replaced after a failure",
                &["model", "reason"],
            )?,
            cache_requests: make.counters(
                "zeitnot_cache_requests_total",
                "Requests that were computed, or answered by the cache or with another",
                &["model", "result"],
            )?,
        })
    }

    fn of(&self, model: &str) -> ModelMetrics {
        let drops = |reason| self.dropped.with_label_values(&[model, reason]);
        let cache = |result| self.cache_requests.with_label_values(&[model, result]);
        ModelMetrics {
            queue_seconds: self.queue_seconds.with_label_values(&[model]),
            inference_seconds: self.inference_seconds.with_label_values(&[model]),
            batch_rows: self.batch_rows.with_label_values(&[model]),
            queue_depth: self.queue_depth.with_label_values(&[model]),
            workers: self.workers.with_label_values(&[model]),
            drops: Drops { cancelled: drops("cancelled"), expired: drops("expired"), hopeless: drops("hopeless") },
            failed_batches: self.failed_batches.with_label_values(&[model]),
            failed_rows: self.failed_rows.with_label_values(&[model]),
            replaced_after_panic: self.replaced_workers.with_label_values(&[model, "panic"]),
            replaced_after_error: self.replaced_workers.with_label_values(&[model, "error"]),
            cache_hits: cache("hit"),
            cache_misses: cache("miss"),
            coalesced: cache("coalesced"),
            admitted: self.admitted.with_label_values(&[model]),
        }
    }
}

/// A request being counted.
#[derive(Debug)]
pub struct Request {
    metrics: Metrics,
    method: &'static str,
    arrived: Instant,
    _in_flight: Held,
}

impl Request {
    /// The request ended with this code, which has a name.
    pub fn ended(self, code: Code, model: &str) -> &'static str {
        let name = CODES.iter().find(|(known, _)| *known == code).map_or("INTERNAL", |(_, name)| name);
        self.metrics.requests.with_label_values(&[self.method, name, model]).inc();
        let latency = self.metrics.latency.with_label_values(&[self.method, model]);
        latency.observe(self.arrived.elapsed().as_secs_f64());
        name
    }

    /// When it arrived.
    pub fn arrived(&self) -> Instant {
        self.arrived
    }

    /// Its method.
    pub fn method(&self) -> &'static str {
        self.method
    }
}

#[cfg(test)]
mod tests;
