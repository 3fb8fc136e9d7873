//! Two models on the same decisions.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::evaluate::{
    judge::Verdicts,
    metrics::{Score, middle},
};

/// How much better the first of two models is than the second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Name of the one.
    pub first: String,
    /// Name of the other.
    pub second: String,
    /// Top-1 accuracy of the first less that of the second, in percentage points.
    pub top1: Estimate,
    /// Negative log-likelihood of the first less that of the second, in nats.
    pub nll: Estimate,
}

/// A figure and its 95% interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// The ends of the interval, by resampling players.
    pub ci: [f64; 2],
}

impl Estimate {
    /// Whether the interval leaves out zero.
    pub fn is_certain(&self) -> bool {
        self.ci[0] > 0.0 || self.ci[1] < 0.0
    }
}

/// Percentage of decisions in which the most probable moves are the same, for each model and each.
pub fn agreement(verdicts: &Verdicts) -> Vec<Vec<f64>> {
    let count = verdicts.models.len();
    let mut same = vec![vec![0.0; count]; count];
    for judged in &verdicts.decisions {
        for (row, first) in same.iter_mut().zip(&judged.scores) {
            let agreed = row.iter_mut().zip(&judged.scores).filter(|(_, second)| first.choice == second.choice);
            agreed.for_each(|(cell, _)| *cell += 1.0);
        }
    }
    let all = verdicts.decisions.len().max(1) as f64;
    same.iter_mut().flatten().for_each(|cell| *cell *= 100.0 / all);
    same
}

/// Hits in percent and nats of each model, over some decisions.
#[derive(Clone, Default)]
struct Sums {
    count: f64,
    models: Vec<[f64; 2]>,
}

impl Sums {
    fn add(&mut self, other: &Sums) {
        self.count += other.count;
        self.models.resize(other.models.len(), [0.0; 2]);
        for (sum, own) in self.models.iter_mut().zip(&other.models) {
            sum.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        }
    }

    /// The mean of the first less that of the second.
    fn difference(&self, (first, second): (usize, usize)) -> [f64; 2] {
        let mean = |model: usize| self.models.get(model).map_or([0.0; 2], |sums| sums.map(|sum| sum / self.count));
        let ([hits, nats], [other_hits, other_nats]) = (mean(first), mean(second));
        [hits - other_hits, nats - other_nats]
    }
}

/// The differences of all pairs, each earlier model first. Whole players are drawn with replacement, the same for all
/// models, since both a player's decisions and two models' successes are alike.
pub fn differences(verdicts: &Verdicts, samples: usize) -> Vec<Difference> {
    let mut players = BTreeMap::<u32, Sums>::new();
    for judged in &verdicts.decisions {
        let models = judged.scores.iter().map(|score| [100.0 * f64::from(score.rank == 0), Score::nats(score)]);
        players.entry(judged.player).or_default().add(&Sums { count: 1.0, models: models.collect() });
    }
    let players = players.into_values().collect::<Vec<_>>();
    let sum = |drawn: &mut dyn Iterator<Item = &Sums>| {
        let mut sums = Sums::default();
        drawn.for_each(|own| sums.add(own));
        sums
    };
    let all = sum(&mut players.iter());
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let draws = (0..samples).map(|_| {
        let places = (0..players.len()).map(|_| random.random_range(0..players.len())).collect::<Vec<_>>();
        sum(&mut places.into_iter().filter_map(|place| players.get(place)))
    });
    let draws = draws.collect::<Vec<_>>();
    let pairs =
        (0..verdicts.models.len()).flat_map(|first| (first + 1..verdicts.models.len()).map(move |b| (first, b)));
    let estimate = |pair: (usize, usize), figure: fn([f64; 2]) -> f64| Estimate {
        value: figure(all.difference(pair)),
        ci: middle(&mut draws.iter().map(|draw| figure(draw.difference(pair))).collect::<Vec<_>>()),
    };
    let name = |model: usize| verdicts.models.get(model).cloned().unwrap_or_default();
    let difference = |pair: (usize, usize)| Difference {
        first: name(pair.0),
        second: name(pair.1),
        top1: estimate(pair, |[hits, _]| hits),
        nll: estimate(pair, |[_, nats]| nats),
    };
    pairs.map(difference).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::judge::Judged;

    fn judged(player: u32, scores: &[(u16, f32, u16)]) -> Judged {
        let score = |&(rank, probability, choice)| Score { rank, probability, confidence: 0.5, choice };
        Judged {
            game: 0,
            player,
            rating: 0,
            phase: 0,
            clock: None,
            time_class: None,
            scores: scores.iter().map(score).collect(),
        }
    }

    fn verdicts(decisions: Vec<Judged>) -> Verdicts {
        Verdicts { models: ["a", "b"].map(str::to_owned).to_vec(), decisions }
    }

    #[test]
    fn agreement_is_the_share_of_equal_choices() {
        let verdicts = verdicts(vec![
            judged(0, &[(0, 0.5, 7), (0, 0.5, 7)]),
            judged(0, &[(0, 0.5, 7), (1, 0.2, 8)]),
            judged(1, &[(2, 0.1, 9), (2, 0.1, 9)]),
            judged(1, &[(2, 0.1, 9), (0, 0.4, 4)]),
        ]);
        assert_eq!(agreement(&verdicts), [[100.0, 50.0], [50.0, 100.0]]);
    }

    #[test]
    fn differences_are_as_computed_by_hand_and_certain_where_all_players_agree() {
        let better = |player| judged(player, &[(0, 0.5, 1), (1, 0.25, 2)]);
        let worse = |player| judged(player, &[(1, 0.25, 1), (0, 0.5, 2)]);
        let alike = verdicts((0..40).map(better).collect());
        let found = differences(&alike, 200);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].first.as_str(), found[0].second.as_str()), ("a", "b"));
        assert_eq!(found[0].top1, Estimate { value: 100.0, ci: [100.0, 100.0] });
        assert!((found[0].nll.value - 0.5_f64.ln()).abs() < 1e-9 && found[0].nll.is_certain());

        let mixed =
            verdicts((0..40).map(|player| if player % 2 == 0 { better(player) } else { worse(player) }).collect());
        let found = differences(&mixed, 500);
        assert!(found[0].top1.value.abs() < 1e-9 && !found[0].top1.is_certain());
        assert!(found[0].top1.ci[0] < -20.0 && found[0].top1.ci[1] > 20.0, "{:?}", found[0].top1);
    }
}
