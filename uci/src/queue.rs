//! Requests that wait for a process; the one with the earliest deadline is next.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use crate::{Evaluation, Search, UciError};

/// A request and whom to answer.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) search: Search,
    pub(crate) deadline: Option<Instant>,
    pub(crate) reply: oneshot::Sender<Result<Evaluation, UciError>>,
}

/// Requests with a deadline first, then in the order of arrival.
pub(crate) type Key = (bool, Option<Instant>, u64);

#[derive(Debug, Default)]
struct Waiting {
    jobs: BTreeMap<Key, Job>,
    arrived: u64,
    /// Processes that wait for a request. Each gives room for one more.
    idle: usize,
    closed: bool,
}

/// The requests that wait.
#[derive(Debug)]
pub(crate) struct Queue {
    most: usize,
    waiting: Mutex<Waiting>,
    changed: Notify,
    shut: Notify,
}

/// A process counts as idle while it waits.
struct Idle<'a>(&'a Queue);

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.0.lock().idle -= 1;
    }
}

impl Queue {
    pub(crate) fn new(most: usize) -> Self {
        Queue { most, waiting: Mutex::default(), changed: Notify::new(), shut: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while it is held, so that what a poisoned lock guards is whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, job: Job) -> Result<Key, UciError> {
        let mut waiting = self.lock();
        if waiting.closed {
            return Err(UciError::Closed);
        }
        // Those whose callers have gone give their places up.
        if waiting.jobs.len() >= self.most + waiting.idle {
            waiting.jobs.retain(|_, job| !job.reply.is_closed());
        }
        if waiting.jobs.len() >= self.most + waiting.idle {
            return Err(UciError::Full);
        }
        let key = (job.deadline.is_none(), job.deadline, waiting.arrived);
        waiting.arrived += 1;
        waiting.jobs.insert(key, job);
        drop(waiting);
        self.changed.notify_one();
        Ok(key)
    }

    /// Takes a request back. False when a process has it.
    pub(crate) fn withdraw(&self, key: &Key) -> bool {
        self.lock().jobs.remove(key).is_some()
    }

    /// The next request that somebody waits for; `None` when the queue is closed.
    pub(crate) async fn next(&self) -> Option<Job> {
        self.lock().idle += 1;
        let _idle = Idle(self);
        loop {
            let changed = self.changed.notified();
            {
                let mut waiting = self.lock();
                while let Some((_, job)) = waiting.jobs.pop_first() {
                    if !job.reply.is_closed() {
                        let more = !waiting.jobs.is_empty();
                        drop(waiting);
                        if more {
                            // A notice may have been given while nobody listened.
                            self.changed.notify_one();
                        }
                        return Some(job);
                    }
                }
                if waiting.closed {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// Answers those whose deadline has passed while no process was there to serve them.
    pub(crate) fn expire(&self, now: Instant) {
        let mut waiting = self.lock();
        let late = waiting.jobs.extract_if(.., |_, job| job.deadline.is_some_and(|deadline| deadline <= now));
        let late = late.map(|(_, job)| job).collect::<Vec<_>>();
        drop(waiting);
        for job in late {
            // Nobody is there to be told when the caller has gone.
            let _ = job.reply.send(Err(UciError::Deadline));
        }
    }

    /// Answers those without a deadline with an error.
    pub(crate) fn fail_patient(&self, error: &UciError) {
        let patient = self.lock().jobs.extract_if(.., |_, job| job.deadline.is_none()).collect::<Vec<_>>();
        for (_, job) in patient {
            let _ = job.reply.send(Err(error.clone())); // The caller may have gone.
        }
    }

    /// Answers all that wait with an error.
    pub(crate) fn fail(&self, error: &UciError) {
        let jobs = std::mem::take(&mut self.lock().jobs);
        for (_, job) in jobs {
            let _ = job.reply.send(Err(error.clone())); // The caller may have gone.
        }
    }

    /// Takes no more requests and fails those that wait.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.fail(&UciError::Closed);
        self.changed.notify_waiters();
        self.shut.notify_waiters();
    }

    /// Ends when the queue is closed.
    pub(crate) async fn closed(&self) {
        let shut = self.shut.notified();
        if !self.lock().closed {
            shut.await;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().jobs.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shakmaty::Chess;

    use super::*;
    use crate::Limits;

    fn job(deadline: Option<Instant>) -> (Job, oneshot::Receiver<Result<Evaluation, UciError>>) {
        let (reply, answer) = oneshot::channel();
        let search =
            Search { position: Chess::default(), candidates: Vec::new(), limits: Limits::default(), fresh: false };
        (Job { search, deadline, reply }, answer)
    }

    #[tokio::test]
    async fn the_earliest_deadline_is_next_and_the_abandoned_are_passed_over() {
        let queue = Queue::new(4);
        let now = Instant::now();
        let times = [
            None,
            Some(now + Duration::from_secs(9)),
            Some(now + Duration::from_secs(5)),
            Some(now + Duration::from_secs(7)),
        ];
        let mut answers = Vec::new();
        for deadline in times {
            let (job, answer) = job(deadline);
            queue.push(job).unwrap();
            answers.push(answer);
        }
        assert_eq!(queue.push(job(None).0).err(), Some(UciError::Full));
        drop(answers.remove(3));
        let (late, _answer) = job(Some(now + Duration::from_secs(20)));
        assert!(queue.push(late).is_ok(), "the abandoned place is free");
        let mut order = Vec::new();
        for _ in 0..4 {
            order.push(queue.next().await.unwrap().deadline.map(|deadline| (deadline - now).as_secs()));
        }
        assert_eq!(order, [Some(5), Some(9), Some(20), None]);
    }

    #[tokio::test]
    async fn the_late_and_the_closed_out_are_told() {
        let queue = Queue::new(4);
        let now = Instant::now();
        let (late, late_answer) = job(Some(now));
        let (early, early_answer) = job(None);
        queue.push(late).unwrap();
        queue.push(early).unwrap();
        queue.expire(now);
        assert_eq!(late_answer.await.unwrap(), Err(UciError::Deadline));
        queue.close();
        assert_eq!(early_answer.await.unwrap(), Err(UciError::Closed));
        assert!(queue.next().await.is_none());
        assert_eq!(queue.push(job(None).0).err(), Some(UciError::Closed));
    }
}
