//! Re-ranking over real gRPC, with a scripted sidecar: what evidence does, and that its lack fails nothing.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod common;

use std::time::Duration;

use common::{
    Act, BlackHole, Server, Sidecar,
    asking::{GAME, ask, is_the_prior, reason, server_with, until, with},
    request, strong,
};
use tonic::{Code, Request};
use zeitnot_proto::v1::{PredictRequest, PredictResponse, Rerank, RerankMode, RerankStatus, evidence::Score};

#[tokio::test]
async fn evidence_reranks_the_moves_and_is_shown() {
    let sidecar = Sidecar::start(Act::Score(vec![]));
    let server = server_with(&sidecar.flag()).await;
    let prior = ask(&server, with(RerankMode::Off, strong(&GAME))).await;
    assert!(is_the_prior(&prior) && prior.rerank_status() == RerankStatus::PriorOnly);
    assert_eq!(sidecar.asked(), 0, "nobody asked an engine");
    let answer = ask(&server, strong(&GAME)).await;
    assert_eq!(answer.rerank_status(), RerankStatus::Applied);
    assert_eq!(answer.moves.len(), prior.moves.len());
    assert!(answer.moves.windows(2).all(|pair| pair[0].probability >= pair[1].probability));
    for mv in &answer.moves {
        let before = prior.moves.iter().find(|before| before.uci == mv.uci).unwrap();
        assert_eq!((mv.prior_probability, &mv.san), (before.probability, &before.san));
    }
    assert!(answer.moves.iter().any(|mv| (mv.probability - mv.prior_probability).abs() > 1e-4), "it does something");
    let candidates = sidecar.last().candidates;
    assert_eq!(candidates.len(), 16);
    let expected = prior.moves[..16].iter().map(|mv| mv.uci.clone()).collect::<Vec<_>>();
    assert_eq!(candidates, expected, "the prior's best");
    for (place, uci) in candidates.iter().enumerate() {
        let evidence = answer.moves.iter().find(|mv| mv.uci == *uci).unwrap().evidence.unwrap();
        assert_eq!(evidence.score, Some(Score::Centipawns(100 - 10 * place as i32)));
        assert_eq!((evidence.rank as usize, evidence.depth, evidence.loss as usize), (place + 1, 12, 10 * place));
    }
    assert_eq!(answer.moves.iter().filter(|mv| mv.evidence.is_some()).count(), 16);
    let (timings, insight) = (answer.timings.unwrap(), answer.insight.unwrap());
    assert!(timings.engine.is_some() && timings.rerank.is_some());
    assert_eq!(insight.best_move.unwrap().uci, candidates[0]);
    assert!(insight.scored_probability > 0.9 && insight.scored_probability < 1.0001);
    let few = ask_few(&server).await;
    assert_eq!(few.moves[..], answer.moves[..3], "top_k only cuts");
    assert_eq!(server.metric("zeitnot_rerank_total{status=\"applied\"}").await, 2.0);
    assert_eq!(server.metric("zeitnot_reranker_seconds_count").await, 2.0);
}

async fn ask_few(server: &Server) -> PredictResponse {
    server.predictions().predict(PredictRequest { top_k: 3, ..strong(&GAME) }).await.unwrap().into_inner()
}

#[tokio::test]
async fn without_engines_everything_is_the_prior() {
    let server = Server::start(&[]).await;
    for mode in [RerankMode::Unspecified, RerankMode::Off, RerankMode::Auto] {
        let answer = ask(&server, with(mode, strong(&GAME))).await;
        assert!(is_the_prior(&answer) && answer.rerank_status() == RerankStatus::PriorOnly);
        assert_eq!(answer.timings.unwrap().engine, None);
    }
    let status = server.predictions().predict(with(RerankMode::Required, request(&GAME))).await.unwrap_err();
    assert_eq!(reason(&status), (Code::Unavailable, "NO_ENGINES".to_owned()));
}

