//! Whether a search is worth its nodes, judged before it.
//!
//! A ridge regression predicts from what is known before the search how many nats each depth would gain; the depth whose
//! gain, less the price of its nodes, is largest is searched, or none.

use serde::{Deserialize, Serialize};
use zeitnot_encoding::{Conditions, rerank::Candidates};

/// Names of the features, in order.
pub const FEATURES: [&str; 10] = [
    "one",
    "entropy of the prior, nats",
    "probability of the top move",
    "gap to the second move, nats",
    "probability of the candidates",
    "ln(legal moves)",
    "mover's rating / 1000, 2.5 when unknown",
    "ln(1 + initial seconds) / 7, 0 when unknown",
    "share of the clock left, 0.5 when unknown",
    "moves of history / 20",
];

/// Predicts what searches gain, and chooses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allocator {
    /// Nats that a million nodes must gain.
    pub price: f32,
    /// What may be searched.
    pub options: Vec<SearchOption>,
}

/// A depth that may be searched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchOption {
    /// Plies.
    pub depth: u32,
    /// Mean nodes of such a search, in millions.
    pub meganodes: f32,
    /// Weights of the features for the gain in nats.
    pub weights: Vec<f32>,
}

impl SearchOption {
    /// Nats that the search is expected to gain.
    pub fn gain(&self, features: &[f32]) -> f32 {
        self.weights.iter().zip(features).map(|(weight, feature)| weight * feature).sum()
    }
}

impl Allocator {
    /// The depth most worth its price, or none when no search is.
    pub fn choose(&self, features: &[f32]) -> Option<u32> {
        let net = |option: &SearchOption| option.gain(features) - self.price * option.meganodes;
        let best = self.options.iter().max_by(|a, b| net(a).total_cmp(&net(b)))?;
        (net(best) > 0.0).then_some(best.depth)
    }
}

/// What is known before the search, as [`FEATURES`] names it. `legal` is the number of legal moves, `history` that of
/// the recent moves the prior was shown.
pub fn features(
    candidates: &Candidates,
    legal: usize,
    history: usize,
    conditions: &Conditions,
) -> [f32; FEATURES.len()] {
    let logs = &candidates.log_probabilities;
    let probability = |log: &f32| log.exp();
    let entropy = logs.iter().map(|log| -log * log.exp()).sum();
    let top = logs.first().copied().unwrap_or_default();
    let second = logs.get(1).copied().unwrap_or(top);
    let clock =
        conditions.mover_clock.zip(conditions.time_control).map(|(left, control)| left / control.initial.max(1.0));
    [
        1.0,
        entropy,
        top.exp(),
        top - second,
        logs.iter().map(probability).sum(),
        (legal.max(1) as f32).ln(),
        conditions.mover_rating.map_or(2.5, |rating| f32::from(rating) / 1000.0),
        conditions.time_control.map_or(0.0, |control| control.initial.ln_1p() / 7.0),
        clock.map_or(0.5, |share| share.clamp(0.0, 2.0)),
        history as f32 / 20.0,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_with_the_largest_net_gain_is_chosen_or_none() {
        let option = |depth, meganodes, weights: [f32; 2]| SearchOption { depth, meganodes, weights: weights.to_vec() };
        let allocator =
            |price| Allocator { price, options: vec![option(4, 0.01, [0.01, 0.0]), option(8, 0.1, [0.0, 0.1])] };
        assert_eq!(allocator(0.1).choose(&[1.0, 1.0]), Some(8));
        assert_eq!(allocator(0.1).choose(&[1.0, 0.0]), Some(4));
        assert_eq!(allocator(0.95).choose(&[1.0, 0.1]), Some(4));
        assert_eq!(allocator(2.0).choose(&[1.0, 0.0]), None);
        assert_eq!(Allocator::default().choose(&[1.0, 1.0]), None);
    }

    #[test]
    fn features_of_a_certain_move_say_so() {
        let candidates = Candidates::of(&[3, 4], &[20.0, 0.0]);
        let features = features(&candidates, 2, 5, &Conditions::default());
        assert!(features[1] < 1e-3 && features[2] > 0.999 && features[3] > 10.0);
        assert_eq!(features[6..], [2.5, 0.0, 0.5, 0.25]);
    }
}
