//! All metrics of the sidecar, registered with all their labels before the first request.

use std::time::Duration;

use prometheus::{
    Encoder, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
    core::Collector, process_collector::ProcessCollector,
};
use tonic::Code;
use zeitnot_uci::{Evaluation, Stats};

/// Methods that are counted.
const METHODS: [&str; 2] = [EVALUATE, GET];
/// A request for scores.
pub const EVALUATE: &str = "EvaluateCandidates";
/// A request for the engine's name and state.
pub const GET: &str = "GetEngine";
/// How a request can end.
const CODES: [(Code, &str); 7] = [
    (Code::Ok, "OK"),
    (Code::Cancelled, "CANCELLED"),
    (Code::InvalidArgument, "INVALID_ARGUMENT"),
    (Code::DeadlineExceeded, "DEADLINE_EXCEEDED"),
    (Code::ResourceExhausted, "RESOURCE_EXHAUSTED"),
    (Code::Unavailable, "UNAVAILABLE"),
    (Code::Internal, "INTERNAL"),
];
const SECONDS: [f64; 13] = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0];
/// What a search is taken to last until one has been seen.
const FIRST_GUESS: Duration = Duration::from_millis(100);

/// The metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    /// Requests that ended, by method and code.
    requests: IntCounterVec,
    /// Requests that arrived and have not ended.
    in_flight: IntGauge,
    /// Seconds of a search, without its wait.
    search_seconds: Histogram,
    nodes: IntCounter,
    /// Searches that the deadline ended.
    partial: IntCounter,
    /// Requests tried again after an engine failed.
    pub retries: IntCounter,
    /// Requests answered from the cache.
    pub cache_hits: IntCounter,
    /// Requests that were not in the cache.
    pub cache_misses: IntCounter,
    /// Evaluations kept.
    pub cache_entries: IntGauge,
    /// 1 when requests are served.
    pub ready: IntGauge,
    /// Starts of the pool that failed.
    pub failed_starts: IntCounter,
    pool: PoolMetrics,
}

/// What the pool counts itself.
#[derive(Clone, Debug)]
struct PoolMetrics {
    waiting: IntGauge,
    processes: IntGauge,
    ready: IntGauge,
    searches: IntCounter,
    restarts: IntCounter,
    crashes: IntCounter,
    hangs: IntCounter,
    floods: IntCounter,
    lies: IntCounter,
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

    fn counter(&self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        self.register(IntCounter::new(name, help)?)
    }

    fn gauge(&self, name: &str, help: &str) -> prometheus::Result<IntGauge> {
        self.register(IntGauge::new(name, help)?)
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
        let build = Opts::new("zeitnot_sidecar_build_info", "1, with the sidecar's version");
        make.register(IntGaugeVec::new(build, &["version"])?)?.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let seconds = HistogramOpts::new("zeitnot_sidecar_search_seconds", "Seconds of one search");
        let cache = make.counters("zeitnot_sidecar_cache_requests_total", "Requests by cache result", &["result"])?;
        let metrics = Metrics {
            requests: make.counters(
                "zeitnot_sidecar_requests_total",
                "Requests that ended, by method and gRPC code",
                &["method", "code"],
            )?,
            in_flight: make.gauge("zeitnot_sidecar_requests_in_flight", "Requests that arrived and have not ended")?,
            search_seconds: make.register(Histogram::with_opts(seconds.buckets(SECONDS.to_vec()))?)?,
            nodes: make.counter("zeitnot_sidecar_nodes_total", "Nodes searched for answers")?,
            partial: make.counter("zeitnot_sidecar_partial_total", "Searches that the deadline ended")?,
            retries: make.counter("zeitnot_sidecar_retries_total", "Requests tried again after an engine failed")?,
            cache_hits: cache.with_label_values(&["hit"]),
            cache_misses: cache.with_label_values(&["miss"]),
            cache_entries: make.gauge("zeitnot_sidecar_cache_entries", "Evaluations kept")?,
            ready: make.gauge("zeitnot_sidecar_ready", "1 when requests are served")?,
            failed_starts: make.counter("zeitnot_sidecar_failed_starts_total", "Starts of the pool that failed")?,
            pool: PoolMetrics::new(&make)?,
            registry: make.0,
        };
        for method in METHODS {
            CODES.iter().for_each(|(_, code)| drop(metrics.requests.with_label_values(&[method, code])));
        }
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
        self.in_flight.inc();
        Request { metrics: self.clone(), method, code: Code::Cancelled }
    }

    /// Notes what a search found.
    pub fn searched(&self, evaluation: &Evaluation) {
        self.search_seconds.observe(evaluation.time.as_secs_f64());
        self.nodes.inc_by(evaluation.nodes);
        self.partial.inc_by(u64::from(!evaluation.complete));
    }

