//! Five models in one server: what the others cost the embedded one when they idle, and how the processors are shared
//! when they do not.
//!
//! - alone: a server with the embedded model only.
//! - idle: a server with five; only the embedded one is asked.
//! - each: the same server, one model after the other.
//! - pair, all: two of them, or all five, asked at the same time by as many callers each.
//!
//! The other four have the sizes of published networks: Maia-1 (the 1500 network, where it is at hand), Maia-3 with five
//! million parameters, Otter, and Otter's compact form, with weights by formula. Also the memory of one Maia-1 network and of nine in an ensemble.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use common::{Process, resident_kib};
use serde_json::{Value, json};
use zeitnot_inference::Metadata;
use zeitnot_load::{
    games,
    generate::closed_loop,
    grpc::{Connect, Grpc},
};
use zeitnot_network::{NetworkConfig, OtterConfig, Weights, lc0, onnx, specs};
use zeitnot_proto::v1::PredictRequest;

const ROUNDS: usize = 3;
const SECONDS: f64 = 4.0;
const CALLERS: usize = 16;
const NAMES: [&str; 5] = ["zeitnot", "maia-1500", "maia3-5m", "otter", "otter-compact"];

#[tokio::main]
async fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let games = root.join("../shared/games/heldout-rapid.pgn.zst");
    if !games.exists() {
        eprintln!("neighbours: the shared games are missing, nothing is measured");
        return;
    }
    let requests = games::read(&games, 200).unwrap().into_iter().flatten().collect::<Vec<_>>();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("neighbours");
    let maia = root.join("../shared/maia1");
    let files = models(&folder, root, &maia);
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        eprintln!("neighbours: round {} of {ROUNDS}", round + 1);
        rounds.push(measure(&files, &requests).await);
    }
    let figures = json!({
        "benchmark": "neighbours", "rounds": ROUNDS, "seconds_a_step": SECONDS, "callers_a_model": CALLERS,
        "machine": common::machine(), "onnxruntime": common::onnxruntime(), "models": NAMES,
        "idle_by_alone": median(&rounds, "/idle_by_alone"),
        "alone_per_second": median(&rounds, "/alone"),
        "each_per_second": medians(&rounds, "/each"),
        "pair_shares": medians(&rounds, "/pair"),
        "all_shares": medians(&rounds, "/all"),
        "memory": memory(&folder, &maia).await,
    });
    println!("{figures:#}");
    fs::write(root.join("docs/benchmarks/neighbours.json"), format!("{figures:#}\n")).unwrap();
}

/// Positions a second, and shares of what each model answers a second when it is asked alone.
async fn measure(files: &[PathBuf], requests: &[PredictRequest]) -> Value {
    let alone = load(&start(&files[..1]).await, &NAMES[..1], requests).await[0];
    let server = start(files).await;
    let idle = load(&server, &NAMES[..1], requests).await[0];
    let mut each = vec![idle];
    for name in &NAMES[1..] {
        each.push(load(&server, &[name], requests).await[0]);
    }
    let shares = |rates: Vec<f64>| rates.iter().zip(&each).map(|(rate, own)| rate / own).collect::<Vec<_>>();
    let pair = shares(load(&server, &NAMES[..2], requests).await);
    let all = shares(load(&server, &NAMES, requests).await);
    json!({ "alone": alone, "idle_by_alone": idle / alone, "each": each, "pair": pair, "all": all })
}

async fn start(files: &[PathBuf]) -> Process {
    let models = files.iter().map(|file| file.to_str().unwrap()).collect::<Vec<_>>().join(",");
    Process::start(&["--access-log=0", "--cache-mib=0", "--coalesce=false", "--model", &models]).await
}

/// Positions each of these models answers a second, all asked at the same time.
async fn load(server: &Process, names: &[&str], requests: &[PredictRequest]) -> Vec<f64> {
    let connect = Connect {
        address: format!("http://{}", server.grpc),
        connections: 2,
        deadline: Duration::from_secs(30),
        key: None,
        tls_ca: None,
    };
    let mut loops = Vec::new();
    for name in names {
        let named = |request: &PredictRequest| PredictRequest { model: (*name).to_owned(), ..request.clone() };
        let target = Grpc::connect(&connect, requests.iter().map(named).collect()).await.unwrap();
        loops.push(tokio::spawn(async move { closed_loop(&Arc::new(target), CALLERS, SECONDS, 0).await.unwrap() }));
    }
    let mut rates = Vec::new();
    for one in loops {
        let report = one.await.unwrap().figures();
        assert_eq!(report.answered, report.sent, "{report:?}");
        rates.push(report.answered_per_second);
    }
    rates
}

