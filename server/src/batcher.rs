//! The bounded queue between requests and workers.
//!
//! A request needs a permit to enter, keeps it until it is answered, and is refused when it could not be ready by its
//! deadline. Identical situations are computed once. A free worker takes those that are due first, without waiting for
//! company, as many as the tightest deadline among them allows; what nobody waits for any more is dropped when it is
//! handed over.

mod limits;

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{Semaphore, oneshot};
use zeitnot_encoding::Batch;

pub use limits::Limits;

use crate::{
    cache::{Cache, Key, Prediction},
    cost::CostModel,
    error::ServiceError,
    jobs::{Id, Job, Jobs, Reply, Waiter},
    metrics::{Held, ModelMetrics},
};

/// A request is admitted when it should be ready in this share of the time it has left.
const ADMITTED_SHARE: f64 = 2.0 / 3.0;

/// The requests' end of a queue. Workers end when it is dropped.
#[derive(Debug)]
pub struct Batcher {
    shared: Arc<Shared>,
}

/// The workers' end of a queue.
#[derive(Clone, Debug)]
pub struct Queue {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    jobs: Mutex<Jobs>,
    arrived: Condvar,
    permits: Arc<Semaphore>,
    /// Requests that left before they were answered, since the last purge.
    gone: AtomicUsize,
    /// Workers that cannot work: their model could not be opened again.
    broken: AtomicUsize,
    limits: Limits,
    cost: CostModel,
    cache: Cache,
    metrics: ModelMetrics,
}

/// A batch in a worker's hands. Dropped without an outcome, as by a panic, its requests fail.
#[derive(Debug)]
pub struct Taken {
    shared: Arc<Shared>,
    ids: Vec<Id>,
    /// The encoded situations, a row each.
    pub inputs: Vec<Batch>,
    taken: Instant,
}

/// A queue, by both its ends.
pub fn queue(limits: Limits, cache: Cache, metrics: ModelMetrics) -> (Batcher, Queue) {
    let shared = Arc::new(Shared {
        jobs: Mutex::default(),
        arrived: Condvar::new(),
        permits: Arc::new(Semaphore::new(limits.capacity.min(Semaphore::MAX_PERMITS))),
        gone: AtomicUsize::new(0),
        broken: AtomicUsize::new(0),
        limits,
        cost: CostModel::new(limits.max_batch),
        cache,
        metrics,
    });
    (Batcher { shared: Arc::clone(&shared) }, Queue { shared })
}

impl Batcher {
    /// Queues an encoded situation with its legal moves and waits for the answer until the deadline.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Overloaded`], [`ServiceError::NotInTime`], [`ServiceError::DeadlineExceeded`],
    /// [`ServiceError::NoWorker`], or what the worker says.
    pub async fn submit(
        &self,
        input: Batch,
        legal: Box<[u16]>,
        key: Option<Key>,
        deadline: Instant,
    ) -> Result<Reply, ServiceError> {
        let answer = self.admit(input, legal, key, deadline)?;
        let mut leaving = Leaving { gone: &self.shared.gone, answered: false };
        let reply = tokio::time::timeout_at(deadline.into(), answer).await;
        leaving.answered = reply.is_ok();
        match reply {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(ServiceError::NoWorker),
            Err(_) => Err(ServiceError::DeadlineExceeded),
        }
    }

    /// Whether any worker can work.
    pub fn is_able(&self) -> bool {
        self.shared.broken.load(Ordering::Relaxed) < self.shared.limits.workers
    }

    fn admit(
        &self,
        input: Batch,
        legal: Box<[u16]>,
        key: Option<Key>,
        deadline: Instant,
    ) -> Result<oneshot::Receiver<Result<Reply, ServiceError>>, ServiceError> {
        let shared = &self.shared;
        let admitted = Instant::now();
        if deadline <= admitted {
            return Err(ServiceError::DeadlineExceeded);
        }
        if !self.is_able() {
            return Err(ServiceError::NoWorker);
        }
        let acquire = || Arc::clone(&shared.permits).try_acquire_owned();
        let permit = acquire().or_else(|_| {
            if shared.gone.swap(0, Ordering::Relaxed) > 0 {
                let mut jobs = shared.lock();
                jobs.purge(&shared.metrics.drops);
                shared.note_depth(&jobs);
            }
            acquire().map_err(|_| ServiceError::Overloaded { retry_after: shared.until_room() })
        })?;
        let (reply, answer) = oneshot::channel();
        let waiter = Waiter { deadline, admitted, reply, permit: (permit, Held::new(&shared.metrics.admitted)) };
        let mut jobs = shared.lock();
        let Some(waiter) = jobs.join(key.filter(|_| shared.limits.coalesce), waiter) else {
            shared.metrics.coalesced.inc();
            return Ok(answer);
        };
        let needed = shared.ready_in(&jobs, deadline);
        if needed > (deadline - admitted).mul_f64(ADMITTED_SHARE) {
            drop(jobs);
            return Err(ServiceError::NotInTime { retry_after: needed });
        }
        jobs.add(input, legal, key, waiter);
        shared.note_depth(&jobs);
        if shared.cache.is_on() {
            shared.metrics.cache_misses.inc();
        }
        drop(jobs);
        shared.arrived.notify_one();
        Ok(answer)
    }
}

