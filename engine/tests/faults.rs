//! An engine that crashes, hangs, floods and lies: what callers see, and that the sidecar comes back by itself.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod common;

use std::time::{Duration, Instant};

use common::{Fake, START, Sidecar, eventually, get, kill, reason, request};
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_types::StatusExt;
use zeitnot_engine::config::Config;

/// More than the fake engine scores in any test's time when it is slow.
const DEEP: u32 = 60;

#[tokio::test]
async fn after_a_failure_the_engine_is_unavailable_and_then_comes_back() {
    for (mode, why, counter) in [
        ("crash-search", "ENGINE_CRASHED", "crashes"),
        ("flood", "ENGINE_FLOODED", "floods"),
        ("endless-line", "ENGINE_FLOODED", "floods"),
        ("illegal-pv", "ENGINE_LIED", "lies"),
        ("wrong-side", "ENGINE_LIED", "lies"),
        ("illegal-best", "ENGINE_LIED", "lies"),
    ] {
        let fake = Fake::new("normal");
        let sidecar = Sidecar::start(fake.config()).await;
        fake.set(mode);
        let status = sidecar.ask(request(START, &["e2e4"], 3)).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, why), "{mode}: {status:?}");
        assert_eq!(sidecar.metric("zeitnot_sidecar_retries_total").await, 1.0, "{mode}");
        fake.set("normal");
        let answer = sidecar.ask(request(START, &["e2e4"], 3)).await.unwrap();
        assert!(answer.complete, "{mode}");
        sidecar.until(&format!("zeitnot_sidecar_{counter}_total"), 2.0).await;
        sidecar.until("zeitnot_sidecar_restarts_total", 2.0).await;
        assert_eq!(get(&sidecar.admin, "/live").await.0, 200);
    }
}

#[tokio::test]
async fn a_single_failure_is_mended_by_another_process() {
    let fake = Fake::new("normal");
    let sidecar = Sidecar::start(Config { processes: 2, ..fake.config() }).await;
    sidecar.until("zeitnot_sidecar_processes_ready", 2.0).await;
    fake.set("crash-search");
    let asked = sidecar.client();
    let answer = tokio::spawn(async move { asked.clone().evaluate_candidates(request(START, &["e2e4"], 3)).await });
    // The file is read at each search; the second one finds the engine well again, sooner or later.
    sidecar.until("zeitnot_sidecar_crashes_total", 1.0).await;
    fake.set("normal");
    match answer.await.unwrap() {
        Ok(answer) => assert!(answer.into_inner().complete),
        Err(status) => assert_eq!(reason(&status), "ENGINE_CRASHED", "the second process was faster than the test"),
    }
    assert_eq!(sidecar.metric("zeitnot_sidecar_retries_total").await, 1.0);
}

#[tokio::test]
async fn a_silent_engine_is_a_deadline_to_the_caller_and_killed_afterwards() {
    let fake = Fake::new("normal");
    let sidecar = Sidecar::start(fake.config()).await;
    fake.set("hang-search");
    let started = Instant::now();
    let status = sidecar.ask_within(request(START, &["e2e4"], 3), Duration::from_millis(300)).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::DeadlineExceeded, "DEADLINE"), "{status:?}");
    assert!(started.elapsed() < Duration::from_millis(300), "before the client itself gives up");
    fake.set("normal");
    sidecar.until("zeitnot_sidecar_hangs_total", 1.0).await;
    assert!(sidecar.ask(request(START, &["e2e4"], 3)).await.unwrap().complete);
}

#[tokio::test]
async fn an_engine_that_hangs_with_time_left_is_unavailable() {
    let fake = Fake::new("normal");
    let sidecar = Sidecar::start(Config { silence_limit_ms: 300, ..fake.config() }).await;
    fake.set("hang-search");
    let status = sidecar.ask(request(START, &["e2e4"], 3)).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "ENGINE_HUNG"), "{status:?}");
}

#[tokio::test]
async fn what_a_slow_or_hanging_engine_scored_by_the_deadline_is_the_answer() {
    for mode in ["slow", "hang-late"] {
        let fake = Fake::new("normal");
        let sidecar = Sidecar::start(fake.config()).await;
        fake.set(mode);
        let asked = request(START, &["e2e4", "d2d4"], DEEP);
        let answer = sidecar.ask_within(asked, Duration::from_millis(500)).await.unwrap();
        assert!(!answer.complete && answer.depth >= 3, "{mode}: {answer:?}");
        assert!(answer.scores.iter().all(|score| score.score.is_some()), "{mode}: {answer:?}");
    }
}

#[tokio::test]
async fn a_candidate_without_a_score_has_no_rank() {
    let fake = Fake::new("normal");
    let sidecar = Sidecar::start(fake.config()).await;
    fake.set("partial");
    let answer = sidecar.ask(request(START, &["e2e4", "a2a3"], 4)).await.unwrap();
    let scored = answer.scores.iter().filter(|score| score.score.is_some()).count();
    let unranked = answer.scores.iter().filter(|score| score.rank == 0 && score.depth == 0).count();
    assert_eq!((scored, unranked, answer.depth), (1, 1, 0), "{answer:?}");
}

