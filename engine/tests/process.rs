//! The real binary: signals, options, and the command that tries the engine.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod common;

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use common::{Fake, START, eventually, get, kill, request, stockfish};
use zeitnot_proto::engine::v1::engine_service_client::EngineServiceClient;

const BINARY: &str = env!("CARGO_BIN_EXE_zeitnot-engine");

/// The binary, serving.
struct Process {
    child: Child,
    grpc: String,
    admin: String,
}

impl Process {
    async fn start(flags: &[String]) -> Self {
        let mut child = Command::new(BINARY)
            .args(["serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--log-format=json"])
            .args(["--processes=2", "--drain-delay-ms=0"])
            .args(flags)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let found = lines.by_ref().find_map(|line| {
            let line = line.unwrap();
            let log: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}"));
            let fields = &log["fields"];
            let address = |key: &str| fields[key].as_str().map(str::to_owned);
            (fields["message"] == "listening").then(|| (address("grpc").unwrap(), address("admin").unwrap()))
        });
        // Someone must read on, or the process blocks on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let (grpc, admin) = found.unwrap();
        let process = Process { child, grpc, admin };
        eventually("ready", async || get(&process.admin, "/ready").await.0 == 200).await;
        process
    }

    /// Processes that it has started.
    fn children(&self) -> Vec<String> {
        let id = self.child.id();
        let tasks = std::fs::read_dir(format!("/proc/{id}/task")).unwrap();
        let lists = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).ok());
        lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
    }

    async fn exit_code(mut self) -> Option<i32> {
        tokio::task::spawn_blocking(move || self.child.wait().unwrap().code()).await.unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill(); // It has ended already, unless a test failed.
    }
}

#[tokio::test]
async fn terminated_it_answers_what_it_accepted_and_leaves_no_engine_behind() {
    for signal in ["TERM", "INT"] {
        let fake = Fake::new("slow");
        let [name, file] = fake.args();
        let program = format!("--program={}", common::fake_engine().display());
        let process = Process::start(&[program, format!("--args={name},{file}")]).await;
        eventually("two engines run", async || fake.processes().len() == 2).await;
        let mut client = EngineServiceClient::connect(format!("http://{}", process.grpc)).await.unwrap();
        let asked = tokio::spawn(async move { client.evaluate_candidates(request(START, &["e2e4"], 12)).await });
        eventually("it searches", async || get(&process.admin, "/metrics").await.1.contains("searches_total 2")).await;
        kill(process.child.id(), signal);
        assert!(asked.await.unwrap().unwrap().into_inner().complete);
        assert_eq!(process.exit_code().await, Some(0));
        fake.all_gone().await;
    }
}

#[tokio::test]
async fn terminated_before_the_engine_greets_it_ends_at_once() {
    let fake = Fake::new("hang-handshake");
    let [name, file] = fake.args();
    let mut child = Command::new(BINARY)
        .args(["serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--drain-delay-ms=0"])
        .args([format!("--program={}", common::fake_engine().display()), format!("--args={name},{file}")])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the engine runs", async || fake.processes().len() == 1).await;
    let started = Instant::now();
    kill(child.id(), "TERM");
    let code = tokio::task::spawn_blocking(move || child.wait().unwrap().code()).await.unwrap();
    assert_eq!(code, Some(0));
    assert!(started.elapsed() < Duration::from_secs(5));
    fake.all_gone().await;
}

