//! Predict and the model service over real gRPC.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::time::Duration;

use common::{Server, get, request, seconds, slow_model};
use tokio::task::JoinHandle;
use tonic::{Code, Request, Response, Status};
use tonic_types::StatusExt;
use zeitnot_proto::v1::{
    GameOver, GetModelRequest, ListModelsRequest, Mover, Position, PredictRequest, PredictResponse, RatingSystem,
};

#[tokio::test]
async fn a_position_gets_its_legal_moves_most_probable_first() {
    let server = Server::start(&[]).await;
    let answer = server.predictions().predict(request(&["e2e4", "c7c5"])).await.unwrap().into_inner();
    assert_eq!(answer.moves.len(), 30);
    let total = answer.moves.iter().map(|mv| f64::from(mv.probability)).sum::<f64>();
    assert!((total - 1.0).abs() < 1e-5, "{total}");
    assert!(answer.moves.windows(2).all(|pair| pair[0].probability >= pair[1].probability));
    assert_eq!((answer.moves[0].uci.as_str(), answer.moves[0].san.as_str()), ("g1f3", "Nf3"), "what people play");
    let outlook = answer.outlook.unwrap();
    let [win, draw, loss] = [outlook.win, outlook.draw, outlook.loss].map(Option::unwrap);
    assert!((win + draw + loss - 1.0).abs() < 1e-5 && (outlook.expected_score - win - 0.5 * draw).abs() < 1e-5);
    let time = answer.think_time.unwrap();
    let seconds_of = |time: Option<prost_types::Duration>| Duration::try_from(time.unwrap()).unwrap();
    let [p10, median, p90] = [time.p10, time.median, time.p90].map(seconds_of);
    assert!(p10 <= median && median <= p90 && p90 < Duration::from_secs(60), "the second move of a game: {time:?}");
    let conditions = answer.conditions.unwrap();
    assert_eq!((conditions.mover_rating, conditions.opponent_rating), (Some(1500), Some(1520)));
    assert_eq!((conditions.mover_remaining, conditions.opponent_remaining), (seconds(590), seconds(580)));
    assert_eq!(conditions.mover_rating_system(), RatingSystem::Lichess);
    assert_eq!(conditions.history_moves, 2);
    assert!(conditions.unknown.is_empty() && conditions.notes.is_empty());
    assert_eq!(answer.model.unwrap().encoding, "zeitnot/1");
    assert_eq!(answer.timings.unwrap().batch_size, 1);

    let few = PredictRequest { top_k: 3, ..request(&["e4", "c5"]) };
    let few = server.predictions().predict(few).await.unwrap().into_inner();
    assert_eq!(few.moves, answer.moves[..3], "SAN and UCI mean the same, top_k only cuts");
}

#[tokio::test]
async fn conditions_change_the_prediction() {
    let server = Server::start(&[]).await;
    let moves = ["e4", "e5", "Nf3", "Nc6", "Bc4", "Nd4"];
    let known = request(&moves);
    let first = server.predictions().predict(known.clone()).await.unwrap().into_inner();
    let changes: [fn(&mut PredictRequest); 5] = [
        |request| request.mover.as_mut().unwrap().rating = Some(2200),
        |request| request.mover.as_mut().unwrap().rating_system = RatingSystem::Chesscom.into(),
        |request| request.clock.as_mut().unwrap().opponent_remaining = seconds(8),
        |request| request.clock.as_mut().unwrap().mover_remaining = seconds(8),
        |request| request.position.as_mut().unwrap().moves.swap(0, 2),
    ];
    for change in changes {
        let mut changed = known.clone();
        change(&mut changed);
        let second = server.predictions().predict(changed).await.unwrap().into_inner();
        assert_ne!(first.moves, second.moves);
    }
    let unknown = PredictRequest { position: known.position.clone(), ..PredictRequest::default() };
    let answer = server.predictions().predict(unknown).await.unwrap().into_inner();
    let expected = [
        "mover.rating",
        "opponent.rating",
        "mover.rating_system",
        "opponent.rating_system",
        "time_control",
        "clock.mover_remaining",
        "clock.opponent_remaining",
    ];
    assert_eq!(answer.conditions.unwrap().unknown, expected);
    assert!(!answer.moves.is_empty());
}

