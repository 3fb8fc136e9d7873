//! What operators see: the page of metrics, the rules and pictures made of it, traces, the access log.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
};

use common::{Act, Process, Server, Sidecar, get, request, reranker_file, strong};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    trace::v1::Span,
};
use tonic::{Request, Response, Status, transport::server::TcpIncoming};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Prometheus' own tool, which `make setup` installs where Debian's packages can be had.
fn promtool() -> Option<PathBuf> {
    let path = root().join(".native/bin/promtool");
    if !path.exists() {
        eprintln!("SKIPPED: promtool is not installed, metrics and rules are not checked by it");
    }
    path.exists().then_some(path)
}

async fn page() -> String {
    let (sidecar, reranker) = (Sidecar::start(Act::Score(vec![])), reranker_file());
    let server = Server::start(&[&sidecar.flag(), "--reranker", reranker.to_str().unwrap()]).await;
    server.predictions().predict(strong(&["e4"])).await.unwrap();
    get(&server.admin, "/metrics").await.1
}

#[tokio::test]
async fn promtool_accepts_the_page_of_metrics() {
    use std::io::Write;
    let Some(promtool) = promtool() else { return };
    let page = page().await;
    let mut check = Command::new(promtool);
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut check = check.spawn().unwrap();
    check.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn promtool_accepts_the_alert_rules_and_their_tests() {
    let Some(promtool) = promtool() else { return };
    let folder = root().join("ops/prometheus");
    for arguments in [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]] {
        let output = Command::new(&promtool).args(arguments).current_dir(&folder).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
}

/// Names in a text that look like metrics of ours or of the process.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words.filter(|word| word.starts_with("zeitnot_") || word.starts_with("process_")).map(str::to_owned).collect()
}

#[tokio::test]
async fn rules_and_dashboard_name_metrics_and_labels_that_there_are() {
    let page = page().await;
    let there = page.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split(['{', ' ']).next());
    let there = there.map(str::to_owned).collect::<BTreeSet<_>>();
    for file in ["ops/prometheus/alerts.yaml", "ops/grafana/zeitnot.json"] {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let named = names(&text);
        assert!(named.len() > 8, "{file} names {named:?}");
        let missing = named.difference(&there).collect::<Vec<_>>();
        assert!(missing.is_empty(), "{file} names {missing:?}, which the server does not have");
        // Values of labels that are written out, such as code="INTERNAL" or reason=~"panic|error".
        for (label, value) in label_values(&text) {
            let known = format!("{label}=\"{value}\"");
            assert!(page.contains(&known), "{file} asks for {known}, which the server does not have");
        }
    }
}

/// The plain values that a text compares our labels with.
fn label_values(text: &str) -> Vec<(String, String)> {
    let text = text.replace("\\\"", "\"");
    let mut found = Vec::new();
    for label in ["code", "reason", "result", "method", "status", "outcome"] {
        for operator in ["=\"", "=~\"", "!=\"", "!~\""] {
            let start = format!("{label}{operator}");
            for (place, _) in text.match_indices(&start) {
                let before = text[..place].chars().next_back();
                if before.is_some_and(|letter| letter.is_ascii_alphanumeric() || letter == '_') {
                    continue;
                }
                let value = text[place + start.len()..].split('"').next().unwrap();
                let plain = |value: &&str| value.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
                found.extend(value.split('|').filter(plain).map(|value| (label.to_owned(), value.to_owned())));
            }
        }
    }
    found
}

/// A collector that keeps what it is sent.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let scopes = request.into_inner().resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        self.0.lock().unwrap().extend(scopes.flat_map(|scope| scope.spans));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_part_of_its_callers_trace() {
    let collector = Collector::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("--otlp-endpoint=http://{}", listener.local_addr().unwrap());
    let service = TraceServiceServer::new(collector.clone());
    tokio::spawn(
        tonic::transport::Server::builder().add_service(service).serve_with_incoming(TcpIncoming::from(listener)),
    );

    let sidecar = Sidecar::start(Act::Score(vec![]));
    let process = Process::start(&[&endpoint, "--drain-delay-ms=0", &sidecar.flag(), "--reranker=none"]).await;
    let mut traced = Request::new(strong(&["e4", "c5"]));
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    traced.metadata_mut().insert("traceparent", parent.parse().unwrap());
    process.client().await.predict(traced).await.unwrap();
    process.signal("TERM");
    assert_eq!(process.exit_code().await, Some(0));

    let spans = collector.0.lock().unwrap();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let span = spans.iter().find(|span| hex(&span.trace_id) == "0af7651916cd43dd8448eb211c80319c").unwrap();
    assert_eq!(hex(&span.parent_span_id), "b7ad6b7169203331");
    let keys = span.attributes.iter().map(|attribute| attribute.key.as_str()).collect::<Vec<_>>();
    for key in ["method", "model", "code", "queue_ms", "inference_ms", "batch_size", "rerank_status", "engine_ms"] {
        assert!(keys.contains(&key), "{key} is missing in {keys:?}");
    }
}

#[tokio::test]
async fn the_access_log_is_an_even_sample() {
    let process = Process::start(&["--access-log=0.1"]).await;
    let mut client = process.client().await;
    for _ in 0..100 {
        client.predict(request(&["e4"])).await.unwrap();
    }
    let log = process.stop_and_read_log().await;
    let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let answered = lines.filter(|line| line["fields"]["message"] == "answered").collect::<Vec<_>>();
    assert_eq!(answered.len(), 10, "one in ten");
    assert_eq!(answered[0]["fields"]["code"], "OK");
    assert_eq!(answered[0]["span"]["model"], "zeitnot");
    assert!(answered[0]["fields"]["took_ms"].as_f64().unwrap() > 0.0);
}
