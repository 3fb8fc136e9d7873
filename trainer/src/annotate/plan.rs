//! Which decisions are annotated, in which order.

use std::{cmp::Reverse, collections::HashMap, path::Path};

use anyhow::{Context, Result, bail};
use clap::Args;
use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shakmaty::Color;

use super::manifest::hex;
use crate::{
    record::{Decision, GameRecord},
    shard,
};

/// Which decisions to annotate.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// Lowest rating of the mover
    #[arg(long, default_value_t = 0)]
    pub rating_from: u16,
    /// Highest rating of the mover
    #[arg(long, default_value_t = 4000)]
    pub rating_to: u16,
    /// Only games from these sites, such as lichess.org
    #[arg(long = "site")]
    pub sites: Vec<String>,
    /// First ply
    #[arg(long, default_value_t = 0)]
    pub from_ply: u16,
    /// Most decisions of one game; 0 for all
    #[arg(long, default_value_t = 8)]
    pub per_game: usize,
    /// Most decisions of one player; 0 for all
    #[arg(long, default_value_t = 200)]
    pub per_player: usize,
    /// Most decisions in all; 0 for all
    #[arg(long, default_value_t = 0)]
    pub limit: usize,
    /// The highest rated movers first, instead of shuffled
    #[arg(long)]
    pub strongest_first: bool,
    /// What the choice depends on
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Default for Selection {
    fn default() -> Self {
        Selection {
            rating_from: 0,
            rating_to: 4000,
            sites: Vec::new(),
            from_ply: 0,
            per_game: 8,
            per_player: 200,
            limit: 0,
            strongest_first: false,
            seed: 1,
        }
    }
}

/// A decision: number of the game, ply.
pub type Place = (u32, u16);

/// The decisions, in order.
pub struct Plan {
    games: Vec<GameRecord>,
    places: Vec<Place>,
}

impl Plan {
    /// Chooses among the decisions of all shards of a folder.
    ///
    /// # Errors
    ///
    /// When the shards cannot be read, or hold no such decision.
    pub fn read(folder: &Path, selection: &Selection) -> Result<Self> {
        let mut games = Vec::new();
        for path in shard::list(folder)? {
            games.extend(shard::read(&path)?);
        }
        let plan = Plan::new(games, selection);
        if plan.places.is_empty() {
            bail!("{} holds no decision of the kind asked for", folder.display());
        }
        Ok(plan)
    }

    /// Chooses among the decisions of games. The choice depends on games and selection alone.
    pub fn new(games: Vec<GameRecord>, selection: &Selection) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(selection.seed);
        let mut places = Vec::new();
        for (number, game) in (0u32..).zip(&games) {
            places.extend(of_game(game, selection, &mut random).into_iter().map(|ply| (number, ply)));
        }
        places.shuffle(&mut random);
        if selection.strongest_first {
            places.sort_by_key(|&(number, ply)| {
                Reverse(games.get(number as usize).and_then(|game| mover(game, ply).rating))
            });
        }
        let mut seen: HashMap<(&str, &str), usize> = HashMap::new();
        places.retain(|&(number, ply)| {
            let Some(game) = games.get(number as usize) else { return false };
            let count = seen.entry((&game.site, &mover(game, ply).name)).or_default();
            *count += 1;
            selection.per_player == 0 || *count <= selection.per_player
        });
        if selection.limit > 0 {
            places.truncate(selection.limit);
        }
        Plan { games, places }
    }

    /// How many decisions there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Fingerprint of the decisions: their games, plies and order.
    pub fn fingerprint(&self) -> String {
        let mut digest = Sha256::new();
        for &(number, ply) in &self.places {
            let game = self.games.get(number as usize);
            let (site, id) = game.map_or(("", ""), |game| (&game.site, &game.id));
            digest.update(format!("{site}\n{id}\n{ply}\n"));
        }
        hex(&digest.finalize())
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// A stretch of the decisions.
    pub fn places(&self, first: usize, count: usize) -> impl Iterator<Item = Place> {
        self.places.iter().skip(first).take(count).copied()
    }

    /// A decision and its game.
    ///
    /// # Errors
    ///
    /// When the game cannot be replayed, naming it.
    pub fn decision(&self, (number, ply): Place) -> Result<(&GameRecord, Decision)> {
        let game = self.games.get(number as usize).context("the plan names a game that is not there")?;
        let decision = game.decision(usize::from(ply));
        let decision = decision.with_context(|| format!("game {} cannot be replayed to ply {ply}", game.id))?;
        Ok((game, decision))
    }
}

