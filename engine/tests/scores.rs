//! A real engine: what it thinks of moves, in time and out of it.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod common;

use std::time::{Duration, Instant};

use common::{START, Sidecar, centipawns, request, stockfish};
use zeitnot_engine::config::{Config, EngineOption};
use zeitnot_proto::engine::v1::{EvaluateCandidatesRequest, Limits, candidate_score::Score};

#[tokio::test]
async fn scores_are_the_movers_and_a_queen_given_away_scores_low() {
    let Some(config) = stockfish() else { return };
    let sidecar = Sidecar::start(config).await;
    // 1. e4 d5: Qg4 loses the queen to the bishop on c8. After 1. d4 e5, for Black, Qg5 loses her to the one on c1.
    for (fen, blunder, good) in [
        ("rnbqkbnr/ppp1pppp/8/3p4/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 0 2", "d1g4", "e4d5"),
        ("rnbqkbnr/pppp1ppp/8/4p3/3P4/8/PPP1PPPP/RNBQKBNR b KQkq - 0 2", "d8g5", "e5d4"),
    ] {
        let answer = sidecar.ask(request(fen, &[blunder, good], 8)).await.unwrap();
        let (worst, best) = (&answer.scores[0], &answer.scores[1]);
        assert_eq!((worst.uci.as_str(), best.uci.as_str()), (blunder, good), "the order of the request");
        assert!(centipawns(worst) < -400 && centipawns(best) > -150, "{answer:?}");
        assert_eq!((worst.rank, best.rank), (2, 1));
        assert!(answer.complete && !answer.cached && answer.depth == 8 && answer.nodes > 0, "{answer:?}");
        assert!(answer.engine.starts_with("Stockfish"), "{}", answer.engine);
    }
}

#[tokio::test]
async fn mates_are_counted_from_the_movers_side() {
    let Some(config) = stockfish() else { return };
    let sidecar = Sidecar::start(config).await;
    let mates = "6k1/5ppp/8/8/8/8/8/R3K2R w KQ - 0 1";
    let answer = sidecar.ask(request(mates, &["e1g1", "a1a8"], 8)).await.unwrap();
    assert_eq!(answer.scores[1].score, Some(Score::Mate(1)));
    assert_eq!((answer.scores[1].rank, answer.scores[0].uci.as_str()), (1, "e1g1"));
    let doomed = "k7/8/1K6/8/8/8/8/7R b - - 0 1";
    let answer = sidecar.ask(request(doomed, &["a8b8"], 8)).await.unwrap();
    assert_eq!(answer.scores[0].score, Some(Score::Mate(-1)));
}

#[tokio::test]
async fn an_identical_question_is_answered_from_the_cache_in_its_own_order() {
    let Some(config) = stockfish() else { return };
    let sidecar = Sidecar::start(config).await;
    let first = sidecar.ask(request(START, &["a2a3", "e2e4", "g2g4"], 6)).await.unwrap();
    let again = sidecar.ask(request(START, &["g2g4", "a2a3", "e2e4"], 6)).await.unwrap();
    assert!(!first.cached && again.cached && again.complete);
    let order = [&first.scores[2], &first.scores[0], &first.scores[1]];
    assert!(again.scores.iter().eq(order), "{first:?}\n{again:?}");
    for other in [request(START, &["g2g4", "a2a3"], 6), request(START, &["g2g4", "a2a3", "e2e4"], 5)] {
        assert!(!sidecar.ask(other).await.unwrap().cached);
    }
    assert_eq!(sidecar.metric("zeitnot_sidecar_cache_requests_total{result=\"hit\"}").await, 1.0);
    assert_eq!(sidecar.metric("zeitnot_sidecar_cache_requests_total{result=\"miss\"}").await, 3.0);
    assert_eq!(sidecar.metric("zeitnot_sidecar_search_seconds_count").await, 3.0);
    assert!(sidecar.metric("zeitnot_sidecar_nodes_total").await > 100.0);
}

#[tokio::test]
async fn what_was_scored_by_the_deadline_arrives_in_time_and_is_not_kept() {
    let Some(config) = stockfish() else { return };
    let sidecar = Sidecar::start(config).await;
    for _ in 0..2 {
        let started = Instant::now();
        let asked = request(START, &["e2e4", "d2d4", "a2a4"], 60);
        let answer = sidecar.ask_within(asked, Duration::from_millis(400)).await.unwrap();
        let took = started.elapsed();
        assert!(!answer.complete && !answer.cached && answer.depth > 0, "{answer:?}");
        assert!(answer.scores.iter().all(|score| score.score.is_some()), "{answer:?}");
        assert!(took > Duration::from_millis(330) && took < Duration::from_millis(400), "{took:?}");
    }
    assert_eq!(sidecar.metric("zeitnot_sidecar_partial_total").await, 2.0);
}

#[tokio::test]
async fn each_limit_ends_a_search() {
    let Some(config) = stockfish() else { return };
    let sidecar = Sidecar::start(config).await;
    let movetime = Some(prost_types::Duration { seconds: 0, nanos: 50_000_000 });
    for limits in [
        Limits { nodes: 2000, ..Limits::default() },
        Limits { movetime, ..Limits::default() },
        Limits { depth: 60, nodes: 2000, movetime },
    ] {
        let asked = EvaluateCandidatesRequest { limits: Some(limits), ..request(START, &["e2e4", "c2c4"], 1) };
        let answer = sidecar.ask(asked).await.unwrap();
        assert!(answer.complete && answer.depth > 0, "{answer:?}");
    }
}

#[tokio::test]
async fn the_engine_is_described() {
    let Some(config) = stockfish() else { return };
    let config = Config { processes: 2, engine_option: vec![EngineOption::new("hash", "16")], ..config };
    let sidecar = Sidecar::start(config).await;
    sidecar.until("zeitnot_sidecar_processes_ready", 2.0).await;
    let engine = sidecar.engine().await;
    assert!(engine.name.starts_with("Stockfish") && engine.author.contains("Stockfish"), "{engine:?}");
    let options = engine.options.iter().map(|(name, value)| format!("{name}={value}"));
    let mut options = options.collect::<Vec<_>>();
    options.sort();
    assert_eq!(options, ["Threads=1", "hash=16"]);
    assert_eq!((engine.processes, engine.ready, engine.waiting, engine.restarts), (2, 2, 0, 0));
    assert!(engine.searches_candidates_together);
}
