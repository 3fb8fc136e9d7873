//! One file, though a long one: all tests share the recorder and the ways to start it.

use std::{sync::atomic::AtomicBool, thread};

use tokio::{sync::mpsc, task::JoinHandle};
use zeitnot_encoding::{Encoding, Otter, Outlook, Situation, vocabulary};
use zeitnot_inference::{Answer, InferenceError, Metadata, Provider};

use super::*;
use crate::{
    metrics::Metrics,
    worker::{self, Open, Run, work},
};

/// A model that notes the rating buckets of every batch and answers a tenth of a row's bucket as its value. It can be
/// told to fail, to panic, and to answer NaN to a bucket.
struct Recorder {
    metadata: Metadata,
    seen: std::sync::mpsc::Sender<Vec<i64>>,
    delay: Duration,
    fault: Fault,
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    Error,
    Panic,
    Nan(i64),
}

impl Run for Recorder {
    fn encoding(&self) -> &'static dyn Encoding {
        &Otter
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn provider(&self) -> Provider {
        Provider::Cpu
    }

    fn run(&mut self, batch: &Batch) -> Result<Answer, InferenceError> {
        thread::sleep(self.delay);
        let buckets = batch.integers("mover_elo").to_vec();
        let _ = self.seen.send(buckets.clone()); // Not every test looks.
        match self.fault {
            Fault::Error => return Err(InferenceError::Output { output: "policy", found: 0, expected: 1 }),
            Fault::Panic => panic!("as a broken library would"),
            _ => {}
        }
        let value = |&bucket: &i64| if Fault::Nan(bucket) == self.fault { f32::NAN } else { bucket as f32 / 10.0 };
        let policy = vec![0.0; batch.rows() * vocabulary::SIZE];
        Ok(Answer { policy, value: buckets.iter().map(value).collect(), ..Answer::default() })
    }
}

type Seen = std::sync::mpsc::Receiver<Vec<i64>>;

fn recorder(delay: Duration, fault: Fault) -> (Recorder, Seen) {
    let (seen, batches) = std::sync::mpsc::channel();
    (Recorder { metadata: Metadata::default(), seen, delay, fault }, batches)
}

fn ends(capacity: usize) -> (Arc<Batcher>, Queue) {
    ends_with(
        Limits { capacity, max_batch: 8, delay: Duration::ZERO, workers: 1, coalesce: true, pooled: false },
        Cache::new(0),
    )
}

fn ends_with(limits: Limits, cache: Cache) -> (Arc<Batcher>, Queue) {
    let (batcher, queue) = queue(limits, cache, Metrics::new().unwrap().model("test"));
    (Arc::new(batcher), queue)
}

fn input(bucket: u16) -> Batch {
    let mut situation = Situation::default();
    situation.conditions.mover_rating = Some(1000 + 100 * bucket);
    Batch::of(&Otter, [&situation])
}

fn key(bucket: u16) -> Option<Key> {
    Some(Key::new(1, &input(bucket), &[]))
}

fn within(ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(ms)
}

fn soon() -> Instant {
    within(20_000)
}

type Waiting = JoinHandle<Result<Reply, ServiceError>>;

/// Submits a request and waits until it is in the queue.
async fn submit(batcher: &Arc<Batcher>, bucket: u16, key: Option<Key>, deadline: Instant) -> Waiting {
    let task = tokio::spawn({
        let batcher = Arc::clone(batcher);
        async move { batcher.submit(input(bucket), Box::new([0, 1]), key, deadline).await }
    });
    // The test's runtime has one thread: the task runs now, until it waits.
    tokio::task::yield_now().await;
    task
}

/// Starts a worker on the queue; the receiver tells the buckets of each batch it ran.
fn start(queue: Queue, delay: Duration) -> Seen {
    let (mut recorder, seen) = recorder(delay, Fault::None);
    thread::spawn(move || work(&queue, &mut recorder));
    seen
}

fn all(seen: &Seen) -> Vec<Vec<i64>> {
    seen.try_iter().collect()
}

