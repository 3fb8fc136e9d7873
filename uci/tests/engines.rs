//! Real engines: Stockfish scores all candidates in one search; Ethereal 12 does not know `searchmoves`.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod common;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use common::{assert_ascending, assert_whole, late, scores, search_of, within};
use zeitnot_uci::{EngineConfig, Evaluation, Limits, Pool, Score, Search};

/// An open game in which White may castle.
const OPEN: &str = "r1bqkb1r/pppp1ppp/2n2n2/1B2p3/4P3/5N2/PPPP1PPP/RNBQK2R w KQkq - 4 4";
/// The knight at f6 takes a queen that goes to h5 or g4.
const QUEEN: &str = "rnbqkb1r/pppp1ppp/5n2/4p3/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 2 3";

fn program(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.native/bin").join(name);
    if !path.exists() {
        eprintln!("SKIPPED: there is no .native/bin/{name}; `make setup` fetches it");
        return None;
    }
    Some(path)
}

async fn pool(program: PathBuf) -> Pool {
    let mut config = EngineConfig::new(program);
    config.options = vec![("Hash".into(), "16".into()), ("Threads".into(), "1".into())];
    (config.handshake, config.grace) = (common::PATIENCE, Duration::from_secs(20));
    Pool::start(config, 1, 16).await.unwrap()
}

fn at_depth(fen: &str, candidates: &str, depth: u32) -> Search {
    search_of(fen, candidates, Limits { depth: Some(depth), ..Limits::default() })
}

async fn evaluate(pool: &Pool, fen: &str, candidates: &str, depth: u32) -> Evaluation {
    let evaluation = pool.evaluate(at_depth(fen, candidates, depth), late()).await.unwrap();
    assert_eq!(evaluation.lines.len(), candidates.split(' ').count());
    assert_whole(&evaluation, depth);
    evaluation
}

fn ranks(evaluation: &Evaluation) -> Vec<u32> {
    evaluation.lines.iter().map(|line| line.as_ref().unwrap().rank).collect()
}

fn centipawns(evaluation: &Evaluation) -> Vec<i32> {
    let of = |score: Option<Score>| match score {
        Some(Score::Centipawns(cp)) => cp,
        other => panic!("{other:?}"),
    };
    scores(evaluation).into_iter().map(of).collect()
}

async fn tells_its_name_and_what_it_can(pool: &Pool) {
    let info = pool.info();
    assert!(!info.author.is_empty(), "{info:?}");
    let known = [("Stockfish", true), ("Ethereal", false)];
    assert!(known.iter().any(|(name, together)| info.name.starts_with(name) && info.together == *together), "{info:?}");
}

async fn a_hung_queen_scores_far_below(pool: &Pool) {
    let evaluation = evaluate(pool, QUEEN, "d1h5 b1c3 d1g4 d2d3", 8).await;
    let cp = centipawns(&evaluation);
    for (lost, sound) in [(0, 1), (2, 1), (0, 3), (2, 3)] {
        assert!(cp[sound] - cp[lost] > 500, "{cp:?}");
    }
    // The other side sees the same from its own side.
    let evaluation =
        evaluate(pool, "rnbqkbnr/pppp1ppp/8/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R b KQkq - 1 2", "d8h4 b8c6", 8).await;
    let cp = centipawns(&evaluation);
    assert!(cp[1] - cp[0] > 500, "{cp:?}");
}

async fn a_mate_in_one_is_first(pool: &Pool) {
    let evaluation = evaluate(pool, "6k1/5ppp/8/8/8/8/5PPP/R5K1 w - - 0 1", "g1f1 a1a8 h2h3", 6).await;
    let line = evaluation.lines[1].as_ref().unwrap();
    assert_eq!((line.score, line.rank), (Score::Mate(1), 1), "{evaluation:?}");
}

async fn being_mated_is_negative_and_last(pool: &Pool) {
    let fen = "rnbqkbnr/pppp1ppp/8/4p3/8/5P2/PPPPP1PP/RNBQKBNR w KQkq - 0 2";
    let evaluation = evaluate(pool, fen, "g2g4 e2e4 d2d3", 6).await;
    let line = evaluation.lines[0].as_ref().unwrap();
    assert_eq!((line.score, line.rank), (Score::Mate(-1), 3), "{evaluation:?}");
}

async fn a_quick_mate_is_before_a_slow_one_and_stalemate_last(pool: &Pool) {
    let evaluation = evaluate(pool, "7k/8/5K2/6Q1/8/8/8/8 w - - 0 1", "g5g6 g5g7 f6f7", 8).await;
    assert_eq!(ranks(&evaluation), [3, 1, 2]);
    // Mate in 2; Ethereal is content with one in 3.
    assert!(matches!(scores(&evaluation)[2], Some(Score::Mate(2 | 3))), "{evaluation:?}");
    let only = evaluate(pool, "7k/8/5K2/6Q1/8/8/8/8 w - - 0 1", "g5g6 g5g7", 5).await;
    assert_eq!(scores(&only), [Score::Centipawns(0), Score::Mate(1)].map(Some));
}

