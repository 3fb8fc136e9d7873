//! Worker threads: each owns a session, takes batches from the queue, and gets a new session when its own fails.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot};
use zeitnot_encoding::{Batch, Encoding, decode::gather};
use zeitnot_inference::{Answer, InferenceError, Metadata, Provider, Session};

use crate::{batcher::Queue, cache::Prediction, metrics::Held, selfcheck};

/// First and longest pause between attempts to open a model again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Something that computes batches.
pub trait Run: Send {
    /// How its situations are encoded.
    fn encoding(&self) -> &'static dyn Encoding;

    /// What it says of itself.
    fn metadata(&self) -> &Metadata;

    /// Where it really runs.
    fn provider(&self) -> Provider;

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

    fn metadata(&self) -> &Metadata {
        Session::metadata(self)
    }

    fn provider(&self) -> Provider {
        Session::provider(self)
    }

    fn run(&mut self, batch: &Batch) -> Result<Answer, InferenceError> {
        Session::run(self, batch)
    }
}

/// Opens a session of one model; called by each worker, and again when its session fails.
pub type Open = Arc<dyn Fn() -> Result<Box<dyn Run>, InferenceError> + Send + Sync>;

/// What a worker found when it opened its model.
pub type Opened = Result<Metadata, InferenceError>;

/// Why a worker stopped taking batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The requests' end of the queue is gone.
    Closed,
    /// A run failed, and its session is not to be trusted.
    Failed,
}

/// Takes batches until the queue ends or a run fails.
pub fn work(queue: &Queue, model: &mut dyn Run) -> Stop {
    let metrics = queue.metrics();
    let (pads, pooled) = (model.provider() == Provider::Cuda, queue.keeps_pooled());
    let mut input = Batch::new(model.encoding(), 0);
    while let Some(taken) = queue.take() {
        input.clear();
        let rows = taken.inputs.len();
        let same = taken.inputs.iter().all(|row| input.append(row));
        if pads {
            input.pad(queue.cost().padded(rows));
        }
        let started = Instant::now();
        let answer = if same { model.run(&input) } else { Err(stranger(model)) };
        let inference = started.elapsed();
        metrics.inference_seconds.observe(inference.as_secs_f64());
        metrics.batch_rows.observe(rows as f64);
        match answer {
            Ok(answer) => {
                queue.cost().observe(input.rows(), inference);
                taken.complete(inference, |row, legal| prediction(&answer, row, legal, pooled));
            }
            Err(error) => {
                metrics.failed_batches.inc();
                tracing::error!(%error, rows, "the model could not be run");
                return Stop::Failed; // What was taken fails as it is dropped.
            }
        }
    }
    Stop::Closed
}

/// An error for a row of another encoding, which no caller makes.
fn stranger(model: &dyn Run) -> InferenceError {
    InferenceError::Encoding { found: "another one", expected: model.encoding().name() }
}

fn prediction(answer: &Answer, row: usize, legal: &[u16], pooled: bool) -> Option<Prediction> {
    let row = answer.row(row)?;
    let logits = gather(legal, &row.policy).into();
    let pooled = if pooled { row.pooled.into() } else { Box::default() };
    Some(Prediction { logits, outlook: row.outlook, think_time: row.think_time, pooled })
}

/// Starts a worker, with a session that is open already, if there is one. It tells on `ready` what it opened, once it is
/// warm, and on `changed` whenever it becomes unable or able to work, and when it ends.
///
/// # Errors
///
/// When the system gives no thread.
pub fn spawn(
    number: usize,
    first: Option<Box<dyn Run>>,
    open: Open,
    queue: Queue,
    changed: mpsc::UnboundedSender<()>,
    ready: oneshot::Sender<Opened>,
) -> std::io::Result<()> {
    let body = move || {
        let warmed = catch_unwind(AssertUnwindSafe(|| {
            let mut model = first.map_or_else(|| open(), Ok)?;
            // The first worker teaches the queue what runs cost, all check and warm their sessions.
            selfcheck::check(&mut *model, queue.cost(), number == 0)?;
            Ok(model)
        }));
        let mut model = match warmed {
            Ok(Ok(model)) => model,
            Ok(Err(error)) => return drop(ready.send(Err(error))), // Nobody listens when another worker failed first.
            Err(_) => return,                                      // Seen by the other end of `ready`.
        };
        let alive = Held::new(&queue.metrics().workers);
        drop(ready.send(Ok(model.metadata().clone()))); // As above.
        while let Some(next) = serve(model, &open, &queue, &changed) {
            model = next;
        }
        drop(alive);
        // Dropped with the thread, `changed` tells who waits for it that ONNX Runtime is left alone.
        let _ = changed.send(()); // Nobody listens any more when that took too long.
    };
    thread::Builder::new().name(format!("worker-{number}")).spawn(body).map(drop)
}

/// Works with a session until it fails; gives its replacement. Nothing when the queue has ended.
fn serve(
    mut model: Box<dyn Run>,
    open: &Open,
    queue: &Queue,
    changed: &mpsc::UnboundedSender<()>,
) -> Option<Box<dyn Run>> {
    let metrics = queue.metrics();
    match catch_unwind(AssertUnwindSafe(|| work(queue, &mut *model))) {
        Ok(Stop::Closed) => return None,
        Ok(Stop::Failed) => metrics.replaced_after_error.inc(),
        Err(_) => {
            metrics.failed_batches.inc();
            metrics.replaced_after_panic.inc();
            tracing::error!("a worker panicked and gets a new session");
        }
    }
    // A session that failed may fail again when it is closed.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(model)));
    reopen(open, queue, changed)
}

/// Opens the model again, as often as it takes. From the first failure on the worker does not count as one.
fn reopen(open: &Open, queue: &Queue, changed: &mpsc::UnboundedSender<()>) -> Option<Box<dyn Run>> {
    let (mut pause, longest) = PAUSES;
    let mut broken = None;
    while !queue.is_closed() {
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let mut model = open()?;
            selfcheck::check(&mut *model, queue.cost(), false)?;
            Ok::<_, InferenceError>(model)
        }));
        match opened {
            Ok(Ok(model)) => return Some(model),
            Ok(Err(error)) => tracing::error!(%error, "a worker cannot open its model again"),
            Err(_) => tracing::error!("a worker panicked while it opened its model again"),
        }
        broken.get_or_insert_with(|| Broken::new(queue, changed));
        thread::sleep(pause);
        pause = (pause * 2).min(longest);
    }
    None
}

/// A worker that cannot work, as long as this lives.
struct Broken<'a> {
    queue: &'a Queue,
    changed: &'a mpsc::UnboundedSender<()>,
}

impl<'a> Broken<'a> {
    fn new(queue: &'a Queue, changed: &'a mpsc::UnboundedSender<()>) -> Self {
        queue.set_broken(true);
        queue.metrics().workers.dec();
        let _ = changed.send(()); // Nobody listens at shutdown.
        Broken { queue, changed }
    }
}

impl Drop for Broken<'_> {
    fn drop(&mut self) {
        self.queue.set_broken(false);
        self.queue.metrics().workers.inc();
        let _ = self.changed.send(()); // As above.
    }
}
