//! Models change under load, and nobody notices; bad ones change nothing.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use common::{Process, Server, request, resident_kib};
use tonic::Code;
use zeitnot_encoding::Otter;
use zeitnot_inference::Metadata;
use zeitnot_network::{NetworkConfig, Weights, onnx, specs};
use zeitnot_proto::v1::{GetModelRequest, ListModelsRequest, PredictRequest, ReloadModelsRequest};

/// A small model of the encoding `otter/1`, of a name and a version.
fn model(name: &str, version: &str) -> Vec<u8> {
    model_with(&Metadata::new(&Otter, name, version, "nothing", "none"))
}

fn model_with(metadata: &Metadata) -> Vec<u8> {
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trainer/recipes/compact.toml");
    let recipe: toml::Table = toml::from_str(&fs::read_to_string(recipe).unwrap()).unwrap();
    let config: NetworkConfig = recipe["network"].clone().try_into().unwrap();
    onnx::export(&config, &Weights::by_formula(&specs::of(&config)), &metadata.entries()).unwrap()
}

/// Puts a file in its place at once, as those who deploy models should.
fn put(path: &Path, bytes: &[u8]) {
    let unfinished = path.with_extension("tmp");
    fs::write(&unfinished, bytes).unwrap();
    fs::rename(unfinished, path).unwrap();
}

/// Clients that ask without a pause until they are told to stop, and fail the test at the first error.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    clients: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    fn start(server: &Server) -> Self {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let clients = (0..4).map(|_| {
            let (mut client, stop, answered) = (server.predictions(), Arc::clone(&stop), Arc::clone(&answered));
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let answer = client.predict(request(&["e4", "e5"])).await.unwrap().into_inner();
                    assert_eq!(answer.moves.len(), 29);
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            })
        });
        Load { clients: clients.collect(), stop, answered }
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        for client in self.clients {
            client.await.unwrap();
        }
        assert!(self.answered.load(Ordering::SeqCst) > 0);
    }
}

async fn reload(server: &Server) -> Result<(Vec<String>, Vec<String>), tonic::Status> {
    let answer = server.models().reload_models(ReloadModelsRequest {}).await?.into_inner();
    Ok((answer.loaded, answer.removed))
}

async fn versions(server: &Server) -> Vec<(String, String)> {
    let models = server.models().list_models(ListModelsRequest {}).await.unwrap().into_inner().models;
    models.into_iter().map(|model| (model.name, model.version)).collect()
}

fn named(models: &[(&str, &str)]) -> Vec<(String, String)> {
    models.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned())).collect()
}

#[tokio::test]
async fn a_directory_of_models_is_served_by_name_and_follows_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    put(&path("a.onnx"), &model("small", "1"));
    put(&path("b.onnx"), &model("other", "1"));
    let flags = ["--model", folder.path().to_str().unwrap(), "--default-model=other", "--watch-ms=0"];
    let server = Server::start(&flags).await;
    assert_eq!(versions(&server).await, named(&[("other", "1"), ("small", "1")]));
    let ask = |model: &str| PredictRequest { model: model.into(), ..request(&["e4"]) };
    for (asked, answered) in [("", "other"), ("small", "small"), ("other", "other")] {
        let answer = server.predictions().predict(ask(asked)).await.unwrap().into_inner();
        assert_eq!(answer.model.unwrap().name, answered);
    }
    assert_eq!(server.metric("zeitnot_requests_total{code=\"OK\",method=\"Predict\",model=\"small\"}").await, 1.0);
    let before = server.models().get_model(GetModelRequest::default()).await.unwrap().into_inner().model.unwrap();

    assert_eq!(reload(&server).await.unwrap(), (vec![], vec![]), "nothing has changed");
    put(&path("a.onnx"), &model("small", "2"));
    put(&path("c.onnx"), &model("third", "1"));
    assert_eq!(reload(&server).await.unwrap().0, ["small", "third"]);
    assert_eq!(versions(&server).await, named(&[("other", "1"), ("small", "2"), ("third", "1")]));
    assert_eq!(server.metric("zeitnot_model_info{encoding=\"otter/1\",model=\"small\"").await, 1.0, "one version");
    fs::remove_file(path("c.onnx")).unwrap();
    assert_eq!(reload(&server).await.unwrap(), (vec![], vec!["third".to_owned()]));
    let gone = server.predictions().predict(ask("third")).await.unwrap_err();
    assert_eq!(gone.code(), Code::NotFound);
    let after = server.models().get_model(GetModelRequest::default()).await.unwrap().into_inner().model.unwrap();
    assert_eq!(before, after);
    assert_eq!(after.sha256.len(), 64);
}

