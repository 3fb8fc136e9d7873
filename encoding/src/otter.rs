//! The `otter/1` inputs.
//!
//! Everything is in the mover's frame: for Black, squares are mirrored vertically and colours swapped. History moves
//! are in the frame of the player who made them.

use shakmaty::{CastlingSide, Chess, Color, Position, Role, Square};

use crate::{Conditions, Situation, situation::HISTORY};

/// Name of the encoding in a model's metadata.
pub const NAME: &str = "otter/1";
/// Planes of the board input.
pub const PLANES: usize = 18;
/// Values of one board input.
pub const BOARD: usize = PLANES * 64;
/// Number of auxiliary outputs: moving piece 6, captured piece 6, gives check 1, from square 64, to square 64.
pub const AUXILIARY: usize = 141;
/// Number of rating buckets.
pub const RATING_BUCKETS: i64 = 11;
/// Number of time-control buckets.
pub const TIME_CONTROL_BUCKETS: i64 = 5;
/// Rating assumed when neither player's is known.
pub const ASSUMED_RATING: u16 = 1500;

/// A batch of encoded situations, one row each, in row-major order.
///
/// Sizes are for a batch of B rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OtterBatch {
    /// f32 `[B, 18, 8, 8]`.
    pub board: Vec<f32>,
    /// i64 `[B, 20]`.
    pub history: Vec<i64>,
    /// bool `[B, 20]`.
    pub history_mask: Vec<bool>,
    /// i64 `[B]`.
    pub mover_elo: Vec<i64>,
    /// i64 `[B]`.
    pub opponent_elo: Vec<i64>,
    /// i64 `[B]`.
    pub time_control: Vec<i64>,
    /// f32 `[B, 2]`.
    pub clock: Vec<f32>,
}

impl OtterBatch {
    /// An empty batch with room for `rows`.
    pub fn with_capacity(rows: usize) -> Self {
        OtterBatch {
            board: Vec::with_capacity(rows * BOARD),
            history: Vec::with_capacity(rows * HISTORY),
            history_mask: Vec::with_capacity(rows * HISTORY),
            mover_elo: Vec::with_capacity(rows),
            opponent_elo: Vec::with_capacity(rows),
            time_control: Vec::with_capacity(rows),
            clock: Vec::with_capacity(rows * 2),
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.mover_elo.len()
    }

    /// Appends one situation.
    pub fn push(&mut self, situation: &Situation) {
        let start = self.board.len();
        self.board.resize(start + BOARD, 0.0);
        if let Some(row) = self.board.get_mut(start..) {
            write_board(&situation.position, row);
        }
        let tokens = situation.history.tokens();
        self.history.extend(tokens.iter().map(|&token| i64::from(token)));
        self.history_mask.extend(tokens.iter().map(|&token| token != 0));
        let (mover, opponent) = rating_buckets(&situation.conditions);
        self.mover_elo.push(mover);
        self.opponent_elo.push(opponent);
        self.time_control.push(time_control_bucket(&situation.conditions));
        self.clock.extend(clock(&situation.conditions));
    }

    /// Appends all rows of another batch.
    pub fn append(&mut self, other: &OtterBatch) {
        self.board.extend_from_slice(&other.board);
        self.history.extend_from_slice(&other.history);
        self.history_mask.extend_from_slice(&other.history_mask);
        self.mover_elo.extend_from_slice(&other.mover_elo);
        self.opponent_elo.extend_from_slice(&other.opponent_elo);
        self.time_control.extend_from_slice(&other.time_control);
        self.clock.extend_from_slice(&other.clock);
    }

    /// Fills up to `rows` rows with zeros, which a network may compute but nobody reads.
    pub fn pad(&mut self, rows: usize) {
        let rows = rows.max(self.rows());
        self.board.resize(rows * BOARD, 0.0);
        self.history.resize(rows * HISTORY, 0);
        self.history_mask.resize(rows * HISTORY, false);
        self.mover_elo.resize(rows, 0);
        self.opponent_elo.resize(rows, 0);
        self.time_control.resize(rows, 0);
        self.clock.resize(rows * 2, 0.0);
    }

    /// Removes all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.board.clear();
        self.history.clear();
        self.history_mask.clear();
        self.mover_elo.clear();
        self.opponent_elo.clear();
        self.time_control.clear();
        self.clock.clear();
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

/// Mover's and opponent's bucket. `otter/1` has no bucket for an unknown rating: it takes the other player's, or
/// [`ASSUMED_RATING`] for both.
fn rating_buckets(conditions: &Conditions) -> (i64, i64) {
    let mover = conditions.mover_rating.or(conditions.opponent_rating).unwrap_or(ASSUMED_RATING);
    let opponent = conditions.opponent_rating.unwrap_or(mover);
    (rating_bucket(mover), rating_bucket(opponent))
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

fn write_board(position: &Chess, row: &mut [f32]) {
    let us = position.turn();
    let mut set = |plane: usize, square: Square| {
        let square = if us.is_black() { square.flip_vertical() } else { square };
        let from_top = 7 - usize::from(square.rank());
        if let Some(cell) = row.get_mut(plane * 64 + from_top * 8 + usize::from(square.file())) {
            *cell = 1.0;
        }
    };
    for (color, first) in [(us, 0), (!us, 6)] {
        for (plane, role) in (first..).zip(Role::ALL) {
            for square in position.board().by_piece(role.of(color)) {
                set(plane, square);
            }
        }
    }
    if let Some(square) = position.legal_ep_square() {
        set(16, square);
    }
    let castles = position.castles();
    let rights = [
        (12, castles.has(us, CastlingSide::KingSide)),
        (13, castles.has(us, CastlingSide::QueenSide)),
        (14, castles.has(!us, CastlingSide::KingSide)),
        (15, castles.has(!us, CastlingSide::QueenSide)),
        (17, us == Color::White),
    ];
    for (plane, on) in rights {
        if on {
            row.iter_mut().skip(plane * 64).take(64).for_each(|cell| *cell = 1.0);
        }
    }
}
