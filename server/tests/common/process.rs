//! The server as its users run it: the binary.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use tonic::transport::Channel;
use zeitnot_proto::v1::{model_service_client::ModelServiceClient, prediction_service_client::PredictionServiceClient};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_zeitnot");

/// The real binary, serving.
pub(crate) struct Process {
    child: Child,
    log: Option<std::thread::JoinHandle<String>>,
    pub(crate) grpc: String,
    pub(crate) admin: String,
}

impl Process {
    pub(crate) async fn start(flags: &[&str]) -> Self {
        let mut child = Command::new(BINARY)
            .args(["serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--log-format=json"])
            .args(flags)
            .env_remove("ORT_DISABLE_TELEMETRY") // Its users do not know of it.
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut addresses = None;
        for line in lines.by_ref() {
            let line = line.unwrap();
            let log: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}"));
            let fields = &log["fields"];
            if fields["message"] == "listening" {
                let address = |key: &str| fields[key].as_str().unwrap().to_owned();
                addresses = Some((address("grpc"), address("admin")));
            }
            if fields["message"] == "ready" {
                break;
            }
        }
        // Someone must read on, or the process blocks on a full pipe.
        let log = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>().join("\n"));
        let (grpc, admin) = addresses.unwrap();
        Process { child, log: Some(log), grpc, admin }
    }

    pub(crate) async fn client(&self) -> PredictionServiceClient<Channel> {
        let channel = Channel::from_shared(format!("http://{}", self.grpc)).unwrap().connect().await.unwrap();
        PredictionServiceClient::new(channel)
    }

    pub(crate) async fn models(&self) -> ModelServiceClient<Channel> {
        let channel = Channel::from_shared(format!("http://{}", self.grpc)).unwrap().connect().await.unwrap();
        ModelServiceClient::new(channel)
    }

    /// How many threads (`task`) or descriptors (`fd`) it has.
    pub(crate) fn count(&self, what: &str) -> usize {
        std::fs::read_dir(format!("/proc/{}/{what}", self.id())).unwrap().count()
    }

    /// Kills it and gives what it logged since it was ready.
    pub(crate) async fn stop_and_read_log(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.log.take().unwrap().join().unwrap()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    pub(crate) async fn exit_code(mut self) -> Option<i32> {
        tokio::task::spawn_blocking(move || self.child.wait().unwrap().code()).await.unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill(); // It has ended already, unless a test failed.
    }
}

/// Resident memory of a process, in KiB.
pub(crate) fn resident_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
