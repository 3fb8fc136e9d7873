//! Metrics of the re-ranking.

use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::{Maker, ROWS, SECONDS};

/// What can become of the re-ranking of an answered request.
const OUTCOMES: [&str; 6] =
    ["applied", "prior_only", "engine_unavailable", "deadline", "below_rating", "one_legal_move"];
/// How a question to a sidecar can end.
const ANSWERS: [&str; 9] = ["ok", "partial", "empty", "full", "error", "timeout", "lied", "hedged", "cancelled"];
/// What can become of a run of the re-ranker.
const RUNS: [&str; 4] = ["error", "not_finite", "panic", "unanswered"];

/// The metrics.
#[derive(Clone, Debug)]
pub struct RerankMetrics {
    outcomes: IntCounterVec,
    engine_requests: IntCounterVec,
    engine_seconds: HistogramVec,
    engine_in_flight: IntGaugeVec,
    breaker: IntGaugeVec,
    breaker_opened: IntCounterVec,
    failures: IntCounterVec,
    /// Seconds that requests waited for evidence.
    pub evidence_seconds: Histogram,
    /// Times that a second sidecar was asked before the first had answered.
    pub hedges: IntCounter,
    /// Sidecars that are known.
    pub engines: IntGauge,
    /// Seconds from a request's wish for a run of the re-ranker to the run's start.
    pub queue_seconds: Histogram,
    /// Seconds of one run of the re-ranker.
    pub run_seconds: Histogram,
    /// Situations in one run of the re-ranker.
    pub run_rows: Histogram,
    /// Threads that can run the re-ranker.
    pub workers: IntGauge,
}

/// The metrics of one sidecar.
#[derive(Clone, Debug)]
pub struct EngineMetrics {
    all: RerankMetrics,
    endpoint: String,
    /// Seconds until it answered well.
    pub seconds: Histogram,
    /// Questions it has not answered yet.
    pub in_flight: IntGauge,
    /// 0 when questions pass, 1 when one is on trial, 2 when none passes.
    pub breaker: IntGauge,
    /// Times that its circuit opened.
    pub opened: IntCounter,
}

impl RerankMetrics {
    pub(super) fn new(make: &Maker) -> prometheus::Result<Self> {
        let endpoint = &["endpoint"];
        let histogram = |name: &str, help: &str, buckets: &[f64]| -> prometheus::Result<Histogram> {
            make.register(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?)
        };
        let metrics = RerankMetrics {
            outcomes: make.counters(
                "zeitnot_rerank_total",
                "Answered predictions, by what became of the re-ranking",
                &["status"],
            )?,
            engine_requests: make.counters(
                "zeitnot_engine_requests_total",
                "Questions to engine sidecars that ended, by how",
                &["endpoint", "outcome"],
            )?,
            engine_seconds: make.histograms(
                "zeitnot_engine_seconds",
                "Seconds until a sidecar answered well",
                &SECONDS,
                endpoint,
            )?,
            engine_in_flight: make.gauges(
                "zeitnot_engine_requests_in_flight",
                "Questions that a sidecar has not answered yet",
                endpoint,
            )?,
            breaker: make.gauges(
                "zeitnot_engine_breaker",
                "A sidecar's circuit: 0 closed, 1 on trial, 2 open",
                endpoint,
            )?,
            breaker_opened: make.counters(
                "zeitnot_engine_breaker_opened_total",
                "Times that a sidecar's circuit opened",
                endpoint,
            )?,
            failures: make.counters(
                "zeitnot_reranker_failures_total",
                "Runs of the re-ranker that failed, by how",
                &["reason"],
            )?,
            evidence_seconds: histogram(
                "zeitnot_evidence_seconds",
                "Seconds that requests waited for evidence",
                &SECONDS,
            )?,
            hedges: make.register(IntCounter::new(
                "zeitnot_engine_hedges_total",
                "Times that a second sidecar was asked before the first had answered",
            )?)?,
            engines: make.gauge("zeitnot_engines", "Engine sidecars that are known")?,
            queue_seconds: histogram(
                "zeitnot_reranker_queue_seconds",
                "Seconds until a run of the re-ranker",
                &SECONDS,
            )?,
            run_seconds: histogram("zeitnot_reranker_seconds", "Seconds of one run of the re-ranker", &SECONDS)?,
            run_rows: histogram("zeitnot_reranker_rows", "Situations in one run of the re-ranker", &ROWS)?,
            workers: make.gauge("zeitnot_reranker_workers", "Threads that can run the re-ranker")?,
        };
        OUTCOMES.iter().for_each(|status| drop(metrics.outcomes.with_label_values(&[status])));
        RUNS.iter().for_each(|reason| drop(metrics.failures.with_label_values(&[reason])));
        Ok(metrics)
    }

    /// An answered prediction, by what became of the re-ranking.
    pub fn answered(&self, status: &str) {
        self.outcomes.with_label_values(&[status]).inc();
    }

    /// The re-ranker did not answer: a run ended by `error` or `panic`, a row that was `not_finite`, or nothing in time.
    pub fn run_failed(&self, reason: &str) {
        self.failures.with_label_values(&[reason]).inc();
    }

    /// The metrics of a sidecar, registered now.
    pub fn engine(&self, endpoint: &str) -> EngineMetrics {
        ANSWERS.iter().for_each(|outcome| drop(self.engine_requests.with_label_values(&[endpoint, outcome])));
        let labels = &[endpoint];
        EngineMetrics {
            all: self.clone(),
            endpoint: endpoint.to_owned(),
            seconds: self.engine_seconds.with_label_values(labels),
            in_flight: self.engine_in_flight.with_label_values(labels),
            breaker: self.breaker.with_label_values(labels),
            opened: self.breaker_opened.with_label_values(labels),
        }
    }
}

impl EngineMetrics {
    /// A question ended like this.
    pub fn ended(&self, outcome: &str) {
        self.all.engine_requests.with_label_values(&[self.endpoint.as_str(), outcome]).inc();
    }

    /// Forgets a sidecar that is no longer there, so that addresses that come and go do not pile up.
    pub fn forget(&self) {
        let labels = &[self.endpoint.as_str()];
        for outcome in ANSWERS {
            let _ = self.all.engine_requests.remove_label_values(&[self.endpoint.as_str(), outcome]); // All were there.
        }
        let _ = self.all.engine_seconds.remove_label_values(labels);
        for gauge in [&self.all.engine_in_flight, &self.all.breaker] {
            let _ = gauge.remove_label_values(labels);
        }
        let _ = self.all.breaker_opened.remove_label_values(labels);
    }
}
