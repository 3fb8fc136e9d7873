//! Who is served when: deadlines, a full queue, callers who leave, processes that are away, and the end.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod common;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use common::{Fake, PATIENCE, assert_ascending, assert_whole, endless, late, search, until, within};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use zeitnot_uci::{Evaluation, Limits, Pool, Search, UciError};

type Answer = JoinHandle<Result<Evaluation, UciError>>;

fn ask(pool: &Arc<Pool>, search: Search, deadline: Option<Instant>) -> Answer {
    let pool = Arc::clone(pool);
    tokio::spawn(async move { pool.evaluate(search, deadline).await })
}

/// A pool of one process that searches until it is told otherwise.
async fn busy(fake: &Fake, queue: usize) -> (Arc<Pool>, Answer) {
    let pool = Arc::new(Pool::start(fake.config.clone(), 1, queue).await.unwrap());
    let searches = pool.stats().searches;
    let answer = ask(&pool, endless(), late());
    until("it searches", || pool.stats().searches == searches + 1).await;
    (pool, answer)
}

#[tokio::test]
async fn at_the_deadline_what_is_known_is_the_answer() {
    for mode in ["slow", "ignores-searchmoves"] {
        let fake = Fake::new(mode);
        let pool = fake.pool().await;
        let evaluation = pool.evaluate(endless(), within(1_500)).await.unwrap();
        assert!(!evaluation.complete && evaluation.depth >= 1, "{mode}: {evaluation:?}");
        assert_ascending(&evaluation);
        assert_whole(&pool.evaluate(search(2), late()).await.unwrap(), 2);
        assert_eq!((pool.stats().hangs, pool.stats().restarts), (0, 0), "{mode}");
    }
}

