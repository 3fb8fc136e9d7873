//! Which decisions are learnt from, in which order.
//!
//! The order is a function of the seed alone, so a run continued at a step sees the batches it would have seen.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Result, bail};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use shakmaty::Color;
use zeitnot_encoding::clock::TimeClass;

use crate::record::GameRecord;

/// What to learn from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Selection {
    /// Games of one player whose own decisions are used; in further games only the opponents' are. 0 for all.
    pub games_per_player: u32,
    /// Share of each batch from each site, such as `"lichess.org" = 0.8`; other sites are left out. Empty: as the
    /// decisions come.
    pub sites: BTreeMap<String, f64>,
    /// Last share of the steps, in which only blitz and rapid games with clocks are used.
    pub finish: f64,
}

impl Default for Selection {
    fn default() -> Self {
        Selection { games_per_player: 1500, sites: BTreeMap::new(), finish: 0.0 }
    }
}

impl Selection {
    /// What is wrong with the values, naming the field.
    ///
    /// # Errors
    ///
    /// A sentence for people.
    pub fn check(&self) -> Result<(), String> {
        if !(0.0..=1.0).contains(&self.finish) {
            return Err(format!("data.finish: {} is not a share", self.finish));
        }
        match self.sites.iter().find(|(_, share)| !(share.is_finite() && **share > 0.0)) {
            Some((site, share)) => Err(format!("data.sites.{site}: {share} is not above 0")),
            None => Ok(()),
        }
    }
}

/// A decision: number of the game, ply.
type Place = (u32, u16);

/// All decisions of the games, and the order to learn them in.
pub struct Plan {
    games: Vec<GameRecord>,
    seed: u64,
    batch_size: usize,
    steps: u64,
    decisions: usize,
    /// Phases with their first step, the last one first.
    phases: Vec<Phase>,
}

/// Steps that draw from the same decisions.
struct Phase {
    first_step: u64,
    pools: Vec<Pool>,
}

/// Shuffled decisions that give a fixed number of rows to each batch.
struct Pool {
    decisions: Vec<Place>,
    rows: usize,
}

impl Plan {
    /// Chooses the decisions.
    ///
    /// # Errors
    ///
    /// When there are fewer decisions than one batch needs.
    pub fn new(
        games: Vec<GameRecord>,
        selection: &Selection,
        seed: u64,
        batch_size: usize,
        steps: u64,
    ) -> Result<Self> {
        let mut chosen = choose(&games, selection.games_per_player);
        let site = |place: &Place| games.get(place.0 as usize).map_or("", |game| &game.site);
        if !selection.sites.is_empty() {
            if let Some(absent) = selection.sites.keys().find(|name| !chosen.iter().any(|place| site(place) == *name)) {
                bail!("training.data.sites: the shards hold no decision from `{absent}`");
            }
            chosen.retain(|place| selection.sites.contains_key(site(place)));
        }
        let decisions = chosen.len();
        let finish_from = steps - (steps as f64 * selection.finish).round() as u64;
        let mut phases = Vec::new();
        if finish_from < steps {
            let timed = chosen.iter().copied().filter(|&(game, _)| games.get(game as usize).is_some_and(is_timed));
            phases.push(Phase::new(&games, timed.collect(), selection, seed ^ 1, batch_size, finish_from)?);
        }
        if finish_from > 0 {
            phases.push(Phase::new(&games, chosen, selection, seed, batch_size, 0)?);
        }
        Ok(Plan { games, seed, batch_size, steps, decisions, phases })
    }

    /// Number of decisions that may be drawn.
    pub fn decisions(&self) -> usize {
        self.decisions
    }

    /// Rows of a batch.
    pub fn batch_size(&self) -> usize {
        self.batch_size
    }

    /// Number of batches.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// What the order depends on.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A game by its number.
    pub fn game(&self, number: u32) -> Option<&GameRecord> {
        self.games.get(number as usize)
    }

    /// The decisions of a batch.
    pub fn step(&self, step: u64) -> impl Iterator<Item = Place> {
        let phase = self.phases.iter().find(|phase| step >= phase.first_step);
        phase.into_iter().flat_map(move |phase| phase.step(step - phase.first_step))
    }
}

impl Phase {
    fn new(
        games: &[GameRecord],
        decisions: Vec<Place>,
        selection: &Selection,
        seed: u64,
        batch_size: usize,
        first_step: u64,
    ) -> Result<Self> {
        let mut by_site: BTreeMap<&str, Vec<Place>> = BTreeMap::new();
        for place in decisions {
            let site = games.get(place.0 as usize).map_or("", |game| &game.site);
            let pool = if selection.sites.is_empty() { "" } else { site };
            by_site.entry(pool).or_default().push(place);
        }
        let share = |site: &str| if site.is_empty() { Some(1.0) } else { selection.sites.get(site).copied() };
        let pools = by_site.into_iter().filter_map(|(site, decisions)| Some((share(site)?, decisions)));
        let pools = pools.collect::<Vec<_>>();
        let rows = divide(batch_size, &pools.iter().map(|(share, _)| *share).collect::<Vec<_>>());
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut phase = Phase { first_step, pools: Vec::new() };
        for (rows, (_, mut decisions)) in rows.into_iter().zip(pools) {
            if decisions.len() < rows {
                bail!("the shards hold {} decisions, fewer than the {rows} that one batch needs", decisions.len());
            }
            decisions.shuffle(&mut random);
            phase.pools.push(Pool { decisions, rows });
        }
        if phase.pools.is_empty() {
            bail!("the shards hold no decision of the kind that step {first_step} needs");
        }
        Ok(phase)
    }

    fn step(&self, step: u64) -> impl Iterator<Item = Place> {
        self.pools.iter().flat_map(move |pool| {
            let first = step * pool.rows as u64;
            (first..first + pool.rows as u64).map(|place| pool.at(place))
        })
    }
}

