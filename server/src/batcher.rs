//! The bounded queue between requests and workers.
//!
//! A request needs a permit to enter and keeps it until it is answered. A free worker takes what is there, up to a
//! batch, without waiting for company; requests whose client is gone or whose deadline passed are dropped when they
//! are handed over.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use zeitnot_encoding::Batch;
use zeitnot_inference::RowAnswer;

use crate::{error::ServiceError, metrics::Metrics};

/// What a worker answers to one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// What the model answered.
    pub answer: RowAnswer,
    /// From admission to hand-over.
    pub queue: Duration,
    /// The run's time.
    pub inference: Duration,
    /// Requests in the batch.
    pub batch_size: usize,
}

/// A request in the queue.
pub struct Entry {
    /// One encoded situation.
    pub input: Batch,
    /// When it is too late.
    pub deadline: Instant,
    /// When it was admitted.
    pub admitted: Instant,
    /// Where the answer goes.
    pub reply: oneshot::Sender<Result<Reply, ServiceError>>,
    /// Its place among the bounded number of requests.
    permit: Permit,
}

impl Entry {
    /// Gives up the place and answers.
    pub fn answer(self, reply: Result<Reply, ServiceError>) {
        drop(self.permit);
        let _ = self.reply.send(reply); // The client may have gone meanwhile.
    }
}

/// A permit that keeps the gauge of admitted requests true.
struct Permit {
    _permit: OwnedSemaphorePermit,
    metrics: Metrics,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.metrics.admitted.dec();
    }
}

/// The requests' end of the queue.
#[derive(Clone)]
pub struct Batcher {
    entries: Sender<Entry>,
    permits: Arc<Semaphore>,
    metrics: Metrics,
}

/// The workers' end of the queue.
#[derive(Clone)]
pub struct Queue {
    entries: Receiver<Entry>,
    max_batch: usize,
    metrics: Metrics,
}

/// A queue for `capacity` requests, handed over in batches of at most `max_batch`.
pub fn queue(capacity: usize, max_batch: usize, metrics: &Metrics) -> (Batcher, Queue) {
    // Unbounded, since permits bound it.
    let (sender, receiver) = crossbeam_channel::unbounded();
    let permits = Arc::new(Semaphore::new(capacity.min(Semaphore::MAX_PERMITS)));
    let batcher = Batcher { entries: sender, permits, metrics: metrics.clone() };
    (batcher, Queue { entries: receiver, max_batch, metrics: metrics.clone() })
}

impl Batcher {
    /// Queues an encoded situation and waits for the answer until the deadline.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Overloaded`], [`ServiceError::DeadlineExceeded`], [`ServiceError::WorkerLost`], or what the
    /// worker says.
    pub async fn submit(&self, input: Batch, deadline: Instant) -> Result<Reply, ServiceError> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| self.overloaded())?;
        self.metrics.admitted.inc();
        let permit = Permit { _permit: permit, metrics: self.metrics.clone() };
        let (reply, answer) = oneshot::channel();
        let entry = Entry { input, deadline, admitted: Instant::now(), reply, permit };
        self.entries.send(entry).map_err(|_| ServiceError::WorkerLost)?;
        match tokio::time::timeout_at(deadline.into(), answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(ServiceError::WorkerLost),
            Err(_) => Err(ServiceError::DeadlineExceeded),
        }
    }

    /// A full queue, with a guess of when there is room: the mean run, times the batches before.
    fn overloaded(&self) -> ServiceError {
        let runs = self.metrics.inference_seconds.get_sample_count().max(1) as f64;
        let mean = self.metrics.inference_seconds.get_sample_sum() / runs;
        let rows = self.metrics.batch_rows.get_sample_sum().max(1.0) / runs;
        let seconds = mean * (self.metrics.admitted.get() as f64 / rows.max(1.0));
        ServiceError::Overloaded { retry_after: Duration::from_secs_f64(seconds.clamp(0.01, 5.0)) }
    }
}

impl Queue {
    /// Waits for a request and takes those behind it. Nothing when the requests' end is gone and the queue empty.
    pub fn take(&self) -> Option<Vec<Entry>> {
        let mut batch = Vec::with_capacity(self.max_batch);
        while batch.is_empty() {
            batch.extend(self.wanted(self.entries.recv().ok()?));
            while batch.len() < self.max_batch {
                match self.entries.try_recv() {
                    Ok(entry) => batch.extend(self.wanted(entry)),
                    Err(_) => break,
                }
            }
        }
        Some(batch)
    }

    /// The entry, if anybody still waits for it.
    fn wanted(&self, entry: Entry) -> Option<Entry> {
        if entry.reply.is_closed() {
            self.metrics.dropped_cancelled.inc();
            return None;
        }
        if entry.deadline <= Instant::now() {
            self.metrics.dropped_expired.inc();
            entry.answer(Err(ServiceError::DeadlineExceeded));
            return None;
        }
        self.metrics.queue_seconds.observe(entry.admitted.elapsed().as_secs_f64());
        Some(entry)
    }
}

#[cfg(test)]
mod tests;