#[tokio::test]
async fn every_request_of_a_batch_gets_its_own_row() {
    let (batcher, queue) = ends(64);
    let mut requests = Vec::new();
    for bucket in 0..10 {
        requests.push(submit(&batcher, bucket, None, soon()).await);
    }
    let seen = start(queue, Duration::ZERO);
    for (bucket, request) in requests.into_iter().enumerate() {
        let reply = request.await.unwrap().unwrap();
        assert_eq!(reply.prediction.outlook, Outlook::of_value(bucket as f32 / 10.0));
        assert_eq!(reply.prediction.logits.len(), 2, "of the legal moves alone");
        assert!(!reply.cached);
    }
    let sizes = all(&seen).iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(sizes, [8, 2], "a free worker takes what is there, up to a batch");
    assert_eq!(batcher.shared.metrics.admitted.get(), 0);
}

#[tokio::test]
async fn what_is_due_first_is_computed_first() {
    let (batcher, queue) = ends_with(
        Limits { capacity: 64, max_batch: 2, delay: Duration::ZERO, workers: 1, coalesce: true, pooled: false },
        Cache::new(0),
    );
    let mut requests = Vec::new();
    for (bucket, ms) in [(1, 50_000), (2, 20_000), (3, 40_000), (4, 30_000)] {
        requests.push(submit(&batcher, bucket, None, within(ms)).await);
    }
    let seen = start(queue, Duration::ZERO);
    for request in requests {
        request.await.unwrap().unwrap();
    }
    assert_eq!(all(&seen), [[2, 4], [3, 1]]);
}

#[tokio::test]
async fn a_cancelled_request_is_never_computed_and_its_batch_mates_are() {
    let (batcher, queue) = ends(64);
    let cancelled = submit(&batcher, 1, None, soon()).await;
    let mate = submit(&batcher, 2, None, soon()).await;
    cancelled.abort();
    assert!(cancelled.await.unwrap_err().is_cancelled());
    let seen = start(queue, Duration::ZERO);
    mate.await.unwrap().unwrap();
    assert_eq!(all(&seen), [[2]]);
    assert_eq!(batcher.shared.metrics.drops.cancelled.get(), 1);
}

#[tokio::test]
async fn a_request_cancelled_while_its_batch_runs_harms_nobody() {
    let (batcher, queue) = ends(64);
    let cancelled = submit(&batcher, 1, None, soon()).await;
    let mate = submit(&batcher, 2, None, soon()).await;
    let seen = start(queue, Duration::from_millis(50));
    while batcher.shared.lock().running == 0 {
        tokio::task::yield_now().await;
    }
    cancelled.abort();
    assert_eq!(mate.await.unwrap().unwrap().prediction.outlook, Outlook::of_value(0.2));
    assert_eq!(all(&seen), [[1, 2]]);
    assert_eq!(batcher.shared.metrics.admitted.get(), 0);
}

#[tokio::test]
async fn an_expired_request_is_answered_and_never_computed() {
    let (batcher, queue) = ends(64);
    let late = submit(&batcher, 1, None, within(5)).await;
    assert_eq!(late.await.unwrap(), Err(ServiceError::DeadlineExceeded));
    let past = batcher.submit(input(1), Box::new([]), None, Instant::now()).await;
    assert_eq!(past, Err(ServiceError::DeadlineExceeded), "late before it came");
    let seen = start(queue, Duration::ZERO);
    submit(&batcher, 2, None, soon()).await.await.unwrap().unwrap();
    assert_eq!(all(&seen), [[2]]);
    assert_eq!(batcher.shared.metrics.drops.expired.get(), 1);
}

#[tokio::test]
async fn a_full_queue_refuses_and_says_when_to_come_back() {
    let (batcher, queue) = ends(2);
    let waiting = [submit(&batcher, 1, None, soon()).await, submit(&batcher, 2, None, soon()).await];
    match batcher.submit(input(3), Box::new([]), None, soon()).await {
        Err(ServiceError::Overloaded { retry_after }) => assert!(retry_after >= Duration::from_millis(10)),
        other => panic!("{other:?}"),
    }
    let _seen = start(queue, Duration::ZERO);
    for request in waiting {
        request.await.unwrap().unwrap();
    }
    batcher.submit(input(3), Box::new([]), None, soon()).await.unwrap();
}