/// MiB resident after the start: with one network of Maia-1, and with nine under two ensembles.
async fn memory(folder: &Path, maia: &Path) -> Value {
    if !maia.exists() {
        return Value::Null;
    }
    let ratings = (1100..=1900).step_by(100);
    let mut members = String::new();
    for rating in ratings {
        let (name, middle) = (format!("maia-{rating}"), rating + 50);
        import(maia, folder, &name);
        members += &format!("[[member]]\nrating = {middle}\nfile = \"{name}.onnx\"\n");
    }
    let mut mib = Vec::new();
    for (name, interpolate) in [("maia1", false), ("maia1-mixed", true)] {
        let text = format!("name = \"{name}\"\ninterpolate = {interpolate}\n{members}");
        fs::write(folder.join(format!("{name}.toml")), text).unwrap();
    }
    let files = |names: &[&str]| names.iter().map(|name| folder.join(name)).collect::<Vec<_>>();
    for names in [&["maia-1500.onnx"][..], &["maia1.toml"], &["maia1.toml", "maia1-mixed.toml"]] {
        let server = start(&files(names)).await;
        mib.push(resident_kib(server.id()) as f64 / 1024.0);
    }
    json!({ "one_mib": mib[0], "nine_mib": mib[1], "nine_in_two_ensembles_mib": mib[2] })
}

/// The five model files.
fn models(folder: &Path, root: &Path, maia: &Path) -> Vec<PathBuf> {
    fs::create_dir_all(folder).unwrap();
    let path = |name: &str| folder.join(format!("{name}.onnx"));
    fs::copy(root.join("models/zeitnot.onnx"), path("zeitnot")).unwrap();
    let recipe = |name: &str| {
        let text = fs::read_to_string(root.join("trainer/recipes").join(name)).unwrap();
        let recipe: toml::Table = toml::from_str(&text).unwrap();
        recipe["network"].clone().try_into::<NetworkConfig>().unwrap()
    };
    let maia3: NetworkConfig = toml::from_str(
        "encoding = \"maia3/1\"\nwidth = 256\nblocks = 8\nheads = 8\nfeed_forward = 512\nrating = 128\npolicy = 256\n\
         bias = { hidden = 64, generated = 64, per_square = 0 }",
    )
    .unwrap();
    write(&path("maia3-5m"), "maia3-5m", &maia3, None);
    write(&path("otter"), "otter", &NetworkConfig::Otter(OtterConfig::reference()), None);
    write(&path("otter-compact"), "otter-compact", &recipe("compact.toml"), None);
    if maia.exists() {
        import(maia, folder, "maia-1500");
    } else {
        let same = "encoding = \"lc0-112/1\"\nwidth = 64\nblocks = 6\nsqueeze = 8\nvalue_channels = 32\n\
                    value_hidden = 128\nwdl = true";
        write(&path("maia-1500"), "maia-1500", &toml::from_str(same).unwrap(), None);
    }
    NAMES.iter().map(|name| path(name)).collect()
}

fn import(maia: &Path, folder: &Path, name: &str) {
    let file = lc0::reader::read(&maia.join(format!("{name}.pb.gz"))).unwrap();
    write(&folder.join(format!("{name}.onnx")), name, &NetworkConfig::Lc0(file.config), Some(file.weights));
}

fn write(path: &Path, name: &str, config: &NetworkConfig, weights: Option<Weights>) {
    let weights = weights.unwrap_or_else(|| Weights::by_formula(&specs::of(config)));
    let metadata = Metadata::new(config.encoding(), name, "1", "", "");
    fs::write(path, onnx::export(config, &weights, &metadata.entries()).unwrap()).unwrap();
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn median(rounds: &[Value], pointer: &str) -> f64 {
    let mut values = rounds.iter().map(|round| number(round.pointer(pointer).unwrap())).collect::<Vec<_>>();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn medians(rounds: &[Value], pointer: &str) -> Vec<f64> {
    let count = rounds[0].pointer(pointer).unwrap().as_array().unwrap().len();
    (0..count).map(|place| median(rounds, &format!("{pointer}/{place}"))).collect()
}
