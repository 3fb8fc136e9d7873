//! One name over several models, of which the mover's rating chooses.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::{collections::BTreeMap, fs, path::Path};

use common::{Server, request};
use tonic::Code;
use zeitnot_encoding::Otter;
use zeitnot_inference::Metadata;
use zeitnot_network::{NetworkConfig, Weights, onnx, specs};
use zeitnot_proto::v1::{GetModelRequest, ListModelsRequest, PredictRequest, PredictResponse, ReloadModelsRequest};

/// A small model whose policy is sharper the larger `scale` is.
fn model(name: &str, scale: f32) -> Vec<u8> {
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trainer/recipes/compact.toml");
    let recipe: toml::Table = toml::from_str(&fs::read_to_string(recipe).unwrap()).unwrap();
    let config: NetworkConfig = recipe["network"].clone().try_into().unwrap();
    let specs = specs::of(&config);
    let mut weights = Weights::by_formula(&specs);
    let spec = specs.iter().find(|spec| spec.name == "policy.to.weight").unwrap();
    let mut tensor = weights.get(spec).unwrap().clone();
    tensor.values.iter_mut().for_each(|value| *value *= scale);
    weights.insert(&spec.name, tensor);
    let metadata = Metadata::new(&Otter, name, "1", "nothing", &format!("licence of {name}"));
    onnx::export(&config, &weights, &metadata.entries()).unwrap()
}

/// A folder with members for 1100, 1300 and 1900 and an ensemble `all` of them.
fn folder(interpolate: bool) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, scale) in [("low", 0.5), ("middle", 4.0), ("high", 20.0)] {
        fs::write(folder.path().join(format!("{name}.onnx")), model(name, scale)).unwrap();
    }
    fs::write(folder.path().join("all.toml"), ensemble("all", interpolate)).unwrap();
    folder
}

fn ensemble(name: &str, interpolate: bool) -> String {
    let members = [(1100, "low"), (1300, "middle"), (1900, "high")];
    let member = |(rating, name)| format!("[[member]]\nrating = {rating}\nfile = \"{name}.onnx\"\n");
    format!("name = \"{name}\"\nversion = \"7\"\ninterpolate = {interpolate}\n{}", members.map(member).concat())
}

async fn start(folder: &Path, flags: &[&str]) -> Server {
    let file = folder.join("all.toml");
    Server::start(&[&["--model", file.to_str().unwrap(), "--watch-ms=0"], flags].concat()).await
}

async fn ask(server: &Server, model: &str, rating: Option<u32>) -> PredictResponse {
    let mut asked = PredictRequest { model: model.to_owned(), ..request(&["e4", "c5"]) };
    asked.mover.as_mut().unwrap().rating = rating;
    server.predictions().predict(asked).await.unwrap().into_inner()
}

fn probabilities(answer: &PredictResponse) -> BTreeMap<String, f32> {
    answer.moves.iter().map(|mv| (mv.uci.clone(), mv.probability)).collect()
}

fn members(answer: &PredictResponse) -> Vec<(String, f32)> {
    let identity = answer.model.as_ref().unwrap();
    identity.members.iter().map(|member| (member.name.clone(), member.weight)).collect()
}

fn whole(name: &str) -> Vec<(String, f32)> {
    vec![(name.to_owned(), 1.0)]
}

#[tokio::test]
async fn the_nearest_member_answers_for_all() {
    let folder = folder(false);
    let server = start(folder.path(), &[]).await;
    let cases = [(0, "low"), (1199, "low"), (1200, "middle"), (1599, "middle"), (1600, "high"), (4000, "high")];
    for (rating, member) in cases {
        let answer = ask(&server, "", Some(rating)).await;
        assert_eq!(members(&answer), whole(member), "{rating}");
        let identity = answer.model.clone().unwrap();
        assert_eq!((identity.name.as_str(), identity.version.as_str()), ("all", "7"));
        assert_eq!(answer.conditions.clone().unwrap().mover_rating, Some(rating));
        let alone = ask(&server, member, Some(rating)).await;
        assert_eq!(probabilities(&answer), probabilities(&alone), "{rating}");
        assert_eq!((alone.model.clone().unwrap().name.as_str(), members(&alone)), (member, vec![]));
    }
    let [low, high] = [ask(&server, "low", Some(1500)).await, ask(&server, "high", Some(1500)).await];
    assert_ne!(probabilities(&low), probabilities(&high), "else the test would show nothing");
    let unknown = ask(&server, "all", None).await;
    assert_eq!(members(&unknown), whole("middle"), "the opponent's 1520 stands in");
    let conditions = unknown.conditions.unwrap();
    assert_eq!(conditions.mover_rating, None);
    assert!(conditions.unknown.contains(&"mover.rating".to_owned()));
    let assumed = conditions.notes.iter().filter(|note| note.contains("mover.rating: assumed")).count();
    assert_eq!(assumed, 1, "{:?}", conditions.notes);
    assert_eq!(server.metric("zeitnot_requests_total{code=\"OK\",method=\"Predict\",model=\"all\"").await, 7.0);
}