#[tokio::test]
async fn a_finished_game_answers_with_its_outcome_and_no_moves() {
    let server = Server::start(&[]).await;
    let answer = server.predictions().predict(request(&["f3", "e5", "g4", "Qh4#"])).await.unwrap().into_inner();
    assert_eq!(answer.game_over(), GameOver::Checkmate);
    assert!(answer.moves.is_empty() && answer.outlook.is_none());
    let stalemate = Position { initial_fen: "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1".into(), moves: vec![] };
    let stalemate = PredictRequest { position: Some(stalemate), ..PredictRequest::default() };
    assert_eq!(server.predictions().predict(stalemate).await.unwrap().get_ref().game_over(), GameOver::Stalemate);
}

#[tokio::test]
async fn invalid_requests_name_every_field() {
    let server = Server::start(&["--max-moves=40"]).await;
    let mut bad = request(&["e4", "e5", "Nf7"]);
    bad.mover = Some(Mover { rating: Some(9000), rating_system: 0, style: None });
    let status = server.predictions().predict(bad).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("moves[2]: Nf7 is not legal in this position"), "{}", status.message());
    let details = status.get_error_details();
    let fields = details.bad_request().unwrap().field_violations.iter().map(|v| v.field.as_str()).collect::<Vec<_>>();
    assert_eq!(fields, ["mover.rating", "position.moves[2]"]);
    assert_eq!(details.error_info().unwrap().reason, "INVALID_REQUEST");

    let fen = Position { initial_fen: "banana".into(), moves: vec![] };
    let status =
        server.predictions().predict(PredictRequest { position: Some(fen), ..PredictRequest::default() }).await;
    assert!(status.unwrap_err().message().starts_with("position.initial_fen: "));
    let long = request(&["Nf3", "Nf6", "Ng1", "Ng8"].repeat(11));
    let status = server.predictions().predict(long).await.unwrap_err();
    assert!(status.message().contains("44 moves are more than the 40"), "{}", status.message());
    let stranger = PredictRequest { model: "stranger".into(), ..request(&[]) };
    let status = server.predictions().predict(stranger).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::NotFound, "model: there is no model `stranger`"));
    let huge = request(&[&"x".repeat(100_000)]);
    assert_eq!(server.predictions().predict(huge).await.unwrap_err().code(), Code::OutOfRange);
    assert_eq!(server.metric("zeitnot_requests_total{code=\"OUT_OF_RANGE\",method=\"Predict\"").await, 1.0);
    assert_eq!(server.metric("zeitnot_requests_total{code=\"INVALID_ARGUMENT\",method=\"Predict\"").await, 3.0);
}

#[tokio::test]
async fn models_are_listed_and_described() {
    let slow = slow_model();
    let server = Server::start(&["--model", slow.to_str().unwrap(), "--device=auto"]).await;
    let list = server.models().list_models(ListModelsRequest {}).await.unwrap().into_inner().models;
    assert_eq!(list.len(), 1);
    let described = server.models().get_model(GetModelRequest { name: "slow".into() }).await.unwrap().into_inner();
    let model = described.model.unwrap();
    assert_eq!(model, list[0]);
    assert_eq!((model.name.as_str(), model.version.as_str(), model.is_default), ("slow", "7", true));
    assert_eq!(model.execution_provider, "cpu", "auto falls back visibly");
    let missing = server.models().get_model(GetModelRequest { name: "x".into() }).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    assert_eq!(server.metric("zeitnot_requests_total{code=\"NOT_FOUND\",method=\"GetModel\"").await, 1.0);
}

#[tokio::test]
async fn a_batch_changes_no_answer() {
    let server = Server::start(&["--workers=1", "--max-batch=16"]).await;
    let lines: [&[&str]; 4] = [&["e4"], &["d4", "d5", "c4"], &["e4", "e5", "Nf3", "Nc6", "Bb5"], &["Nf3", "d5", "g3"]];
    let mut alone = Vec::new();
    for moves in lines {
        alone.push(server.predictions().predict(request(moves)).await.unwrap().into_inner());
    }
    let mut together = Vec::new();
    for round in 0..64 {
        let mut client = server.predictions();
        let moves = lines[round % 4];
        together.push((round % 4, tokio::spawn(async move { client.predict(request(moves)).await })));
    }
    let mut largest = 0;
    for (line, task) in together {
        let answer = task.await.unwrap().unwrap().into_inner();
        largest = largest.max(answer.timings.unwrap().batch_size);
        assert_close(&answer, &alone[line]);
    }
    assert!(largest > 1, "64 requests at once share batches");
    server.until(&counted("OK"), 68.0).await;
    assert_eq!(server.metric("zeitnot_admitted_requests").await, 0.0);
}