#[tokio::test]
async fn each_limit_ends_a_search_by_itself() {
    let fake = Fake::new("normal");
    let pool = fake.pool().await;
    let nodes = Limits { nodes: Some(200), ..Limits::default() };
    let movetime = Limits { movetime: Some(Duration::from_millis(50)), ..Limits::default() };
    for limits in [nodes, movetime] {
        let evaluation = pool.evaluate(Search { limits, ..search(1) }, None).await.unwrap();
        assert!(evaluation.complete && evaluation.depth >= 1, "{limits:?}: {evaluation:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_asked_is_refused_without_a_search() {
    let fake = Fake::new("normal");
    let pool = fake.pool().await;
    let searches = pool.stats().searches;
    let nothing = Search { candidates: Vec::new(), ..search(1) };
    assert_eq!(pool.evaluate(nothing, None).await.unwrap_err(), UciError::NoCandidates);
    assert_eq!(pool.evaluate(endless(), None).await.unwrap_err(), UciError::NoLimit);
    let mut twice = search(1);
    twice.candidates[1] = twice.candidates[0];
    assert_eq!(pool.evaluate(twice, None).await.unwrap_err(), UciError::IllegalCandidate("e2e4".into()));
    assert_eq!(pool.evaluate(search(1), Some(Instant::now())).await.unwrap_err(), UciError::Deadline);
    assert_eq!(pool.stats().searches, searches);
}

#[tokio::test]
async fn a_caller_who_leaves_stops_its_search() {
    let fake = Fake::new("slow");
    let (pool, answer) = busy(&fake, 4).await;
    answer.abort();
    // The search would go on for a minute.
    let next = timeout(PATIENCE / 2, pool.evaluate(search(1), None)).await;
    assert_whole(&next.unwrap().unwrap(), 1);
    assert_eq!((pool.stats().hangs, pool.stats().restarts), (0, 0));
}

#[tokio::test]
async fn a_caller_who_leaves_before_its_turn_is_not_searched_for() {
    let fake = Fake::new("slow");
    let (pool, answer) = busy(&fake, 1).await;
    let searches = pool.stats().searches;
    let waits = ask(&pool, search(1), None);
    until("it waits", || pool.stats().waiting == 1).await;
    assert_eq!(pool.evaluate(search(1), None).await.unwrap_err(), UciError::Full);
    waits.abort();
    assert!(waits.await.unwrap_err().is_cancelled());
    let takes_its_place = ask(&pool, search(1), None);
    until("it waits", || pool.stats().waiting == 1).await;
    answer.abort();
    assert_whole(&takes_its_place.await.unwrap().unwrap(), 1);
    assert_eq!(pool.stats().searches, searches + 1);
}

#[tokio::test]
async fn the_earliest_deadline_is_served_first_and_none_last() {
    let fake = Fake::new("slow");
    let (pool, answer) = busy(&fake, 8).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waits = Vec::new();
    let now = Instant::now();
    for (seconds, number) in [None, Some(400), Some(200), Some(300)].into_iter().zip(1..) {
        let (own, order) = (Arc::clone(&pool), Arc::clone(&order));
        let deadline = seconds.map(|seconds| now + Duration::from_secs(seconds));
        waits.push(tokio::spawn(async move {
            own.evaluate(search(2), deadline).await.unwrap();
            order.lock().unwrap().push(seconds);
        }));
        until("it waits", || pool.stats().waiting == number).await;
    }
    answer.abort();
    for wait in waits {
        wait.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [Some(200), Some(300), Some(400), None]);
}

#[tokio::test]
async fn no_more_may_wait_than_the_queue_holds() {
    let fake = Fake::new("slow");
    let (pool, answer) = busy(&fake, 2).await;
    let waits = [ask(&pool, search(1), late()), ask(&pool, search(1), None)];
    until("both wait", || pool.stats().waiting == 2).await;
    assert_eq!(pool.evaluate(search(1), within(1)).await.unwrap_err(), UciError::Full);
    answer.abort();
    for wait in waits {
        assert_whole(&wait.await.unwrap().unwrap(), 1);
    }
    assert_eq!(pool.stats().waiting, 0);
}

#[tokio::test]
async fn a_request_whose_deadline_passes_while_it_waits_is_never_searched() {
    let fake = Fake::new("slow");
    let (pool, answer) = busy(&fake, 8).await;
    let searches = pool.stats().searches;
    let error = pool.evaluate(search(1), within(100)).await.unwrap_err();
    assert_eq!((error, pool.stats().waiting, answer.is_finished()), (UciError::Deadline, 0, false));
    answer.abort();
    assert_whole(&pool.evaluate(search(1), None).await.unwrap(), 1);
    assert_eq!(pool.stats().searches, searches + 1);
}

#[tokio::test]
async fn while_no_process_lives_the_patient_fail_and_the_others_wait() {
    let fake = Fake::new("normal");
    let pool = Arc::new(fake.pool().await);
    fake.switch("crash-start");
    let stays_away = ask(&pool, search(1), None);
    // The process that lives does not read the mode of starts.
    assert_whole(&stays_away.await.unwrap().unwrap(), 1);
    fake.switch("crash-search");
    assert_eq!(pool.evaluate(search(1), None).await.unwrap_err(), UciError::Crashed);
    fake.switch("crash-start");
    until("it fails to start", || pool.stats().crashes >= 3).await;
    assert_eq!(pool.stats().ready, 0);
    let patient = pool.evaluate(search(1), None).await.unwrap_err();
    assert!(matches!(patient, UciError::Crashed | UciError::Handshake(_)), "{patient:?}");
    assert_eq!(pool.evaluate(search(1), within(50)).await.unwrap_err(), UciError::Deadline);
    let waits = ask(&pool, search(1), late());
    until("it waits", || pool.stats().waiting == 1).await;
    fake.switch("normal");
    assert_whole(&waits.await.unwrap().unwrap(), 1);
    assert_eq!(pool.stats().ready, 1);
}

#[tokio::test]
async fn several_processes_search_at_once_and_one_may_be_lost() {
    let fake = Fake::new("normal");
    let pool = Arc::new(Pool::start(fake.config.clone(), 3, 32).await.unwrap());
    until("all are ready", || pool.stats().ready == 3).await;
    assert_eq!(fake.processes().len(), 3);
    fake.switch("slow");
    let answers = [(); 3].map(|()| ask(&pool, endless(), within(1_500)));
    until("all search", || pool.stats().searches == 4).await;
    for answer in answers {
        assert!(!answer.await.unwrap().unwrap().complete);
    }
    fake.switch("crash-search");
    assert_eq!(pool.evaluate(search(1), late()).await.unwrap_err(), UciError::Crashed);
    fake.switch("normal");
    let answers = (0..12).map(|_| ask(&pool, search(3), late())).collect::<Vec<_>>();
    for answer in answers {
        assert_whole(&answer.await.unwrap().unwrap(), 3);
    }
    until("all are ready again", || pool.stats().ready == 3).await;
    assert_eq!((pool.stats().crashes, pool.stats().restarts, fake.processes().len()), (1, 1, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_answers_everyone_and_kills_all_processes() {
    let fake = Fake::new("slow");
    let pool = Arc::new(Pool::start(fake.config.clone(), 2, 8).await.unwrap());
    let answers = [(); 4].map(|()| ask(&pool, endless(), late()));
    until("two search and two wait", || pool.stats().waiting == 2).await;
    until("both are listed", || fake.processes().len() == 2).await;
    pool.shutdown().await;
    assert_eq!((pool.stats().ready, pool.stats().waiting), (0, 0));
    for answer in answers {
        assert_eq!(answer.await.unwrap().unwrap_err(), UciError::Closed);
    }
    until("all are dead", || fake.processes().is_empty()).await;
    assert_eq!(pool.evaluate(search(1), None).await.unwrap_err(), UciError::Closed);
    pool.shutdown().await;
}

#[tokio::test]
async fn a_pool_that_is_dropped_leaves_no_process() {
    let fake = Fake::new("grandchild");
    let pool = fake.pool().await;
    until("both are listed", || fake.processes().len() == 2).await;
    drop(pool);
    sleep(Duration::from_millis(1)).await;
    until("all are dead", || fake.processes().is_empty()).await;
}