#[tokio::test]
async fn bad_files_change_nothing_and_fail_no_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.onnx");
    let good = model("small", "1");
    put(&path, &good);
    let server = Server::start(&["--model", folder.path().to_str().unwrap(), "--watch-ms=0"]).await;
    let load = Load::start(&server);
    let mut foreign = Metadata::new(&Otter, "small", "2", "nothing", "none");
    foreign.vocabulary = "0".repeat(64);
    let mut unknown = Metadata::new(&Otter, "small", "2", "nothing", "none");
    unknown.encoding = "otter/9".to_owned();
    let bad: [(Vec<u8>, &str); 5] = [
        (b"not a model at all".to_vec(), "cannot read it"),
        (good[..good.len() / 2].to_vec(), "cannot read it"),
        (model_with(&foreign), "zeitnot.vocabulary is"),
        (model_with(&unknown), "zeitnot.encoding is `otter/9`"),
        (Vec::new(), "a.onnx"),
    ];
    let count = bad.len() as f64;
    for (bytes, problem) in bad {
        put(&path, &bytes);
        let status = reload(&server).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
        assert!(status.message().contains(problem) && status.message().contains("a.onnx"), "{}", status.message());
        assert_eq!(versions(&server).await, named(&[("small", "1")]));
    }
    fs::write(folder.path().join("b.onnx"), &good).unwrap();
    put(&path, &good);
    assert!(reload(&server).await.unwrap_err().message().contains("another file also holds a model `small`"));
    fs::remove_file(folder.path().join("b.onnx")).unwrap();
    assert_eq!(server.metric("zeitnot_reloads_total{result=\"failed\"}").await, count + 1.0);
    assert_eq!(common::get(&server.admin, "/ready").await.0, 200);
    put(&path, &model("small", "3"));
    reload(&server).await.unwrap();
    assert_eq!(versions(&server).await, named(&[("small", "3")]));
    load.stop().await;
    // The old ones have ended, and only they.
    let cores = std::thread::available_parallelism().unwrap().get() as f64;
    server.until("zeitnot_workers{model=\"small\"}", cores).await;
}

#[tokio::test]
async fn changed_files_are_noticed_once_they_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.onnx");
    put(&path, &model("small", "1"));
    let server = Server::start(&["--model", folder.path().to_str().unwrap(), "--watch-ms=150"]).await;
    let load = Load::start(&server);
    // Written in place, a piece at a time, and slower than the server looks.
    let next = model("small", "2");
    let mut written = Vec::new();
    for piece in next.chunks(next.len() / 8 + 1) {
        written.extend(piece);
        fs::write(&path, &written).unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    server.until("zeitnot_reloads_total{result=\"changed\"}", 1.0).await;
    assert_eq!(versions(&server).await, named(&[("small", "2")]));
    put(&path, &model("small", "3"));
    server.hangup.send(()).await.unwrap();
    server.until("zeitnot_reloads_total{result=\"changed\"}", 2.0).await;
    assert_eq!(versions(&server).await, named(&[("small", "3")]), "at SIGHUP");
    load.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_reloads_under_load_leak_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("a.onnx");
    put(&path, &model("small", "0"));
    let process = Process::start(&[
        "--model",
        folder.path().to_str().unwrap(),
        "--watch-ms=0",
        "--access-log=0",
        "--cache-mib=0",
        "--coalesce=false",
    ])
    .await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut clients = Vec::new();
    for number in 0..4 {
        let (mut client, stop) = (process.client().await, Arc::clone(&stop));
        clients.push(tokio::spawn(async move {
            let mut answered = 0;
            while !stop.load(Ordering::SeqCst) {
                let mut asked = request(&["e4", "e5"]);
                asked.mover.as_mut().unwrap().rating = Some(1000 + (number * 100 + answered % 1000) as u32);
                client.predict(asked).await.unwrap();
                answered += 1;
            }
            answered
        }));
    }
    let mut models = process.models().await;
    let (mut memory, mut threads, mut descriptors) = (Vec::new(), Vec::new(), Vec::new());
    for version in 1..=20 {
        put(&path, &model("small", &version.to_string()));
        let answer = models.reload_models(ReloadModelsRequest {}).await.unwrap().into_inner();
        assert_eq!(answer.models[0].version, version.to_string());
        tokio::time::sleep(Duration::from_millis(200)).await;
        memory.push(resident_kib(process.id()));
        threads.push(process.count("task"));
        descriptors.push(process.count("fd"));
    }
    stop.store(true, Ordering::SeqCst);
    for client in clients {
        assert!(client.await.unwrap() > 20);
    }
    println!("KiB {memory:?}, threads {threads:?}, descriptors {descriptors:?}");
    let (early, late) = (memory[5..10].iter().max().unwrap(), memory[15..].iter().max().unwrap());
    assert!(*late as f64 <= *early as f64 * 1.05, "memory grows: {memory:?} KiB");
    assert!(threads[19] <= threads[..5].iter().max().unwrap() + 1, "{threads:?}");
    assert!(descriptors[19] <= descriptors[..5].iter().max().unwrap() + 1, "{descriptors:?}");
}
