//! Bounds of a queue.

use std::time::Duration;

/// Bounds of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests waiting or computed at the same time.
    pub capacity: usize,
    /// Situations in a batch.
    pub max_batch: usize,
    /// How long a worker waits for a batch to fill.
    pub delay: Duration,
    /// Workers that share the queue.
    pub workers: usize,
    /// Whether situations with the same key are computed once.
    pub coalesce: bool,
    /// Whether predictions keep the pooled hidden state, which re-rankers are shown.
    pub pooled: bool,
}
