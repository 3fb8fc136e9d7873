//! Which games to keep, and why the others are left out.

use clap::Args;
use serde::{Deserialize, Serialize};
use zeitnot_encoding::clock::TimeClass;

use crate::record::GameRecord;

/// Which games to keep.
#[derive(Args, Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Filter {
    /// Lowest rating of either player
    #[arg(long, default_value_t = 0)]
    pub min_rating: u16,
    /// Highest rating of either player
    #[arg(long, default_value_t = 5000)]
    pub max_rating: u16,
    /// Keep only games with a clock after every move
    #[arg(long)]
    pub clocks: bool,
    /// Keep only these time classes (ultrabullet, bullet, blitz, rapid, classical); all when empty
    #[arg(long, value_delimiter = ',', value_parser = time_class)]
    pub time_class: Vec<String>,
    /// Fewest plies
    #[arg(long, default_value_t = 10)]
    pub min_plies: usize,
    /// Keep only games that say they are rated
    #[arg(long)]
    pub rated_only: bool,
    /// Keep games of accounts titled BOT
    #[arg(long)]
    pub keep_bots: bool,
}

impl Default for Filter {
    fn default() -> Self {
        Filter {
            min_rating: 0,
            max_rating: 5000,
            clocks: false,
            time_class: Vec::new(),
            min_plies: 10,
            rated_only: false,
            keep_bots: false,
        }
    }
}

/// Why a game is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Another game than standard chess.
    Variant,
    /// Starts from a set-up position.
    SetUpPosition,
    /// Unfinished, or the result is not given.
    NoResult,
    /// A player's rating is not given.
    NoRating,
    /// A player's rating is outside the range asked for.
    RatingRange,
    /// A player is titled BOT.
    Bot,
    /// The game does not say that it is rated.
    NotRated,
    /// Another time class than those asked for, or unknown.
    TimeClass,
    /// A tag or comment that never ends.
    BrokenText,
    /// A move cannot be read or is not legal.
    BrokenMoves,
    /// A move has no clock.
    NoClock,
    /// Fewer plies than asked for.
    TooShort,
}

impl Reason {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Variant => "variant",
            Reason::SetUpPosition => "set-up-position",
            Reason::NoResult => "no-result",
            Reason::NoRating => "no-rating",
            Reason::RatingRange => "rating-range",
            Reason::Bot => "bot",
            Reason::NotRated => "not-rated",
            Reason::TimeClass => "time-class",
            Reason::BrokenText => "broken-text",
            Reason::BrokenMoves => "broken-moves",
            Reason::NoClock => "no-clock",
            Reason::TooShort => "too-short",
        }
    }
}

impl Filter {
    /// Judges what the tags tell, before any move is read.
    pub fn tags(&self, game: &GameRecord) -> Option<Reason> {
        let players = [&game.white, &game.black];
        if !self.keep_bots && players.iter().any(|player| player.title == "BOT") {
            return Some(Reason::Bot);
        }
        let event = game.event.to_ascii_lowercase();
        if self.rated_only && (!event.contains("rated") || event.contains("unrated")) {
            return Some(Reason::NotRated);
        }
        for player in players {
            match player.rating {
                None => return Some(Reason::NoRating),
                Some(rating) if !(self.min_rating..=self.max_rating).contains(&rating) => {
                    return Some(Reason::RatingRange);
                }
                Some(_) => {}
            }
        }
        let class = game.time_control.map(|control| control.class().name());
        let wanted = self.time_class.is_empty() || self.time_class.iter().any(|name| class == Some(name));
        (!wanted).then_some(Reason::TimeClass)
    }

    /// Judges the moves and clocks.
    pub fn moves(&self, game: &GameRecord) -> Option<Reason> {
        if game.moves.len() < self.min_plies {
            return Some(Reason::TooShort);
        }
        let timed = !game.clocks.is_empty() && game.clocks.iter().all(Option::is_some);
        (self.clocks && !timed).then_some(Reason::NoClock)
    }
}

fn time_class(name: &str) -> Result<String, String> {
    let known = TimeClass::ALL.map(TimeClass::name);
    known.contains(&name).then(|| name.to_owned()).ok_or_else(|| format!("one of {}", known.join(", ")))
}
