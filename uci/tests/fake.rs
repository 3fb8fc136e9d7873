//! Engines that hang, crash, flood and lie: each is named, counted and replaced, and the next request is served.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod common;

use std::time::Duration;

use common::{Fake, assert_whole, endless, late, scores, search, until, within};
use zeitnot_uci::{Pool, Score, Stats, UciError};

/// Asserts that a request is served as if nothing had been.
async fn assert_usable(fake: &Fake, pool: &Pool) {
    fake.switch("normal");
    assert_whole(&pool.evaluate(search(3), late()).await.unwrap(), 3);
}

/// Asks an engine that misbehaves once, and asserts that it is replaced.
async fn misbehave(mode: &str) -> (UciError, Stats) {
    let fake = Fake::new("normal");
    let pool = fake.pool().await;
    fake.switch(mode);
    let error = pool.evaluate(search(3), late()).await.unwrap_err();
    assert_usable(&fake, &pool).await;
    let stats = pool.stats();
    assert_eq!((stats.restarts, stats.ready, stats.searches), (1, 1, 3), "{mode}: {stats:?}");
    (error, stats)
}

#[tokio::test]
async fn an_engine_scores_the_candidates_alone_and_always_the_same() {
    let fake = Fake::new("normal");
    let pool = fake.pool().await;
    let first = pool.evaluate(search(8), None).await.unwrap();
    assert_whole(&first, 8);
    assert_eq!(first.iterations.len(), 8);
    let again = pool.evaluate(search(8), None).await.unwrap();
    assert_eq!((first.lines, first.nodes, first.iterations), (again.lines, again.nodes, again.iterations));
    let info = pool.info();
    assert_eq!((info.name.as_str(), info.author.as_str(), info.together), ("Fake 1.0", "Zeitnot", true));
    let stats = Stats { processes: 1, ready: 1, searches: 3, ..Stats::default() };
    assert_eq!(pool.stats(), stats);
}

#[tokio::test]
async fn a_program_that_is_not_there_cannot_be_started() {
    let mut fake = Fake::new("normal");
    fake.config.program = "/nowhere/engine".into();
    let error = Pool::start(fake.config.clone(), 1, 1).await.unwrap_err();
    assert!(matches!(&error, UciError::Spawn { program, .. } if program == "/nowhere/engine"), "{error:?}");
}

#[tokio::test]
async fn an_engine_that_does_not_greet_is_no_engine() {
    for mode in ["hang-handshake", "crash-start"] {
        let mut fake = Fake::new(mode);
        fake.config.handshake = Duration::from_millis(500);
        let error = Pool::start(fake.config.clone(), 1, 1).await.unwrap_err();
        assert!(matches!(error, UciError::Handshake(_)), "{mode}: {error:?}");
        until("it is dead", || fake.processes().is_empty()).await;
    }
}

#[tokio::test]
async fn an_engine_that_cannot_score_a_position_is_no_engine() {
    for mode in ["crash-search", "illegal-pv", "flood"] {
        let fake = Fake::new(mode);
        Pool::start(fake.config.clone(), 1, 1).await.unwrap_err();
        until("it is dead", || fake.processes().is_empty()).await;
    }
}

#[tokio::test]
async fn a_crash_is_told_and_counted() {
    let (error, stats) = misbehave("crash-search").await;
    assert_eq!((error, stats.crashes), (UciError::Crashed, 1));
}

#[tokio::test]
async fn a_flood_of_lines_is_cut_off() {
    let (error, stats) = misbehave("flood").await;
    assert_eq!((error, stats.floods), (UciError::Flood, 1));
}

#[tokio::test]
async fn a_line_without_end_is_cut_off() {
    let (error, stats) = misbehave("endless-line").await;
    assert_eq!((error, stats.floods), (UciError::Flood, 1));
}

#[tokio::test]
async fn nonsense_is_a_lie() {
    for mode in ["illegal-pv", "wrong-side", "illegal-best", "nonsense-score", "huge-score"] {
        let (error, stats) = misbehave(mode).await;
        assert!(matches!(error, UciError::Lied(_)), "{mode}: {error:?}");
        assert_eq!(stats.lies, 1, "{mode}");
    }
}

#[tokio::test]
async fn silence_without_a_deadline_is_a_hang() {
    let mut fake = Fake::new("normal");
    (fake.config.silence, fake.config.grace) = (Duration::from_millis(500), Duration::from_millis(200));
    let pool = fake.pool().await;
    fake.switch("hang-search");
    assert_eq!(pool.evaluate(search(3), None).await.unwrap_err(), UciError::Hung);
    assert_usable(&fake, &pool).await;
    let stats = pool.stats();
    assert_eq!((stats.hangs, stats.restarts, stats.ready), (1, 1, 1), "{stats:?}");
}

#[tokio::test]
async fn an_engine_that_hangs_after_some_depths_is_replaced_and_the_depths_are_kept() {
    let mut fake = Fake::new("normal");
    (fake.config.silence, fake.config.grace) = (Duration::from_millis(500), Duration::from_millis(200));
    let pool = fake.pool().await;
    for deadline in [None, within(2_000)] {
        fake.switch("hang-late");
        let evaluation = pool.evaluate(search(9), deadline).await.unwrap();
        assert_eq!((evaluation.complete, evaluation.depth, evaluation.iterations.len()), (false, 3, 3));
        assert_usable(&fake, &pool).await;
    }
    let stats = pool.stats();
    assert_eq!((stats.hangs, stats.restarts, stats.ready), (2, 2, 1), "{stats:?}");
}