    /// What a search lasts on average.
    pub fn mean_search(&self) -> Duration {
        let mean = self.search_seconds.get_sample_sum() / self.search_seconds.get_sample_count() as f64;
        Duration::try_from_secs_f64(mean).unwrap_or(FIRST_GUESS) // Of no search at all it is no number.
    }

    /// Notes how the pool is. By one task alone, since it counts up to what the pool says.
    pub fn note(&self, stats: &Stats) {
        let pool = &self.pool;
        let gauges = [(&pool.waiting, stats.waiting), (&pool.processes, stats.processes), (&pool.ready, stats.ready)];
        gauges.into_iter().for_each(|(gauge, value)| gauge.set(i64::try_from(value).unwrap_or(i64::MAX)));
        let counters = [
            (&pool.searches, stats.searches),
            (&pool.restarts, stats.restarts),
            (&pool.crashes, stats.crashes),
            (&pool.hangs, stats.hangs),
            (&pool.floods, stats.floods),
            (&pool.lies, stats.lies),
        ];
        counters.into_iter().for_each(|(counter, value)| counter.inc_by(value.saturating_sub(counter.get())));
    }
}

impl PoolMetrics {
    fn new(make: &Maker) -> prometheus::Result<Self> {
        Ok(PoolMetrics {
            waiting: make.gauge("zeitnot_sidecar_waiting", "Requests that wait for a process")?,
            processes: make.gauge("zeitnot_sidecar_processes", "Engine processes configured")?,
            ready: make.gauge("zeitnot_sidecar_processes_ready", "Engine processes that have greeted and live")?,
            searches: make.counter("zeitnot_sidecar_searches_total", "Searches that were begun")?,
            restarts: make.counter("zeitnot_sidecar_restarts_total", "Processes started again")?,
            crashes: make.counter("zeitnot_sidecar_crashes_total", "Processes that ended or did not start")?,
            hangs: make.counter("zeitnot_sidecar_hangs_total", "Processes that hung")?,
            floods: make.counter("zeitnot_sidecar_floods_total", "Processes that flooded")?,
            lies: make.counter("zeitnot_sidecar_lies_total", "Processes that answered nonsense")?,
        })
    }
}

/// A request being counted. Dropped before it ended, its client went away.
#[derive(Debug)]
pub struct Request {
    metrics: Metrics,
    method: &'static str,
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
        let name = CODES.iter().find(|(known, _)| *known == self.code).map_or("INTERNAL", |(_, name)| name);
        self.metrics.requests.with_label_values(&[self.method, name]).inc();
        self.metrics.in_flight.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_there_before_the_first_request() {
        let text = Metrics::new().unwrap().text().unwrap();
        for start in [
            "zeitnot_sidecar_requests_total{code=\"RESOURCE_EXHAUSTED\",method=\"EvaluateCandidates\"} 0",
            "zeitnot_sidecar_requests_total{code=\"OK\",method=\"GetEngine\"} 0",
            "zeitnot_sidecar_search_seconds_count 0",
            "zeitnot_sidecar_cache_requests_total{result=\"hit\"} 0",
            "zeitnot_sidecar_processes_ready 0",
            "zeitnot_sidecar_lies_total 0",
        ] {
            assert!(text.lines().any(|line| line == start), "{start} is missing in\n{text}");
        }
    }

    #[test]
    fn what_the_pool_counts_is_counted_once() {
        let metrics = Metrics::new().unwrap();
        metrics.note(&Stats { crashes: 2, ready: 1, ..Stats::default() });
        metrics.note(&Stats { crashes: 3, ready: 0, ..Stats::default() });
        let text = metrics.text().unwrap();
        assert!(
            text.contains("zeitnot_sidecar_crashes_total 3\n") && text.contains("zeitnot_sidecar_processes_ready 0\n")
        );
        assert_eq!(metrics.mean_search(), FIRST_GUESS);
    }

    #[test]
    fn a_request_that_is_dropped_was_cancelled() {
        let metrics = Metrics::new().unwrap();
        drop(metrics.request(EVALUATE));
        metrics.request(EVALUATE).ended(Code::Ok);
        let text = metrics.text().unwrap();
        for code in ["OK", "CANCELLED"] {
            let line = format!("zeitnot_sidecar_requests_total{{code=\"{code}\",method=\"EvaluateCandidates\"}} 1\n");
            assert!(text.contains(&line), "{text}");
        }
        assert!(text.contains("zeitnot_sidecar_requests_in_flight 0\n"));
    }
}
