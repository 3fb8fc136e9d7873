//! The 18 board planes of `otter/1` and `zeitnot/1`.

use shakmaty::{CastlingSide, Chess, Color, Position, Role, Square};

/// Planes of the board input.
pub const PLANES: usize = 18;
/// Values of one board input.
pub const BOARD: usize = PLANES * 64;

/// A square as the planes count it: row by row from the mover's rank 8, each from file a.
pub fn cell(square: Square, mover: Color) -> usize {
    let square = if mover.is_black() { square } else { square.flip_vertical() };
    usize::from(square)
}

/// Writes the planes into a row of zeros.
///
/// Channels 0-5 own P N B R Q K, 6-11 the opponent's; 12 own kingside, 13 own queenside, 14 opponent's kingside, 15
/// opponent's queenside castling right; 16 the en-passant square, when such a capture is legal; 17 ones if White moves.
pub fn write(position: &Chess, row: &mut [f32]) {
    let us = position.turn();
    let mut set = |plane: usize, square: Square| {
        if let Some(cell) = row.get_mut(plane * 64 + cell(square, us)) {
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