#[tokio::test]
async fn the_answer_says_why_nothing_was_searched() {
    let sidecar = Sidecar::start(Act::Score(vec![]));
    let server = Server::start(&[&sidecar.flag(), "--rerank-rating=2000"]).await;
    let mut unknown = request(&GAME);
    unknown.mover = None;
    for weak in [request(&GAME), unknown] {
        let answer = ask(&server, weak).await;
        assert!(is_the_prior(&answer) && answer.rerank_status() == RerankStatus::SkippedBelowRating);
    }
    let mut one = strong(&[]);
    one.position.as_mut().unwrap().initial_fen = "7k/8/8/8/8/8/r7/7K w - - 0 1".into();
    for mode in [RerankMode::Auto, RerankMode::Required] {
        let answer = ask(&server, with(mode, one.clone())).await;
        assert_eq!((answer.moves.len(), answer.rerank_status()), (1, RerankStatus::SkippedOneLegalMove));
    }
    let over = server.predictions().predict(with(RerankMode::Required, strong(&["f3", "e5", "g4", "Qh4"]))).await;
    assert_eq!(over.unwrap().into_inner().rerank_status(), RerankStatus::Unspecified);
    assert_eq!(sidecar.asked(), 0);
    assert!(ask(&server, with(RerankMode::Required, request(&GAME))).await.moves[0].evidence.is_some());
}

#[tokio::test]
async fn without_a_reranker_evidence_is_shown_and_changes_nothing() {
    let sidecar = Sidecar::start(Act::Score(vec![]));
    let server = Server::start(&[&sidecar.flag(), "--reranker=none"]).await;
    let answer = ask(&server, strong(&GAME)).await;
    assert_eq!(answer.rerank_status(), RerankStatus::PriorOnly);
    assert!(answer.insight.is_some());
    assert!(answer.moves.iter().all(|mv| mv.probability == mv.prior_probability));
    assert_eq!(answer.moves.iter().filter(|mv| mv.evidence.is_some()).count(), 16);
}

#[tokio::test]
async fn limits_come_from_the_request_the_pace_and_the_deadline() {
    let sidecar = Sidecar::start(Act::Score(vec![]));
    let server = Server::start(&[&sidecar.flag(), "--engine-budget=0.5", "--reranker=none"]).await;
    ask(&server, strong(&GAME)).await;
    let limits = sidecar.last().limits.unwrap();
    assert_eq!((limits.depth, limits.nodes), (0, 0));
    assert_eq!(limits.movetime, Some(prost_types::Duration { seconds: 0, nanos: 250_000_000 }), "half of rapid's");
    let movetime = Some(prost_types::Duration { seconds: 0, nanos: 30_000_000 });
    let own = Rerank { mode: RerankMode::Auto.into(), depth: 7, nodes: 5000, movetime };
    ask(&server, PredictRequest { rerank: Some(own), ..strong(&GAME) }).await;
    let limits = sidecar.last().limits.unwrap();
    assert_eq!((limits.depth, limits.nodes, limits.movetime), (7, 5000, movetime));
    let mut short = Request::new(strong(&GAME));
    short.set_timeout(Duration::from_millis(220));
    server.predictions().predict(short).await.unwrap();
    let movetime = Duration::try_from(sidecar.last().limits.unwrap().movetime.unwrap()).unwrap();
    assert!(movetime < Duration::from_millis(200), "{movetime:?}");
}

#[tokio::test]
async fn no_fault_of_an_engine_fails_a_prediction() {
    let sidecar = Sidecar::start(Act::Score(vec![]));
    let server = server_with(&sidecar.flag()).await;
    let faults = [
        (Act::Hang, "timeout"),
        (Act::Slow(Duration::from_secs(5)), "timeout"),
        (Act::Refuse(Code::Unavailable), "error"),
        (Act::Refuse(Code::Internal), "error"),
        (Act::Refuse(Code::InvalidArgument), "error"),
        (Act::Refuse(Code::ResourceExhausted), "full"),
        (Act::Refuse(Code::DeadlineExceeded), "timeout"),
        (Act::Nothing, "empty"),
        (Act::WrongMove, "lied"),
        (Act::Twice, "lied"),
        (Act::TooMany, "lied"),
        (Act::Absurd, "lied"),
        (Act::Flood, "lied"),
    ];
    for (fault, outcome) in faults {
        let metric =
            format!("zeitnot_engine_requests_total{{endpoint=\"http://{}\",outcome=\"{outcome}\"}}", sidecar.address);
        let before = server.metric(&metric).await;
        sidecar.act(fault.clone());
        let mut asked = Request::new(strong(&GAME));
        asked.set_timeout(Duration::from_secs(3));
        let answer = server.predictions().predict(asked).await.unwrap().into_inner();
        assert_eq!(answer.rerank_status(), RerankStatus::SkippedEngineUnavailable, "{fault:?}");
        assert!(is_the_prior(&answer) && answer.moves.len() > 20, "{fault:?}");
        assert_eq!(server.metric(&metric).await, before + 1.0, "{fault:?}");
        let required = with(RerankMode::Required, strong(&GAME));
        let status = server.predictions().predict(required).await.unwrap_err();
        let expected = if outcome == "timeout" { "ENGINE_TOO_LATE" } else { "ENGINE_UNAVAILABLE" };
        assert_eq!(reason(&status), (Code::Unavailable, expected.to_owned()), "{fault:?}");
        sidecar.act(Act::Score(vec![]));
        until(&server, RerankStatus::Applied).await;
    }
}

