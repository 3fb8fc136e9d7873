//! Accuracy, negative log-likelihood, calibration error, and their uncertainty.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use zeitnot_encoding::LegalMoves;

/// Bins of the calibration error.
const BINS: usize = 15;
/// Probability below which a move counts as this improbable, so that one move cannot decide the mean.
const LEAST: f64 = 1e-9;

/// What a model made of one decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Place of the move played among the legal moves, from 0.
    pub rank: u16,
    /// Probability of the move played.
    pub probability: f32,
    /// Probability of the most probable move.
    pub confidence: f32,
    /// Vocabulary index of that move.
    pub choice: u16,
}

impl Score {
    /// Scores probabilities of the legal moves. `played` is the move's vocabulary index.
    pub fn of(legal: &LegalMoves, probabilities: &[f32], played: Option<u16>) -> Self {
        let place = legal.indices().iter().position(|&index| Some(index) == played);
        let probability = place.and_then(|place| probabilities.get(place)).copied().unwrap_or(0.0);
        let ranked = legal.indices().iter().copied().zip(probabilities.iter().copied());
        let before = |a: &(u16, f32), b: &(u16, f32)| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0));
        let (choice, confidence) = ranked.max_by(before).unwrap_or_default();
        Score {
            rank: ranked_before(legal.indices(), probabilities, played.unwrap_or(u16::MAX), probability) as u16,
            probability,
            confidence,
            choice,
        }
    }

    /// Negative log-likelihood of the move played.
    pub fn nats(&self) -> f64 {
        -f64::from(self.probability).max(LEAST).ln()
    }
}

/// How many moves come before one in the answer: more probable ones, and equals of a lower index.
fn ranked_before(indices: &[u16], probabilities: &[f32], index: u16, probability: f32) -> usize {
    let before = |&(&other, &p): &(&u16, &f32)| p > probability || (p == probability && other < index);
    indices.iter().zip(probabilities).filter(before).count()
}

/// Figures over a group of decisions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Decisions.
    pub n: usize,
    /// Percentage in which the move played was the most probable.
    pub top1: f64,
    /// 95% interval of `top1`, by resampling players.
    pub top1_ci: [f64; 2],
    /// Percentage in which the move played was among the five most probable.
    pub top5: f64,
    /// Mean negative log-likelihood of the moves played, in nats.
    pub nll: f64,
    /// Expected calibration error of the most probable move over 15 equal bins, in percentage points.
    pub ece: f64,
}

impl Figures {
    /// Figures of decisions given as the player's number and the score.
    pub fn of(decisions: impl Iterator<Item = (u32, Score)>, samples: usize) -> Self {
        let mut players: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        let (mut n, mut top1, mut top5, mut nll) = (0usize, 0.0, 0.0, 0.0);
        let mut bins = [(0.0, 0.0); BINS];
        for (player, score) in decisions {
            let hit = f64::from(score.rank == 0);
            n += 1;
            top1 += hit;
            top5 += f64::from(score.rank < 5);
            nll += score.nats();
            let (hits, count) = players.entry(player).or_default();
            *hits += hit;
            *count += 1.0;
            let bin = ((score.confidence * BINS as f32) as usize).min(BINS - 1);
            if let Some((confidence, hits)) = bins.get_mut(bin) {
                *confidence += f64::from(score.confidence);
                *hits += hit;
            }
        }
        if n == 0 {
            return Figures::default();
        }
        let count = n as f64;
        let gap = bins.iter().map(|(confidence, hits)| (confidence - hits).abs()).sum::<f64>();
        Figures {
            n,
            top1: 100.0 * top1 / count,
            top1_ci: interval(&players.into_values().collect::<Vec<_>>(), samples),
            top5: 100.0 * top5 / count,
            nll: nll / count,
            ece: 100.0 * gap / count,
        }
    }
}

/// 95% interval in percent of the accuracy, from each player's hits and decisions: whole players are drawn with
/// replacement, since a player's decisions are alike.
fn interval(players: &[(f64, f64)], samples: usize) -> [f64; 2] {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut accuracies = (0..samples)
        .map(|_| {
            let (mut hits, mut count) = (0.0, 0.0);
            for _ in players {
                if let Some(drawn) = players.get(random.random_range(0..players.len())) {
                    hits += drawn.0;
                    count += drawn.1;
                }
            }
            100.0 * hits / count
        })
        .collect::<Vec<_>>();
    middle(&mut accuracies)
}

/// The ends of the middle 95% of some values, which it sorts.
pub(crate) fn middle(values: &mut [f64]) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1) as f64;
    [0.025, 0.975].map(|share| values.get((share * last).round() as usize).copied().unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(rank: u16, probability: f32, confidence: f32) -> Score {
        Score { rank, probability, confidence, choice: 0 }
    }

    #[test]
    fn figures_of_a_few_decisions_are_as_computed_by_hand() {
        let decisions = [(0, score(0, 0.5, 0.5)), (0, score(1, 0.25, 0.5)), (1, score(5, 0.1, 0.9))];
        let figures = Figures::of(decisions.into_iter(), 200);
        assert_eq!(figures.n, 3);
        assert!((figures.top1 - 100.0 / 3.0).abs() < 1e-9);
        assert!((figures.top5 - 200.0 / 3.0).abs() < 1e-9);
        let nll = -(0.5f64.ln() + 0.25f64.ln() + f64::from(0.1f32).ln()) / 3.0;
        assert!((figures.nll - nll).abs() < 1e-9);
        assert!((figures.ece - 100.0 * 0.9 / 3.0).abs() < 1e-4);
        assert_eq!(figures.top1_ci, [0.0, 50.0]);
    }

    #[test]
    fn a_model_without_preference_is_right_by_chance_alone() {
        let position = shakmaty::Chess::default();
        let legal = LegalMoves::of(&position);
        let even = vec![0.05; 20];
        let scores = legal.indices().iter().map(|&index| Score::of(&legal, &even, Some(index)));
        let lowest = legal.indices().iter().copied().min().unwrap();
        let ranks = scores.inspect(|score| assert_eq!(score.choice, lowest)).map(|score| score.rank);
        let mut ranks = ranks.collect::<Vec<_>>();
        ranks.sort_unstable();
        assert_eq!(ranks, (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn the_interval_widens_when_players_differ() {
        let alike = vec![(5.0, 10.0); 50];
        let mixed = (0..50).map(|i| if i % 2 == 0 { (10.0, 10.0) } else { (0.0, 10.0) }).collect::<Vec<_>>();
        assert_eq!(interval(&alike, 500), [50.0, 50.0]);
        let [low, high] = interval(&mixed, 500);
        assert!(low < 42.0 && high > 58.0, "{low} {high}");
    }
}
