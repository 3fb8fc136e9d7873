//! Faults injected into a running server: slow, failing and panicking models, callers who leave, clients who misbehave.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod common;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use common::{Server, get, request, slow_model};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::{Code, Request, transport::Channel};
use zeitnot_encoding::{Batch, Encoding, Otter};
use zeitnot_inference::{Answer, InferenceError, Metadata, Provider};
use zeitnot_network::{NetworkConfig, OtterConfig, Weights, onnx, specs};
use zeitnot_proto::v1::{PredictRequest, prediction_service_client::PredictionServiceClient};
use zeitnot_server::{models::Opener, worker::Run};

/// What a model does at its next run.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    Panic,
    Error,
    Stall(Duration),
}

/// A model whose next run can be spoilt. It answers everything alike.
struct Model {
    metadata: Metadata,
    fault: Arc<Mutex<Fault>>,
    rows: Arc<AtomicUsize>,
}

impl Run for Model {
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
        let fault = std::mem::replace(&mut *self.fault.lock().unwrap(), Fault::None);
        self.rows.fetch_add(batch.rows(), Ordering::SeqCst);
        match fault {
            Fault::None => {}
            Fault::Panic => panic!("as a broken library would"),
            Fault::Error => return Err(InferenceError::Output { output: "policy", found: 0, expected: 1 }),
            Fault::Stall(time) => std::thread::sleep(time),
        }
        let policy = vec![0.0; batch.rows() * zeitnot_encoding::vocabulary::SIZE];
        Ok(Answer { policy, value: vec![0.0; batch.rows()], ..Answer::default() })
    }
}

/// A server over such a model, the fault of its next run, and the rows it has computed.
async fn server(flags: &[&str]) -> (Server, Arc<Mutex<Fault>>, Arc<AtomicUsize>) {
    let (fault, rows) = (Arc::new(Mutex::new(Fault::None)), Arc::new(AtomicUsize::new(0)));
    let opener: Opener = {
        let (fault, rows) = (Arc::clone(&fault), Arc::clone(&rows));
        Arc::new(move |_| {
            let metadata = Metadata::new(&Otter, "fake", "1", "nothing", "none");
            Ok(Box::new(Model { metadata, fault: Arc::clone(&fault), rows: Arc::clone(&rows) }))
        })
    };
    let server = Server::start_with(&[&["--workers=1", "--max-batch=4"], flags].concat(), Some(opener)).await;
    server.ready().await;
    rows.store(0, Ordering::SeqCst);
    (server, fault, rows)
}

fn timed(moves: &[&str], ms: u64) -> Request<PredictRequest> {
    let mut request = Request::new(request(moves));
    request.set_timeout(Duration::from_millis(ms));
    request
}

const ENDED: &str = "zeitnot_requests_total{code=";

#[tokio::test]
async fn deadlines_hold_in_the_queue_and_during_inference() {
    let (server, fault, rows) = server(&["--max-batch=1"]).await;
    *fault.lock().unwrap() = Fault::Stall(Duration::from_millis(600));
    let mut client = server.predictions();
    let computed = tokio::spawn(async move { client.predict(timed(&["e4"], 200)).await });
    while rows.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let queued = server.predictions().predict(timed(&["d4"], 200)).await.unwrap_err();
    assert_eq!(queued.code(), Code::DeadlineExceeded, "in the queue: {queued:?}");
    let during = computed.await.unwrap().unwrap_err();
    assert_eq!(during.code(), Code::DeadlineExceeded, "during inference: {during:?}");
    server.until("zeitnot_admitted_requests", 0.0).await;
    assert_eq!(rows.load(Ordering::SeqCst), 1, "what is late is never computed");
    assert_eq!(server.metric("zeitnot_dropped_requests_total{model=\"fake\",reason=\"expired\"}").await, 1.0);
    assert_eq!(server.metric(&format!("{ENDED}\"DEADLINE_EXCEEDED\",method=\"Predict\",model=\"fake\"")).await, 2.0);
    server.predictions().predict(timed(&["e4"], 5_000)).await.unwrap();
}

