//! What an encoding is, and which there are.

use std::fmt::Debug;

use crate::{
    Conditions, Situation,
    batch::{Input, Row},
    lc0::Lc0,
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
pub const ALL: [&dyn Encoding; 3] = [&Zeitnot, &Otter, &Lc0];

/// The encoding of a name.
pub fn find(name: &str) -> Option<&'static dyn Encoding> {
    ALL.into_iter().find(|encoding| encoding.name() == name)
}