#[tokio::test]
async fn a_hang_under_a_deadline_is_told_soon_after_it() {
    let mut fake = Fake::new("normal");
    fake.config.grace = Duration::from_millis(200);
    let pool = fake.pool().await;
    fake.switch("hang-search");
    // On a busy machine the caller is told that it was late before the pool knows why.
    let error = pool.evaluate(endless(), within(300)).await.unwrap_err();
    assert!(matches!(error, UciError::Hung | UciError::Deadline), "{error:?}");
    assert_usable(&fake, &pool).await;
    assert_eq!((pool.stats().hangs, pool.stats().restarts), (1, 1));
}

#[tokio::test]
async fn an_engine_that_ends_between_searches_is_replaced() {
    let fake = Fake::new("exit-after-2");
    let pool = fake.pool().await;
    for served in 1..=4 {
        let evaluation = pool.evaluate(search(2), late()).await;
        // The end may show only when the next search is asked for.
        assert!(matches!(evaluation, Ok(_) | Err(UciError::Crashed)), "{evaluation:?}");
        until("it is replaced", || pool.stats().ready == 1 && pool.stats().restarts >= served / 2).await;
    }
    assert_eq!(pool.stats().crashes, pool.stats().restarts);
    assert_usable(&fake, &pool).await;
}

#[tokio::test]
async fn an_engine_without_searchmoves_is_asked_move_by_move() {
    let known = Fake::new("normal").pool().await.evaluate(search(1), None).await.unwrap();
    for mode in ["ignores-searchmoves", "single-line"] {
        let fake = Fake::new(mode);
        let pool = fake.pool().await;
        assert!(!pool.info().together, "{mode}");
        let evaluation = pool.evaluate(search(5), None).await.unwrap();
        assert_whole(&evaluation, 5);
        assert_ne!(scores(&evaluation), scores(&known));
        assert_eq!((pool.stats().lies, pool.stats().restarts), (0, 0), "{mode}");
    }
}

#[tokio::test]
async fn an_engine_that_forgets_searchmoves_is_asked_move_by_move_from_then_on() {
    let fake = Fake::new("normal");
    let pool = fake.pool().await;
    assert!(pool.info().together);
    fake.switch("ignores-searchmoves");
    assert_whole(&pool.evaluate(search(4), None).await.unwrap(), 4);
    assert!(!pool.info().together);
    assert_usable(&fake, &pool).await;
}

#[tokio::test]
async fn what_is_never_scored_stays_unknown() {
    let fake = Fake::new("normal");
    let pool = fake.pool().await;
    fake.switch("partial");
    let evaluation = pool.evaluate(search(4), None).await.unwrap();
    assert_eq!(scores(&evaluation).iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, true, false]);
    assert_eq!((evaluation.depth, evaluation.iterations.len()), (0, 0));
    assert_eq!(evaluation.lines.iter().flatten().map(|line| line.depth).collect::<Vec<_>>(), [4, 4, 4]);
    fake.switch("single-line");
    let evaluation = pool.evaluate(search(4), None).await.unwrap();
    assert!(evaluation.lines.iter().any(Option::is_some) && evaluation.lines.iter().any(Option::is_none));
    assert_usable(&fake, &pool).await;
    assert_eq!((pool.stats().lies, pool.stats().restarts), (0, 0));
}

#[tokio::test]
async fn what_is_said_between_searches_is_not_taken_for_an_answer() {
    let fake = Fake::new("chatter");
    let pool = fake.pool().await;
    let known = Fake::new("normal").pool().await.evaluate(search(5), None).await.unwrap();
    for _ in 0..5 {
        let evaluation = pool.evaluate(search(5), None).await.unwrap();
        assert_eq!((&evaluation.lines, evaluation.nodes), (&known.lines, known.nodes));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((pool.stats().restarts, pool.stats().lies), (0, 0));
}

#[tokio::test]
async fn what_an_engine_started_dies_with_it() {
    let fake = Fake::new("normal");
    let pool = fake.pool().await;
    fake.switch("grandchild");
    assert_whole(&pool.evaluate(search(2), None).await.unwrap(), 2);
    until("both are listed", || fake.processes().len() == 2).await;
    let before = fake.processes();
    assert_eq!(before.iter().filter(|(_, command)| command.contains("--sleep")).count(), 1, "{before:?}");
    fake.switch("illegal-pv");
    pool.evaluate(search(2), None).await.unwrap_err();
    let gone = || fake.processes().iter().all(|(id, _)| before.iter().all(|(old, _)| old != id));
    until("both are dead", gone).await;
    assert_usable(&fake, &pool).await;
    assert_eq!(fake.processes().len(), 1);
}

#[tokio::test]
async fn mates_have_the_movers_sign_whether_searched_together_or_alone() {
    for mode in ["normal", "single-line"] {
        let fake = Fake::new(mode);
        let pool = fake.pool().await;
        let limits = zeitnot_uci::Limits { depth: Some(3), ..Default::default() };
        let mate = common::search_of("6k1/5ppp/8/8/8/8/5PPP/R5K1 w - - 0 1", "g1f1 a1a8", limits);
        let evaluation = pool.evaluate(mate, None).await.unwrap();
        assert_whole(&evaluation, 3);
        assert_eq!(scores(&evaluation)[1], Some(Score::Mate(1)), "{mode}");
        assert_eq!(evaluation.lines[1].as_ref().unwrap().rank, 1, "{mode}");
    }
}
