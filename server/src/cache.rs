//! Recent predictions, bounded in bytes.
//!
//! The key is a hash of everything a prediction depends on: the model, the encoded input, the legal moves. What the
//! encoding does not tell the model cannot change its answer, and so does not change the key.

use std::{mem::size_of, sync::Arc};

use moka::sync::Cache as Moka;
use sha2::{Digest, Sha256};
use zeitnot_encoding::{Batch, Outlook, ThinkTime, think_time};

/// Bytes an entry costs beside its prediction, by measurement: key, table, recency and frequency bookkeeping.
const ENTRY_OVERHEAD: usize = 256;

/// Names a situation as a model sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key([u8; 16]);

/// What a model answers to one situation.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Logits of the legal moves, in their order.
    pub logits: Box<[f32]>,
    /// How the game is expected to end.
    pub outlook: Outlook,
    /// How long the mover is expected to think, if the model knows.
    pub think_time: Option<ThinkTime>,
    /// The pooled hidden state; empty when there is no re-ranker to be shown it.
    pub pooled: Box<[f32]>,
}

/// Recent predictions of all models.
#[derive(Clone, Debug)]
pub struct Cache {
    entries: Option<Moka<Key, Arc<Prediction>>>,
}

impl Key {
    /// The key of one encoded situation with these legal moves. `model` names one loaded model, not its version, so
    /// that a file that changes under the same version is another model.
    pub fn new(model: u64, input: &Batch, legal: &[u16]) -> Self {
        let mut bytes = Vec::with_capacity(8192);
        bytes.extend(model.to_le_bytes());
        input.write_bytes(&mut bytes);
        bytes.extend(legal.iter().flat_map(|index| index.to_le_bytes()));
        let mut key = [0; 16];
        key.iter_mut().zip(Sha256::digest(&bytes)).for_each(|(key, byte)| *key = byte);
        Key(key)
    }
}

impl Prediction {
    fn bytes(&self) -> usize {
        let think_time = self.think_time.as_ref().map_or(0, |_| think_time::BINS.len());
        ENTRY_OVERHEAD + size_of::<Self>() + (self.logits.len() + self.pooled.len() + think_time) * size_of::<f32>()
    }
}

impl Cache {
    /// Keeps predictions up to so many bytes; none with 0.
    pub fn new(bytes: u64) -> Self {
        let weigh = |_: &Key, prediction: &Arc<Prediction>| u32::try_from(prediction.bytes()).unwrap_or(u32::MAX);
        let entries = (bytes > 0).then(|| Moka::builder().max_capacity(bytes).weigher(weigh).build());
        Cache { entries }
    }

    /// Whether anything is kept.
    pub fn is_on(&self) -> bool {
        self.entries.is_some()
    }

    /// A prediction that was kept.
    pub fn get(&self, key: &Key) -> Option<Arc<Prediction>> {
        self.entries.as_ref()?.get(key)
    }

    /// Keeps a prediction.
    pub fn insert(&self, key: Key, prediction: Arc<Prediction>) {
        if let Some(entries) = &self.entries {
            entries.insert(key, prediction);
        }
    }

    /// Entries and bytes being kept, as of the last bookkeeping.
    pub fn size(&self) -> (u64, u64) {
        self.entries.as_ref().map_or((0, 0), |entries| (entries.entry_count(), entries.weighted_size()))
    }
}

#[cfg(test)]
mod tests {
    use zeitnot_encoding::{Otter, Situation};

    use super::*;

    fn situation(rating: u16) -> Batch {
        let mut situation = Situation::default();
        situation.conditions.mover_rating = Some(rating);
        Batch::of(&Otter, [&situation])
    }

    fn prediction(value: f32) -> Arc<Prediction> {
        let logits = vec![0.0; 20].into();
        Arc::new(Prediction { logits, outlook: Outlook::of_value(value), think_time: None, pooled: Box::default() })
    }

    #[test]
    fn the_key_is_what_the_model_sees() {
        let key = Key::new(1, &situation(1500), &[1, 2]);
        assert_eq!(key, Key::new(1, &situation(1550), &[1, 2]), "otter/1 sees both as one bucket");
        assert_ne!(key, Key::new(1, &situation(1600), &[1, 2]));
        assert_ne!(key, Key::new(2, &situation(1500), &[1, 2]));
        assert_ne!(key, Key::new(1, &situation(1500), &[1, 3]));
    }

    #[test]
    fn it_is_bounded_and_can_be_off() {
        let keys = (0..1000).map(|model| Key::new(model, &situation(1500), &[])).collect::<Vec<_>>();
        let cache = Cache::new(100_000);
        keys.iter().for_each(|key| cache.insert(*key, prediction(0.5)));
        if let Some(entries) = &cache.entries {
            entries.run_pending_tasks();
        }
        let (entries, bytes) = cache.size();
        assert!(entries > 100 && bytes <= 100_000, "{entries} entries, {bytes} bytes");
        assert!(keys.iter().filter_map(|key| cache.get(key)).count() > 100);
        let off = Cache::new(0);
        off.insert(keys[0], prediction(0.5));
        assert!(off.get(&keys[0]).is_none() && !off.is_on());
    }
}
