//! What re-ranks: styles, the re-ranker's file and the allocator in it, and how they change without a restart.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod common;

use std::path::Path;

use common::{
    Act, Server, Sidecar,
    asking::{GAME, ask, is_the_prior, reason, with},
    request, reranker, reranker_file, slow_model, strong,
};
use tonic::Code;
use zeitnot_proto::v1::{PredictRequest, ReloadModelsRequest, RerankMode, RerankStatus, Style, StyleVector, style};

#[tokio::test]
async fn an_allocator_chooses_the_depth_or_no_search() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.onnx");
    let weights = |constant: f32| [&[constant][..], &[0.0; 9]].concat();
    let allocator =
        |gain| format!(r#"{{"price":1.0,"options":[{{"depth":9,"meganodes":0.1,"weights":{:?}}}]}}"#, weights(gain));
    std::fs::write(&file, reranker("r", &allocator(0.2))).unwrap();
    let sidecar = Sidecar::start(Act::Score(vec![]));
    let server = Server::start(&[&sidecar.flag(), "--reranker", file.to_str().unwrap()]).await;
    assert_eq!(ask(&server, strong(&GAME)).await.rerank_status(), RerankStatus::Applied);
    assert_eq!(sidecar.last().limits.unwrap().depth, 9);
    std::fs::write(&file, reranker("r", &allocator(0.05))).unwrap();
    server.models().reload_models(ReloadModelsRequest {}).await.unwrap();
    let answer = ask(&server, strong(&GAME)).await;
    assert!(is_the_prior(&answer) && answer.rerank_status() == RerankStatus::PriorOnly);
    assert_eq!(ask(&server, with(RerankMode::Required, strong(&GAME))).await.rerank_status(), RerankStatus::Applied);
    assert_eq!(sidecar.last().limits.unwrap().depth, 0);
}

fn styled(style: style::Style, mut asked: PredictRequest) -> PredictRequest {
    asked.mover.as_mut().unwrap().style = Some(Style { style: Some(style) });
    asked
}

fn named(name: &str) -> style::Style {
    style::Style::Name(name.to_owned())
}

fn write_style(folder: &Path, name: &str, reranker: &str, value: f32) {
    let values = vec![value.to_string(); 32].join(",");
    let text = format!(r#"{{"reranker":"{reranker}","player":"Someone","decisions":100,"values":[{values}]}}"#);
    std::fs::write(folder.join(format!("{name}.json")), text).unwrap();
}

#[tokio::test]
async fn styles_change_the_moves_by_name_and_by_vector() {
    let folder = tempfile::tempdir().unwrap();
    write_style(folder.path(), "someone", "scripted", 0.5);
    let (file, styles) = (reranker_file(), folder.path().to_str().unwrap());
    let server = Server::start(&["--reranker", file.to_str().unwrap(), "--styles", styles]).await;
    let plain = ask(&server, request(&GAME)).await;
    let someone = ask(&server, styled(named("someone"), request(&GAME))).await;
    assert_eq!(
        (someone.conditions.as_ref().unwrap().style.as_str(), plain.conditions.unwrap().style),
        ("someone", String::new())
    );
    assert_ne!(someone.moves, plain.moves);
    assert_eq!(someone.rerank_status(), RerankStatus::PriorOnly, "no engine was asked");
    assert!(someone.moves.iter().all(|mv| mv.evidence.is_none()));
    let vector = |values| style::Style::Vector(StyleVector { values });
    let same = ask(&server, styled(vector(vec![0.5; 32]), request(&GAME))).await;
    assert_eq!((same.conditions.unwrap().style.as_str(), &same.moves), ("vector", &someone.moves));
    let predict = |style| {
        let mut client = server.predictions();
        async move { client.predict(styled(style, request(&GAME))).await.unwrap_err() }
    };
    let status = predict(named("nobody")).await;
    assert_eq!(reason(&status), (Code::NotFound, "UNKNOWN_STYLE".to_owned()));
    assert!(status.message().contains("`nobody`"), "{}", status.message());
    let status = predict(vector(vec![0.5; 31])).await;
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().starts_with("mover.style.vector.values: "), "{}", status.message());

    write_style(folder.path(), "another", "scripted", -0.5);
    server.models().reload_models(ReloadModelsRequest {}).await.unwrap();
    ask(&server, styled(named("another"), request(&GAME))).await;
    write_style(folder.path(), "stranger", "other", 0.0);
    let failed = server.models().reload_models(ReloadModelsRequest {}).await.unwrap_err();
    assert!(failed.message().contains("stranger is for the re-ranker `other`"), "{}", failed.message());
    ask(&server, styled(named("another"), request(&GAME))).await;
}

#[tokio::test]
async fn the_answer_says_when_the_reranker_was_not_made_for_the_model() {
    let sidecar = Sidecar::start(Act::Score(vec![]));
    let (file, model) = (reranker_file(), slow_model());
    let flags = [&sidecar.flag(), "--reranker", file.to_str().unwrap(), "--model", model.to_str().unwrap()];
    let server = Server::start(&flags).await;
    let answer = ask(&server, strong(&GAME)).await;
    assert_eq!(answer.rerank_status(), RerankStatus::Applied);
    let notes = answer.conditions.unwrap().notes;
    assert!(notes.contains(&"re-ranker: learnt on the moves of `zeitnot`, not of `slow`".to_owned()), "{notes:?}");
}

#[tokio::test]
async fn a_style_needs_a_reranker() {
    let server = Server::start(&[]).await;
    let vector = style::Style::Vector(StyleVector { values: vec![0.0; 32] });
    let status = server.predictions().predict(styled(vector, request(&GAME))).await.unwrap_err();
    assert_eq!(reason(&status), (Code::FailedPrecondition, "NO_RERANKER".to_owned()));
}

#[tokio::test]
async fn a_reranker_changes_without_a_restart_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.onnx");
    std::fs::write(&file, reranker("first", "")).unwrap();
    let sidecar = Sidecar::start(Act::Score(vec![]));
    let server = Server::start(&[&sidecar.flag(), "--reranker", file.to_str().unwrap(), "--workers=2"]).await;
    let workers = "zeitnot_reranker_workers";
    server.until(workers, 2.0).await;
    let before = ask(&server, strong(&GAME)).await;
    std::fs::write(&file, "half a fi").unwrap();
    let failed = server.models().reload_models(ReloadModelsRequest {}).await.unwrap_err();
    assert!(failed.message().contains("r.onnx"), "{}", failed.message());
    assert_eq!(ask(&server, strong(&GAME)).await.moves, before.moves);
    std::fs::write(&file, reranker("second", "")).unwrap();
    server.models().reload_models(ReloadModelsRequest {}).await.unwrap();
    assert_eq!(ask(&server, strong(&GAME)).await.rerank_status(), RerankStatus::Applied);
    server.until(workers, 2.0).await;
    assert_eq!(server.metric("zeitnot_reloads_total{result=\"changed\"}").await, 1.0);
    server.stop().await.unwrap();
}