#[tokio::test]
async fn requests_that_left_do_not_keep_others_out() {
    let (batcher, queue) = ends(2);
    for bucket in [1, 2] {
        let leaving = submit(&batcher, bucket, None, soon()).await;
        leaving.abort();
        assert!(leaving.await.unwrap_err().is_cancelled());
    }
    let third = submit(&batcher, 3, None, soon()).await;
    let seen = start(queue, Duration::ZERO);
    third.await.unwrap().unwrap();
    assert_eq!(all(&seen), [[3]]);
    assert_eq!(batcher.shared.metrics.drops.cancelled.get(), 2);
}

#[tokio::test]
async fn identical_requests_are_computed_once() {
    let cache = Cache::new(1 << 20);
    let limits =
        Limits { capacity: 64, max_batch: 8, delay: Duration::ZERO, workers: 1, coalesce: true, pooled: false };
    let (batcher, queue) = ends_with(limits, cache.clone());
    let first = submit(&batcher, 1, key(1), within(30_000)).await;
    let hasty = submit(&batcher, 1, key(1), within(15_000)).await;
    let leaving = submit(&batcher, 1, key(1), soon()).await;
    let other = submit(&batcher, 2, key(2), soon()).await;
    leaving.abort();
    let seen = start(queue, Duration::ZERO);
    for (request, bucket) in [(first, 0.1), (hasty, 0.1), (other, 0.2)] {
        assert_eq!(request.await.unwrap().unwrap().prediction.outlook, Outlook::of_value(bucket));
    }
    assert_eq!(all(&seen), [[1, 2]], "due with the hastiest who waits for it");
    assert_eq!(batcher.shared.metrics.coalesced.get(), 2);
    assert!(cache.get(&key(1).unwrap()).is_some() && cache.get(&key(3).unwrap()).is_none());
}

#[tokio::test]
async fn coalescing_can_be_off_while_predictions_are_kept() {
    let limits =
        Limits { capacity: 64, max_batch: 8, delay: Duration::ZERO, workers: 1, coalesce: false, pooled: false };
    let cache = Cache::new(1 << 20);
    let (batcher, queue) = ends_with(limits, cache.clone());
    let both = [submit(&batcher, 1, key(1), soon()).await, submit(&batcher, 1, key(1), soon()).await];
    let seen = start(queue, Duration::ZERO);
    for request in both {
        request.await.unwrap().unwrap();
    }
    assert_eq!(all(&seen), [[1, 1]]);
    assert!(cache.get(&key(1).unwrap()).is_some());
    assert_eq!(batcher.shared.metrics.coalesced.get(), 0);
}

#[tokio::test]
async fn a_request_joins_an_identical_one_that_is_being_computed() {
    let (batcher, queue) = ends(64);
    let first = submit(&batcher, 1, key(1), soon()).await;
    let seen = start(queue, Duration::from_millis(50));
    while batcher.shared.lock().running == 0 {
        tokio::task::yield_now().await;
    }
    let second = submit(&batcher, 1, key(1), soon()).await;
    assert_eq!(first.await.unwrap().unwrap().prediction, second.await.unwrap().unwrap().prediction);
    assert_eq!(all(&seen), [[1]]);
}

#[tokio::test]
async fn a_batch_grows_no_further_than_its_tightest_deadline_allows() {
    let (batcher, queue) = ends(64);
    for (rows, ms) in [(1, 1_000), (2, 2_000), (4, 4_000), (8, 8_000)] {
        queue.cost().teach(rows, Duration::from_millis(ms));
    }
    // While nothing is known to take time they are admitted: nobody is before the first, and it has no company.
    let mut jobs = Vec::new();
    for (bucket, ms) in [(1, 3_500), (2, 30_000), (3, 30_000), (4, 60_000)] {
        jobs.push(submit(&batcher, bucket, None, within(ms)).await);
    }
    let taken = queue.take().unwrap();
    assert_eq!(taken.inputs.len(), 3, "three rows take three seconds, four would be late for the first");
    drop(taken);
    assert_eq!(queue.take().unwrap().inputs.len(), 1);
    for (place, job) in jobs.into_iter().enumerate() {
        assert_eq!(job.await.unwrap(), Err(ServiceError::Inference), "{place}: dropped without an outcome");
    }
}