#[tokio::test]
async fn an_engine_without_searchmoves_searches_candidates_one_by_one() {
    for mode in ["ignores-searchmoves", "single-line"] {
        let fake = Fake::new(mode);
        let sidecar = Sidecar::start(fake.config()).await;
        assert!(!sidecar.engine().await.searches_candidates_together, "{mode}");
        let answer = sidecar.ask(request(START, &["e2e4", "a2a3"], 4)).await.unwrap();
        assert!(answer.complete && answer.scores.iter().all(|score| score.rank > 0), "{mode}: {answer:?}");
    }
}

#[tokio::test]
async fn beyond_the_queue_requests_are_refused_and_told_when_to_come_again() {
    let fake = Fake::new("normal");
    let sidecar = Sidecar::start(Config { queue: 1, ..fake.config() }).await;
    fake.set("slow");
    let ask = || {
        let mut client = sidecar.client();
        tokio::spawn(async move { client.evaluate_candidates(request(START, &["e2e4"], DEEP)).await })
    };
    let searched = ask();
    sidecar.until("zeitnot_sidecar_searches_total", 2.0).await; // The first is the pool's own.
    let waits = ask();
    eventually("one waits", async || sidecar.engine().await.waiting == 1).await;
    let status = sidecar.ask(request(START, &["e2e4"], 1)).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::ResourceExhausted, "QUEUE_FULL"), "{status:?}");
    assert!(status.get_error_details().retry_info().unwrap().retry_delay.unwrap() > Duration::ZERO);
    sidecar.until("zeitnot_sidecar_waiting", 1.0).await;
    // Who goes away makes room at once, and the search is stopped.
    searched.abort();
    waits.abort();
    let started = Instant::now();
    assert!(sidecar.ask(request(START, &["e2e4"], 1)).await.unwrap().complete);
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    let cancelled = "zeitnot_sidecar_requests_total{code=\"CANCELLED\",method=\"EvaluateCandidates\"}";
    sidecar.until(cancelled, 2.0).await;
    let full = "zeitnot_sidecar_requests_total{code=\"RESOURCE_EXHAUSTED\",method=\"EvaluateCandidates\"}";
    assert_eq!(sidecar.metric(full).await, 1.0);
}

#[tokio::test]
async fn health_follows_the_engine_and_life_does_not() {
    let fake = Fake::new("crash-start");
    let sidecar = Sidecar::start_cold(fake.config()).await;
    sidecar.until("zeitnot_sidecar_failed_starts_total", 2.0).await;
    let service = "zeitnot.engine.v1.EngineService";
    assert_eq!(sidecar.health(service).await, ServingStatus::NotServing);
    assert_eq!((get(&sidecar.admin, "/live").await.0, get(&sidecar.admin, "/ready").await.0), (200, 503));
    let status = sidecar.ask(request(START, &["e2e4"], 1)).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "STARTING"));
    assert_eq!((sidecar.engine().await.processes, sidecar.engine().await.ready), (1, 0));

    fake.set("normal");
    sidecar.until_health(ServingStatus::Serving).await;
    assert_eq!(sidecar.health(service).await, ServingStatus::Serving);
    assert_eq!(get(&sidecar.admin, "/ready").await.0, 200);

    fake.set("crash-start");
    fake.processes().into_iter().for_each(|id| kill(id, "KILL"));
    sidecar.until_health(ServingStatus::NotServing).await;
    let started = Instant::now();
    let status = sidecar.ask(request(START, &["e2e4"], 1)).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "NO_PROCESS"));
    assert!(started.elapsed() < Duration::from_secs(5), "it does not wait for its deadline");
    assert_eq!((get(&sidecar.admin, "/live").await.0, get(&sidecar.admin, "/ready").await.0), (200, 503));

    fake.set("normal");
    sidecar.until_health(ServingStatus::Serving).await;
    assert!(sidecar.ask(request(START, &["e2e4"], 1)).await.unwrap().complete);
}

#[tokio::test]
async fn a_program_that_is_missing_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("engine-fake-engine");
    let fake = Fake::new("normal");
    let sidecar = Sidecar::start_cold(Config { program: Some(program.clone()), ..fake.config() }).await;
    sidecar.until("zeitnot_sidecar_failed_starts_total", 1.0).await;
    std::os::unix::fs::symlink(common::fake_engine(), program).unwrap();
    sidecar.until_health(ServingStatus::Serving).await;
}

#[tokio::test]
async fn while_it_drains_it_serves_and_says_that_it_will_not() {
    let fake = Fake::new("normal");
    let mut sidecar = Sidecar::start(Config { drain_delay_ms: 700, ..fake.config() }).await;
    sidecar.signal();
    sidecar.until_health(ServingStatus::NotServing).await;
    assert_eq!(get(&sidecar.admin, "/ready").await.0, 503);
    assert!(sidecar.ask(request(START, &["e2e4"], 1)).await.unwrap().complete);
    sidecar.ended().await.unwrap();
    fake.all_gone().await;
}

#[tokio::test]
async fn what_outlasts_the_shutdown_limit_is_told_so() {
    let fake = Fake::new("slow");
    let mut sidecar = Sidecar::start(Config { shutdown_limit_ms: 300, ..fake.config() }).await;
    let mut client = sidecar.client();
    let asked = tokio::spawn(async move { client.evaluate_candidates(request(START, &["e2e4"], DEEP)).await });
    sidecar.until("zeitnot_sidecar_searches_total", 2.0).await;
    sidecar.signal();
    let status = asked.await.unwrap().unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "DRAINING"), "{status:?}");
    sidecar.ended().await.unwrap();
    fake.all_gone().await;
}
