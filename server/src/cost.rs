//! How long a run takes, by batch size: learnt at warm-up, kept current by every run.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Weight of one run in the moving mean.
const WEIGHT: f64 = 0.1;
/// A run that took this many times longer, or shorter, than expected is an accident and counts no more than that.
const ACCIDENT: f64 = 4.0;

/// A row at an efficient size costs at most so many times what it costs at best.
const NEARLY_BEST: f64 = 1.05;

/// Expected time of a run, by batch size.
#[derive(Debug)]
pub struct CostModel {
    points: Vec<Point>,
}

/// One size that is kept track of. The time is f64 seconds, as bits.
#[derive(Debug)]
struct Point {
    rows: usize,
    seconds: AtomicU64,
}

impl CostModel {
    /// Sizes that are kept track of, and warmed: powers of two up to the largest batch, and that one.
    pub fn sizes(max_batch: usize) -> Vec<usize> {
        let powers = std::iter::successors(Some(1_usize), |size| size.checked_mul(2));
        powers.take_while(|&size| size < max_batch).chain([max_batch]).collect()
    }

    /// A model for batches of up to `max_batch` that expects nothing to take any time, until it is taught.
    pub fn new(max_batch: usize) -> Self {
        let point = |rows| Point { rows, seconds: AtomicU64::new(0) };
        CostModel { points: Self::sizes(max_batch).into_iter().map(point).collect() }
    }

    /// Most rows of a batch.
    pub fn max_batch(&self) -> usize {
        self.points.last().map_or(1, |point| point.rows)
    }

    /// Sets what a tracked size takes.
    pub fn teach(&self, rows: usize, took: Duration) {
        self.points.iter().filter(|point| point.rows == rows).for_each(|point| point.set(took.as_secs_f64()));
    }

    /// The smallest tracked size with room for `rows`, which is what CUDA is given.
    pub fn padded(&self, rows: usize) -> usize {
        self.points.iter().map(|point| point.rows).find(|&size| size >= rows).unwrap_or(rows)
    }

    /// Expected time of a run.
    pub fn estimate(&self, rows: usize) -> Duration {
        let mut before: Option<(usize, f64)> = None;
        for point in &self.points {
            let seconds = point.get();
            if point.rows >= rows {
                let (from, low) = before.unwrap_or((point.rows, seconds));
                let span = (point.rows - from).max(1) as f64;
                return Duration::from_secs_f64(low + (seconds - low) * (rows.saturating_sub(from) as f64 / span));
            }
            before = Some((point.rows, seconds));
        }
        Duration::from_secs_f64(before.map_or(0.0, |(_, seconds)| seconds))
    }

    /// The smallest tracked size at which a row costs hardly more than at the best one: larger batches win no
    /// throughput, and make their rows wait for each other.
    pub fn efficient(&self) -> usize {
        let per_row = |point: &Point| point.get() / point.rows as f64;
        let best = self.points.iter().map(per_row).fold(f64::INFINITY, f64::min);
        let taught = self.points.iter().filter(|_| best > 0.0);
        let enough = taught.filter(|point| per_row(point) <= best * NEARLY_BEST).map(|point| point.rows).min();
        enough.unwrap_or(self.max_batch())
    }

    /// Learns from a run. All sizes follow it, as a machine gets slower for all, the nearer ones more.
    pub fn observe(&self, rows: usize, took: Duration) {
        let expected = self.estimate(rows).as_secs_f64();
        if expected <= 0.0 {
            return;
        }
        let ratio = (took.as_secs_f64() / expected).clamp(1.0 / ACCIDENT, ACCIDENT);
        for point in &self.points {
            // Doublings between the two sizes.
            let distance = (point.rows as f64 / rows.max(1) as f64).log2().abs();
            point.set(point.get() * (1.0 + WEIGHT * (ratio - 1.0) / (1.0 + distance)));
        }
    }
}

impl Point {
    fn get(&self) -> f64 {
        f64::from_bits(self.seconds.load(Ordering::Relaxed))
    }

    fn set(&self, seconds: f64) {
        self.seconds.store(seconds.to_bits(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn near(a: Duration, b: Duration) -> bool {
        a.abs_diff(b) < Duration::from_micros(10)
    }

    fn taught() -> CostModel {
        let cost = CostModel::new(8);
        for (rows, time) in [(1, 10), (2, 18), (4, 34), (8, 66)] {
            cost.teach(rows, ms(time));
        }
        cost
    }

    #[test]
    fn sizes_are_powers_of_two_and_the_largest_batch() {
        assert_eq!(CostModel::sizes(8), [1, 2, 4, 8]);
        assert_eq!(CostModel::sizes(12), [1, 2, 4, 8, 12]);
        assert_eq!(CostModel::sizes(1), [1]);
        assert_eq!(CostModel::new(12).padded(5), 8);
        assert_eq!(CostModel::new(12).padded(9), 12);
    }

    #[test]
    fn it_is_taught_and_interpolates() {
        let cost = CostModel::new(8);
        cost.observe(3, ms(10));
        assert_eq!(cost.estimate(3), Duration::ZERO, "it expects nothing before it is taught");
        let cost = taught();
        assert!(near(cost.estimate(1), ms(10)) && near(cost.estimate(3), ms(26)) && near(cost.estimate(6), ms(50)));
        assert!(near(cost.estimate(9), ms(66)), "as the largest");
    }

    #[test]
    fn the_efficient_size_is_the_smallest_that_is_about_as_good_as_any() {
        assert_eq!(CostModel::new(8).efficient(), 8, "nothing is known");
        assert_eq!(taught().efficient(), 4, "8.5 ms a row, 8.25 at best");
    }

    #[test]
    fn it_follows_a_machine_that_gets_slower_and_forgives_an_accident() {
        let cost = taught();
        let before = cost.estimate(4);
        cost.observe(4, Duration::from_secs(60));
        assert!(cost.estimate(4) < before.mul_f64(1.0 + WEIGHT * ACCIDENT));
        for _ in 0..400 {
            cost.observe(4, ms(80));
        }
        assert!(near(cost.estimate(4), ms(80)), "{cost:?}");
        assert!(cost.estimate(8) > ms(90), "the others follow: {cost:?}");
    }
}
