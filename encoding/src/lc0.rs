//! The `lc0-112/1` inputs: Maia-1 and other networks of Leela Chess Zero with the classical input.
//!
//! Everything is in the mover's frame. Eight positions, newest first, have 13 planes each: own P N B R Q K, the
//! opponent's P N B R Q K, and ones if the position had occurred before. Positions before the standard start stay zero;
//! before any other initial position that one is repeated. Then own queenside, own kingside, the opponent's queenside and kingside castling rights, ones if Black moves, the number of
//! half-moves since a capture or pawn move, zeros, and ones. Row 0 is the mover's rank 1.
//!
//! A network scores moves over 80 planes of 64 from squares, or over the 1,858 moves that a queen, a knight or a
//! promoting pawn could make; [`Policy`] finds the vocabulary's moves among them.

use std::cmp::Reverse;

use shakmaty::{Board, CastlingSide, Color, Position, Rank, Role, Square};

use crate::{
    Conditions, Encoding, Situation,
    batch::{Element, Input, Row},
    encodings::{self, Told},
    past,
    vocabulary::{self, Entry},
};

/// Planes of the input.
pub const PLANES: usize = 112;
/// Planes of one position.
const POSITION: usize = 13;
/// First plane after the positions.
const RIGHTS: usize = POSITION * (1 + past::KEPT);

/// The encoding of Leela Chess Zero's classical input.
#[derive(Clone, Copy, Debug)]
pub struct Lc0;

const INPUTS: [Input; 1] = [Input { name: "planes", element: Element::Float, shape: &[PLANES, 8, 8] }];

impl Encoding for Lc0 {
    fn name(&self) -> &'static str {
        "lc0-112/1"
    }

    fn inputs(&self) -> &'static [Input] {
        &INPUTS
    }

    fn encode(&self, situation: &Situation, row: &mut Row<'_>) {
        let position = &situation.position;
        let us = position.turn();
        let planes = row.floats(0);
        let now = std::iter::once((position.board(), situation.past.repetitions() > 0));
        let oldest = situation.past.boards().last().map_or(position.board(), |(board, _)| board);
        let known = now.chain(situation.past.boards());
        let before = (*oldest != Board::new()).then(|| std::iter::repeat((oldest, false)));
        let positions = known.chain(before.into_iter().flatten()).take(1 + past::KEPT);
        for ((board, repeated), planes) in positions.zip(planes.chunks_exact_mut(POSITION * 64)) {
            write_position(board, repeated, us, planes);
        }
        let castles = position.castles();
        let right = |color, side| f32::from(u8::from(castles.has(color, side)));
        let values = [
            right(us, CastlingSide::QueenSide),
            right(us, CastlingSide::KingSide),
            right(!us, CastlingSide::QueenSide),
            right(!us, CastlingSide::KingSide),
            f32::from(u8::from(us.is_black())),
            position.halfmoves() as f32,
            0.0,
            1.0,
        ];
        for (plane, value) in planes.chunks_exact_mut(64).skip(RIGHTS).zip(values) {
            plane.fill(value);
        }
    }

    fn told(&self, situation: &Situation) -> Told {
        let given = situation.conditions;
        let unused = [
            ("mover.rating", given.mover_rating.is_some()),
            ("opponent.rating", given.opponent_rating.is_some()),
            ("rating_system", given.mover_system.or(given.opponent_system).is_some()),
            ("time_control", given.time_control.is_some()),
            ("clock", given.mover_clock.or(given.opponent_clock).is_some()),
        ];
        let history = situation.past.boards().count().min(past::KEPT);
        Told { conditions: Conditions::default(), history, notes: encodings::unused(&unused) }
    }
}

fn write_position(board: &Board, repeated: bool, us: Color, planes: &mut [f32]) {
    for (color, first) in [(us, 0), (!us, 6)] {
        for (plane, role) in (first..).zip(Role::ALL) {
            for square in board.by_piece(role.of(color)) {
                let square = if us.is_black() { square.flip_vertical() } else { square };
                if let Some(cell) = planes.get_mut(plane * 64 + usize::from(square)) {
                    *cell = 1.0;
                }
            }
        }
    }
    if repeated {
        planes.iter_mut().skip(12 * 64).for_each(|cell| *cell = 1.0);
    }
}

