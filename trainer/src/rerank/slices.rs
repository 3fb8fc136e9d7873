//! Gains over the prior, in all and in slices, with intervals by a bootstrap over players.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{
    judge::Judged,
    known::{Known, MoveClass},
};

/// What a re-ranker gains over the prior on the same decisions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// Decisions.
    pub n: usize,
    /// Players who made them.
    pub players: usize,
    /// Mean NLL of the prior, in nats.
    pub prior_nll: f64,
    /// Mean NLL of the re-ranker, in nats.
    pub nll: f64,
    /// Relative gain of NLL, in percent.
    pub gain: f64,
    /// 95% interval of `gain`, by resampling players.
    pub gain_ci: [f64; 2],
    /// Top-1 accuracy of the prior, in percent.
    pub prior_top1: f64,
    /// Top-1 accuracy of the re-ranker, in percent.
    pub top1: f64,
}

/// One decision's part in a gain.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// Number of the player.
    pub player: u32,
    /// NLL before and after.
    pub nll: [f64; 2],
    /// Whether the move played was the first, before and after.
    pub top: [bool; 2],
}

impl Gain {
    /// Over pairs.
    pub fn of(pairs: impl Iterator<Item = Pair>, samples: usize) -> Self {
        let mut players: BTreeMap<u32, [f64; 2]> = BTreeMap::new();
        let (mut n, mut nll, mut tops) = (0usize, [0.0; 2], [0.0; 2]);
        for pair in pairs {
            n += 1;
            let own = players.entry(pair.player).or_default();
            for (place, (nats, top)) in pair.nll.into_iter().zip(pair.top).enumerate() {
                for sums in [&mut nll, &mut *own] {
                    if let Some(sum) = sums.get_mut(place) {
                        *sum += nats;
                    }
                }
                if let Some(sum) = tops.get_mut(place) {
                    *sum += f64::from(top);
                }
            }
        }
        if n == 0 {
            return Gain::default();
        }
        let count = n as f64;
        Gain {
            n,
            players: players.len(),
            prior_nll: nll[0] / count,
            nll: nll[1] / count,
            gain: relative(nll),
            gain_ci: interval(&players.into_values().collect::<Vec<_>>(), samples),
            prior_top1: 100.0 * tops[0] / count,
            top1: 100.0 * tops[1] / count,
        }
    }
}

fn relative([before, after]: [f64; 2]) -> f64 {
    if before > 0.0 { 100.0 * (before - after) / before } else { 0.0 }
}

/// 95% interval of the relative gain; whole players are drawn with replacement, since a player's decisions are alike.
fn interval(players: &[[f64; 2]], samples: usize) -> [f64; 2] {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut gains = (0..samples)
        .map(|_| {
            let mut sums = [0.0; 2];
            for _ in players {
                if let Some([before, after]) = players.get(random.random_range(0..players.len())) {
                    sums = [sums[0] + before, sums[1] + after];
                }
            }
            relative(sums)
        })
        .collect::<Vec<_>>();
    gains.sort_by(f64::total_cmp);
    let quantile = |share: f64| gains.get((share * samples.saturating_sub(1) as f64).round() as usize).copied();
    [0.025, 0.975].map(|share| quantile(share).unwrap_or(f64::NAN))
}

/// Whether a decision belongs to a slice.
type Keep = Box<dyn Fn(&Known, &Judged) -> bool>;

/// Decisions of one kind, by name.
type Slice = (String, Keep);

/// Whether a pseudonym belongs to the twentieth of the players of whom the shared collection has no game to train on.
fn is_unseen(pseudonym: &str) -> bool {
    let number = pseudonym.strip_prefix("p_").and_then(|digits| u32::from_str_radix(digits, 16).ok());
    number.is_some_and(|number| number.is_multiple_of(20))
}

/// The slices of each kind, in the order of reports.
pub fn kinds() -> Vec<(&'static str, Vec<Slice>)> {
    let slice = |name: &str, keep: Keep| (name.to_owned(), keep);
    let ratings = [0, 1400, 1800, 2200, 2500, 2700, 2900, 4001];
    let rating = ratings.windows(2).filter_map(|ends| {
        let (&from, &to) = (ends.first()?, ends.get(1)?);
        let keep =
            move |known: &Known, _: &Judged| known.conditions.mover_rating.is_some_and(|own| (from..to).contains(&own));
        Some(slice(&format!("{from}-{}", to - 1), Box::new(keep)))
    });
    let ranks = [(1usize, 1usize), (2, 2), (3, 5), (6, 16)];
    let rank = ranks.into_iter().map(|(from, to)| {
        let keep =
            move |_: &Known, judged: &Judged| judged.candidate.is_some_and(|place| (from..=to).contains(&(place + 1)));
        slice(&if from == to { format!("{from}") } else { format!("{from}-{to}") }, Box::new(keep))
    });
    let rank = rank.chain([slice("not a candidate", Box::new(|_, judged| judged.candidate.is_none()))]);
    let phase = [("ply 0-29", 0, 30), ("ply 30-79", 30, 80), ("ply 80+", 80, usize::MAX)];
    let phase = phase.into_iter().map(|(name, from, to)| {
        slice(name, Box::new(move |known: &Known, _: &Judged| (from..to).contains(&known.ply)))
    });
    let classes = [MoveClass::Capture, MoveClass::Check, MoveClass::Pawn, MoveClass::Quiet];
    let class = MoveClass::NAMES
        .into_iter()
        .zip(classes)
        .map(|(name, class)| slice(name, Box::new(move |known: &Known, _: &Judged| known.class == class)));
    vec![
        ("player", vec![slice("in no training file", Box::new(|known, _| is_unseen(&known.player.1)))]),
        ("rating", rating.collect()),
        ("rank of the move played", rank.collect()),
        ("phase", phase.collect()),
        ("move played", class.collect()),
        (
            "refutation",
            vec![slice("engine's choice played, the prior's refuted", Box::new(|_, judged| judged.refutation))],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(player: u32, before: f64, after: f64) -> Pair {
        Pair { player, nll: [before, after], top: [false, true] }
    }

    #[test]
    fn gains_are_relative_and_their_interval_is_over_players() {
        let gain = Gain::of([pair(0, 2.0, 1.0), pair(0, 1.0, 1.0), pair(1, 1.0, 1.0)].into_iter(), 400);
        assert_eq!((gain.n, gain.players), (3, 2));
        assert!((gain.gain - 25.0).abs() < 1e-9, "{gain:?}");
        assert!(gain.gain_ci[0].abs() < 1e-9 && (gain.gain_ci[1] - 100.0 / 3.0).abs() < 1e-9, "{gain:?}");
        assert_eq!((gain.prior_top1, gain.top1), (0.0, 100.0));
        let all = Gain::of((0..9).map(|i| pair(i, 2.0, 1.9)), 100);
        assert!(all.gain_ci.iter().all(|end| (end - 5.0).abs() < 1e-9), "{all:?}");
        assert_eq!(Gain::of(std::iter::empty(), 10), Gain::default());
    }
}
