//! The `zeitnot/1` inputs: the board, the recent moves as squares, and smooth conditions that may be unknown.
//!
//! Everything is in the mover's frame: for Black, squares are mirrored vertically and colours swapped.
//!
//! | input | type, shape | content |
//! |---|---|---|
//! | `board` | f32 `[B, 18, 8, 8]` | the planes of [`board`] |
//! | `moves` | i64 `[B, 20, 2]` | from and to square of the last 20 moves, newest first, all in the mover's frame: 0 is the mover's a8, 63 h1, 64 no move |
//! | `conditions` | f32 `[B, 20]` | see [`CONDITIONS`] |

use shakmaty::Square;

use crate::{
    Conditions, Encoding, Situation,
    batch::{Element, Input, Row},
    board,
    encodings::Told,
    situation::{HISTORY, RatingSystem},
    vocabulary,
};

/// What stands for "no move" among squares.
pub const NOWHERE: i64 = 64;

/// How many of the condition values are about ratings; they come first, those about time follow.
pub const RATINGS: usize = 12;

/// Values of the `conditions` input.
///
/// Mover's rating 6, opponent's rating 6, then initial time, increment, mover's clock and opponent's clock 2 each. A
/// rating is (rating - 1500) / 500, 1 if unknown, and one of lichess, chess.com, FIDE, unknown scale; a time is
/// ln(1 + seconds) / 6, and 1 if unknown. What is unknown has value 0.
pub const CONDITIONS: usize = 20;

/// The encoding of our own networks.
#[derive(Clone, Copy, Debug)]
pub struct Zeitnot;

const INPUTS: [Input; 3] = [
    Input { name: "board", element: Element::Float, shape: &[board::PLANES, 8, 8] },
    Input { name: "moves", element: Element::Integer, shape: &[HISTORY, 2] },
    Input { name: "conditions", element: Element::Float, shape: &[CONDITIONS] },
];

impl Encoding for Zeitnot {
    fn name(&self) -> &'static str {
        "zeitnot/1"
    }

    fn inputs(&self) -> &'static [Input] {
        &INPUTS
    }

    fn encode(&self, situation: &Situation, row: &mut Row<'_>) {
        board::write(&situation.position, row.floats(0));
        let moves = row.integers(1);
        moves.fill(NOWHERE);
        let newest_first = situation.history.tokens().iter().rev();
        for ((age, cells), &token) in moves.chunks_exact_mut(2).enumerate().zip(newest_first) {
            if let Some(entry) = vocabulary::of_token(token) {
                // The newest move is the opponent's, the one before it the mover's own, and so on.
                let theirs = age.is_multiple_of(2);
                cells.copy_from_slice(&[entry.from, entry.to].map(|square| seen(square, theirs)));
            }
        }
        row.floats(2).copy_from_slice(&values(&situation.conditions));
    }

    fn told(&self, situation: &Situation) -> Told {
        Told { conditions: situation.conditions, history: situation.history.len(), notes: Vec::new() }
    }
}

/// A square given in the frame of the player who moved, as the planes of the player to move count it.
fn seen(square: Square, theirs: bool) -> i64 {
    let square = if theirs { square } else { square.flip_vertical() };
    i64::from(u32::from(square))
}

fn values(conditions: &Conditions) -> [f32; CONDITIONS] {
    let Conditions { mover_rating, mover_system, opponent_rating, opponent_system, .. } = *conditions;
    let control = conditions.time_control;
    let times = [
        control.map(|control| control.initial),
        control.map(|control| control.increment),
        conditions.mover_clock,
        conditions.opponent_clock,
    ];
    let values = rating(mover_rating, mover_system)
        .into_iter()
        .chain(rating(opponent_rating, opponent_system))
        .chain(times.into_iter().flat_map(time));
    let mut row = [0.0; CONDITIONS];
    row.iter_mut().zip(values).for_each(|(cell, value)| *cell = value);
    row
}

fn rating(rating: Option<u16>, system: Option<RatingSystem>) -> [f32; 6] {
    let is = |candidate: Option<RatingSystem>| f32::from(u8::from(system == candidate));
    let [lichess, chess_com, fide] = RatingSystem::ALL.map(|system| is(Some(system)));
    let value = rating.map_or(0.0, |rating| (f32::from(rating) - 1500.0) / 500.0);
    [value, f32::from(u8::from(rating.is_none())), lichess, chess_com, fide, is(None)]
}

fn time(seconds: Option<f32>) -> [f32; 2] {
    match seconds {
        Some(seconds) => [seconds.max(0.0).ln_1p() / 6.0, 0.0],
        None => [0.0, 1.0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, Game, TimeControl};

    fn batch(moves: &[&str], conditions: Conditions) -> Batch {
        Batch::of(&Zeitnot, [&Game::parse("", moves).unwrap().situation(conditions)])
    }

    #[test]
    fn recent_moves_are_squares_of_the_movers_frame() {
        let square = |square: Square| usize::from(square.flip_vertical()) as i64;
        let white = batch(&["e4", "c5"], Conditions::default());
        let expected = [Square::C7, Square::C5, Square::E2, Square::E4].map(square);
        assert_eq!(white.integers("moves")[..4], expected);
        assert!(white.integers("moves")[4..].iter().all(|&square| square == NOWHERE));
        // Black to move sees the board from the other side.
        let black = batch(&["e4", "c5", "Nf3"], Conditions::default());
        let expected = [Square::G8, Square::F6, Square::C2, Square::C4].map(square);
        assert_eq!(black.integers("moves")[..4], expected);
    }

    #[test]
    fn every_condition_has_its_own_unknown() {
        let unknown = batch(&[], Conditions::default());
        let on = |batch: &Batch| {
            let values = batch.floats("conditions").iter().enumerate();
            values.filter(|(_, value)| **value != 0.0).map(|(place, _)| place).collect::<Vec<_>>()
        };
        assert_eq!(on(&unknown), [1, 5, 7, 11, 13, 15, 17, 19]);
        let known = Conditions {
            mover_rating: Some(2000),
            opponent_rating: Some(1000),
            mover_system: Some(RatingSystem::Lichess),
            opponent_system: Some(RatingSystem::Fide),
            time_control: Some(TimeControl { initial: 600.0, increment: 5.0 }),
            mover_clock: Some(300.0),
            opponent_clock: Some(20.0),
        };
        let known = batch(&[], known);
        assert_eq!(on(&known), [0, 2, 6, 10, 12, 14, 16, 18]);
        let values = known.floats("conditions");
        assert_eq!([values[0], values[6]], [1.0, -1.0]);
        assert!((values[16] - 301f32.ln() / 6.0).abs() < 1e-6);
    }
}