#[tokio::test]
async fn free_workers_share_what_waits_and_busy_ones_leave_each_other_some() {
    let limits =
        Limits { capacity: 64, max_batch: 8, delay: Duration::ZERO, workers: 2, coalesce: true, pooled: false };
    let (batcher, queue) = ends_with(limits, Cache::new(0));
    let mut requests = Vec::new();
    let mut add = async |count: u16| {
        for bucket in 0..count {
            requests.push(submit(&batcher, bucket, None, soon()).await);
        }
    };
    add(4).await;
    let first = queue.take().unwrap();
    let second = queue.take().unwrap();
    assert_eq!([first.inputs.len(), second.inputs.len()], [2, 2]);
    drop(second);
    // A row costs the same from two rows on.
    for (rows, ms) in [(1, 20), (2, 30), (4, 60), (8, 120)] {
        queue.cost().teach(rows, Duration::from_millis(ms));
    }
    add(3).await;
    assert_eq!(queue.take().unwrap().inputs.len(), 2, "no fewer than make a batch efficient");
    add(9).await;
    assert_eq!(queue.take().unwrap().inputs.len(), 5, "half of ten");
    drop(first);
}

#[tokio::test]
async fn what_could_not_be_ready_in_time_is_refused_at_once() {
    let (batcher, queue) = ends(64);
    CostModel::sizes(8).into_iter().for_each(|rows| queue.cost().teach(rows, Duration::from_secs(1)));
    let first = submit(&batcher, 1, None, soon()).await;
    match batcher.submit(input(2), Box::new([]), None, within(1_200)).await {
        Err(ServiceError::NotInTime { retry_after }) => assert_eq!(retry_after, Duration::from_secs(1)),
        other => panic!("{other:?}"),
    }
    let second = submit(&batcher, 3, None, soon()).await;
    let _seen = start(queue, Duration::ZERO);
    assert!(first.await.unwrap().is_ok() && second.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_hopeless_request_makes_way_for_one_that_is_not() {
    let (batcher, queue) = ends(64);
    let hopeless = submit(&batcher, 1, None, within(500)).await;
    let other = submit(&batcher, 2, None, soon()).await;
    // The machine has become slow since they were admitted.
    CostModel::sizes(8).into_iter().for_each(|rows| queue.cost().teach(rows, Duration::from_secs(1)));
    let seen = start(queue, Duration::ZERO);
    other.await.unwrap().unwrap();
    assert!(matches!(hopeless.await.unwrap(), Err(ServiceError::NotInTime { .. })));
    assert_eq!(all(&seen), [[2]]);
    assert_eq!(batcher.shared.metrics.drops.hopeless.get(), 1);
    // With nobody behind it, it is tried.
    assert!(submit(&batcher, 3, None, within(800)).await.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_delay_lets_a_batch_fill() {
    let limits = Limits {
        capacity: 64,
        max_batch: 2,
        delay: Duration::from_secs(10),
        workers: 1,
        coalesce: true,
        pooled: false,
    };
    let (batcher, queue) = ends_with(limits, Cache::new(0));
    let seen = start(queue, Duration::ZERO);
    let first = submit(&batcher, 1, None, soon()).await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    let second = submit(&batcher, 2, None, soon()).await;
    assert!(first.await.unwrap().is_ok() && second.await.unwrap().is_ok());
    assert_eq!(all(&seen), [[1, 2]]);
}

#[tokio::test]
async fn a_row_that_is_not_finite_fails_alone() {
    let (batcher, queue) = ends(64);
    let bad = submit(&batcher, 1, None, soon()).await;
    let good = submit(&batcher, 2, None, soon()).await;
    let (mut model, _seen) = recorder(Duration::ZERO, Fault::Nan(1));
    thread::spawn(move || work(&queue, &mut model));
    assert_eq!(bad.await.unwrap(), Err(ServiceError::Inference));
    assert!(good.await.unwrap().is_ok());
    assert_eq!(batcher.shared.metrics.failed_rows.get(), 1);
    assert_eq!(batcher.shared.metrics.failed_batches.get(), 0);
}

/// Starts a worker whose first session, once warm, has a fault. What it opens later is good, after `failures` attempts.
async fn start_faulty(queue: &Queue, fault: Fault, failures: usize) -> mpsc::UnboundedReceiver<()> {
    let (changed, changes) = mpsc::unbounded_channel();
    let (ready, answer) = tokio::sync::oneshot::channel();
    let (opened, warm) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let open: Open = {
        let warm = Arc::clone(&warm);
        Arc::new(move || match opened.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(Box::new(Sick { well: recorder(Duration::ZERO, Fault::None).0, fault, sick: Arc::clone(&warm) })),
            attempt if attempt <= failures => {
                Err(InferenceError::Model { file: "test".into(), problem: "is gone".into() })
            }
            _ => Ok(Box::new(Sick { well: recorder(Duration::ZERO, Fault::None).0, fault, sick: Arc::default() })),
        })
    };
    worker::spawn(0, None, open, queue.clone(), changed, ready).unwrap();
    answer.await.unwrap().unwrap();
    warm.store(true, Ordering::SeqCst);
    changes
}

/// A model that falls sick.
struct Sick {
    well: Recorder,
    fault: Fault,
    sick: Arc<AtomicBool>,
}

impl Run for Sick {
    fn encoding(&self) -> &'static dyn Encoding {
        &Otter
    }

    fn metadata(&self) -> &Metadata {
        &self.well.metadata
    }

    fn provider(&self) -> Provider {
        Provider::Cpu
    }

    fn run(&mut self, batch: &Batch) -> Result<Answer, InferenceError> {
        self.well.fault = if self.sick.load(Ordering::SeqCst) { self.fault } else { Fault::None };
        self.well.run(batch)
    }
}

#[tokio::test]
async fn a_worker_that_panics_or_errors_fails_its_batch_and_is_replaced() {
    for (fault, panics) in [(Fault::Panic, 1), (Fault::Error, 0)] {
        let (batcher, queue) = ends(64);
        let _changes = start_faulty(&queue, fault, 0).await;
        assert_eq!(submit(&batcher, 1, None, soon()).await.await.unwrap(), Err(ServiceError::Inference));
        assert!(submit(&batcher, 2, None, soon()).await.await.unwrap().is_ok());
        let metrics = &batcher.shared.metrics;
        assert_eq!((metrics.replaced_after_panic.get(), metrics.replaced_after_error.get()), (panics, 1 - panics));
        assert_eq!((metrics.failed_batches.get(), metrics.workers.get(), metrics.admitted.get()), (1, 1, 0));
    }
}

#[tokio::test]
async fn a_worker_that_cannot_open_its_model_again_says_so_and_goes_on_trying() {
    let (batcher, queue) = ends(64);
    let mut changes = start_faulty(&queue, Fault::Error, 2).await;
    assert_eq!(submit(&batcher, 1, None, soon()).await.await.unwrap(), Err(ServiceError::Inference));
    changes.recv().await.unwrap();
    assert!(!batcher.is_able());
    assert_eq!(batcher.shared.metrics.workers.get(), 0);
    assert_eq!(batcher.submit(input(2), Box::new([]), None, soon()).await, Err(ServiceError::NoWorker));
    changes.recv().await.unwrap();
    assert!(batcher.is_able());
    assert_eq!(batcher.shared.metrics.workers.get(), 1);
    assert!(submit(&batcher, 3, None, soon()).await.await.unwrap().is_ok());
}

#[tokio::test]
async fn workers_end_with_their_batcher() {
    let (batcher, queue) = ends(64);
    let mut changes = start_faulty(&queue, Fault::None, 0).await;
    let metrics = batcher.shared.metrics.clone();
    assert_eq!(metrics.workers.get(), 1);
    drop(batcher);
    changes.recv().await.unwrap();
    assert_eq!(metrics.workers.get(), 0);
}
