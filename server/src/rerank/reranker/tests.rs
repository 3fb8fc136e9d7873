use std::sync::atomic::AtomicBool;

use zeitnot_encoding::rerank::{Candidates, Row};

use super::*;
use crate::metrics::Metrics;

/// A session whose first residual of a row is the row's first time-control value; it fails while it is told to.
struct Echo(Arc<Faults>);

#[derive(Default)]
struct Faults {
    error: AtomicBool,
    panic: AtomicBool,
    shut: AtomicBool,
    rows: Mutex<Vec<usize>>,
    slow: AtomicBool,
}

impl Run for Echo {
    fn run(&mut self, batch: &RerankBatch) -> Result<Vec<f32>, InferenceError> {
        if self.0.slow.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(100));
        }
        if self.0.panic.swap(false, Ordering::SeqCst) {
            panic!("as a broken library would");
        }
        if self.0.error.swap(false, Ordering::SeqCst) {
            return Err(InferenceError::Output { output: "residual", found: 0, expected: 16 });
        }
        self.0.rows.lock().unwrap().push(batch.rows());
        let rows = batch.floats("time_control").chunks(2);
        Ok(rows.flat_map(|row| std::iter::once(row[0]).chain([0.0; 15])).collect())
    }
}

fn start() -> (Runner, Arc<Faults>, mpsc::UnboundedReceiver<()>) {
    let faults = Arc::<Faults>::default();
    let own = Arc::clone(&faults);
    let open: Open = Arc::new(move || match own.shut.load(Ordering::SeqCst) {
        true => Err(InferenceError::Model { file: "it".to_owned(), problem: "cannot be read".to_owned() }),
        false => Ok(Box::new(Echo(Arc::clone(&own)))),
    });
    let (changed, changes) = mpsc::unbounded_channel();
    let runner = Runner::start(vec![open().unwrap()], &open, &Metrics::new().unwrap().rerank, &changed).unwrap();
    (runner, faults, changes)
}

fn row(seconds: f32) -> RerankBatch {
    let candidates = Candidates::of(&[1, 2], &[0.0, 0.0]);
    let control = zeitnot_encoding::TimeControl { initial: seconds, increment: 0.0 };
    let mut batch = RerankBatch::default();
    let (indices, logits) = (&[1, 2], &[0.0, 0.0]);
    let time_control = Some(control);
    batch.push(&Row { indices, logits, pooled: &[], time_control, style: None, candidates: &candidates, scores: &[] });
    batch
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

async fn until_able(runner: &Runner) {
    while runner.residuals(row(1.0), soon()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn every_request_gets_its_own_row_and_those_that_wait_share_a_run() {
    let (runner, faults, _) = start();
    faults.slow.store(true, Ordering::SeqCst);
    let runner = Arc::new(runner);
    let asks = (0..20).map(|number| {
        let runner = Arc::clone(&runner);
        tokio::spawn(async move { runner.residuals(row(number as f32), soon()).await.unwrap()[0] })
    });
    for (number, ask) in asks.collect::<Vec<_>>().into_iter().enumerate() {
        assert!((ask.await.unwrap() - (number as f32).ln_1p() / 7.0).abs() < 1e-6);
    }
    let rows = faults.rows.lock().unwrap();
    assert!(rows.len() <= 4 && rows.iter().sum::<usize>() == 20 && rows.iter().all(|&rows| rows <= 16), "{rows:?}");
}

#[tokio::test]
async fn a_failed_run_fails_its_requests_alone() {
    let (runner, faults, _) = start();
    for fault in [&faults.error, &faults.panic] {
        fault.store(true, Ordering::SeqCst);
        assert_eq!(runner.residuals(row(1.0), soon()).await, Err(NotRun));
        until_able(&runner).await;
    }
}

#[tokio::test]
async fn while_it_cannot_be_opened_nobody_waits_for_it() {
    let (runner, faults, _) = start();
    faults.shut.store(true, Ordering::SeqCst);
    faults.error.store(true, Ordering::SeqCst);
    assert_eq!(runner.residuals(row(1.0), soon()).await, Err(NotRun));
    while runner.able.load(Ordering::Relaxed) > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(runner.residuals(row(1.0), soon()).await, Err(NotRun));
    faults.shut.store(false, Ordering::SeqCst);
    until_able(&runner).await;
}

#[tokio::test]
async fn a_request_does_not_wait_beyond_its_deadline() {
    let (runner, faults, _) = start();
    faults.slow.store(true, Ordering::SeqCst);
    assert_eq!(runner.residuals(row(1.0), Instant::now() + Duration::from_millis(20)).await, Err(NotRun));
    assert_eq!(runner.residuals(row(1.0), Instant::now()).await, Err(NotRun));
}

#[tokio::test]
async fn its_threads_end_with_it_also_while_it_cannot_be_opened() {
    let (runner, _, mut changes) = start();
    drop(runner);
    while changes.recv().await.is_some() {}
    let (runner, faults, mut changes) = start();
    faults.shut.store(true, Ordering::SeqCst);
    faults.error.store(true, Ordering::SeqCst);
    assert_eq!(runner.residuals(row(1.0), soon()).await, Err(NotRun));
    drop(runner);
    while changes.recv().await.is_some() {}
}