impl Pool {
    /// The decision at a place in the endless sequence of epochs; each epoch walks the shuffled decisions with another
    /// stride.
    fn at(&self, place: u64) -> Place {
        let size = self.decisions.len() as u64;
        let (epoch, place) = (place / size, place % size);
        let stride = coprime(1 + epoch * 0x9e37_79b1, size);
        let index = (u128::from(place) * u128::from(stride) % u128::from(size)) as usize;
        self.decisions.get(index).copied().unwrap_or_default()
    }
}

/// The first number from `start` on that has no divisor in common with `size`.
fn coprime(start: u64, size: u64) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (start % size.max(1)..).find(|&candidate| gcd(candidate, size) == 1).unwrap_or(1)
}

/// Rows for each share, which together are all rows.
fn divide(rows: usize, shares: &[f64]) -> Vec<usize> {
    let total = shares.iter().sum::<f64>();
    let (mut before, mut sum) = (0, 0.0);
    let mut divided = Vec::new();
    for share in shares {
        sum += share;
        let until = (rows as f64 * sum / total).round() as usize;
        divided.push(until - before);
        before = until;
    }
    divided
}

/// Every decision, but of a player with many games only those of the first `most`; 0 for all.
fn choose(games: &[GameRecord], most: u32) -> Vec<Place> {
    let mut seen: HashMap<(&str, &str), u32> = HashMap::new();
    let mut decisions = Vec::new();
    for (number, game) in (0u32..).zip(games) {
        let mut use_of = |color: Color| {
            let count = seen.entry((&game.site, &game.player(color).name)).or_default();
            *count += 1;
            most == 0 || *count <= most
        };
        let used = [use_of(Color::White), use_of(Color::Black)];
        let plies = u16::try_from(game.moves.len()).unwrap_or(u16::MAX);
        let kept = (0..plies).zip(used.into_iter().cycle()).filter(|&(_, kept)| kept);
        decisions.extend(kept.map(|(ply, _)| (number, ply)));
    }
    decisions
}

fn is_timed(game: &GameRecord) -> bool {
    let class = game.time_control.map(|control| control.class());
    !game.clocks.is_empty() && matches!(class, Some(TimeClass::Blitz | TimeClass::Rapid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Player;

    fn game(site: &str, white: &str, timed: bool) -> GameRecord {
        let player = |name: &str| Player { name: name.into(), ..Player::default() };
        GameRecord {
            site: site.into(),
            white: player(white),
            black: player("someone"),
            time_control: timed.then(|| "300+0".parse().unwrap()),
            moves: vec![0; 10],
            clocks: if timed { vec![Some(1.0); 10] } else { vec![] },
            ..GameRecord::default()
        }
    }

    fn plan(games: &[GameRecord], selection: &Selection, batch_size: usize, steps: u64) -> Plan {
        Plan::new(games.to_vec(), selection, 7, batch_size, steps).unwrap()
    }

    #[test]
    fn only_so_many_games_of_a_player_are_used_but_all_of_the_opponents() {
        let games = (0..5).map(|number| GameRecord { id: number.to_string(), ..game("a", "busy", false) });
        let games =
            games.map(|game| GameRecord { black: Player { name: game.id.clone(), ..Player::default() }, ..game });
        let games = games.collect::<Vec<_>>();
        let capped = Selection { games_per_player: 2, ..Selection::default() };
        assert_eq!(plan(&games, &capped, 1, 1).decisions(), 2 * 5 + 5 * 5);
        let all = Selection { games_per_player: 0, ..Selection::default() };
        assert_eq!(plan(&games, &all, 1, 1).decisions(), 50);
    }

    #[test]
    fn sites_have_their_share_and_the_finish_is_timed() {
        let games = [game("a", "x", true), game("a", "y", false), game("b", "z", false), game("c", "z", true)];
        let sites = BTreeMap::from([("a".to_owned(), 0.6), ("b".to_owned(), 0.3)]);
        let selection = Selection { sites, finish: 0.25, ..Selection::default() };
        let plan = plan(&games, &selection, 9, 8);
        let at = |step: u64| plan.step(step).map(|(game, _)| game).collect::<Vec<_>>();
        assert_eq!(at(0).iter().filter(|&&game| game < 2).count(), 6);
        assert_eq!(at(5).iter().filter(|&&game| game == 2).count(), 3);
        assert_eq!(at(6), [0; 9]);
        assert_eq!(plan.decisions(), 30, "the site that is not named is left out");
        let sites = BTreeMap::from([("nowhere".to_owned(), 1.0)]);
        let error = Plan::new(games.to_vec(), &Selection { sites, ..selection }, 7, 9, 8).err().unwrap().to_string();
        assert!(error.contains("`nowhere`"), "{error}");
    }

    #[test]
    fn every_epoch_holds_every_decision_once_in_another_order() {
        let games = [game("a", "x", true), game("b", "y", false)];
        let plan = plan(&games, &Selection::default(), 20, 3);
        let epochs = (0..3).map(|step| plan.step(step).collect::<Vec<_>>()).collect::<Vec<_>>();
        assert_ne!(epochs[0], epochs[1]);
        for epoch in epochs {
            let mut sorted = epoch.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), 20);
        }
    }

    #[test]
    fn too_few_decisions_are_refused() {
        let games = vec![game("a", "x", false)];
        assert!(Plan::new(games.clone(), &Selection::default(), 1, 11, 1).is_err());
        let finish = Selection { finish: 0.5, ..Selection::default() };
        let error = Plan::new(games, &finish, 1, 1, 2).err().unwrap().to_string();
        assert!(error.contains("step 1"), "{error}");
    }
}
