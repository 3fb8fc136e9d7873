//! The real binary: signals, options, and the calls of the documentation.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod common;

use std::{
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use common::{Act, BINARY, Process, Sidecar, get, request, reranker_file, slow_model, total, wait_for_admitted};
use tonic::{Code, transport::Channel};

#[tokio::test]
async fn every_request_in_flight_is_answered_when_the_server_is_terminated() {
    let slow = slow_model();
    let flags = ["--model", slow.to_str().unwrap(), "--workers=1", "--drain-delay-ms=0", "--coalesce=false"];
    let process = Process::start(&flags).await;
    let client = process.client().await;
    let requests = (0..48).map(|_| {
        let mut client = client.clone();
        tokio::spawn(async move { client.predict(request(&["e4"])).await })
    });
    let requests = requests.collect::<Vec<_>>();
    wait_for_admitted(&process.admin, 48.0).await;
    process.signal("TERM");
    for task in requests {
        assert_eq!(task.await.unwrap().unwrap().into_inner().moves.len(), 20);
    }
    assert_eq!(process.exit_code().await, Some(0));
}

#[tokio::test]
async fn under_steady_load_a_terminated_server_loses_nothing_it_accepted() {
    let process = Process::start(&["--drain-delay-ms=5000", "--cache-mib=0", "--coalesce=false"]).await;
    let clients = (0..8).map(|_| async { process.client().await });
    let mut tasks = Vec::new();
    for client in clients {
        let mut client = client.await;
        tasks.push(tokio::spawn(async move {
            let mut answered = 0;
            loop {
                match client.predict(request(&["e4", "e5"])).await {
                    Ok(_) => answered += 1,
                    Err(status) => return (answered, status),
                }
            }
        }));
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    process.signal("TERM");
    while get(&process.admin, "/ready").await.0 != 503 {
        tokio::time::sleep(Duration::from_millis(5)).await; // Balancers learn of the end.
    }
    assert_eq!(get(&process.admin, "/live").await.0, 200);
    let still = process.client().await.predict(request(&["d4"])).await;
    assert!(still.is_ok(), "it serves on during the drain delay");
    for task in tasks {
        let (answered, last) = task.await.unwrap();
        assert!(answered > 0);
        // The one error a client sees is of a connection that can no longer be made, or of a stream that the server
        // told it, by GOAWAY, not to have accepted.
        let refused = format!("{last:?}");
        assert!(last.code() == Code::Unavailable || refused.contains("GoAway"), "{refused}");
    }
    assert_eq!(process.exit_code().await, Some(0));
}

#[tokio::test]
async fn an_open_stream_does_not_keep_the_server_from_ending() {
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
    let process = Process::start(&["--drain-delay-ms=0", "--drain-limit-ms=1500"]).await;
    let channel = Channel::from_shared(format!("http://{}", process.grpc)).unwrap().connect().await.unwrap();
    let mut watch =
        HealthClient::new(channel).watch(HealthCheckRequest { service: String::new() }).await.unwrap().into_inner();
    watch.message().await.unwrap().unwrap();
    process.signal("INT");
    // Those who come while it drains are turned away at once and can go elsewhere.
    while tokio::net::TcpStream::connect(&process.grpc).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(get(&process.admin, "/live").await.0, 200, "it still drains");
    assert_eq!(process.exit_code().await, Some(0));
}

#[tokio::test]
async fn an_open_stream_is_told_of_the_end_and_a_second_signal_ends_at_once() {
    use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
    let process = Process::start(&["--drain-delay-ms=60000", "--drain-limit-ms=60000"]).await;
    let channel = Channel::from_shared(format!("http://{}", process.grpc)).unwrap().connect().await.unwrap();
    let asked = HealthCheckRequest { service: "zeitnot.v1.PredictionService".into() };
    let mut watch = HealthClient::new(channel).watch(asked).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    process.signal("TERM");
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    assert_eq!(get(&process.admin, "/live").await.0, 200);
    assert_eq!(get(&process.admin, "/startup").await.0, 200, "it has started, whatever comes after");
    process.signal("TERM");
    assert_eq!(process.exit_code().await, Some(128 + 15));
}

#[tokio::test]
async fn a_hangup_reloads_and_does_not_end() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("a.onnx");
    let embedded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/zeitnot.onnx");
    std::fs::copy(embedded, &model).unwrap();
    let process = Process::start(&["--watch-ms=0", "--model", model.to_str().unwrap()]).await;
    std::fs::write(&model, "half a mod").unwrap();
    process.signal("HUP");
    let failed = "zeitnot_reloads_total{result=\"failed\"}";
    while total(&get(&process.admin, "/metrics").await.1, failed) < 1.0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    process.client().await.predict(request(&["e4"])).await.unwrap();
}

#[test]
fn workers_follow_the_processors_it_may_use() {
    let one = Command::new("taskset").args(["-c", "0", BINARY, "check", "--device=cpu"]).output().unwrap();
    assert!(one.status.success(), "{one:?}");
    assert!(printed(&one).contains("1 worker of 1 thread"), "{}", printed(&one));
}

#[tokio::test]
async fn the_documented_calls_work() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let grpcurl = root.join(".native/bin/grpcurl");
    assert!(grpcurl.exists(), "`make setup` installs grpcurl");
    let (sidecar, reranker) = (Sidecar::start(Act::Score(vec![])), reranker_file());
    let process = Process::start(&[&sidecar.flag(), "--reranker", reranker.to_str().unwrap()]).await;
    let script = root.join("client-examples/grpcurl/examples.sh");
    let run = Command::new("bash").arg(script).arg(&process.grpc).env("GRPCURL", grpcurl).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{out}\n{err}");
    for expected in [
        "\"san\": \"Nf3\"",
        "SERVING",
        "GAME_OVER_CHECKMATE",
        "moves[2]: Nf7 is not legal",
        "\"unknown\": [",
        "\"rerankStatus\": \"RERANK_STATUS_APPLIED\"",
        "\"bestMove\": {",
    ] {
        assert!(out.contains(expected), "{expected} is missing in\n{out}\n{err}");
    }
}

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(BINARY).args(arguments).envs(environment.iter().copied()).output().unwrap()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_flag_beats_the_variable_beats_the_file_beats_the_default() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zeitnot.toml");
    std::fs::write(
        &file,
        "queue = 1\nmax-batch = 2\nworkers = 3\nthreads = 4\nreflection = false\n\
        engines = [\"http://a:1\", \"dns:b:2\"]\nrerank = \"off\"\n",
    )
    .unwrap();
    let file = file.to_str().unwrap();
    let output = run(
        &["config", "--config", file, "--queue=10", "--threads=5"],
        &[("ZEITNOT_MAX_BATCH", "20"), ("ZEITNOT_QUEUE", "11")],
    );
    let text = printed(&output);
    for line in [
        "queue = 10",
        "max-batch = 20",
        "workers = 3",
        "reflection = false",
        "threads = 5",
        "max-moves = 1024",
        "engines = [\"http://a:1\", \"dns:b:2\"]",
        "rerank = \"off\"",
        "engine-budget = 1.0",
    ] {
        assert!(text.lines().any(|printed| printed == line), "{line} is missing in\n{text}");
    }
    // What it prints is a file that means the same.
    let again = folder.path().join("again.toml");
    std::fs::write(&again, &text).unwrap();
    assert_eq!(printed(&run(&["config", "--config", again.to_str().unwrap()], &[])), text);
}

