//! The `otter/1` inputs.
//!
//! Everything is in the mover's frame: for Black, squares are mirrored vertically and colours swapped. History moves
//! are in the frame of the player who made them.

use crate::{
    Conditions, Encoding, Situation,
    batch::{Element, Input, Row},
    board,
    encodings::{self, Told},
    situation::HISTORY,
};

/// Number of rating buckets.
pub const RATING_BUCKETS: i64 = 11;
/// Number of time-control buckets.
pub const TIME_CONTROL_BUCKETS: i64 = 5;

/// The encoding of the published Otter networks.
#[derive(Clone, Copy, Debug)]
pub struct Otter;

const INPUTS: [Input; 7] = [
    Input { name: "board", element: Element::Float, shape: &[board::PLANES, 8, 8] },
    Input { name: "history", element: Element::Integer, shape: &[HISTORY] },
    Input { name: "history_mask", element: Element::Boolean, shape: &[HISTORY] },
    Input { name: "mover_elo", element: Element::Integer, shape: &[] },
    Input { name: "opponent_elo", element: Element::Integer, shape: &[] },
    Input { name: "time_control", element: Element::Integer, shape: &[] },
    Input { name: "clock", element: Element::Float, shape: &[2] },
];

impl Encoding for Otter {
    fn name(&self) -> &'static str {
        "otter/1"
    }

    fn inputs(&self) -> &'static [Input] {
        &INPUTS
    }

    fn encode(&self, situation: &Situation, row: &mut Row<'_>) {
        let conditions = &situation.conditions;
        board::write(&situation.position, row.floats(0));
        let tokens = situation.history.tokens();
        row.integers(1).iter_mut().zip(tokens).for_each(|(cell, &token)| *cell = i64::from(token));
        row.booleans(2).iter_mut().zip(tokens).for_each(|(cell, &token)| *cell = token != 0);
        let (mover, opponent) = encodings::assumed_ratings(conditions);
        row.integers(3).fill(rating_bucket(mover));
        row.integers(4).fill(rating_bucket(opponent));
        row.integers(5).fill(time_control_bucket(conditions));
        row.floats(6).copy_from_slice(&clock(conditions));
    }

    fn told(&self, situation: &Situation) -> Told {
        let given = situation.conditions;
        let mut conditions = Conditions { opponent_clock: None, mover_system: None, opponent_system: None, ..given };
        let mut notes = Vec::from_iter(encodings::assumption(&given));
        if given.time_control.is_none_or(|control| control.initial <= 0.0) && given.mover_clock.is_some() {
            conditions.mover_clock = None;
            notes.push("clock.mover_remaining: not used without time_control.initial".to_owned());
        }
        if given.opponent_clock.is_some() {
            notes.push("clock.opponent_remaining: not used by this encoding".to_owned());
        }
        if given.mover_system.or(given.opponent_system).is_some() {
            notes.push("rating_system: not used by this encoding, which was trained on lichess ratings".to_owned());
        }
        Told { conditions, history: situation.history.len(), notes }
    }
}

/// The rating bucket: 0 below 1100, 1 to 9 per hundred points from 1100, 10 from 2000.
pub fn rating_bucket(rating: u16) -> i64 {
    match rating {
        0..1100 => 0,
        1100..2000 => i64::from((rating - 1000) / 100),
        2000.. => 10,
    }
}

fn time_control_bucket(conditions: &Conditions) -> i64 {
    match conditions.time_control.map(|control| control.estimated_duration()) {
        Some(t) if t < 60.0 => 0,
        Some(t) if t < 180.0 => 1,
        Some(t) if t < 600.0 => 2,
        Some(t) if t < 1800.0 => 3,
        Some(_) | None => 4,
    }
}

/// Remaining and increment as shares of the initial time. Both 0 when the clock is unknown, or when the game started
/// without initial time and there is nothing to take a share of.
fn clock(conditions: &Conditions) -> [f32; 2] {
    match (conditions.time_control, conditions.mover_clock) {
        (Some(control), Some(remaining)) if control.initial > 0.0 => {
            [remaining / control.initial, control.increment / control.initial]
        }
        _ => [0.0, 0.0],
    }
}