/// The plies of a game that may be annotated, so many of them at random, ascending.
fn of_game(game: &GameRecord, selection: &Selection, random: &mut ChaCha8Rng) -> Vec<u16> {
    if !selection.sites.is_empty() && !selection.sites.contains(&game.site) {
        return Vec::new();
    }
    let last = u16::try_from(game.moves.len()).unwrap_or(u16::MAX);
    let fits = |ply: &u16| {
        let rating = mover(game, *ply).rating.unwrap_or_default();
        (selection.rating_from..=selection.rating_to).contains(&rating)
    };
    let mut plies = (selection.from_ply..last.max(selection.from_ply)).filter(fits).collect::<Vec<_>>();
    if selection.per_game > 0 {
        while plies.len() > selection.per_game {
            plies.swap_remove(random.random_range(0..plies.len()));
        }
        plies.sort_unstable();
    }
    plies
}

fn mover(game: &GameRecord, ply: u16) -> &crate::record::Player {
    game.player(if ply.is_multiple_of(2) { Color::White } else { Color::Black })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Player;

    fn game(white: u16, black: u16, id: usize) -> GameRecord {
        let player = |rating: u16| Player { name: format!("p{rating}"), rating: Some(rating), ..Player::default() };
        GameRecord {
            id: id.to_string(),
            site: "otb".into(),
            white: player(white),
            black: player(black),
            moves: vec![0; 40],
            ..GameRecord::default()
        }
    }

    fn selection() -> Selection {
        Selection { from_ply: 10, per_game: 4, per_player: 0, ..Selection::default() }
    }

    fn games() -> Vec<GameRecord> {
        (0..20).map(|id| game(2000 + 10 * id as u16, 2700, id)).collect()
    }

    fn chosen(selection: &Selection) -> Vec<Place> {
        let plan = Plan::new(games(), selection);
        plan.places(0, plan.len()).collect()
    }

    #[test]
    fn the_choice_depends_on_the_seed_alone_and_keeps_its_bounds() {
        assert_eq!(chosen(&selection()), chosen(&selection()));
        assert_ne!(chosen(&selection()), chosen(&Selection { seed: 2, ..selection() }));
        assert_eq!(chosen(&selection()).len(), 80);
        assert!(chosen(&selection()).iter().all(|&(_, ply)| (10..40).contains(&ply)));
        assert_eq!(chosen(&Selection { limit: 7, ..selection() }).len(), 7);
    }

    #[test]
    fn only_movers_of_the_rating_are_chosen_the_strongest_first_when_asked() {
        let strong = chosen(&Selection { rating_from: 2500, ..selection() });
        assert!(strong.iter().all(|(_, ply)| ply % 2 == 1), "{strong:?}");
        let weak = Selection { rating_to: 2300, strongest_first: true, ..selection() };
        let numbers = chosen(&weak).iter().map(|place| place.0).collect::<Vec<_>>();
        assert!(numbers.is_sorted_by(|a, b| a >= b), "{numbers:?}");
    }

    #[test]
    fn a_busy_player_has_no_more_than_the_share() {
        let capped = chosen(&Selection { rating_from: 2500, per_player: 9, ..selection() });
        assert_eq!(capped.len(), 9);
        assert!(chosen(&Selection { sites: vec!["lichess.org".into()], ..selection() }).is_empty());
    }
}