#[test]
fn wrong_options_are_named_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.toml");
    let complaint = |arguments: &[&str]| {
        let output = run(arguments, &[]);
        assert_eq!(output.status.code(), Some(78), "EX_CONFIG");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    std::fs::write(&file, "banana = 1\n").unwrap();
    let path = file.to_str().unwrap();
    assert!(complaint(&["serve", "--config", path]).contains("bad.toml: there is no option `banana`"));
    std::fs::write(&file, "queue = \n").unwrap();
    assert!(complaint(&["serve", "--config", path]).contains("line 1"));
    assert!(complaint(&["serve", "--max-batch=0"]).contains("--max-batch: must be at least 1"));
    assert!(complaint(&["serve", "--device=tpu"]).contains("`tpu` is not one of auto, cpu, cuda"));
    assert!(complaint(&["serve", "--onnxruntime=/nowhere.so"]).contains("there is no such file"));
    assert!(complaint(&["serve", "--model=/nowhere.onnx"]).contains("--model: cannot read /nowhere.onnx"));
    assert!(complaint(&["serve", "--tls-cert=/nowhere.pem"]).contains("--tls-cert and --tls-key: give both"));
    assert!(complaint(&["serve", "--tls-cert=/nowhere.pem", "--tls-key=/nowhere.key"]).contains("/nowhere."));
    assert!(complaint(&["serve", "--api-keys=/nowhere.toml"]).contains("--api-keys: /nowhere.toml"));
    assert!(complaint(&["serve", "--access-log=2"]).contains("--access-log: 2 is not between 0 and 1"));
    assert!(complaint(&["serve", "--otlp-endpoint=not an address"]).contains("--otlp-endpoint"));
    assert!(complaint(&["serve", "--max-connections=99999999999"]).contains("--max-connections: 99999999999 is more"));
    assert!(complaint(&["serve", "--otlp-endpoint=https://localhost:4317"]).contains("--otlp-endpoint"));
    assert!(
        complaint(&["serve", "--engines=localhost:50052"]).contains("--engines: `localhost:50052`: is not like http")
    );
    assert!(complaint(&["serve", "--engines=https://localhost:50052"]).contains("--engine-tls-ca: give the authority"));
    assert!(
        complaint(&["serve", "--engine-tls-ca=/nowhere.pem"]).contains("--engine-tls-ca: cannot read /nowhere.pem")
    );
    assert!(complaint(&["serve", "--engine-budget=0"]).contains("--engine-budget: 0 is not between"));
    assert!(complaint(&["serve", "--reranker=/nowhere.onnx"]).contains("--reranker: cannot read /nowhere.onnx"));
    assert!(complaint(&["serve", "--styles=/nowhere"]).contains("--styles"));
    assert!(complaint(&["serve", "--rerank=always"]).contains("--rerank"));
    assert!(complaint(&["serve", "--banana"]).contains("--banana"));
    if !Path::new("/dev/nvidia0").exists() {
        let output = run(&["check", "--device=cuda"], &[]);
        assert_eq!(output.status.code(), Some(1), "the machine lacks it, not the configuration");
        assert!(String::from_utf8_lossy(&output.stderr).contains("CUDA cannot be used"));
    }
}

#[test]
fn check_says_what_the_model_is() {
    let reranker = reranker_file();
    let text = printed(&run(&["check", "--device=cpu", "--reranker", reranker.to_str().unwrap()], &[]));
    assert!(text.contains("reranker.onnx: scripted version 1, re-ranks zeitnot"), "{text}");
    assert!(text.contains("the embedded model: zeitnot version "), "{text}");
    assert!(text.contains("runs on cpu"), "{text}");
}
