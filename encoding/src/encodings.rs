//! What an encoding is, and which there are.

use std::fmt::Debug;

use crate::{
    Conditions, Situation,
    batch::{Input, Row},
    lc0::Lc0,
    maia3::Maia3,
    otter::Otter,
    zeitnot::Zeitnot,
};

/// Turns situations into the inputs of a network.
pub trait Encoding: Debug + Sync {
    /// Name in a model's metadata, such as `otter/1`.
    fn name(&self) -> &'static str;

    /// The network's inputs.
    fn inputs(&self) -> &'static [Input];

    /// Writes a situation into a row of zeros.
    fn encode(&self, situation: &Situation, row: &mut Row<'_>);

    /// What of a situation reaches the network.
    fn told(&self, situation: &Situation) -> Told;
}

/// What a network was told of a situation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// The conditions that reached it; those it was not told are unknown here.
    pub conditions: Conditions,
    /// Recent moves it saw.
    pub history: usize,
    /// What was assumed instead of the unknown, and what was given but has no place in the encoding, in words.
    pub notes: Vec<String>,
}

/// All encodings.
pub const ALL: [&dyn Encoding; 4] = [&Zeitnot, &Otter, &Lc0, &Maia3];

/// The encoding of a name.
pub fn find(name: &str) -> Option<&'static dyn Encoding> {
    ALL.into_iter().find(|encoding| encoding.name() == name)
}

/// Rating assumed when neither player's is known and the encoding has no place for an unknown one.
pub const ASSUMED_RATING: u16 = 1500;

/// Mover's and opponent's rating for an encoding that has no place for an unknown one: the other player's stands in, or
/// [`ASSUMED_RATING`] for both.
pub fn assumed_ratings(conditions: &Conditions) -> (u16, u16) {
    let mover = conditions.mover_rating.or(conditions.opponent_rating).unwrap_or(ASSUMED_RATING);
    (mover, conditions.opponent_rating.unwrap_or(mover))
}

/// What [`assumed_ratings`] assumes, in words.
pub(crate) fn assumption(conditions: &Conditions) -> Option<String> {
    match (conditions.mover_rating, conditions.opponent_rating) {
        (Some(_), Some(_)) => None,
        (None, Some(_)) => Some("mover.rating: assumed to be the opponent's".to_owned()),
        (Some(_), None) => Some("opponent.rating: assumed to be the mover's".to_owned()),
        (None, None) => Some(format!("ratings: both assumed to be {ASSUMED_RATING}")),
    }
}

/// Notes of what was given but has no place in an encoding: names, and whether they were given.
pub(crate) fn unused(parts: &[(&str, bool)]) -> Vec<String> {
    let given = parts.iter().filter(|(_, given)| *given);
    given.map(|(name, _)| format!("{name}: not used by this encoding")).collect()
}
