//! How long an engine may search for a request.

use std::time::{Duration, Instant};

use zeitnot_encoding::TimeControl;

/// Least time kept for the re-ranker and the answer; a tenth of what is left when that is more, for busy machines.
const RESERVE: Duration = Duration::from_millis(15);
/// Kept of a sidecar's time for the ways to it and back.
const WAYS: Duration = Duration::from_millis(10);
/// Shortest search that is worth asking for.
const SHORTEST: Duration = Duration::from_millis(10);
/// A sidecar that was given at least so much and has nothing to say is to blame for it.
const FAIR: Duration = Duration::from_millis(100);
/// How long a sidecar may take beyond twice its search, for its queue.
const PATIENCE: Duration = Duration::from_millis(100);

/// What a request says of the search itself; zero and none where it leaves that to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Plies.
    pub depth: u32,
    /// Nodes.
    pub nodes: u64,
    /// Time.
    pub movetime: Option<Duration>,
}

/// How to search, and until when to wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Plies; 0 for no limit.
    pub depth: u32,
    /// Nodes; 0 for no limit.
    pub nodes: u64,
    /// Time of the search.
    pub movetime: Duration,
    /// When no answer is waited for any more.
    pub until: Instant,
    /// Whether the deadline cut the time short.
    pub squeezed: bool,
}

impl Wish {
    /// Whether the request leaves everything to the server.
    pub fn is_empty(&self) -> bool {
        *self == Wish::default()
    }
}

impl Plan {
    /// The search for a request that must be answered by `deadline`. `depth` is the server's choice, if it has one;
    /// `factor` stretches the server's times. None when there is no time left.
    pub fn new(
        wish: &Wish,
        depth: Option<u32>,
        control: Option<TimeControl>,
        factor: f64,
        now: Instant,
        deadline: Instant,
    ) -> Option<Self> {
        let left = deadline.saturating_duration_since(now);
        let left = left.checked_sub(RESERVE.max(left / 10))?;
        let wanted = wish.movetime.unwrap_or_else(|| by_control(control).mul_f64(factor));
        let depth = if wish.depth > 0 { wish.depth } else { depth.unwrap_or(0) };
        let patient = (wanted * 2 + PATIENCE).min(left);
        let plan = Plan { depth, nodes: wish.nodes, movetime: wanted, until: now + patient, squeezed: false };
        plan.at(now)
    }

    /// The same for a sidecar that is asked at this moment. None when no time is left for it.
    pub fn at(&self, now: Instant) -> Option<Self> {
        let most = self.until.saturating_duration_since(now).checked_sub(WAYS)?;
        if most < SHORTEST {
            return None;
        }
        Some(Plan { movetime: self.movetime.min(most), squeezed: self.squeezed || most < self.movetime, ..*self })
    }

    /// Whether silence is the sidecar's fault. A caller with a short deadline must not be able to close it for others.
    pub fn is_fair(&self) -> bool {
        self.movetime >= FAIR
    }
}

/// How long to search in games of this pace. A bullet player does not see what takes long to see.
fn by_control(control: Option<TimeControl>) -> Duration {
    let estimated = control.map(|control| control.initial + 40.0 * control.increment);
    Duration::from_millis(match estimated {
        Some(seconds) if seconds < 180.0 => 100,
        Some(seconds) if seconds >= 600.0 => 500,
        _ => 200,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(wish: Wish, initial: Option<f32>, left_ms: u64) -> Option<Plan> {
        let control = initial.map(|initial| TimeControl { initial, increment: 0.0 });
        let now = Instant::now();
        Plan::new(&wish, None, control, 1.0, now, now + Duration::from_millis(left_ms))
    }

    fn milliseconds(wish: Wish, initial: Option<f32>, left: u64) -> Option<u128> {
        plan(wish, initial, left).map(|plan| plan.movetime.as_millis())
    }

    #[test]
    fn time_follows_the_pace_of_the_game() {
        let by = |initial| milliseconds(Wish::default(), initial, 10_000);
        let all = [None, Some(60.0), Some(180.0), Some(600.0), Some(5400.0)].map(by);
        assert_eq!(all, [Some(200), Some(100), Some(200), Some(500), Some(500)]);
        let own = Wish { movetime: Some(Duration::from_millis(70)), ..Wish::default() };
        assert_eq!(milliseconds(own, Some(600.0), 10_000), Some(70));
    }

    #[test]
    fn the_deadline_limits_every_search_and_leaves_time_to_answer() {
        let by = |left| milliseconds(Wish::default(), None, left);
        assert_eq!([by(1000), by(300), by(200), by(125), by(35)], [200, 200, 170, 100, 10].map(Some));
        assert_eq!([by(34), by(0)], [None, None]);
        let now = Instant::now();
        let long = Wish { movetime: Some(Duration::from_secs(60)), ..Wish::default() };
        let plan = Plan::new(&long, None, None, 1.0, now, now + Duration::from_secs(1)).unwrap();
        assert!(plan.until < now + Duration::from_secs(1) && now + plan.movetime < plan.until && plan.squeezed);
    }

    #[test]
    fn only_who_was_given_time_is_to_blame() {
        assert!(plan(Wish::default(), None, 1000).unwrap().is_fair());
        assert!(!plan(Wish::default(), None, 120).unwrap().is_fair());
        let hasty = Wish { movetime: Some(Duration::from_millis(1)), ..Wish::default() };
        assert!(!plan(hasty, None, 1000).unwrap().is_fair());
    }

    #[test]
    fn the_request_knows_better_than_the_server() {
        let now = Instant::now();
        let deadline = now + Duration::from_secs(1);
        let depth = |wish| Plan::new(&wish, Some(8), None, 1.0, now, deadline).unwrap().depth;
        assert_eq!([depth(Wish::default()), depth(Wish { depth: 3, ..Wish::default() })], [8, 3]);
    }
}
