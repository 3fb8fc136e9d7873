//! What one human decision teaches.

use shakmaty::{Chess, Color, Move, Position, Role, Square, uci::UciMove};

use crate::{LegalMoves, vocabulary};

/// Number of auxiliary outputs: moving piece 6, captured piece 6, gives check 1, from square 64, to square 64.
pub const AUXILIARY: usize = 141;

/// Targets of a decision, in the mover's frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Targets {
    /// Vocabulary index of the move played.
    pub policy: u16,
    /// Vocabulary indices of the legal moves.
    pub legal: Vec<u16>,
    /// Which of the 141 auxiliary outputs are on.
    pub auxiliary: Vec<u16>,
}

impl Targets {
    /// Targets of playing `mv` in `position`, or `None` when the move is not in the vocabulary.
    pub fn of(position: &Chess, mv: Move) -> Option<Self> {
        let mover = position.turn();
        Some(Targets {
            policy: vocabulary::index_of(mv, mover)?,
            legal: LegalMoves::of(position).indices().to_vec(),
            auxiliary: auxiliary(position, mv, mover),
        })
    }

    /// The auxiliary targets as 141 zeros and ones: moving piece 6 (P N B R Q K), captured piece 6, gives check 1,
    /// from square 64, to square 64 (a1 = 0).
    pub fn auxiliary_row(&self) -> [f32; AUXILIARY] {
        let mut row = [0.0; AUXILIARY];
        for &index in &self.auxiliary {
            if let Some(cell) = row.get_mut(usize::from(index)) {
                *cell = 1.0;
            }
        }
        row
    }
}

/// The game's value for the mover: 1 for a win, 0 for a draw, -1 for a loss.
pub fn value(winner: Option<Color>, mover: Color) -> f32 {
    match winner {
        None => 0.0,
        Some(color) if color == mover => 1.0,
        Some(_) => -1.0,
    }
}

fn auxiliary(position: &Chess, mv: Move, mover: Color) -> Vec<u16> {
    let role = |role: Role| u16::from(role) - 1;
    let frame = |square: Square| u16::from(if mover.is_black() { square.flip_vertical() } else { square });
    let mut on = vec![role(mv.role())];
    on.extend(mv.capture().map(|captured| 6 + role(captured)));
    let mut after = position.clone();
    after.play_unchecked(mv);
    if after.is_check() {
        on.push(12);
    }
    if let UciMove::Normal { from, to, .. } = UciMove::from_standard(mv) {
        on.extend([13 + frame(from), 77 + frame(to)]);
    }
    on
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Game;

    #[test]
    fn auxiliary_targets_name_piece_capture_check_and_squares() {
        let game = Game::parse("", &["e4", "e5", "Bc4", "Nc6", "Bxf7+"]).unwrap();
        let before = Game::parse("", &["e4", "e5", "Bc4", "Nc6"]).unwrap();
        assert!(game.position().is_check());
        let mv = "c4f7".parse::<UciMove>().unwrap().to_move(before.position()).unwrap();
        let targets = Targets::of(before.position(), mv).unwrap();
        assert_eq!(targets.auxiliary, [2, 6, 12, 13 + 26, 77 + 53]);
        assert_eq!(targets.auxiliary_row().iter().sum::<f32>(), 5.0);
    }

    #[test]
    fn squares_of_black_moves_are_mirrored() {
        let game = Game::parse("", &["e4"]).unwrap();
        let mv = "e7e5".parse::<UciMove>().unwrap().to_move(game.position()).unwrap();
        let targets = Targets::of(game.position(), mv).unwrap();
        assert_eq!(targets.auxiliary, [0, 13 + 12, 77 + 28]);
        assert_eq!(vocabulary::entries()[usize::from(targets.policy)].to_string(), "e2e4");
        assert_eq!(targets.legal.len(), 20);
    }
}
