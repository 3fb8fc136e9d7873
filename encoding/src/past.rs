//! The positions before the one to move in.

use shakmaty::{Board, Chess, Move, Position};

/// Earlier positions whose boards are kept at least.
pub const KEPT: usize = 7;

/// Boards of earlier positions, as far back as networks look or the present position may have occurred.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// Oldest first, each with whether it had occurred before.
    boards: Vec<(Board, bool)>,
    /// How many of the newest may equal the present position.
    reversible: usize,
    /// How often the present position has occurred before.
    repetitions: usize,
}

impl Past {
    /// Earlier boards, newest first, each with whether it had occurred before.
    pub fn boards(&self) -> impl Iterator<Item = (&Board, bool)> + Clone {
        self.boards.iter().rev().map(|(board, repeated)| (board, *repeated))
    }

    /// Keeps only the newest `length` positions, and forgets that the present one has occurred before if that is among
    /// the forgotten.
    pub(crate) fn truncate(&mut self, position: &Chess, length: usize) {
        self.boards.drain(..self.boards.len().saturating_sub(length));
        self.reversible = self.reversible.min(length);
        self.repetitions = self.occurred(position);
    }

    /// How often the present position has occurred before.
    pub fn repetitions(&self) -> usize {
        self.repetitions
    }

    /// Plays a legal move and remembers where it was played.
    pub(crate) fn play(&mut self, position: &mut Chess, mv: Move) {
        let irreversible = position.is_irreversible(mv);
        self.boards.push((position.board().clone(), self.repetitions > 0));
        position.play_unchecked(mv);
        if irreversible {
            self.reversible = 0;
            self.boards.drain(..self.boards.len().saturating_sub(KEPT));
        } else {
            self.reversible += 1;
        }
        self.repetitions = self.occurred(position);
    }

    fn occurred(&self, position: &Chess) -> usize {
        // Castling and en-passant rights change with irreversible moves only, so equal boards are equal positions.
        let same_side = self.boards.iter().rev().take(self.reversible).skip(1).step_by(2);
        same_side.filter(|(board, _)| board == position.board()).count()
    }
}

#[cfg(test)]
mod tests {
    use crate::Game;

    #[test]
    fn repetitions_count_since_the_last_irreversible_move() {
        let past = |moves: &[&str]| Game::parse("", moves).unwrap().situation(Default::default()).past;
        let shuffle = ["Nf3", "Nf6", "Ng1", "Ng8"];
        assert_eq!(past(&shuffle).repetitions(), 1);
        assert_eq!(past(&shuffle.repeat(3)).repetitions(), 3);
        assert_eq!(past(&[&shuffle[..], &["e4"]].concat()).repetitions(), 0);
        assert_eq!(past(&[&shuffle[..], &["e4", "e5"], &shuffle[..]].concat()).repetitions(), 1);
        let repeated = past(&shuffle.repeat(2)).boards().map(|(_, repeated)| repeated).collect::<Vec<_>>();
        assert_eq!(repeated, [true, true, true, true, false, false, false, false]);
        // The rook's walk costs the castling right: the board comes back, the position does not.
        let walk = ["Nf3", "Nf6", "e3", "e6", "Rg1", "Rg8", "Rh1", "Rh8"];
        assert_eq!(past(&walk).repetitions(), 0);
    }
}
