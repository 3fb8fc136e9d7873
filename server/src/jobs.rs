//! What waits and what is being computed, under one lock: jobs by deadline, and the requests that wait for each.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use zeitnot_encoding::Batch;

use crate::{
    cache::{Key, Prediction},
    error::ServiceError,
    metrics::{Drops, Held},
};

/// Names a job.
pub type Id = u64;

/// What a request is answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// What the model answered.
    pub prediction: Arc<Prediction>,
    /// From admission to hand-over.
    pub queue: Duration,
    /// The run's time.
    pub inference: Duration,
    /// Situations in the batch.
    pub batch_size: usize,
    /// Whether it was computed for an earlier request.
    pub cached: bool,
}

impl Reply {
    /// One that was computed before.
    pub fn kept(prediction: Arc<Prediction>) -> Self {
        let none = Duration::ZERO;
        Reply { prediction, queue: none, inference: none, batch_size: 0, cached: true }
    }
}

/// A request that waits for a job.
#[derive(Debug)]
pub struct Waiter {
    /// When it is too late.
    pub deadline: Instant,
    /// When it was admitted.
    pub admitted: Instant,
    /// Where the answer goes.
    pub reply: oneshot::Sender<Result<Reply, ServiceError>>,
    /// Its place among the bounded number of requests, and in the gauge of them.
    pub permit: (OwnedSemaphorePermit, Held),
}

/// One situation to compute, whoever waits for it.
#[derive(Debug)]
pub struct Job {
    /// The encoded situation; empty once a worker has it.
    pub input: Option<Batch>,
    /// Vocabulary indices of the legal moves.
    pub legal: Box<[u16]>,
    /// What identical situations have in common, when they are computed once.
    pub key: Option<Key>,
    /// Its place in the order; not later than any waiter's deadline.
    deadline: Instant,
    /// Requests to answer.
    pub waiters: Vec<Waiter>,
}

/// All jobs.
#[derive(Debug, Default)]
pub struct Jobs {
    order: BTreeSet<(Instant, Id)>,
    jobs: HashMap<Id, Job>,
    by_key: HashMap<Key, Id>,
    next: Id,
    /// Batches being computed.
    pub running: usize,
    /// No request comes any more.
    pub closed: bool,
}

impl Waiter {
    /// Gives up the place and answers.
    pub fn answer(self, reply: Result<Reply, ServiceError>) {
        drop(self.permit);
        let _ = self.reply.send(reply); // The client may have gone meanwhile.
    }
}

impl Jobs {
    /// Jobs that wait for a worker.
    pub fn waiting(&self) -> usize {
        self.order.len()
    }

    /// Jobs that wait and are due before this deadline.
    pub fn due_before(&self, deadline: Instant) -> usize {
        self.order.range(..(deadline, Id::MAX)).count()
    }

    /// Lets a request wait for the identical job there is. Gives it back when there is none.
    pub fn join(&mut self, key: Option<Key>, waiter: Waiter) -> Option<Waiter> {
        let found = key.and_then(|key| self.by_key.get(&key).copied());
        let Some((id, job)) = found.and_then(|id| Some((id, self.jobs.get_mut(&id)?))) else { return Some(waiter) };
        if waiter.deadline < job.deadline && self.order.remove(&(job.deadline, id)) {
            job.deadline = waiter.deadline;
            self.order.insert((job.deadline, id));
        }
        job.waiters.push(waiter);
        None
    }

    /// Adds a job.
    pub fn add(&mut self, input: Batch, legal: Box<[u16]>, key: Option<Key>, waiter: Waiter) {
        let (id, deadline) = (self.next, waiter.deadline);
        self.next += 1;
        self.order.insert((deadline, id));
        if let Some(key) = key {
            self.by_key.insert(key, id);
        }
        self.jobs.insert(id, Job { input: Some(input), legal, key, deadline, waiters: vec![waiter] });
    }

    /// Takes the job that is due first, if anybody can still be served by it. `cost` is the time it needs. Requests
    /// that nobody waits for, that are late, or that would be late while others need not be, are dropped and counted.
    pub fn take_first(&mut self, cost: Duration, drops: &Drops) -> Option<(Id, Batch, Instant)> {
        while let Some((_, id)) = self.order.pop_first() {
            let alone = self.order.is_empty();
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            let now = Instant::now();
            let waiters = std::mem::take(&mut job.waiters);
            job.waiters = waiters.into_iter().filter_map(|waiter| wanted(waiter, now, cost, alone, drops)).collect();
            match (job.waiters.iter().map(|waiter| waiter.deadline).min(), job.input.take()) {
                (Some(tightest), Some(input)) => return Some((id, input, tightest)),
                _ => drop(self.remove(id)),
            }
        }
        None
    }

    /// Puts back a job that was taken and does not fit.
    pub fn put_back(&mut self, id: Id, input: Batch) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.input = Some(input);
            self.order.insert((job.deadline, id));
        }
    }

    /// The legal moves of a job, which it then no longer has, and its key.
    pub fn told(&mut self, id: Id) -> Option<(Box<[u16]>, Option<Key>)> {
        self.jobs.get_mut(&id).map(|job| (std::mem::take(&mut job.legal), job.key))
    }

    /// Removes a job, with all who joined it meanwhile.
    pub fn remove(&mut self, id: Id) -> Option<Job> {
        let job = self.jobs.remove(&id)?;
        if let Some(key) = job.key {
            self.by_key.remove(&key);
        }
        Some(job)
    }

    /// Drops the requests whose clients are gone, and the jobs that nobody waits for.
    pub fn purge(&mut self, drops: &Drops) {
        let now = Instant::now();
        let ids = self.order.iter().copied().collect::<Vec<_>>();
        for (deadline, id) in ids {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            job.waiters.retain(|waiter| {
                let gone = waiter.reply.is_closed();
                if gone {
                    count_gone(waiter, now, drops);
                }
                !gone
            });
            if job.waiters.is_empty() {
                self.order.remove(&(deadline, id));
                drop(self.remove(id));
            }
        }
    }
}

/// The waiter, if it can be served by a run that starts now.
fn wanted(waiter: Waiter, now: Instant, cost: Duration, alone: bool, drops: &Drops) -> Option<Waiter> {
    if waiter.reply.is_closed() {
        count_gone(&waiter, now, drops);
        return None;
    }
    if waiter.deadline <= now {
        drops.expired.inc();
        waiter.answer(Err(ServiceError::DeadlineExceeded));
        return None;
    }
    // With nobody behind it, trying costs nothing, and corrects an expectation that was wrong.
    if !alone && waiter.deadline < now + cost {
        drops.hopeless.inc();
        waiter.answer(Err(ServiceError::NotInTime { retry_after: cost }));
        return None;
    }
    Some(waiter)
}

/// Whoever left after the deadline left because of it.
fn count_gone(waiter: &Waiter, now: Instant, drops: &Drops) {
    if waiter.deadline <= now { drops.expired.inc() } else { drops.cancelled.inc() }
}