#[tokio::test]
async fn with_a_real_engine_it_serves_and_ends_cleanly() {
    let Some(config) = stockfish() else { return };
    let process = Process::start(&[format!("--program={}", config.program.unwrap().display())]).await;
    eventually("two engines run", async || process.children().len() == 2).await;
    let engines = process.children();
    let mut client = EngineServiceClient::connect(format!("http://{}", process.grpc)).await.unwrap();
    let answer = client.evaluate_candidates(request(START, &["e2e4", "f2f3"], 10)).await.unwrap().into_inner();
    assert_eq!(answer.scores[0].rank, 1, "{answer:?}");
    kill(process.child.id(), "TERM");
    assert_eq!(process.exit_code().await, Some(0));
    // Of one that has died and waits for its parent's last look, the command line is empty.
    let runs = |id: &String| std::fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|line| !line.is_empty());
    eventually("no engine runs", async || !engines.iter().any(runs)).await;
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
    let file = folder.path().join("engine.toml");
    let text = "queue = 1\nmax-depth = 2\nprocesses = 3\nmax-nodes = 4\nprogram = \"/bin/true\"\n\
        args = [\"--from\", \"file\"]\nengine-option = [\"Hash=8\", \"Skill Level=3\"]\nlog-format = \"json\"\n";
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let output = run(
        &["config", "--config", file, "--queue=10", "--max-nodes=5", "--args=-x"],
        &[("ZEITNOT_ENGINE_MAX_DEPTH", "20"), ("ZEITNOT_ENGINE_QUEUE", "11")],
    );
    let text = printed(&output);
    for line in [
        "listen = \"0.0.0.0:50052\"",
        "admin-listen = \"0.0.0.0:9091\"",
        "program = \"/bin/true\"",
        "args = [\"-x\"]",
        "engine-option = [\"Threads=1\", \"Hash=8\", \"Skill Level=3\"]",
        "queue = 10",
        "max-depth = 20",
        "processes = 3",
        "max-nodes = 5",
        "max-deadline-ms = 30000",
        "log-format = \"json\"",
    ] {
        assert!(text.lines().any(|printed| printed == line), "{line} is missing in\n{text}\n{output:?}");
    }
    // What it prints is a file that means the same.
    let again = folder.path().join("again.toml");
    std::fs::write(&again, &text).unwrap();
    assert_eq!(printed(&run(&["config", "--config", again.to_str().unwrap()], &[])), text);
}

#[test]
fn every_option_has_a_variable_of_its_name() {
    let output = run(&["config", "--tls-cert=/a", "--tls-key=/b", "--tls-client-ca=/c"], &[]);
    let help = printed(&run(&["serve", "--help"], &[]));
    let text = printed(&output);
    assert!(text.lines().count() > 18, "{output:?}");
    for line in text.lines() {
        let key = line.split(' ').next().unwrap();
        let variable = format!("[env: ZEITNOT_ENGINE_{}=]", key.to_uppercase().replace('-', "_"));
        assert!(help.contains(&format!("--{key}")) && help.contains(&variable), "{variable} is missing in\n{help}");
    }
}

#[test]
fn wrong_options_are_named_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.toml");
    let complaint = |arguments: &[&str]| {
        let output = run(arguments, &[]);
        assert_eq!(output.status.code(), Some(78), "EX_CONFIG: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let path = file.to_str().unwrap();
    for (text, problem) in [
        ("banana = 1\n", "bad.toml: there is no option `banana`"),
        ("queue = \n", "line 1"),
        ("queue = 1.5\n", "`queue` is not a text"),
        ("engine-option = [\"MultiPV=3\"]\n", "MultiPV is not yours to set"),
    ] {
        std::fs::write(&file, text).unwrap();
        let said = complaint(&["serve", "--config", path]);
        assert!(said.contains(problem), "{problem} is missing in {said}");
    }
    for (flag, problem) in [
        ("--queue=0", "--queue: must be at least 1"),
        ("--max-depth=0", "--max-depth: must be at least 1"),
        ("--max-deadline-ms=99999999999", "--max-deadline-ms: 99999999999 is more"),
        ("--program=/nowhere/engine", "--program: /nowhere/engine: there is no such program"),
        ("--program=/etc/passwd", "--program: /etc/passwd: there is no such program"),
        ("--engine-option=Hash", "it is not like Name=Value"),
        ("--tls-cert=/nowhere.pem", "--tls-cert and --tls-key: give both"),
        ("--log=a=b=c", "--log"),
        ("--banana", "--banana"),
    ] {
        let said = complaint(&["serve", flag, "--program=/bin/true"][..if flag.contains("program") { 2 } else { 3 }]);
        assert!(said.contains(problem), "{problem} is missing in {said}");
    }
    let said = complaint(&["serve", "--program=/bin/true", "--tls-cert=/nowhere.pem", "--tls-key=/nowhere.key"]);
    assert!(said.contains("--tls-cert: cannot read /nowhere.pem"), "{said}");
}

#[test]
fn check_tells_a_good_engine_from_a_bad_one() {
    let bad = run(&["check", "--program=/bin/true"], &[]);
    assert_eq!(bad.status.code(), Some(1), "the engine is bad, not the configuration");
    assert!(String::from_utf8_lossy(&bad.stderr).contains("/bin/true: the engine does not greet"), "{bad:?}");
    let Some(config) = stockfish() else { return };
    let program = format!("--program={}", config.program.unwrap().display());
    let text = printed(&run(&["check", &program, "--processes=3"], &[]));
    for part in ["Stockfish", "by one search", "nodes/s", "3 processes"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}