#[tokio::test]
async fn partial_and_permuted_answers_are_used() {
    let sidecar = Sidecar::start(Act::Half);
    let server = server_with(&sidecar.flag()).await;
    let half = ask(&server, strong(&GAME)).await;
    assert_eq!(half.rerank_status(), RerankStatus::Applied);
    assert_eq!(half.moves.iter().filter(|mv| mv.evidence.is_some()).count(), 8);
    let partial =
        format!("zeitnot_engine_requests_total{{endpoint=\"http://{}\",outcome=\"partial\"}}", sidecar.address);
    assert_eq!(server.metric(&partial).await, 1.0);
    sidecar.act(Act::Score(vec![]));
    let straight = ask(&server, strong(&GAME)).await;
    sidecar.act(Act::Backwards);
    assert_eq!(ask(&server, strong(&GAME)).await.moves, straight.moves);
}

#[tokio::test]
async fn an_engine_that_cannot_be_reached_is_found_when_it_comes_and_comes_back() {
    let gone = Sidecar::start(Act::Score(vec![])).kill();
    let server = server_with(&format!("--engines=http://{gone}")).await;
    for _ in 0..8 {
        assert_eq!(ask(&server, strong(&GAME)).await.rerank_status(), RerankStatus::SkippedEngineUnavailable);
    }
    assert_eq!(server.metric("zeitnot_engine_breaker{").await, 2.0, "it is left alone");
    let mut sidecar = Sidecar::start_at(gone, Act::Score(vec![]));
    for _ in 0..2 {
        until(&server, RerankStatus::Applied).await;
        let address = sidecar.kill();
        until(&server, RerankStatus::SkippedEngineUnavailable).await;
        sidecar = Sidecar::start_at(address, Act::Score(vec![]));
    }
    until(&server, RerankStatus::Applied).await;
    assert_eq!(server.metric("zeitnot_engine_breaker{").await, 0.0);
    assert_eq!(server.metric("zeitnot_ready").await, 1.0);
}

#[tokio::test]
async fn a_partition_costs_no_prediction_and_heals() {
    let hole = BlackHole::start().await;
    let server = server_with(&format!("--engines=http://{}", hole.address)).await;
    for _ in 0..6 {
        let mut asked = Request::new(strong(&GAME));
        asked.set_timeout(Duration::from_secs(4));
        let answer = server.predictions().predict(asked).await.unwrap().into_inner();
        assert_eq!(answer.rerank_status(), RerankStatus::SkippedEngineUnavailable);
    }
    let _sidecar = Sidecar::start_at(hole.end().await, Act::Score(vec![]));
    until(&server, RerankStatus::Applied).await;
}

#[tokio::test]
async fn of_two_engines_the_living_one_answers_for_both() {
    let [dead, living] = [Sidecar::start(Act::Score(vec![])), Sidecar::start(Act::Score(vec![]))];
    let server = server_with(&format!("--engines=http://{},http://{}", dead.address, living.address)).await;
    let dead = dead.kill();
    for _ in 0..16 {
        assert_eq!(ask(&server, strong(&GAME)).await.rerank_status(), RerankStatus::Applied, "a retry finds the other");
    }
    assert_eq!(living.asked(), 16);
    assert_eq!(server.metric(&format!("zeitnot_engine_breaker{{endpoint=\"http://{dead}\"}}")).await, 2.0);
    let errors = format!("zeitnot_engine_requests_total{{endpoint=\"http://{dead}\",outcome=\"error\"}}");
    assert!(server.metric(&errors).await < 8.0, "after some failures it is left alone");
}

