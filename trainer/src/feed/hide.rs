//! Conditions the network is not shown.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use zeitnot_encoding::{Conditions, Situation};

/// Shares of decisions whose conditions are hidden, so that "unknown" is trained. Each share is drawn for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hide {
    /// Share without recent moves.
    pub history: f64,
    /// Share without time: equally often all of it, both clocks, the mover's, or the opponent's.
    pub time: f64,
    /// Share without ratings and their scales: equally often both, the mover's, or the opponent's.
    pub ratings: f64,
    /// Share without scales of ratings: equally often both, the mover's, or the opponent's.
    pub systems: f64,
    /// Share without ratings, scales and time, as when nothing is known but the moves.
    pub all: f64,
}

impl Hide {
    /// Each share with the name of its field.
    pub fn shares(self) -> [(&'static str, f64); 5] {
        let Hide { history, time, ratings, systems, all } = self;
        [("history", history), ("time", time), ("ratings", ratings), ("systems", systems), ("all", all)]
    }

    /// Hides by random numbers that depend on the seed and the decision's place alone.
    pub(super) fn apply(self, situation: &mut Situation, seed: u64, place: u64) {
        let mut random = ChaCha8Rng::seed_from_u64(seed ^ place.wrapping_mul(0xd134_2543_de82_ef95));
        let conditions = &mut situation.conditions;
        if random.random_bool(self.history) {
            situation.history.truncate(0);
        }
        if random.random_bool(self.time) {
            let way = random.random_range(0..4);
            if way != 2 {
                conditions.opponent_clock = None;
            }
            if way != 3 {
                conditions.mover_clock = None;
            }
            if way == 0 {
                conditions.time_control = None;
            }
        }
        let (ratings, systems) = (random.random_bool(self.ratings), random.random_bool(self.systems));
        let way = random.random_range(0..3);
        if (ratings || systems) && way != 1 {
            conditions.mover_system = None;
            conditions.mover_rating = conditions.mover_rating.filter(|_| !ratings);
        }
        if (ratings || systems) && way != 2 {
            conditions.opponent_system = None;
            conditions.opponent_rating = conditions.opponent_rating.filter(|_| !ratings);
        }
        if random.random_bool(self.all) {
            *conditions = Conditions::default();
        }
    }
}
