//! The `maia3/1` inputs: Maia-3's tokens and ratings.
//!
//! A token a square, a1 first. Eight positions, oldest first, have 12 channels each: own P N B R Q K, the opponent's P N B
//! R Q K. Each position is in the frame of the player who moves in it, not in that of the present mover. Before the first
//! known position that one is repeated. Both ratings are continuous.
//!
//! The move is scored over all pairs of squares and 256 promotions; [`policy`] finds the vocabulary's moves among them.

use shakmaty::{Board, Color, Position, Rank, Role};

use crate::{
    Conditions, Encoding, Situation,
    batch::{Element, Input, Row},
    encodings::{self, Told},
    past,
    vocabulary::{self, Entry},
};

/// Channels of a token.
pub const CHANNELS: usize = POSITION * POSITIONS;
/// Logits of the policy: pairs of squares, then promotions by from file, to file and piece.
pub const POLICY: usize = 64 * 64 + 8 * 8 * PROMOTIONS.len();
/// Channels of one position.
const POSITION: usize = 12;
/// Positions shown.
const POSITIONS: usize = 1 + past::KEPT;
/// Higher ratings are taken for this one.
const HIGHEST_RATING: u16 = 5000;
/// Pieces a pawn becomes, in the policy's order.
const PROMOTIONS: [Role; 4] = [Role::Queen, Role::Rook, Role::Bishop, Role::Knight];

/// The encoding of the published Maia-3 networks.
#[derive(Clone, Copy, Debug)]
pub struct Maia3;

const INPUTS: [Input; 3] = [
    Input { name: "tokens", element: Element::Float, shape: &[64, CHANNELS] },
    Input { name: "mover_elo", element: Element::Float, shape: &[] },
    Input { name: "opponent_elo", element: Element::Float, shape: &[] },
];

impl Encoding for Maia3 {
    fn name(&self) -> &'static str {
        "maia3/1"
    }

    fn inputs(&self) -> &'static [Input] {
        &INPUTS
    }

    fn encode(&self, situation: &Situation, row: &mut Row<'_>) {
        let us = situation.position.turn();
        let now = (situation.position.board(), us);
        let turns = [!us, us].into_iter().cycle();
        let before = situation.past.boards().map(|(board, _)| board).zip(turns);
        let oldest = before.clone().last().unwrap_or(now);
        let newest_first = std::iter::once(now).chain(before).chain(std::iter::repeat(oldest));
        let tokens = row.floats(0);
        for ((board, turn), place) in newest_first.zip((0..POSITIONS).rev()) {
            write_position(board, turn, place * POSITION, tokens);
        }
        let (mover, opponent) = encodings::assumed_ratings(&situation.conditions);
        row.floats(1).fill(f32::from(mover.min(HIGHEST_RATING)));
        row.floats(2).fill(f32::from(opponent.min(HIGHEST_RATING)));
    }

    fn told(&self, situation: &Situation) -> Told {
        let given = situation.conditions;
        let conditions = Conditions {
            mover_rating: given.mover_rating,
            opponent_rating: given.opponent_rating,
            ..Conditions::default()
        };
        let unused = [
            ("rating_system", given.mover_system.or(given.opponent_system).is_some()),
            ("time_control", given.time_control.is_some()),
            ("clock", given.mover_clock.or(given.opponent_clock).is_some()),
        ];
        let mut notes = Vec::from_iter(encodings::assumption(&given));
        notes.extend(encodings::unused(&unused));
        Told { conditions, history: situation.past.boards().count().min(past::KEPT), notes }
    }
}

fn write_position(board: &Board, us: Color, first: usize, tokens: &mut [f32]) {
    for (color, first) in [(us, first), (!us, first + 6)] {
        for (channel, role) in (first..).zip(Role::ALL) {
            for square in board.by_piece(role.of(color)) {
                let square = if us.is_black() { square.flip_vertical() } else { square };
                if let Some(cell) = tokens.get_mut(usize::from(square) * CHANNELS + channel) {
                    *cell = 1.0;
                }
            }
        }
    }
}

/// The place of each vocabulary move among the 4,352 logits. Promotions on rank 1, which no mover makes, have place 0.
pub fn policy() -> Vec<i64> {
    vocabulary::entries().iter().map(|entry| place(entry).unwrap_or_default()).collect()
}

fn place(entry: &Entry) -> Option<i64> {
    let place = match entry.promotion {
        None => usize::from(entry.from) * 64 + usize::from(entry.to),
        Some(role) if entry.to.rank() == Rank::Eighth => {
            let piece = PROMOTIONS.iter().position(|&candidate| candidate == role)?;
            let files = usize::from(entry.from.file()) * 8 + usize::from(entry.to.file());
            64 * 64 + files * PROMOTIONS.len() + piece
        }
        Some(_) => return None,
    };
    i64::try_from(place).ok()
}
