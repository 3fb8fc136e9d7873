use std::thread;

use zeitnot_encoding::{Encoding, Otter, Outlook, Situation, vocabulary};
use zeitnot_inference::{Answer, InferenceError};

use super::*;
use crate::worker::{Run, work};

/// A model that notes the size of every batch and answers a tenth of the row's rating bucket as its value.
struct Recorder {
    sizes: crossbeam_channel::Sender<usize>,
    delay: Duration,
}

impl Run for Recorder {
    fn encoding(&self) -> &'static dyn Encoding {
        &Otter
    }

    fn run(&mut self, batch: &Batch) -> Result<Answer, InferenceError> {
        thread::sleep(self.delay);
        self.sizes.send(batch.rows()).unwrap();
        Ok(Answer {
            policy: vec![0.0; batch.rows() * vocabulary::SIZE],
            value: batch.integers("mover_elo").iter().map(|&bucket| bucket as f32 / 10.0).collect(),
            ..Answer::default()
        })
    }
}

fn input(bucket: u16) -> Batch {
    let mut situation = Situation::default();
    situation.conditions.mover_rating = Some(1000 + 100 * bucket);
    Batch::of(&Otter, [&situation])
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// Starts a worker on the queue; the receiver tells the size of each batch it ran.
fn start(queue: Queue, delay: Duration) -> crossbeam_channel::Receiver<usize> {
    let (sizes, seen) = crossbeam_channel::unbounded();
    let metrics = queue.metrics.clone();
    thread::spawn(move || work(&queue, &mut Recorder { sizes, delay }, &metrics));
    seen
}

/// Lets submitted requests reach the queue.
async fn queued(batcher: &Batcher, requests: i64) {
    while batcher.metrics.admitted.get() < requests {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn every_request_of_a_batch_gets_its_own_row() {
    let metrics = Metrics::new().unwrap();
    let (batcher, queue) = queue(64, 8, &metrics);
    let requests = (0..10).map(|bucket| {
        let batcher = batcher.clone();
        tokio::spawn(async move { batcher.submit(input(bucket), soon()).await })
    });
    let requests = requests.collect::<Vec<_>>();
    queued(&batcher, 10).await;
    let sizes = start(queue, Duration::ZERO);
    for (bucket, request) in requests.into_iter().enumerate() {
        let reply = request.await.unwrap().unwrap();
        assert_eq!(reply.answer.outlook, Outlook::of_value(bucket as f32 / 10.0));
        assert_eq!(reply.answer.policy.len(), vocabulary::SIZE);
    }
    assert_eq!(sizes.try_iter().collect::<Vec<_>>(), [8, 2], "a free worker takes what is there, up to a batch");
    assert_eq!(metrics.admitted.get(), 0);
}

#[tokio::test]
async fn a_cancelled_request_is_never_computed() {
    let metrics = Metrics::new().unwrap();
    let (batcher, queue) = queue(64, 8, &metrics);
    let cancelled = tokio::spawn({
        let batcher = batcher.clone();
        async move { batcher.submit(input(1), soon()).await }
    });
    queued(&batcher, 1).await;
    cancelled.abort();
    assert!(cancelled.await.unwrap_err().is_cancelled());
    let sizes = start(queue, Duration::ZERO);
    batcher.submit(input(2), soon()).await.unwrap();
    assert_eq!(sizes.try_iter().collect::<Vec<_>>(), [1]);
    assert_eq!(metrics.dropped_cancelled.get(), 1);
}

#[tokio::test]
async fn an_expired_request_is_answered_and_never_computed() {
    let metrics = Metrics::new().unwrap();
    let (batcher, queue) = queue(64, 8, &metrics);
    let late = batcher.submit(input(1), Instant::now() + Duration::from_millis(5)).await;
    assert_eq!(late, Err(ServiceError::DeadlineExceeded));
    let sizes = start(queue, Duration::ZERO);
    batcher.submit(input(2), soon()).await.unwrap();
    assert_eq!(sizes.try_iter().sum::<usize>(), 1);
    assert_eq!(metrics.dropped_cancelled.get() + metrics.dropped_expired.get(), 1);
}

#[tokio::test]
async fn a_full_queue_refuses_and_says_when_to_come_back() {
    let metrics = Metrics::new().unwrap();
    let (batcher, queue) = queue(2, 8, &metrics);
    let waiting = [1, 2].map(|bucket| {
        let batcher = batcher.clone();
        tokio::spawn(async move { batcher.submit(input(bucket), soon()).await })
    });
    queued(&batcher, 2).await;
    match batcher.submit(input(3), soon()).await {
        Err(ServiceError::Overloaded { retry_after }) => assert!(retry_after >= Duration::from_millis(10)),
        other => panic!("{other:?}"),
    }
    let _sizes = start(queue, Duration::ZERO);
    for request in waiting {
        request.await.unwrap().unwrap();
    }
    batcher.submit(input(3), soon()).await.unwrap();
}

#[tokio::test]
async fn a_failing_model_fails_its_batch_and_the_next_one_runs() {
    struct Failing(bool);
    impl Run for Failing {
        fn encoding(&self) -> &'static dyn Encoding {
            &Otter
        }

        fn run(&mut self, batch: &Batch) -> Result<Answer, InferenceError> {
            let expected = batch.rows();
            if std::mem::replace(&mut self.0, false) {
                return Err(InferenceError::Output { output: "policy", found: 0, expected });
            }
            let policy = vec![0.0; expected * vocabulary::SIZE];
            Ok(Answer { policy, value: vec![0.0; expected], ..Answer::default() })
        }
    }
    let metrics = Metrics::new().unwrap();
    let (batcher, queue) = queue(8, 8, &metrics);
    let worker = metrics.clone();
    thread::spawn(move || work(&queue, &mut Failing(true), &worker));
    assert_eq!(batcher.submit(input(1), soon()).await, Err(ServiceError::Inference));
    assert!(batcher.submit(input(1), soon()).await.is_ok());
    assert_eq!(metrics.failed_batches.get(), 1);
}

#[tokio::test]
async fn a_dead_worker_is_reported_to_those_who_wait() {
    let metrics = Metrics::new().unwrap();
    let (batcher, queue) = queue(8, 8, &metrics);
    let waiting = tokio::spawn({
        let batcher = batcher.clone();
        async move { batcher.submit(input(1), soon()).await }
    });
    queued(&batcher, 1).await;
    drop(queue);
    assert_eq!(waiting.await.unwrap(), Err(ServiceError::WorkerLost));
    assert_eq!(batcher.submit(input(1), soon()).await, Err(ServiceError::WorkerLost));
}