/// Steps of the queen-like planes, seven each, and of the knight's, as (files, ranks).
const DIRECTIONS: [(i32, i32); 8] = [(0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1)];
const JUMPS: [(i32, i32); 8] = [(1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1), (-2, 1), (-1, 2)];
const PROMOTIONS: [Role; 3] = [Role::Rook, Role::Bishop, Role::Queen];

/// In which order a network scores moves.
///
/// In both, a promotion to a knight is the pawn's plain move, and castling is the king's capture of its own rook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// 80 planes of 64 from squares: seven steps in eight directions, eight jumps, and nine promotions.
    Planes,
    /// From a1 to h8 the queen-like and knight moves of each square, by their to squares; then the promotions by from
    /// file, to file, and queen, rook, bishop.
    Moves,
}

impl Policy {
    /// Number of logits: 5,120 or 1,858.
    pub fn size(self) -> usize {
        match self {
            Policy::Planes => 80 * 64,
            Policy::Moves => 1858,
        }
    }

    /// The place of each vocabulary move among the logits. Moves no piece can make have place 0.
    pub fn places(self) -> Vec<i64> {
        let find = self.finder();
        vocabulary::entries().iter().map(|entry| find(entry).unwrap_or_default()).collect()
    }

    /// The vocabulary's castling moves, as index and as place of the king's capture of its own rook, which stands for
    /// them when it is the king that moves.
    pub fn castling(self) -> Vec<(usize, i64)> {
        let find = self.finder();
        let ways = [(Square::G1, Square::H1), (Square::C1, Square::A1)];
        let way = |(to, rook)| {
            let index = vocabulary::index(Square::E1, to, None)?;
            Some((usize::from(index), find(&Entry { from: Square::E1, to: rook, promotion: None })?))
        };
        ways.into_iter().filter_map(way).collect()
    }

    /// Finds the place of a move.
    fn finder(self) -> impl Fn(&Entry) -> Option<i64> {
        let mut moves = vocabulary::entries().iter().filter_map(key).collect::<Vec<_>>();
        moves.sort_unstable();
        moves.dedup();
        move |entry| match self {
            Policy::Planes => plane(entry),
            Policy::Moves => moves.binary_search(&key(entry)?).ok().map(|place| place as i64),
        }
    }
}

/// What [`Policy::Moves`] sorts by: promotions last, then from square, to square, and queen, rook, bishop.
fn key(entry: &Entry) -> Option<(bool, Square, Square, Option<Reverse<Role>>)> {
    plane(entry)?;
    let piece = entry.promotion.filter(|&role| role != Role::Knight);
    Some((piece.is_some(), entry.from, entry.to, piece.map(Reverse)))
}

/// The place among the planes.
fn plane(entry: &Entry) -> Option<i64> {
    let files = i32::from(entry.to.file()) - i32::from(entry.from.file());
    let ranks = i32::from(entry.to.rank()) - i32::from(entry.from.rank());
    let plane = match entry.promotion {
        Some(_) if entry.to.rank() != Rank::Eighth => return None,
        Some(role) if role != Role::Knight => {
            let piece = PROMOTIONS.iter().position(|&candidate| candidate == role)?;
            let way = [-1, 0, 1].iter().position(|&way| way == files)?;
            64 + 3 * way + piece
        }
        _ => match JUMPS.iter().position(|&jump| jump == (files, ranks)) {
            Some(jump) => 56 + jump,
            None => {
                let distance = files.abs().max(ranks.abs());
                let step = (files / distance, ranks / distance);
                let direction = DIRECTIONS.iter().position(|&direction| direction == step)?;
                if (step.0 * distance, step.1 * distance) != (files, ranks) {
                    return None;
                }
                direction * 7 + distance.unsigned_abs() as usize - 1
            }
        },
    };
    Some((plane * 64 + usize::from(entry.from)) as i64)
}