#[tokio::test]
async fn a_silent_engine_is_overtaken_by_another_and_then_left_alone() {
    let [silent, quick] = [Sidecar::start(Act::Hang), Sidecar::start(Act::Score(vec![]))];
    let server = server_with(&format!("--engines=http://{},http://{}", silent.address, quick.address)).await;
    let movetime = Some(prost_types::Duration { seconds: 0, nanos: 120_000_000 });
    let hasty = Rerank { movetime, ..Rerank::default() };
    let mut answered = 0;
    while server.metric(&format!("zeitnot_engine_breaker{{endpoint=\"http://{}\"}}", silent.address)).await == 0.0 {
        let answer = ask(&server, PredictRequest { rerank: Some(hasty), ..strong(&GAME) }).await;
        assert_eq!(answer.rerank_status(), RerankStatus::Applied);
        answered += 1;
        assert!(answered < 100, "its circuit stays closed");
    }
    assert_eq!(server.metric("zeitnot_engine_hedges_total").await, silent.asked() as f64);
    assert_eq!(quick.asked(), answered);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while silent.abandoned() < silent.asked() {
        assert!(tokio::time::Instant::now() < deadline, "the loser is told to stop");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_least_busy_engine_is_asked() {
    let slow = || Sidecar::start(Act::Slow(Duration::from_millis(300)));
    let sidecars = [slow(), slow()];
    let server = server_with(&format!("--engines=http://{},http://{}", sidecars[0].address, sidecars[1].address)).await;
    let asks = (0..8).map(|_| {
        let mut client = server.predictions();
        tokio::spawn(async move { client.predict(strong(&GAME)).await.unwrap().into_inner().rerank_status() })
    });
    for asked in asks.collect::<Vec<_>>() {
        assert_eq!(asked.await.unwrap(), RerankStatus::Applied);
    }
    assert_eq!(sidecars.each_ref().map(Sidecar::asked), [4, 4]);
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_search_along() {
    let sidecar = Sidecar::start(Act::Hang);
    let server = Server::start(&[&sidecar.flag()]).await;
    let mut client = server.predictions();
    let movetime = Some(prost_types::Duration { seconds: 30, nanos: 0 });
    let long = PredictRequest { rerank: Some(Rerank { movetime, ..Rerank::default() }), ..strong(&GAME) };
    let asked = tokio::spawn(async move { client.predict(long).await });
    while sidecar.asked() == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    asked.abort();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(8);
    while sidecar.abandoned() == 0 {
        assert!(tokio::time::Instant::now() < deadline, "the search goes on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(server.metric("zeitnot_engine_breaker{").await, 0.0, "the engine is not to blame");
}

#[tokio::test]
async fn clients_in_a_hurry_do_not_close_an_engine_for_others() {
    let sidecar = Sidecar::start(Act::Hang);
    let server = server_with(&sidecar.flag()).await;
    for _ in 0..10 {
        let mut asked = Request::new(strong(&GAME));
        asked.set_timeout(Duration::from_millis(150));
        let _ = server.predictions().predict(asked).await; // Late or not, on a busy machine.
    }
    assert_eq!(server.metric("zeitnot_engine_breaker{").await, 0.0);
    sidecar.act(Act::Score(vec![]));
    assert_eq!(ask(&server, strong(&GAME)).await.rerank_status(), RerankStatus::Applied);
}

#[tokio::test]
async fn engines_are_found_by_name() {
    let sidecar = Sidecar::start(Act::Score(vec![]));
    let server = server_with(&format!("--engines=dns:localhost:{}", sidecar.address.port())).await;
    until(&server, RerankStatus::Applied).await;
}

#[tokio::test]
async fn insight_names_the_likely_mistake() {
    // The most human move here loses a piece, says the sidecar.
    let sidecar = Sidecar::start(Act::Score(vec![]));
    let server = Server::start(&[&sidecar.flag(), "--rerank-rating=0", "--reranker=none"]).await;
    let prior = ask(&server, with(RerankMode::Off, request(&["e4", "c5"]))).await;
    assert_eq!(prior.moves[0].uci, "g1f3");
    sidecar.act(Act::Score(vec![("g1f3", -350), ("b1c3", 60)]));
    let answer = ask(&server, request(&["e4", "c5"])).await;
    let insight = answer.insight.unwrap();
    let mistake = insight.likely_mistake.clone().unwrap();
    assert_eq!((mistake.uci.as_str(), mistake.san.as_str()), ("g1f3", "Nf3"));
    assert_eq!((mistake.probability, insight.blunder_threshold), (prior.moves[0].probability, 0.15));
    assert!(insight.blunder_probability >= mistake.probability && mistake.loss > 300 && mistake.score_loss > 0.15);
    assert!(insight.expected_loss > mistake.probability * 300.0 * 0.9, "{insight:?}");
    assert!(insight.best_move.unwrap().probability > 0.0);
}
