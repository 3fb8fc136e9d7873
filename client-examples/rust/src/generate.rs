//! Makes calls: open loop at a rate, or closed loop with so many at a time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::{runtime::Handle, sync::mpsc, task::JoinSet};

use crate::{
    report::{Call, Report},
    target::{Outcome, Target},
};

/// Calls under way at which the generator gives up on new ones, and reports so.
const MOST_UNDER_WAY: usize = 50_000;

/// When calls are due: seconds from the start, for a Poisson process of `rate` a second. The same seed gives the same.
pub fn arrivals(rate: f64, seconds: f64, seed: u64) -> Vec<f64> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut due = 0.0;
    let mut arrivals = Vec::new();
    loop {
        due += -(1.0 - random.random::<f64>()).ln() / rate;
        if due >= seconds {
            return arrivals;
        }
        arrivals.push(due);
    }
}

/// Makes calls as they are due, from number `first` on, and waits until all have ended.
///
/// # Errors
///
/// When no report can be made.
pub async fn open_loop<T: Target>(target: &Arc<T>, rate: f64, seconds: f64, seed: u64, first: usize) -> Result<Report> {
    let (ended, mut calls) = mpsc::unbounded_channel();
    let under_way = Arc::new(AtomicUsize::new(0));
    let (target, runtime) = (Arc::clone(target), Handle::current());
    // A thread of its own, since the runtime's timers are only good to a millisecond.
    let sending = tokio::task::spawn_blocking(move || {
        let started = Instant::now();
        let end = started + Duration::from_secs_f64(seconds);
        for (number, due) in arrivals(rate, seconds, seed).into_iter().enumerate() {
            let due = started + Duration::from_secs_f64(due);
            if let Some(early) = due.checked_duration_since(Instant::now()) {
                std::thread::sleep(early);
            }
            let sent = Instant::now();
            if under_way.load(Ordering::Relaxed) >= MOST_UNDER_WAY {
                let outcome = Outcome::Failed("not sent, too many under way".to_owned());
                let call = Call { outcome, latency: sent - due, lag: sent - due, within: true };
                let _ = ended.send(call); // Listens to the end.
                continue;
            }
            under_way.fetch_add(1, Ordering::Relaxed);
            let (target, ended, under_way) = (Arc::clone(&target), ended.clone(), Arc::clone(&under_way));
            runtime.spawn(async move {
                let outcome = target.call(first + number).await;
                under_way.fetch_sub(1, Ordering::Relaxed);
                let within = Instant::now() <= end;
                let _ = ended.send(Call { outcome, latency: due.elapsed(), lag: sent - due, within }); // As above.
            });
        }
    });
    let mut report = Report::new(rate, seconds)?;
    while let Some(call) = calls.recv().await {
        report.add(call);
    }
    let _ = sending.await; // It has ended, since the channel has.
    Ok(report)
}

/// How long a closed loop runs before its calls count, until as many end as begin.
const RAMP_UP: f64 = 1.0;

/// Keeps so many calls under way for some time, and counts those that end within it. Its latency says nothing about a
/// server that people wait for.
///
/// # Errors
///
/// As [`open_loop`].
pub async fn closed_loop<T: Target>(target: &Arc<T>, under_way: usize, seconds: f64, first: usize) -> Result<Report> {
    let next = Arc::new(AtomicUsize::new(first));
    let from = Instant::now() + Duration::from_secs_f64(RAMP_UP);
    let until = from + Duration::from_secs_f64(seconds);
    let mut clients = JoinSet::new();
    for _ in 0..under_way {
        let (target, next) = (Arc::clone(target), Arc::clone(&next));
        clients.spawn(async move {
            let mut calls = Vec::new();
            loop {
                let sent = Instant::now();
                let outcome = target.call(next.fetch_add(1, Ordering::Relaxed)).await;
                let ended = Instant::now();
                if ended > until {
                    return calls;
                }
                if ended >= from {
                    calls.push(Call { outcome, latency: ended - sent, lag: Duration::ZERO, within: true });
                }
            }
        });
    }
    let mut report = Report::new(0.0, seconds)?;
    for calls in clients.join_all().await {
        calls.into_iter().for_each(|call| report.add(call));
    }
    Ok(report)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_a_poisson_process() {
        let arrivals = arrivals(1000.0, 100.0, 7);
        let mean = arrivals.len() as f64 / 100.0;
        assert!((mean - 1000.0).abs() < 20.0, "{mean} a second");
        let gaps = arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>();
        let long = gaps.iter().filter(|gap| **gap > 0.002).count() as f64 / gaps.len() as f64;
        assert!((long - (-2.0_f64).exp()).abs() < 0.01, "{long} of the gaps are longer than twice the mean");
    }

    /// Takes one call at a time, for ten milliseconds.
    struct Slow(tokio::sync::Mutex<()>);

    impl Target for Slow {
        async fn call(&self, number: usize) -> Outcome {
            let _turn = self.0.lock().await;
            tokio::time::sleep(Duration::from_millis(10)).await;
            if number.is_multiple_of(2) { Outcome::Answered } else { Outcome::Refused }
        }
    }

    #[tokio::test]
    async fn latency_counts_from_when_a_call_was_due() {
        let target = Arc::new(Slow(tokio::sync::Mutex::new(())));
        // Ten times what it can take: the queue, and so the wait, grows to almost a second.
        let report = open_loop(&target, 1000.0, 0.1, 1, 0).await.unwrap();
        let figures = report.figures();
        assert_eq!(figures.answered + figures.refused, figures.sent);
        assert!(figures.latency_ms.p50 > 200.0 && figures.latency_ms.max > 500.0, "{figures:?}");
        let closed = closed_loop(&target, 1, 0.2, 0).await.unwrap().figures();
        assert!(closed.latency_ms.p50 < 100.0, "a closed loop does not see it: {closed:?}");
    }
}
