//! Faults injected into a running server: slow, failing and panicking models, callers who leave, clients who misbehave.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod common;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use common::{Server, get, request, slow_model};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
};
use tonic::{
    Code, Request, Status,
    codegen::{Bytes, http},
};
use zeitnot_encoding::{Batch, Encoding, Otter};
use zeitnot_inference::{Answer, InferenceError, Metadata, Provider};
use zeitnot_network::{NetworkConfig, OtterConfig, Weights, onnx, specs};
use zeitnot_proto::v1::prediction_service_client::PredictionServiceClient;
use zeitnot_server::{models::Opener, worker::Run};

/// What a model does at its next run.
enum Fault {
    None,
    Panic,
    Error,
    /// Waits until the test lets it go on.
    Stall(mpsc::Receiver<()>),
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
            Fault::Stall(gate) => gate.recv().unwrap(),
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

/// Sends a request with a deadline that the server alone keeps: tonic's own client would race with it.
async fn predict_within(server: &Server, moves: &'static [&'static str], ms: u64) -> Result<usize, Status> {
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let origin = format!("http://{}", server.grpc).parse().unwrap();
    let mut client = PredictionServiceClient::with_origin(client, origin);
    let mut timed = Request::new(request(moves));
    timed.set_timeout(Duration::from_millis(ms));
    client.predict(timed).await.map(|answer| answer.into_inner().moves.len())
}

const ENDED: &str = "zeitnot_requests_total{code=";

#[tokio::test]
async fn deadlines_hold_in_the_queue_and_during_inference() {
    let (server, fault, rows) = server(&["--max-batch=1"]).await;
    let (go, gate) = mpsc::channel();
    *fault.lock().unwrap() = Fault::Stall(gate);
    let queued = async {
        while rows.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        predict_within(&server, &["d4"], 300).await
    };
    let (during, queued) = tokio::join!(predict_within(&server, &["e4"], 300), queued);
    let (during, queued) = (during.unwrap_err(), queued.unwrap_err());
    assert_eq!(queued.code(), Code::DeadlineExceeded, "in the queue: {queued:?}");
    assert_eq!(during.code(), Code::DeadlineExceeded, "during inference: {during:?}");
    go.send(()).unwrap();
    server.until("zeitnot_admitted_requests", 0.0).await;
    assert_eq!(rows.load(Ordering::SeqCst), 1, "what is late is never computed");
    assert_eq!(server.metric("zeitnot_dropped_requests_total{model=\"fake\",reason=\"expired\"}").await, 1.0);
    assert_eq!(server.metric(&format!("{ENDED}\"DEADLINE_EXCEEDED\",method=\"Predict\",model=\"fake\"")).await, 2.0);
    assert_eq!(predict_within(&server, &["e4"], 20_000).await.unwrap(), 20);
}

#[tokio::test]
async fn a_message_that_never_comes_is_not_waited_for() {
    let server = Server::start(&["--max-deadline-ms=200"]).await;
    let (mut client, _connection) = raw(&server, 65_535).await;
    let (answer, _never_used) = client.send_request(predict_headers(&server), false).unwrap();
    let answer = answer.await.unwrap();
    assert_eq!(answer.headers()["grpc-status"], "4", "DEADLINE_EXCEEDED");
    server.until("zeitnot_requests_in_flight", 0.0).await;
}

#[tokio::test]
async fn a_caller_who_leaves_is_not_computed_where_it_can_be_avoided_and_harms_no_mate() {
    let (server, fault, rows) = server(&[]).await;
    let leave = |moves: &'static [&'static str]| {
        let mut client = server.predictions();
        tokio::spawn(async move { client.predict(request(moves)).await })
    };
    let (go, gate) = mpsc::channel();
    *fault.lock().unwrap() = Fault::Stall(gate);
    let during = leave(&["e4"]);
    while rows.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let (before, mate) = (leave(&["d4"]), leave(&["c4"]));
    server.admitted(3.0).await;
    before.abort();
    during.abort();
    server.until(&format!("{ENDED}\"CANCELLED\",method=\"Predict\",model=\"fake\""), 2.0).await;
    go.send(()).unwrap();
    assert_eq!(mate.await.unwrap().unwrap().into_inner().moves.len(), 20);
    assert_eq!(rows.load(Ordering::SeqCst), 2, "one was being computed, one was the mate");
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

/// A bare HTTP/2 connection, whose peer may send so many bytes of each answer.
async fn raw(server: &Server, window: u32) -> (h2::client::SendRequest<Bytes>, JoinHandle<()>) {
    let stream = TcpStream::connect(&server.grpc).await.unwrap();
    let (client, connection) =
        h2::client::Builder::new().initial_window_size(window).handshake::<_, Bytes>(stream).await.unwrap();
    let connection = tokio::spawn(async move {
        let _ = connection.await; // Its end is what some tests are about.
    });
    (client.ready().await.unwrap(), connection)
}

fn predict_headers(server: &Server) -> http::Request<()> {
    let uri = format!("http://{}/zeitnot.v1.PredictionService/Predict", server.grpc);
    http::Request::post(uri).header("content-type", "application/grpc").header("te", "trailers").body(()).unwrap()
}

#[tokio::test]
async fn a_flood_of_stream_resets_costs_its_sender_the_connection() {
    let slow = slow_model();
    let server = Server::start(&["--model", slow.to_str().unwrap(), "--workers=1"]).await;
    let (mut client, connection) = raw(&server, 65_535).await;
    let mut sent = 0;
    while sent < 100_000 && !connection.is_finished() {
        let Ok((_answer, mut stream)) = client.send_request(predict_headers(&server), false) else { break };
        stream.send_reset(h2::Reason::CANCEL);
        sent += 1;
        if sent % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    assert!(sent < 100_000, "the connection survived {sent} resets");
    server.until("zeitnot_requests_in_flight", 0.0).await;
    server.predictions().predict(request(&["e4"])).await.unwrap();
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
    // Nor is a greeting that never ends waited for.
    for bytes in [1, 23] {
        let mut stream = TcpStream::connect(&server.grpc).await.unwrap();
        stream.write_all(&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..bytes]).await.unwrap();
        silent.push(stream);
    }
    server.until("zeitnot_refused_connections_total{reason=\"timeout\"}", 10.0).await;
    server.until("zeitnot_connections", 0.0).await;
    for stream in &mut silent {
        // To its end, or to a reset; the server's own greeting may come before.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    server.predictions().predict(request(&["e4"])).await.unwrap();
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_up_nobody() {
    let server = Server::start(&[]).await;
    // The server may send this client not one byte of an answer.
    let (mut client, connection) = raw(&server, 0).await;
    let (answer, mut body) = client.send_request(predict_headers(&server), false).unwrap();
    let message = request(&["e4"]).encode_to_vec();
    let frame = [&[0][..], &(message.len() as u32).to_be_bytes(), &message].concat();
    body.send_data(frame.into(), true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 200);
    for _ in 0..50 {
        server.predictions().predict(request(&["e4"])).await.unwrap();
    }
    // The prediction was made; who leaves without reading it has cancelled.
    connection.abort();
    drop(body);
    drop(client);
    server.until(&format!("{ENDED}\"CANCELLED\",method=\"Predict\",model=\"zeitnot\""), 1.0).await;
    server.until("zeitnot_requests_in_flight", 0.0).await;
}
