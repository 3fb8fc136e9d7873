//! Recent evaluations, bounded in number.

use std::sync::Arc;

use moka::sync::Cache as Moka;
use zeitnot_uci::{Evaluation, Limits};

/// Everything an evaluation depends on, beside the engine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The position as FEN.
    pub fen: String,
    /// The candidates in UCI, sorted, so that their order in a request is of no account.
    pub candidates: Vec<String>,
    /// When the search ends.
    pub limits: Limits,
}

/// Recent evaluations, with their lines in the order of the key's candidates.
#[derive(Clone, Debug)]
pub struct Cache {
    entries: Option<Moka<Key, Arc<Evaluation>>>,
}

impl Cache {
    /// Keeps so many evaluations; none with 0.
    pub fn new(entries: u64) -> Self {
        Cache { entries: (entries > 0).then(|| Moka::new(entries)) }
    }

    /// Whether anything is kept.
    pub fn is_on(&self) -> bool {
        self.entries.is_some()
    }

    /// An evaluation that was kept.
    pub fn get(&self, key: &Key) -> Option<Arc<Evaluation>> {
        self.entries.as_ref()?.get(key)
    }

    /// Keeps an evaluation, unless the deadline cut it short: the next request may have more time.
    pub fn insert(&self, key: Key, evaluation: &Arc<Evaluation>) {
        if let Some(entries) = self.entries.as_ref().filter(|_| evaluation.complete) {
            entries.insert(key, Arc::clone(evaluation));
        }
    }

    /// Evaluations being kept, as of the last bookkeeping.
    pub fn entries(&self) -> u64 {
        self.entries.as_ref().map_or(0, Moka::entry_count)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn key(fen: &str) -> Key {
        Key { fen: fen.to_owned(), candidates: Vec::new(), limits: Limits::default() }
    }

    fn evaluation(complete: bool) -> Arc<Evaluation> {
        let (lines, iterations) = (Vec::new(), Vec::new());
        Arc::new(Evaluation { lines, depth: 1, nodes: 1, time: Duration::ZERO, complete, iterations })
    }

    #[test]
    fn it_keeps_what_is_complete_is_bounded_and_can_be_off() {
        let cache = Cache::new(10);
        cache.insert(key("partial"), &evaluation(false));
        assert_eq!(cache.get(&key("partial")), None);
        (0..1000).for_each(|number| cache.insert(key(&number.to_string()), &evaluation(true)));
        if let Some(entries) = &cache.entries {
            entries.run_pending_tasks();
        }
        assert!((1..=10).contains(&cache.entries()), "{}", cache.entries());
        let off = Cache::new(0);
        off.insert(key("any"), &evaluation(true));
        assert!(off.get(&key("any")).is_none() && !off.is_on());
    }
}