#[tokio::test]
async fn a_caller_who_leaves_is_not_computed_where_it_can_be_avoided_and_harms_no_mate() {
    let (server, fault, rows) = server(&[]).await;
    let leave = |moves: &'static [&'static str]| {
        let mut client = server.predictions();
        tokio::spawn(async move { client.predict(request(moves)).await })
    };
    *fault.lock().unwrap() = Fault::Stall(Duration::from_millis(400));
    let during = leave(&["e4"]);
    while rows.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let (before, mate) = (leave(&["d4"]), leave(&["c4"]));
    server.admitted(3.0).await;
    before.abort();
    during.abort();
    server.until(&format!("{ENDED}\"CANCELLED\",method=\"Predict\",model=\"fake\""), 2.0).await;
    assert_eq!(mate.await.unwrap().unwrap().into_inner().moves.len(), 20);
    assert_eq!(rows.load(Ordering::SeqCst), 2, "one was being computed, one was the mate");
    // After the batch: the answer is there, and nobody reads it.
    let mut client = server.predictions();
    drop(tokio::time::timeout(Duration::from_micros(300), client.predict(request(&["f4"]))).await);
    server.until("zeitnot_admitted_requests", 0.0).await;
    server.until("zeitnot_requests_in_flight", 0.0).await;
    server.predictions().predict(request(&["e4"])).await.unwrap();
}

#[tokio::test]
async fn a_worker_that_panics_or_errors_is_replaced_and_the_server_stays_ready() {
    let (server, fault, _) = server(&[]).await;
    for (kind, reason) in [(Fault::Panic, "panic"), (Fault::Error, "error")] {
        let stop = Arc::new(AtomicBool::new(false));
        let watching = {
            let (stop, admin) = (Arc::clone(&stop), server.admin.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    assert_eq!(get(&admin, "/ready").await.0, 200, "one bad batch does not make it unready");
                }
            })
        };
        *fault.lock().unwrap() = kind;
        let status = server.predictions().predict(request(&["e4"])).await.unwrap_err();
        assert_eq!(status.code(), Code::Internal, "{status:?}");
        for _ in 0..20 {
            server.predictions().predict(request(&["e4"])).await.unwrap();
        }
        let replaced = format!("zeitnot_replaced_workers_total{{model=\"fake\",reason=\"{reason}\"}}");
        assert_eq!(server.metric(&replaced).await, 1.0);
        stop.store(true, Ordering::SeqCst);
        watching.await.unwrap();
    }
    assert_eq!(server.metric("zeitnot_workers").await, 1.0);
}

#[tokio::test]
async fn not_a_number_fails_its_row_alone() {
    // The vector of the highest rating bucket is not a number, so that no check of the model at its start sees it.
    let config = NetworkConfig::Otter(OtterConfig::reference());
    let specs = specs::of(&config);
    let mut weights = Weights::by_formula(&specs);
    let spec = specs.iter().find(|spec| spec.name.contains("active_elo_embedding")).unwrap();
    let mut ratings = weights.get(spec).unwrap().clone();
    let width = ratings.shape[1] as usize;
    ratings.values.iter_mut().rev().take(width).for_each(|value| *value = f32::NAN);
    weights.insert(&spec.name, ratings);
    let metadata = Metadata::new(&Otter, "sick", "1", "nothing", "none");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sick.onnx");
    std::fs::write(&path, onnx::export(&config, &weights, &metadata.entries()).unwrap()).unwrap();
    let server = Server::start(&["--model", path.to_str().unwrap(), "--workers=1"]).await;
    let mut strong = request(&["e4"]);
    strong.mover.as_mut().unwrap().rating = Some(2400);
    let mut tasks = Vec::new();
    for number in 0..24 {
        let mut client = server.predictions();
        let asked = if number % 3 == 0 { strong.clone() } else { request(&["e4"]) };
        tasks.push((number, tokio::spawn(async move { client.predict(asked).await })));
    }
    for (number, task) in tasks {
        let outcome = task.await.unwrap();
        if number % 3 == 0 {
            assert_eq!(outcome.unwrap_err().code(), Code::Internal);
        } else {
            assert_eq!(outcome.unwrap().into_inner().moves.len(), 20);
        }
    }
    assert_eq!(server.metric("zeitnot_failed_rows_total").await, 8.0);
    assert_eq!(server.metric("zeitnot_failed_batches_total").await, 0.0);
}