fn assert_close(a: &PredictResponse, b: &PredictResponse) {
    for mv in &a.moves {
        let other = b.moves.iter().find(|other| other.uci == mv.uci).unwrap();
        assert!((mv.probability - other.probability).abs() < 1e-4, "{mv:?} {other:?}");
    }
    assert_eq!(a.moves.len(), b.moves.len());
}

#[tokio::test]
async fn who_is_in_a_hurry_overtakes_and_who_would_be_late_is_refused_at_once() {
    let slow = slow_model();
    let flags = ["--model", slow.to_str().unwrap(), "--workers=1", "--max-batch=1", "--device=cpu"];
    let server = Server::start(&flags).await;
    let busy = keep_busy(&server, 96).await;
    let hasty = || {
        let mut hasty = Request::new(request(&[]));
        hasty.set_timeout(Duration::from_millis(400));
        hasty
    };
    let answer = server.predictions().predict(hasty()).await.unwrap().into_inner();
    assert_eq!(answer.moves.len(), 20, "though 96 were before it");
    let crowd = (0..64).map(|_| {
        let (mut client, request) = (server.predictions(), hasty());
        tokio::spawn(async move { client.predict(request).await })
    });
    let mut refused = 0;
    for task in crowd.collect::<Vec<_>>() {
        let Err(status) = task.await.unwrap() else { continue };
        let details = status.get_error_details();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
        assert_eq!(details.error_info().unwrap().reason, "QUEUE_TOO_LONG");
        assert!(details.retry_info().unwrap().retry_delay.is_some());
        refused += 1;
    }
    assert!(refused > 16, "64 runs take longer than 400 ms, {refused} were refused");
    for task in busy {
        task.await.unwrap().unwrap();
    }
    server.until("zeitnot_admitted_requests", 0.0).await;
    assert_eq!(
        server.metric("zeitnot_batch_rows_sum").await,
        f64::from(97 + 64 - refused),
        "the rest is never computed"
    );

    let strict = Server::start(&["--model", slow.to_str().unwrap(), "--max-deadline-ms=1"]).await;
    let status = strict.predictions().predict(request(&[])).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "the server's own limit");
    strict.until(&counted("DEADLINE_EXCEEDED"), 1.0).await;
}

/// Sends requests and waits until all are admitted or already answered.
async fn keep_busy(server: &Server, requests: usize) -> Vec<JoinHandle<Result<Response<PredictResponse>, Status>>> {
    let tasks = (0..requests).map(|_| {
        let mut client = server.predictions();
        tokio::spawn(async move { client.predict(request(&[])).await })
    });
    let tasks = tasks.collect();
    server.admitted(requests as f64).await;
    tasks
}

/// The name of a counter of Predict requests.
fn counted(code: &str) -> String {
    format!("zeitnot_requests_total{{code=\"{code}\",method=\"Predict\",")
}

#[tokio::test]
async fn a_full_queue_refuses_with_a_time_to_retry() {
    let slow = slow_model();
    let flags = ["--model", slow.to_str().unwrap(), "--workers=1", "--max-batch=1", "--queue=2"];
    let server = Server::start(&flags).await;
    let tasks = (0..12).map(|_| {
        let mut client = server.predictions();
        tokio::spawn(async move { client.predict(request(&[])).await })
    });
    let mut refused = 0.0;
    for task in tasks.collect::<Vec<_>>() {
        if let Err(status) = task.await.unwrap() {
            assert_eq!(status.code(), Code::ResourceExhausted);
            let retry = status.get_error_details().retry_info().unwrap().retry_delay.unwrap();
            assert!(retry >= Duration::from_millis(10));
            refused += 1.0;
        }
    }
    assert!(refused >= 1.0);
    assert_eq!(server.metric(&counted("RESOURCE_EXHAUSTED")).await, refused);
    assert_eq!(server.metric(&counted("OK")).await, 12.0 - refused);
    server.predictions().predict(request(&[])).await.unwrap();
}

