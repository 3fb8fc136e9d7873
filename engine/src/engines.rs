//! The pool of engines: started, again and again until it starts, and asked, twice when a process fails.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use zeitnot_uci::{EngineConfig, EngineInfo, Evaluation, Pool, Search, Stats, UciError};

use crate::{
    config::Config,
    error::{EngineError, is_engines_fault},
    metrics::Metrics,
    readiness::Readiness,
};

/// How often the pool is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How many looks without a ready process requests wait for one: a crash is over sooner, an outage is not.
const PATIENCE: u32 = 50;
/// Longest wait before the pool is started again; the first is that of one process.
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// The pool, which comes when the engine has started.
#[derive(Debug)]
pub struct Engines {
    config: EngineConfig,
    processes: usize,
    queue: usize,
    metrics: Metrics,
    pool: OnceLock<Pool>,
    /// Looks since a process was ready.
    missing: AtomicU32,
}

impl Engines {
    /// No process is started yet.
    pub fn new(config: &Config, metrics: Metrics) -> Arc<Self> {
        let (engine, processes, queue) = (config.engine(), config.process_count(), config.queue);
        let (pool, missing) = (OnceLock::new(), AtomicU32::new(0));
        Arc::new(Engines { config: engine, processes, queue, metrics, pool, missing })
    }

    /// Starts the pool, watches it, and tells the world whether it serves: never once `draining` is true. Does not end.
    pub async fn keep(self: Arc<Self>, readiness: Readiness, mut draining: watch::Receiver<bool>) {
        let pool = self.start().await;
        let mut was = false;
        loop {
            let stats = pool.stats();
            self.metrics.note(&stats);
            if stats.ready > 0 {
                self.missing.store(0, Ordering::Relaxed);
            } else {
                self.missing.fetch_add(1, Ordering::Relaxed);
            }
            let drained = *draining.borrow();
            let ready = stats.ready > 0 && !drained;
            if ready != was {
                readiness.set(ready).await;
                tracing::info!(processes = stats.ready, "{}", if ready { "ready" } else { "not ready" });
                was = ready;
            }
            tokio::select! {
                () = sleep(LOOK) => {}
                _ = draining.wait_for(|draining| *draining), if !drained => {} // Or the server is gone.
            }
        }
    }

    async fn start(&self) -> &Pool {
        let mut backoff = self.config.backoff;
        loop {
            match Pool::start(self.config.clone(), self.processes, self.queue).await {
                Ok(pool) => {
                    let EngineInfo { name, author: _, together } = pool.info();
                    tracing::info!(name, together, processes = self.processes, "the engine has started");
                    return self.pool.get_or_init(|| pool);
                }
                Err(error) => {
                    self.metrics.failed_starts.inc();
                    tracing::error!(%error, ?backoff, "the engine does not start, it is tried again");
                    sleep(backoff).await;
                    backoff = (2 * backoff).min(LONGEST_BACKOFF);
                }
            }
        }
    }

    /// Scores candidates until the deadline. When a process fails, another one is asked, once.
    ///
    /// # Errors
    ///
    /// When the engine has not started, no process has been ready for a second, the queue is full, both tries failed, or
    /// nothing was scored in time.
    pub async fn evaluate(&self, search: Search, deadline: Instant) -> Result<Evaluation, EngineError> {
        let pool = self.pool.get().ok_or(EngineError::Starting)?;
        let first = match self.ask(pool, search.clone(), deadline).await.ok_or(EngineError::NoProcess)? {
            Err(error) if is_engines_fault(&error) => error,
            answer => return self.judge(answer),
        };
        tracing::warn!(error = %first, "an engine failed, another one is asked");
        self.metrics.retries.inc();
        match self.ask(pool, search, deadline).await {
            // What went wrong is not that there was too little time.
            None | Some(Err(UciError::Deadline | UciError::Full)) => self.judge(Err(first)),
            Some(answer) => self.judge(answer),
        }
    }

    /// Asks the pool; nothing when no process is ready for too long.
    async fn ask(&self, pool: &Pool, search: Search, until: Instant) -> Option<Result<Evaluation, UciError>> {
        tokio::select! {
            biased;
            () = self.gone() => None,
            answer = pool.evaluate(search, Some(until)) => Some(answer),
        }
    }

    /// Ends when no process has been ready for a second.
    async fn gone(&self) {
        while self.missing.load(Ordering::Relaxed) < PATIENCE {
            sleep(LOOK).await;
        }
    }

    fn judge(&self, answer: Result<Evaluation, UciError>) -> Result<Evaluation, EngineError> {
        let retry_after = self.metrics.mean_search();
        answer.inspect(|evaluation| self.metrics.searched(evaluation)).map_err(|error| match error {
            UciError::Deadline => EngineError::Deadline,
            error => EngineError::Pool { error, retry_after },
        })
    }

    /// What is known of the engine; nothing before it has started.
    pub fn info(&self) -> EngineInfo {
        self.pool.get().map(Pool::info).unwrap_or_default()
    }

    /// How the pool is.
    pub fn stats(&self) -> Stats {
        let none = Stats { processes: self.processes, ..Stats::default() };
        self.pool.get().map_or(none, Pool::stats)
    }

    /// Options set on the engine.
    pub fn options(&self) -> &[(String, String)] {
        &self.config.options
    }

    /// Ends all processes; what is still searched fails.
    pub async fn shutdown(&self) {
        if let Some(pool) = self.pool.get() {
            pool.shutdown().await;
        }
    }
}
