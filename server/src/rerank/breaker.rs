//! A circuit breaker: after failures in a row a sidecar is left alone for a while, then tried with one request.

use std::time::{Duration, Instant};

/// Failures in a row that open the circuit.
const FAILURES: u32 = 5;
/// First and longest time that it stays open.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// A state machine without a clock of its own.
#[derive(Debug)]
pub struct Breaker {
    state: State,
    pause: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Requests pass; so many failed in a row.
    Closed { failures: u32 },
    /// No request passes until then.
    Open { until: Instant },
    /// One request is on trial.
    Trial,
}

/// A request that may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// As any other.
    Normal,
    /// Its end decides whether others may.
    Trial,
}

/// What a failure did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Unchanged,
    /// The circuit is open now, for so long.
    Opened(Duration),
}

impl Default for Breaker {
    fn default() -> Self {
        Breaker { state: State::Closed { failures: 0 }, pause: PAUSES.0 }
    }
}

impl Breaker {
    /// Lets a request pass, or not. Each that passes must be told of by one of the three others.
    pub fn pass(&mut self, now: Instant) -> Option<Pass> {
        match self.state {
            State::Closed { .. } => Some(Pass::Normal),
            State::Open { until } if until <= now => {
                self.state = State::Trial;
                Some(Pass::Trial)
            }
            State::Open { .. } | State::Trial => None,
        }
    }

    /// A request was answered well. Whether that closed the circuit.
    pub fn succeeded(&mut self) -> bool {
        let was_closed = matches!(self.state, State::Closed { .. });
        *self = Breaker::default();
        !was_closed
    }

    /// A request failed.
    pub fn failed(&mut self, pass: Pass, now: Instant) -> Verdict {
        match (self.state, pass) {
            (State::Closed { failures }, _) if failures + 1 < FAILURES => {
                self.state = State::Closed { failures: failures + 1 };
                Verdict::Unchanged
            }
            (State::Closed { .. }, _) => self.open(now),
            (State::Trial, Pass::Trial) => {
                self.pause = (self.pause * 2).min(PAUSES.1);
                self.open(now)
            }
            // Requests from before it opened say nothing new.
            (State::Open { .. }, _) | (State::Trial, Pass::Normal) => Verdict::Unchanged,
        }
    }

    /// Nobody waited for a request's end, which so says nothing: another may be the trial.
    pub fn abandoned(&mut self, pass: Pass, now: Instant) {
        if (self.state, pass) == (State::Trial, Pass::Trial) {
            self.state = State::Open { until: now };
        }
    }

    /// 0 when requests pass, 1 when one is on trial, 2 when none passes.
    pub fn level(&self) -> i64 {
        match self.state {
            State::Closed { .. } => 0,
            State::Trial => 1,
            State::Open { .. } => 2,
        }
    }

    fn open(&mut self, now: Instant) -> Verdict {
        self.state = State::Open { until: now + self.pause };
        Verdict::Opened(self.pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A breaker that has just opened.
    fn opened(now: Instant) -> Breaker {
        let mut breaker = Breaker::default();
        for failure in 1..=FAILURES {
            assert_eq!(breaker.pass(now), Some(Pass::Normal));
            let verdict = breaker.failed(Pass::Normal, now);
            assert_eq!(verdict != Verdict::Unchanged, failure == FAILURES);
        }
        breaker
    }

    #[test]
    fn failures_in_a_row_open_it_and_others_do_not() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        for _ in 0..3 * FAILURES {
            assert_eq!(breaker.failed(Pass::Normal, now), Verdict::Unchanged);
            assert!(!breaker.succeeded());
        }
        assert_eq!((opened(now).pass(now), opened(now).level()), (None, 2));
    }

    #[test]
    fn after_a_pause_one_request_is_tried_and_decides() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let later = now + PAUSES.0;
        assert_eq!(breaker.pass(later - Duration::from_millis(1)), None);
        assert_eq!((breaker.pass(later), breaker.level()), (Some(Pass::Trial), 1));
        assert_eq!(breaker.pass(later), None, "one at a time");
        assert!(breaker.succeeded());
        assert_eq!((breaker.pass(later), breaker.level()), (Some(Pass::Normal), 0));
    }

    #[test]
    fn the_pause_doubles_up_to_the_longest_and_starts_afresh_after_a_success() {
        let mut now = Instant::now();
        let mut breaker = opened(now);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            now += PAUSES.1;
            assert_eq!(breaker.pass(now), Some(Pass::Trial));
            let Verdict::Opened(pause) = breaker.failed(Pass::Trial, now) else { panic!("it stays open") };
            pauses.push(pause.as_millis());
        }
        assert_eq!(pauses, [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
        breaker.succeeded();
        assert_eq!(breaker.pause, PAUSES.0);
    }

    #[test]
    fn a_trial_that_nobody_waits_for_makes_room_for_another() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let later = now + PAUSES.0;
        assert_eq!(breaker.pass(later), Some(Pass::Trial));
        breaker.abandoned(Pass::Normal, later);
        assert_eq!(breaker.pass(later), None, "another request's end says nothing of the trial");
        assert_eq!(breaker.failed(Pass::Normal, later), Verdict::Unchanged);
        breaker.abandoned(Pass::Trial, later);
        assert_eq!(breaker.pass(later), Some(Pass::Trial));
    }
}