#[tokio::test]
async fn ten_thousand_resets_and_broken_frames_crash_nothing() {
    let server = Server::start(&["--handshake-ms=500", "--max-connections=64"]).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    // A headers frame with garbage for headers; a frame longer than allowed; data on a stream that is not open.
    let broken: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &[0, 0, 4, 1, 4, 0, 0, 0, 1, 255, 255, 255, 255],
        &[255, 255, 255, 0, 0, 0, 0, 0, 1],
        &[0, 0, 1, 0, 0, 0, 0, 0, 9, 0],
    ];
    for round in 0..10_000 {
        let mut stream = TcpStream::connect(&server.grpc).await.unwrap();
        match round % 5 {
            4 => {}
            0 => stream.write_all(broken[0]).await.unwrap(),
            kind => {
                let bytes = [&preface[..], &settings, broken[kind]].concat();
                let _ = stream.write_all(&bytes).await; // The server may have hung up already.
            }
        }
        // Gone without a goodbye: unread data and no linger make the kernel send a reset.
        let _ = stream.set_zero_linger();
        drop(stream);
        if round % 1_000 == 0 {
            server.predictions().predict(request(&["e4"])).await.unwrap();
        }
    }
    server.predictions().predict(request(&["e4"])).await.unwrap();
    server.until("zeitnot_connections", 1.0).await;
    assert_eq!(server.metric("zeitnot_requests_in_flight").await, 0.0);
}

#[tokio::test]
async fn a_flood_of_stream_resets_costs_its_sender_the_connection_at_most() {
    let slow = slow_model();
    let server = Server::start(&["--model", slow.to_str().unwrap(), "--workers=1"]).await;
    let mut client = server.predictions();
    for _ in 0..2_000 {
        let mut call = Box::pin(client.predict(request(&["e4"])));
        // Polled once, so that it is sent, and dropped, so that it is reset.
        let _ = poll_once(&mut call).await;
    }
    server.until("zeitnot_requests_in_flight", 0.0).await;
    let other = Channel::from_shared(format!("http://{}", server.grpc)).unwrap().connect().await.unwrap();
    PredictionServiceClient::new(other).predict(request(&["e4"])).await.unwrap();
}

async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = tokio::task::yield_now() => None,
    }
}

#[tokio::test]
async fn slow_clients_are_let_go_and_too_many_are_turned_away() {
    let server = Server::start(&["--handshake-ms=300", "--max-connections=8"]).await;
    let mut silent = Vec::new();
    for _ in 0..12 {
        silent.push(TcpStream::connect(&server.grpc).await.unwrap());
    }
    server.until("zeitnot_refused_connections_total{reason=\"limit\"}", 4.0).await;
    server.until("zeitnot_refused_connections_total{reason=\"timeout\"}", 8.0).await;
    let mut end = [0];
    assert_eq!(silent[0].read(&mut end).await.unwrap_or(0), 0, "it was hung up on");
    server.predictions().predict(request(&["e4"])).await.unwrap();
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_up_nobody() {
    let server = Server::start(&[]).await;
    // A window of zero: the server may send this client not one byte of an answer.
    let mut raw = TcpStream::connect(&server.grpc).await.unwrap();
    let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];
    raw.write_all(&[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings].concat()).await.unwrap();
    for _ in 0..50 {
        server.predictions().predict(request(&["e4"])).await.unwrap();
    }
    assert_eq!(server.metric("zeitnot_connections").await, 2.0);
    drop(raw);
    server.until("zeitnot_connections", 1.0).await;
}
