//! Threads that own a session of the re-ranker each, and the bounded queue before them.
//!
//! A free thread takes what is there, without waiting for company. A run that fails, or panics, fails its batch, and the
//! thread gets a new session. The threads end when the requests' end of the queue is dropped.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot};
use zeitnot_encoding::rerank::{CANDIDATES, RerankBatch};
use zeitnot_inference::{InferenceError, Reranker};

use crate::metrics::{Held, RerankMetrics};

/// Requests that may wait.
const CAPACITY: usize = 1024;
/// Situations in one run.
const MOST_ROWS: usize = 16;
/// Longest wait of a request for its run; what takes longer is broken.
const PATIENCE: Duration = Duration::from_millis(500);
/// Share of the time left that a request waits for its run; the rest is for the answer.
const SHARE: f64 = 2.0 / 3.0;
/// First and longest pause between attempts to open the re-ranker again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Opens a session; called by each thread, and again when its session fails.
pub type Open = Arc<dyn Fn() -> Result<Box<dyn Run>, InferenceError> + Send + Sync>;

/// Something that computes residuals.
pub trait Run: Send {
    /// Computes a batch: 16 residuals a row.
    ///
    /// # Errors
    ///
    /// When the re-ranker cannot be run.
    fn run(&mut self, batch: &RerankBatch) -> Result<Vec<f32>, InferenceError>;
}

impl Run for Reranker {
    fn run(&mut self, batch: &RerankBatch) -> Result<Vec<f32>, InferenceError> {
        Reranker::run(self, batch)
    }
}

/// The requests' end of the queue.
#[derive(Debug)]
pub struct Runner {
    jobs: mpsc::Sender<Job>,
    able: Arc<AtomicUsize>,
}

/// The re-ranker could not be run in time, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotRun;

#[derive(Debug)]
struct Job {
    row: RerankBatch,
    queued: Instant,
    reply: oneshot::Sender<Vec<f32>>,
}

/// The threads' end of the queue.
#[derive(Clone)]
struct Queue {
    jobs: Arc<Mutex<mpsc::Receiver<Job>>>,
    able: Arc<AtomicUsize>,
    metrics: RerankMetrics,
}

impl Runner {
    /// Starts threads with these sessions. `changed` is dropped when the last has ended.
    ///
    /// # Errors
    ///
    /// When the system gives no thread.
    pub fn start(
        sessions: Vec<Box<dyn Run>>,
        open: &Open,
        metrics: &RerankMetrics,
        changed: &mpsc::UnboundedSender<()>,
    ) -> std::io::Result<Self> {
        let (jobs, receiver) = mpsc::channel(CAPACITY);
        let able = Arc::new(AtomicUsize::new(sessions.len()));
        let jobs_end = Arc::new(Mutex::new(receiver));
        let queue = Queue { jobs: jobs_end, able: Arc::clone(&able), metrics: metrics.clone() };
        for (number, session) in sessions.into_iter().enumerate() {
            let (queue, open, changed) = (queue.clone(), Arc::clone(open), changed.clone());
            let body = move || {
                let mut next = Some(session);
                while let Some(session) = next {
                    next = queue.serve(session, &open);
                }
                let _ = changed.send(()); // Nobody listens any more when that took too long.
            };
            thread::Builder::new().name(format!("reranker-{number}")).spawn(body)?;
        }
        Ok(Runner { jobs, able })
    }

    /// The residuals of one situation, in good time before `deadline`.
    ///
    /// # Errors
    ///
    /// [`NotRun`].
    pub async fn residuals(&self, row: RerankBatch, deadline: Instant) -> Result<Vec<f32>, NotRun> {
        if self.able.load(Ordering::Relaxed) == 0 {
            return Err(NotRun);
        }
        let queued = Instant::now();
        let (reply, answer) = oneshot::channel();
        self.jobs.try_send(Job { row, queued, reply }).map_err(|_| NotRun)?;
        let patience = deadline.saturating_duration_since(queued).mul_f64(SHARE).min(PATIENCE);
        tokio::time::timeout(patience, answer).await.map_err(|_| NotRun)?.map_err(|_| NotRun)
    }
}

impl Queue {
    /// Works with a session until it fails; gives its replacement. Nothing when the queue has ended.
    fn serve(&self, mut session: Box<dyn Run>, open: &Open) -> Option<Box<dyn Run>> {
        let able = Held::new(&self.metrics.workers);
        match catch_unwind(AssertUnwindSafe(|| self.work(&mut *session))) {
            Ok(Ok(())) => return None,
            Ok(Err(error)) => {
                self.metrics.run_failed("error");
                tracing::error!(%error, "the re-ranker could not be run");
            }
            Err(_) => {
                self.metrics.run_failed("panic");
                tracing::error!("a run of the re-ranker panicked");
            }
        }
        drop(able);
        self.able.fetch_sub(1, Ordering::Relaxed);
        // A session that failed may fail again when it is closed.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(session)));
        let next = self.reopen(open);
        self.able.fetch_add(1, Ordering::Relaxed);
        next
    }

    fn work(&self, session: &mut dyn Run) -> Result<(), InferenceError> {
        while let Some(jobs) = self.take() {
            let mut batch = RerankBatch::default();
            for job in &jobs {
                self.metrics.queue_seconds.observe(job.queued.elapsed().as_secs_f64());
                batch.append(&job.row);
            }
            let started = Instant::now();
            let residuals = session.run(&batch)?; // Those who wait learn of a failure as their jobs are dropped.
            self.metrics.run_seconds.observe(started.elapsed().as_secs_f64());
            self.metrics.run_rows.observe(batch.rows() as f64);
            for (job, row) in jobs.into_iter().zip(residuals.chunks(CANDIDATES)) {
                if row.iter().any(|residual| !residual.is_finite()) {
                    self.metrics.run_failed("not_finite"); // Its caller learns of it as the job is dropped.
                    continue;
                }
                let _ = job.reply.send(row.to_vec()); // The client may have gone meanwhile.
            }
        }
        Ok(())
    }

    /// Waits for work and takes what is there. Nothing when the requests' end is gone.
    fn take(&self) -> Option<Vec<Job>> {
        // Nothing that can panic runs under the lock.
        let mut receiver = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let mut jobs = vec![receiver.blocking_recv()?];
            while jobs.len() < MOST_ROWS {
                match receiver.try_recv() {
                    Ok(job) => jobs.push(job),
                    Err(_) => break,
                }
            }
            jobs.retain(|job| !job.reply.is_closed());
            if !jobs.is_empty() {
                return Some(jobs);
            }
        }
    }

    /// Opens the re-ranker again, as often as it takes.
    fn reopen(&self, open: &Open) -> Option<Box<dyn Run>> {
        let (mut pause, longest) = PAUSES;
        loop {
            match catch_unwind(AssertUnwindSafe(|| open())) {
                Ok(Ok(session)) => return Some(session),
                Ok(Err(error)) => tracing::error!(%error, "the re-ranker cannot be opened again"),
                Err(_) => tracing::error!("opening the re-ranker again panicked"),
            }
            let ended = |jobs: &Mutex<mpsc::Receiver<Job>>| {
                // Another thread that holds the lock waits for work, and sees the end itself.
                jobs.try_lock().is_ok_and(|receiver| receiver.is_closed())
            };
            if ended(&self.jobs) {
                return None;
            }
            thread::sleep(pause);
            pause = (pause * 2).min(longest);
        }
    }
}

#[cfg(test)]
mod tests;
