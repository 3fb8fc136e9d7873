//! The servers that are compared: how each is started, asked, measured and ended.

use std::{
    fs,
    net::TcpListener,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use zeitnot_encoding::{Encoding, Otter, batch::Element};
use zeitnot_load::target::Outcome;

use crate::{BATCH, DEADLINE, WORKERS};

/// Requests that a server holds before it turns more away: a third of a second's work.
const CAPACITY: usize = 64;

pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// The script in scripts/peers and the package whose version counts; none for Zeitnot.
    script: Option<(&'static str, &'static str)>,
    /// Where rows are posted; none for gRPC.
    pub(crate) http: Option<&'static str>,
    /// Whether a row stands behind a header that describes it.
    kserve: bool,
}

pub(crate) const PEERS: [Peer; 4] = [
    Peer { name: "zeitnot", script: None, http: None, kserve: false },
    Peer { name: "mosec", script: Some(("mosec_server.py", "mosec")), http: Some("/inference"), kserve: false },
    Peer { name: "LitServe", script: Some(("litserve_server.py", "litserve")), http: Some("/predict"), kserve: false },
    Peer {
        name: "Triton",
        script: Some(("triton_server.py", "nvidia-pytriton")),
        http: Some("/v2/models/zeitnot/infer"),
        kserve: true,
    },
];

pub(crate) fn python(root: &Path) -> PathBuf {
    root.join(".native/peers/bin/python")
}

/// The version of an installed package.
pub(crate) fn package(root: &Path, name: &str) -> String {
    let ask = format!("import importlib.metadata as m; print(m.version('{name}'))");
    let output = Command::new(python(root)).args(["-c", &ask]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

impl Peer {
    pub(crate) fn version(&self, root: &Path) -> String {
        self.script.map_or(env!("CARGO_PKG_VERSION").to_owned(), |(_, name)| package(root, name))
    }

    /// KServe's description of a row: every input with its shape and bytes, in the encoding's order.
    pub(crate) fn header(&self, bytes: usize) -> Option<String> {
        let described = Otter.inputs().iter().map(|input| {
            let (kind, size) = match input.element {
                Element::Float => ("FP32", 4),
                Element::Integer => ("INT64", 8),
                Element::Boolean => ("BOOL", 1),
            };
            let shape = if input.shape.is_empty() { vec![1, 1] } else { [&[1], input.shape].concat() };
            let parameters = serde_json::json!({ "binary_data_size": size * input.size() });
            (
                size * input.size(),
                serde_json::json!({ "name": input.name, "shape": shape, "datatype": kind, "parameters": parameters }),
            )
        });
        let (sizes, inputs): (Vec<_>, Vec<_>) = described.unzip();
        assert_eq!(sizes.iter().sum::<usize>(), bytes);
        let outputs =
            ["policy", "value"].map(|name| serde_json::json!({ "name": name, "parameters": { "binary_data": true } }));
        self.kserve.then(|| serde_json::json!({ "inputs": inputs, "outputs": outputs }).to_string())
    }

    fn command(&self, root: &Path, model: &Path, port: u16) -> Command {
        let numbers = |command: &mut Command, names: [&str; 4]| {
            for (name, value) in names.iter().zip([WORKERS, 1, BATCH, CAPACITY]) {
                command.arg(format!("--{name}={value}"));
            }
        };
        match self.script {
            None => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_zeitnot"));
                command.arg("serve").arg(format!("--listen=127.0.0.1:{port}")).arg("--admin-listen=127.0.0.1:0");
                // Every answer is computed, as with the others.
                command.args(["--cache-mib=0", "--coalesce=false", "--device=cpu", "--log=warn", "--drain-delay-ms=0"]);
                command.arg("--model").arg(model);
                numbers(&mut command, ["workers", "threads", "max-batch", "queue"]);
                command
            }
            Some((script, _)) => {
                let mut command = Command::new(python(root));
                command.arg(root.join("scripts/peers").join(script)).arg(format!("--port={port}"));
                command.arg("--model").arg(model).arg(format!("--timeout={}", DEADLINE.as_millis()));
                numbers(&mut command, ["workers", "threads", "max-batch", "capacity"]);
                command
            }
        }
    }
}

/// A running server, ended with all its processes when dropped.
pub(crate) struct Running {
    child: Child,
    pub(crate) port: u16,
}

impl Running {
    pub(crate) fn start(root: &Path, peer: &Peer, model: &Path) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let log = fs::File::create(root.join(format!("target/peers/{}.log", peer.name))).unwrap();
        let mut command = peer.command(root, model, port);
        command.stdout(Stdio::null()).stderr(log).process_group(0);
        Running { child: command.spawn().unwrap(), port }
    }

    /// Asks until there is an answer.
    pub(crate) async fn ready<F: Future<Output = Outcome>>(&self, ask: impl Fn() -> F) {
        let limit = Instant::now() + Duration::from_secs(60);
        loop {
            let outcome = ask().await;
            if outcome == Outcome::Answered {
                return;
            }
            assert!(Instant::now() < limit, "not ready after a minute: {outcome:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Memory of the server and its children: what each has of its own, and its share of what they share.
    pub(crate) fn memory_mib(&self) -> f64 {
        let pss = |process: u32| {
            let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).map(str::trim).unwrap_or("0 kB");
            line.trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
        };
        family(self.child.id()).into_iter().map(pss).sum()
    }
}

/// A process and all its descendants.
fn family(process: u32) -> Vec<u32> {
    let mut all = vec![process];
    let mut next = 0;
    while let Some(&parent) = all.get(next) {
        for thread in fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
        next += 1;
    }
    all
}

impl Drop for Running {
    fn drop(&mut self) {
        let family = family(self.child.id());
        let signal = |name: &str, process: u32| {
            let _ = Command::new("kill").args([name, &process.to_string()]).stderr(Stdio::null()).status(); // Gone is well.
        };
        signal("-TERM", self.child.id());
        let limit = Instant::now() + Duration::from_secs(15);
        while Instant::now() < limit && self.child.try_wait().unwrap().is_none() {
            thread::sleep(Duration::from_millis(100));
        }
        family.into_iter().for_each(|process| signal("-KILL", process));
        let _ = self.child.wait(); // It has been waited for when it ended by itself.
    }
}