#[tokio::test]
async fn a_cancelled_request_is_counted_as_cancelled_and_never_computed() {
    let slow = slow_model();
    let server = Server::start(&["--model", slow.to_str().unwrap(), "--workers=1", "--max-batch=1"]).await;
    let busy = keep_busy(&server, 48).await;
    let mut client = server.predictions();
    let task = tokio::spawn(async move { client.predict(request(&["e4"])).await });
    server.admitted(49.0).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    server.until(&counted("CANCELLED"), 1.0).await;
    for task in busy {
        task.await.unwrap().unwrap();
    }
    server.until("zeitnot_dropped_requests_total{model=\"slow\",reason=\"cancelled\"}", 1.0).await;
    assert_eq!(server.metric("zeitnot_batch_rows_sum").await, 48.0);
}

#[tokio::test]
async fn health_follows_the_model_and_liveness_does_not() {
    use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
    let slow = slow_model();
    // Warming a batch of 128 takes long enough to look before.
    let server = Server::start_cold(&["--model", slow.to_str().unwrap(), "--max-batch=128"]).await;
    assert_eq!(get(&server.admin, "/live").await.0, 200);
    assert_eq!(get(&server.admin, "/ready").await.0, 503);
    let early = server.models().list_models(ListModelsRequest {}).await.unwrap_err();
    assert_eq!(early.code(), Code::Unavailable, "what is not loaded is not an empty list");
    let mut health = HealthClient::new(server.channel.clone());
    let mut watch = health.watch(HealthCheckRequest { service: String::new() }).await.unwrap().into_inner();
    let mut last = watch.message().await.unwrap().unwrap().status();
    while last != ServingStatus::Serving {
        assert_eq!(last, ServingStatus::NotServing, "nothing but not serving comes before");
        last = watch.message().await.unwrap().unwrap().status();
    }
    for service in ["", "zeitnot.v1.PredictionService", "zeitnot.v1.ModelService"] {
        let answer = health.check(HealthCheckRequest { service: service.into() }).await.unwrap();
        assert_eq!(answer.get_ref().status(), ServingStatus::Serving, "{service}");
    }
    assert_eq!(get(&server.admin, "/ready").await.0, 200);
    drop(watch);
    drop(health);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_asked_to_end_while_it_loads_ends() {
    let slow = slow_model();
    let server = Server::start_cold(&["--model", slow.to_str().unwrap()]).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_model_that_cannot_be_loaded_ends_the_server_with_its_name() {
    let server = Server::start_cold(&["--model=/nowhere/model.onnx"]).await;
    let error = format!("{:#}", server.ended().await.unwrap_err());
    assert!(error.contains("--model: cannot read /nowhere/model.onnx"), "{error}");
}

#[tokio::test]
async fn both_reflection_protocols_describe_the_services_unless_switched_off() {
    use tonic_reflection::pb::{v1, v1alpha};
    let server = Server::start(&[]).await;
    let question = v1::server_reflection_request::MessageRequest::ListServices(String::new());
    let request = v1::ServerReflectionRequest { host: String::new(), message_request: Some(question) };
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(server.channel.clone());
    let mut answers = client.server_reflection_info(tokio_stream::once(request.clone())).await.unwrap().into_inner();
    let text = format!("{:?}", answers.message().await.unwrap().unwrap());
    for service in ["zeitnot.v1.PredictionService", "zeitnot.v1.ModelService", "grpc.health.v1.Health"] {
        assert!(text.contains(service), "{text}");
    }
    let question = v1alpha::server_reflection_request::MessageRequest::FileContainingSymbol("zeitnot.v1.Model".into());
    let older = v1alpha::ServerReflectionRequest { host: String::new(), message_request: Some(question) };
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(server.channel.clone());
    let mut answers = client.server_reflection_info(tokio_stream::once(older)).await.unwrap().into_inner();
    assert!(format!("{:?}", answers.message().await.unwrap().unwrap()).contains("FileDescriptorResponse"));

    let silent = Server::start(&["--reflection=false"]).await;
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(silent.channel.clone());
    let status = client.server_reflection_info(tokio_stream::once(request)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
}
