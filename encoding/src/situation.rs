//! What the predictor knows at the moment of decision.

use shakmaty::{Chess, Color, Move, Position};

use crate::{TimeControl, past::Past, vocabulary};

/// Number of recent moves kept.
pub const HISTORY: usize = 20;

/// Position, recent moves and conditions before the mover starts thinking.
#[derive(Clone, Debug, Default)]
pub struct Situation {
    /// Position to move in.
    pub position: Chess,
    /// The moves that led here.
    pub history: History,
    /// The positions that led here.
    pub past: Past,
    /// Ratings and clock.
    pub conditions: Conditions,
}

/// Ratings and clock; every part may be unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Conditions {
    /// Rating of the player to move.
    pub mover_rating: Option<u16>,
    /// Rating of the other player.
    pub opponent_rating: Option<u16>,
    /// The scale of the mover's rating.
    pub mover_system: Option<RatingSystem>,
    /// The scale of the opponent's rating.
    pub opponent_system: Option<RatingSystem>,
    /// Time control of the game.
    pub time_control: Option<TimeControl>,
    /// What the mover has left before this move, in seconds.
    pub mover_clock: Option<f32>,
    /// What the opponent has left before this move, in seconds.
    pub opponent_clock: Option<f32>,
}

/// The scale a rating belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RatingSystem {
    /// lichess.org.
    Lichess,
    /// chess.com.
    ChessCom,
    /// FIDE and national ratings over the board.
    Fide,
}

impl RatingSystem {
    /// All scales.
    pub const ALL: [RatingSystem; 3] = [RatingSystem::Lichess, RatingSystem::ChessCom, RatingSystem::Fide];
}

/// The last 20 moves, oldest first, right-aligned: 0 is padding, else 1 + vocabulary index.
///
/// Each move is written in the frame of the player who made it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    tokens: [u16; HISTORY],
}

impl History {
    /// Tokens, oldest first.
    pub fn tokens(&self) -> &[u16; HISTORY] {
        &self.tokens
    }

    /// Number of moves kept.
    pub fn len(&self) -> usize {
        self.tokens.iter().filter(|&&token| token != 0).count()
    }

    /// True when no move is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a move and forgets the oldest.
    pub fn push(&mut self, mv: Move, mover: Color) {
        self.tokens.rotate_left(1);
        if let Some(last) = self.tokens.last_mut() {
            *last = vocabulary::index_of(mv, mover).map_or(0, |index| index + 1);
        }
    }

    /// Keeps only the newest `length` moves.
    pub fn truncate(&mut self, length: usize) {
        let forgotten = HISTORY.saturating_sub(length);
        self.tokens.iter_mut().take(forgotten).for_each(|token| *token = 0);
    }
}

impl Situation {
    /// Forgets all but the newest `length` moves, and the positions before them.
    pub fn forget(&mut self, length: usize) {
        self.history.truncate(length);
        self.past.truncate(&self.position, length);
    }

    /// Plays a legal move and remembers it.
    pub fn play(&mut self, mv: Move) {
        self.history.push(mv, self.position.turn());
        self.past.play(&mut self.position, mv);
    }
}