async fn castling_promotion_and_taking_in_passing_are_scored(pool: &Pool) {
    let castles = evaluate(pool, OPEN, "e1g1 f3e5 a2a3", 7).await;
    assert_eq!(ranks(&castles)[0], 1, "{castles:?}");
    let fen = "r3k2r/pppq1ppp/2npbn2/4p3/4P3/2NPBN2/PPPQ1PPP/R3K2R b KQkq - 0 8";
    evaluate(pool, fen, "e8c8 e8g8 e8d8", 5).await;
    let promotes = evaluate(pool, "8/P5k1/8/8/8/8/6K1/8 w - - 0 1", "a7a8n a7a8q a7a8r", 7).await;
    assert_eq!(ranks(&promotes), [3, 1, 2], "{promotes:?}");
    let passes = evaluate(pool, "4k3/8/8/3pP3/8/8/8/4K3 w - d6 0 2", "e5d6 e1d1", 9).await;
    assert_eq!(ranks(&passes), [1, 2], "{passes:?}");
    // d2d4 checks, and the only reply is to take it in passing: an engine that is not told of it sees a mate.
    let checks = evaluate(pool, "1Q6/8/7R/2k5/4p3/2N5/3P4/3R1B1K w - - 0 1", "d2d4 h1h2", 5).await;
    assert_ne!(scores(&checks)[0], Some(Score::Mate(1)), "{checks:?}");
}

async fn a_candidate_alone_is_scored(pool: &Pool) {
    let evaluation = evaluate(pool, OPEN, "f3e5", 6).await;
    assert_eq!(ranks(&evaluation), [1]);
    // The only legal move, after which the only reply is forced as well.
    evaluate(pool, "7k/6pp/8/8/8/8/r7/6QK w - - 0 1", "g1g7", 4).await;
}

async fn iterations_ascend_to_the_depth(pool: &Pool) {
    let evaluation = evaluate(pool, OPEN, "e1g1 d2d3 b1c3 d1e2 b5c6", 9).await;
    let depths = evaluation.iterations.iter().map(|own| own.depth).collect::<Vec<_>>();
    assert!(depths.len() >= 7 && depths.ends_with(&[7, 8, 9]), "{depths:?}");
    assert!(evaluation.nodes > 0 && evaluation.time > Duration::ZERO);
}

async fn fresh_searches_are_the_same_whatever_was_searched_between(pool: &Pool) {
    let ask = async || evaluate(pool, OPEN, "e1g1 d2d3 b1c3 f3e5", 6).await;
    let first = ask().await;
    let mut stale = at_depth(OPEN, "e1g1 d2d3 b5c6", 9);
    stale.fresh = false;
    pool.evaluate(stale, None).await.unwrap();
    evaluate(pool, QUEEN, "d1h5 b1c3", 7).await;
    let again = ask().await;
    assert_eq!(Evaluation { time: first.time, ..again }, first);
}

async fn a_deadline_ends_a_deep_search_with_what_is_known(pool: &Pool) {
    let deep = at_depth(OPEN, "e1g1 d2d3 b1c3 f3e5", 60);
    let evaluation = pool.evaluate(deep, within(2_000)).await.unwrap();
    assert!(!evaluation.complete && (1..60).contains(&evaluation.depth), "{evaluation:?}");
    assert!(evaluation.lines.iter().all(Option::is_some), "{evaluation:?}");
    assert_ascending(&evaluation);
    // It has stopped, and goes on as if nothing had been.
    evaluate(pool, QUEEN, "d1h5 b1c3", 5).await;
}

async fn nodes_and_time_end_a_search(pool: &Pool) {
    let nodes = Limits { nodes: Some(40_000), ..Limits::default() };
    let movetime = Limits { movetime: Some(Duration::from_millis(400)), ..Limits::default() };
    for limits in [nodes, movetime] {
        let evaluation = pool.evaluate(search_of(OPEN, "e1g1 d2d3 f3e5", limits), late()).await.unwrap();
        assert!(evaluation.complete && evaluation.depth > 1, "{limits:?}: {evaluation:?}");
        assert_ascending(&evaluation);
        let cp = centipawns(&evaluation);
        assert!(cp[0] > cp[2], "{limits:?}: {cp:?}");
    }
}

/// The same tests for an engine.
macro_rules! engine_tests {
    ($engine:ident: $($test:ident),* $(,)?) => {
        mod $engine {
            $(
                #[tokio::test]
                async fn $test() {
                    if let Some(program) = super::program(stringify!($engine)) {
                        let pool = super::pool(program).await;
                        super::$test(&pool).await;
                        let stats = pool.stats();
                        assert_eq!((stats.restarts, stats.crashes, stats.hangs, stats.lies), (0, 0, 0, 0), "{stats:?}");
                    }
                }
            )*
        }
    };
    ($($engine:ident),*) => {
        $(engine_tests!($engine:
            tells_its_name_and_what_it_can,
            a_hung_queen_scores_far_below,
            a_mate_in_one_is_first,
            being_mated_is_negative_and_last,
            a_quick_mate_is_before_a_slow_one_and_stalemate_last,
            castling_promotion_and_taking_in_passing_are_scored,
            a_candidate_alone_is_scored,
            iterations_ascend_to_the_depth,
            fresh_searches_are_the_same_whatever_was_searched_between,
            a_deadline_ends_a_deep_search_with_what_is_known,
            nodes_and_time_end_a_search,
        );)*
    };
}

engine_tests!(stockfish, ethereal);