impl Drop for Batcher {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.arrived.notify_all();
    }
}

/// Notes a request that leaves before it is answered, so that its place can be found.
struct Leaving<'a> {
    gone: &'a AtomicUsize,
    answered: bool,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.gone.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Queue {
    /// Waits for work and takes it. Nothing when the requests' end is gone.
    pub fn take(&self) -> Option<Taken> {
        let shared = &self.shared;
        let mut jobs = shared.lock();
        loop {
            let mut taken = Taken::new(shared);
            let tightest = shared.gather(&mut jobs, &mut taken, None);
            if let Some(tightest) = tightest {
                // Counted before anything else can happen to the batch, since its end takes it back.
                jobs.running += 1;
                if !shared.limits.delay.is_zero() && taken.ids.len() < shared.limits.max_batch {
                    jobs = shared.fill(jobs, &mut taken, tightest);
                }
                shared.note_depth(&jobs);
                if jobs.waiting() > 0 {
                    // Who filled this batch may have been woken for what it left.
                    shared.arrived.notify_one();
                }
                drop(jobs);
                taken.taken = Instant::now();
                return Some(taken);
            }
            shared.note_depth(&jobs); // All that waited may have been dropped.
            if jobs.closed {
                return None;
            }
            jobs = shared.arrived.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether the requests' end is gone.
    pub fn is_closed(&self) -> bool {
        self.shared.lock().closed
    }

    /// Whether predictions keep the pooled hidden state.
    pub fn keeps_pooled(&self) -> bool {
        self.shared.limits.pooled
    }

    /// What runs cost.
    pub fn cost(&self) -> &CostModel {
        &self.shared.cost
    }

    /// Where its figures go.
    pub fn metrics(&self) -> &ModelMetrics {
        &self.shared.metrics
    }

    /// Tells whether a worker can work.
    pub fn set_broken(&self, broken: bool) {
        if broken {
            self.shared.broken.fetch_add(1, Ordering::Relaxed);
        } else {
            self.shared.broken.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Jobs> {
        // Nothing that can panic runs under the lock.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_depth(&self, jobs: &Jobs) {
        self.metrics.queue_depth.set(jobs.waiting() as i64);
    }

    /// Workers that can work, at least one.
    fn able_workers(&self) -> usize {
        self.limits.workers.saturating_sub(self.broken.load(Ordering::Relaxed)).max(1)
    }

    /// Takes jobs, those due first, while the tightest deadline among them still holds. Gives that deadline.
    fn gather(&self, jobs: &mut Jobs, taken: &mut Taken, tightest: Option<Instant>) -> Option<Instant> {
        let mut tightest = tightest;
        let share = taken.ids.len() + self.share(jobs);
        while taken.ids.len() < share.min(self.limits.max_batch) {
            let cost = self.cost.estimate(taken.ids.len() + 1);
            if tightest.is_some_and(|tightest| tightest < Instant::now() + cost) {
                break;
            }
            let Some((id, input, deadline)) = jobs.take_first(self.cost.estimate(1), &self.metrics.drops) else {
                break;
            };
            let alone = taken.ids.is_empty();
            if !alone && deadline < Instant::now() + cost {
                jobs.put_back(id, input);
                break;
            }
            taken.ids.push(id);
            taken.inputs.push(input);
            tightest = Some(tightest.map_or(deadline, |tightest| tightest.min(deadline)));
        }
        tightest
    }

    /// How many of the waiting jobs a worker should take: what leaves as much for each of the others that are free or,
    /// when they are busy, for each of all, but no fewer than make a batch efficient.
    fn share(&self, jobs: &Jobs) -> usize {
        let workers = self.able_workers();
        match workers.saturating_sub(jobs.running) {
            0 | 1 => jobs.waiting().div_ceil(workers).max(self.cost.efficient()),
            free => jobs.waiting().div_ceil(free),
        }
    }

    /// Waits for more company, while it does no harm.
    fn fill<'a>(&'a self, jobs: MutexGuard<'a, Jobs>, taken: &mut Taken, tightest: Instant) -> MutexGuard<'a, Jobs> {
        let (mut jobs, mut tightest) = (jobs, tightest);
        let until = Instant::now() + self.limits.delay;
        while taken.ids.len() < self.limits.max_batch && !jobs.closed {
            let harmless = tightest.checked_sub(self.cost.estimate(self.limits.max_batch)).unwrap_or(tightest);
            let left = until.min(harmless).saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            jobs = self.arrived.wait_timeout(jobs, left).unwrap_or_else(PoisonError::into_inner).0;
            tightest = self.gather(&mut jobs, taken, Some(tightest)).unwrap_or(tightest);
            if jobs.waiting() > 0 {
                break; // It does not fit, and must not wait for this batch to fill.
            }
        }
        jobs
    }

    /// When a request with this deadline should be ready. Not at all late when a worker is free: then it can try.
    fn ready_in(&self, jobs: &Jobs, deadline: Instant) -> Duration {
        let (max_batch, workers) = (self.limits.max_batch, self.able_workers());
        if jobs.waiting() == 0 && jobs.running < workers {
            return Duration::ZERO;
        }
        let full = self.cost.estimate(max_batch);
        let ahead = jobs.due_before(deadline);
        let rounds = ahead / (max_batch * workers) + usize::from(jobs.running >= workers);
        full.mul_f64(rounds as f64) + self.cost.estimate(max_batch.min(ahead + 1))
    }

    /// When a full queue should have been worked off; not so soon that asking again is the load.
    fn until_room(&self) -> Duration {
        let rounds = self.limits.capacity as f64 / (self.limits.max_batch * self.able_workers()) as f64;
        let queue = self.cost.estimate(self.limits.max_batch).mul_f64(rounds);
        queue.clamp(Duration::from_millis(10), Duration::from_secs(5))
    }

    fn remove(&self, ids: &mut Vec<Id>) -> Vec<Option<Job>> {
        let mut jobs = self.lock();
        jobs.running = jobs.running.saturating_sub(1);
        std::mem::take(ids).into_iter().map(|id| jobs.remove(id)).collect()
    }
}

impl Taken {
    fn new(shared: &Arc<Shared>) -> Self {
        Taken { shared: Arc::clone(shared), ids: Vec::new(), inputs: Vec::new(), taken: Instant::now() }
    }

    /// Answers every request. `predict` gives a row's prediction for its legal moves, `inference` is the run's time.
    pub fn complete(mut self, inference: Duration, predict: impl Fn(usize, &[u16]) -> Option<Prediction>) {
        let (shared, taken, batch_size) = (Arc::clone(&self.shared), self.taken, self.ids.len());
        let predictions = self.predictions(predict);
        let jobs = shared.remove(&mut self.ids);
        for (job, prediction) in jobs.into_iter().zip(predictions) {
            for waiter in job.map(|job| job.waiters).unwrap_or_default() {
                let queue = taken.saturating_duration_since(waiter.admitted);
                shared.metrics.queue_seconds.observe(queue.as_secs_f64());
                let reply = |prediction| Reply { prediction, queue, inference, batch_size, cached: false };
                waiter.answer(prediction.clone().map(reply).ok_or(ServiceError::Inference));
            }
        }
    }

    /// Each row's prediction, kept before its job is removed, so that hardly an identical request finds neither.
    fn predictions(&self, predict: impl Fn(usize, &[u16]) -> Option<Prediction>) -> Vec<Option<Arc<Prediction>>> {
        let wanted = {
            let mut jobs = self.shared.lock();
            self.ids.iter().map(|&id| jobs.told(id)).collect::<Vec<_>>()
        };
        let rows = wanted.into_iter().enumerate();
        rows.map(|(row, wanted)| {
            let (legal, key) = wanted?;
            let prediction = predict(row, &legal).map(Arc::new);
            match (&prediction, key) {
                (Some(prediction), Some(key)) => self.shared.cache.insert(key, Arc::clone(prediction)),
                (None, _) => self.shared.metrics.failed_rows.inc(),
                _ => {}
            }
            prediction
        })
        .collect()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.ids.is_empty() {
            return;
        }
        let jobs = self.shared.remove(&mut self.ids);
        let waiters = jobs.into_iter().flatten().flat_map(|job| job.waiters);
        waiters.for_each(|waiter| waiter.answer(Err(ServiceError::Inference)));
    }
}

#[cfg(test)]
mod tests;
