//! Worker threads: each owns a session and takes batches from the queue.

use std::{sync::Arc, thread, time::Instant};

use tokio::sync::{mpsc, oneshot};
use zeitnot_encoding::{Batch, Encoding, Situation};
use zeitnot_inference::{Answer, InferenceError, Metadata, Provider, Runtime, Session, SessionOptions};

use crate::{
    batcher::{Queue, Reply},
    error::ServiceError,
    metrics::Metrics,
};

/// Something that computes a batch.
pub trait Run {
    /// How its situations are encoded.
    fn encoding(&self) -> &'static dyn Encoding;

    /// Computes a batch.
    ///
    /// # Errors
    ///
    /// When the model cannot be run.
    fn run(&mut self, batch: &Batch) -> Result<Answer, InferenceError>;
}

impl Run for Session {
    fn encoding(&self) -> &'static dyn Encoding {
        Session::encoding(self)
    }

    fn run(&mut self, batch: &Batch) -> Result<Answer, InferenceError> {
        Session::run(self, batch)
    }
}

/// Takes batches until the queue ends.
pub fn work(queue: &Queue, model: &mut impl Run, metrics: &Metrics) {
    let mut input = Batch::new(model.encoding(), 0);
    while let Some(batch) = queue.take() {
        input.clear();
        let (batch, strangers): (Vec<_>, Vec<_>) = batch.into_iter().partition(|entry| input.append(&entry.input));
        strangers.into_iter().for_each(|entry| entry.answer(Err(ServiceError::Inference)));
        let started = Instant::now();
        let answer = model.run(&input);
        let inference = started.elapsed();
        metrics.inference_seconds.observe(inference.as_secs_f64());
        metrics.batch_rows.observe(batch.len() as f64);
        if let Err(error) = &answer {
            metrics.failed_batches.inc();
            tracing::error!(%error, rows = batch.len(), "the model could not be run");
        }
        let batch_size = batch.len();
        for (row, entry) in batch.into_iter().enumerate() {
            let queue = started.saturating_duration_since(entry.admitted);
            let reply = match answer.as_ref().ok().and_then(|answer| answer.row(row)) {
                Some(answer) => Ok(Reply { answer, queue, inference, batch_size }),
                None => Err(ServiceError::Inference),
            };
            entry.answer(reply);
        }
    }
}

/// What the workers of a model need.
pub struct Plan {
    /// ONNX Runtime.
    pub runtime: Runtime,
    /// Name of the model's file, for errors.
    pub file: String,
    /// The model's bytes.
    pub bytes: Arc<[u8]>,
    /// How to open it.
    pub options: SessionOptions,
    /// Workers to start.
    pub workers: usize,
    /// Batch sizes to run once before serving.
    pub warm_up: Vec<usize>,
}

impl Plan {
    /// Starts the workers and waits until all are warm. `dead` hears of each one that stops while its queue is open.
    ///
    /// # Errors
    ///
    /// When a session cannot be opened or run.
    pub async fn start(
        &self,
        queue: &Queue,
        metrics: &Metrics,
        dead: &mpsc::UnboundedSender<usize>,
    ) -> Result<(Metadata, Provider), InferenceError> {
        let mut warm = Vec::new();
        for number in 0..self.workers {
            let (ready, answer) = oneshot::channel();
            warm.push(answer);
            self.spawn(number, queue.clone(), metrics.clone(), dead.clone(), ready)?;
        }
        // A thread that died before it could answer is as bad as a model that cannot be run.
        let lost = |problem: &str| InferenceError::Model { file: self.file.clone(), problem: problem.to_owned() };
        let mut opened = Err(lost("no worker was started"));
        for answer in warm {
            opened = Ok(answer.await.unwrap_or_else(|_| Err(lost("a worker died at its start")))?);
        }
        opened
    }

    fn spawn(
        &self,
        number: usize,
        queue: Queue,
        metrics: Metrics,
        dead: mpsc::UnboundedSender<usize>,
        ready: oneshot::Sender<Result<(Metadata, Provider), InferenceError>>,
    ) -> Result<(), InferenceError> {
        let (runtime, file, bytes) = (self.runtime.clone(), self.file.clone(), Arc::clone(&self.bytes));
        let (options, sizes) = (self.options, self.warm_up.clone());
        let body = move || {
            let opened = Session::from_bytes(&runtime, &file, &bytes, options);
            let warmed = opened.and_then(|mut session| warm_up(&mut session, &sizes).map(|()| session));
            drop(bytes);
            let mut session = match warmed {
                Ok(session) => session,
                Err(error) => {
                    let _ = ready.send(Err(error)); // Nobody listens when another worker failed first.
                    return;
                }
            };
            let alive = Alive::new(number, &metrics, dead);
            let _ = ready.send(Ok((session.metadata().clone(), session.provider()))); // As above.
            work(&queue, &mut session, &metrics);
            drop(session);
            drop(alive); // Last, so that who waits for it knows that ONNX Runtime is left alone.
        };
        let spawned = thread::Builder::new().name(format!("worker-{number}")).spawn(body);
        spawned.map(drop).map_err(|source| InferenceError::Read { file: format!("worker-{number}"), source })
    }
}

/// Runs each size once, so that the first request finds memory and kernels ready.
fn warm_up(session: &mut Session, sizes: &[usize]) -> Result<(), InferenceError> {
    for &size in sizes {
        let situations = vec![Situation::default(); size];
        session.run(&Batch::of(session.encoding(), &situations))?;
    }
    Ok(())
}

/// Counts a worker while it lives and reports its end.
struct Alive {
    number: usize,
    metrics: Metrics,
    dead: mpsc::UnboundedSender<usize>,
}

impl Alive {
    fn new(number: usize, metrics: &Metrics, dead: mpsc::UnboundedSender<usize>) -> Self {
        metrics.workers.inc();
        Alive { number, metrics: metrics.clone(), dead }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.metrics.workers.dec();
        let _ = self.dead.send(self.number); // Nobody listens at shutdown.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_panics_is_counted_and_reported() {
        let metrics = Metrics::new().unwrap();
        let (dead, mut deaths) = mpsc::unbounded_channel();
        let counted = metrics.clone();
        let worker = thread::spawn(move || {
            let _alive = Alive::new(3, &counted, dead);
            assert_eq!(counted.workers.get(), 1);
            panic!("as a broken library would");
        });
        assert!(worker.join().is_err());
        assert_eq!(deaths.try_recv(), Ok(3));
        assert_eq!(metrics.workers.get(), 0);
    }
}
