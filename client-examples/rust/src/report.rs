//! What was measured.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::target::Outcome;

/// Longest latency that is told apart from longer ones, in microseconds: ten minutes.
const LONGEST: u64 = 600_000_000;

/// A call that ended.
#[derive(Clone, Debug)]
pub struct Call {
    /// How.
    pub outcome: Outcome,
    /// From when it was due.
    pub latency: Duration,
    /// How much later than due it was sent: the generator's own fault.
    pub lag: Duration,
    /// Whether it ended while calls were still being made.
    pub within: bool,
}

/// Calls being added up. Histograms are in microseconds, exact to three digits.
#[derive(Debug)]
pub struct Report {
    rate: f64,
    seconds: f64,
    answered: Histogram<u64>,
    lag: Histogram<u64>,
    sent: u64,
    answered_within: u64,
    refused: u64,
    late: u64,
    failures: BTreeMap<String, u64>,
}

/// The figures of a report.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Calls a second that were due; 0 in a closed loop.
    pub offered_per_second: f64,
    /// How long calls were made, in seconds.
    pub seconds: f64,
    /// Calls made.
    pub sent: u64,
    /// Calls answered.
    pub answered: u64,
    /// Calls answered a second, of those answered while calls were still being made: what comes after would flatter.
    pub answered_per_second: f64,
    /// Calls refused by a busy server.
    pub refused: u64,
    /// Calls whose deadline passed.
    pub late: u64,
    /// Other ends, by what they said.
    pub failures: BTreeMap<String, u64>,
    /// Latency of the calls answered, in milliseconds from when they were due.
    pub latency_ms: Quantiles,
    /// How much later than due calls were sent, in milliseconds.
    pub lag_ms: Quantiles,
}

/// Quantiles.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Quantiles {
    /// Half are lower.
    pub p50: f64,
    /// 90% are lower.
    pub p90: f64,
    /// 99% are lower.
    pub p99: f64,
    /// 99.9% are lower.
    pub p999: f64,
    /// The highest.
    pub max: f64,
}

impl Report {
    /// Without calls.
    ///
    /// # Errors
    ///
    /// When a histogram cannot be made.
    pub fn new(rate: f64, seconds: f64) -> Result<Self> {
        Ok(Report {
            rate,
            seconds,
            answered: Histogram::new_with_max(LONGEST, 3)?,
            lag: Histogram::new_with_max(LONGEST, 3)?,
            sent: 0,
            answered_within: 0,
            refused: 0,
            late: 0,
            failures: BTreeMap::new(),
        })
    }

    /// Adds a call.
    pub fn add(&mut self, call: Call) {
        self.sent += 1;
        self.lag.saturating_record(microseconds(call.lag));
        match call.outcome {
            Outcome::Answered => {
                self.answered_within += u64::from(call.within);
                self.answered.saturating_record(microseconds(call.latency));
            }
            Outcome::Refused => self.refused += 1,
            Outcome::Late => self.late += 1,
            Outcome::Failed(why) => *self.failures.entry(why).or_default() += 1,
        }
    }

    /// Its figures.
    pub fn figures(&self) -> Figures {
        Figures {
            offered_per_second: self.rate,
            seconds: self.seconds,
            sent: self.sent,
            answered: self.answered.len(),
            answered_per_second: self.answered_within as f64 / self.seconds,
            refused: self.refused,
            late: self.late,
            failures: self.failures.clone(),
            latency_ms: Quantiles::of(&self.answered),
            lag_ms: Quantiles::of(&self.lag),
        }
    }

    /// Shares of the answered calls and their latency in milliseconds, for a picture.
    pub fn curve(&self) -> Vec<(f64, f64)> {
        let steps = self.answered.iter_quantiles(2);
        steps.map(|step| (step.quantile(), step.value_iterated_to() as f64 / 1e3)).collect()
    }
}

impl Quantiles {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |share| histogram.value_at_quantile(share) as f64 / 1e3;
        Quantiles { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: histogram.max() as f64 / 1e3 }
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