#[tokio::test]
async fn neighbours_are_mixed_where_asked_for() {
    let folder = folder(true);
    let server = start(folder.path(), &["--cache-mib=8"]).await;
    let mixed = ask(&server, "all", Some(1450)).await;
    assert_eq!(members(&mixed), [("middle".to_owned(), 0.75), ("high".to_owned(), 0.25)]);
    let [near, far] = [ask(&server, "middle", Some(1450)).await, ask(&server, "high", Some(1450)).await];
    let (p, q) = (probabilities(&near), probabilities(&far));
    for (uci, ours) in probabilities(&mixed) {
        let expected = 0.75 * p[&uci] + 0.25 * q[&uci];
        assert!((ours - expected).abs() < 1e-5, "{uci}: {ours} {expected}");
    }
    let score = |answer: &PredictResponse| answer.outlook.as_ref().unwrap().expected_score;
    assert!((score(&mixed) - 0.75 * score(&near) - 0.25 * score(&far)).abs() < 1e-5);
    assert!(near.cached && far.cached, "the mixture's parts were kept, by model and not by name");
    assert!(ask(&server, "all", Some(1450)).await.cached);
    assert_eq!(members(&ask(&server, "all", Some(1300)).await), whole("middle"));
    assert_eq!(members(&ask(&server, "all", Some(2500)).await), whole("high"));
}

#[tokio::test]
async fn members_are_listed_and_shared() {
    let folder = folder(false);
    fs::write(folder.path().join("mixed.toml"), ensemble("mixed", true)).unwrap();
    let flags = ["--model", folder.path().to_str().unwrap(), "--default-model=mixed", "--watch-ms=0"];
    let server = Server::start(&flags).await;
    let models = server.models().list_models(ListModelsRequest {}).await.unwrap().into_inner().models;
    let names = models.iter().map(|model| (model.name.as_str(), model.is_default)).collect::<Vec<_>>();
    let rest = [("high", false), ("low", false), ("middle", false), ("all", false)];
    assert_eq!(names[0], ("mixed", true));
    assert!(rest.iter().all(|name| names.contains(name)) && names.len() == 5, "{names:?}");
    assert_eq!(server.metric("zeitnot_model_info").await, 3.0, "five names, three models");
    let described = server.models().get_model(GetModelRequest { name: "all".into() }).await.unwrap().into_inner();
    let model = described.model.unwrap();
    assert_eq!((model.encoding.as_str(), model.interpolated, model.version.as_str()), ("otter/1", false, "7"));
    assert_eq!(model.license, "licence of high, licence of low, licence of middle");
    let members = model.members.iter().map(|m| (m.name.as_str(), m.rating, m.lowest_rating, m.highest_rating));
    let expected =
        [("low", 1100, None, Some(1199)), ("middle", 1300, Some(1200), Some(1599)), ("high", 1900, Some(1600), None)];
    assert_eq!(members.collect::<Vec<_>>(), expected);
    assert!(models[0].interpolated);
}

#[tokio::test]
async fn a_member_that_changes_changes_its_ensembles() {
    let folder = folder(false);
    let server = start(folder.path(), &[]).await;
    let reload = async || server.models().reload_models(ReloadModelsRequest {}).await;
    assert_eq!(reload().await.unwrap().into_inner().loaded, Vec::<String>::new());
    let before = ask(&server, "all", Some(1300)).await;
    fs::write(folder.path().join("middle.onnx"), model("middle", 9.0)).unwrap();
    assert_eq!(reload().await.unwrap().into_inner().loaded, ["all", "middle"]);
    assert_ne!(probabilities(&ask(&server, "all", Some(1300)).await), probabilities(&before));

    fs::write(folder.path().join("all.toml"), "name = \"all\"\n[[member]]\nrating = \"x\"\nfile = \"low.onnx\"")
        .unwrap();
    let error = reload().await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(error.message().contains("all.toml") && error.message().contains("line 3"), "{}", error.message());
    fs::write(folder.path().join("all.toml"), ensemble("low", false)).unwrap();
    let error = reload().await.unwrap_err();
    assert!(error.message().contains("another file also holds a model `low`"), "{}", error.message());
    fs::remove_file(folder.path().join("high.onnx")).unwrap();
    fs::write(folder.path().join("all.toml"), ensemble("all", false)).unwrap();
    let error = reload().await.unwrap_err();
    assert!(error.message().contains("all.toml: a member cannot be served"), "{}", error.message());
    assert_eq!(members(&ask(&server, "all", Some(1900)).await), whole("high"), "served on");
}

#[tokio::test]
async fn a_finished_game_is_answered_for_the_ensemble() {
    let folder = folder(true);
    let server = start(folder.path(), &[]).await;
    let answer = server.predictions().predict(request(&["f3", "e5", "g4", "Qh4#"])).await.unwrap().into_inner();
    assert_eq!(answer.model.unwrap().name, "all");
    assert!(answer.moves.is_empty());
}
