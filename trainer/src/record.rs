//! One human game as the trainer keeps it.

use shakmaty::{Chess, Color, Move, Position, Role, Square, packed::PackedUciMove, uci::UciMove};
use zeitnot_encoding::{Conditions, RatingSystem, Situation, TimeControl, clock};

/// A game from the standard start whose moves were checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GameRecord {
    /// The game's id, empty when the source has none.
    pub id: String,
    /// Where it was played.
    pub site: String,
    /// How the game came about.
    pub event: String,
    /// Date as the source writes it, `2021.04.30`.
    pub date: String,
    /// Names, titles and ratings.
    pub white: Player,
    /// Names, titles and ratings.
    pub black: Player,
    /// Time control, when known.
    pub time_control: Option<TimeControl>,
    /// Who won; `None` for a draw.
    pub winner: Option<Color>,
    /// Moves, packed in 16 bits each: from, to, promotion.
    pub moves: Vec<u16>,
    /// What `[%clk]` says after each ply, in seconds; empty when no move has a clock.
    pub clocks: Vec<Option<f32>>,
}

/// One side of a game.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Player {
    /// Name or pseudonym.
    pub name: String,
    /// Title, such as `GM`, `BOT` or empty.
    pub title: String,
    /// Rating, when known.
    pub rating: Option<u16>,
}

/// A situation and the move the human played.
pub struct Decision {
    /// Index of the move, from 0.
    pub ply: usize,
    /// What the player knew.
    pub situation: Situation,
    /// What the player did.
    pub played: Move,
}

impl GameRecord {
    /// The player with these pieces.
    pub fn player(&self, color: Color) -> &Player {
        color.fold_wb(&self.white, &self.black)
    }

    /// All decisions of the game, in order. Ends early at a move that cannot be played, which checked games do not have.
    pub fn decisions(&self) -> impl Iterator<Item = Decision> {
        let mut situation = Situation::default();
        (0..self.moves.len()).map_while(move |ply| {
            let played = self.move_at(&situation.position, ply)?;
            let conditions = self.conditions(ply);
            let now = Situation { conditions, ..situation.clone() };
            situation.play(played);
            Some(Decision { ply, situation: now, played })
        })
    }

    /// The decision at one ply.
    pub fn decision(&self, ply: usize) -> Option<Decision> {
        let mut situation = Situation { conditions: self.conditions(ply), ..Situation::default() };
        for earlier in 0..ply {
            let played = self.move_at(&situation.position, earlier)?;
            situation.play(played);
        }
        let played = self.move_at(&situation.position, ply)?;
        Some(Decision { ply, situation, played })
    }

    fn move_at(&self, position: &Chess, ply: usize) -> Option<Move> {
        let packed = self.moves.get(ply)?;
        checked_before(position, PackedUciMove::from_bytes(packed.to_le_bytes()).unpack())
    }

    fn conditions(&self, ply: usize) -> Conditions {
        let (mover, opponent) =
            if ply.is_multiple_of(2) { (&self.white, &self.black) } else { (&self.black, &self.white) };
        let system = self.rating_system();
        // A game without clocks has unknown clocks even on the first moves.
        let timed = !self.clocks.is_empty();
        Conditions {
            mover_rating: mover.rating,
            opponent_rating: opponent.rating,
            mover_system: system,
            opponent_system: system,
            time_control: self.time_control,
            mover_clock: clock::before(&self.clocks, self.time_control, ply).filter(|_| timed),
            opponent_clock: clock::opponent_before(&self.clocks, self.time_control, ply).filter(|_| timed),
        }
    }

    /// The scale of both ratings, by where the game was played.
    fn rating_system(&self) -> Option<RatingSystem> {
        match self.site.as_str() {
            "lichess.org" => Some(RatingSystem::Lichess),
            "chess.com" => Some(RatingSystem::ChessCom),
            "otb" => Some(RatingSystem::Fide),
            _ => None,
        }
    }

    /// Shows the clock after the move in place of that before it, as far as there is one: what the study of the clock
    /// leak measures.
    pub fn leak_clock(&self, decision: &mut Decision) {
        let conditions = &mut decision.situation.conditions;
        if conditions.mover_clock.is_some() {
            conditions.mover_clock = self.clocks.get(decision.ply).copied().flatten();
        }
    }

    /// How long the move at a ply took, in seconds, when the clocks tell.
    pub fn think_time(&self, ply: usize) -> Option<f32> {
        clock::think_time(&self.clocks, self.time_control, ply)
    }
}

/// The 16-bit form of a move; castling is the king's two-square move.
pub fn pack(mv: Move) -> u16 {
    u16::from_le_bytes(PackedUciMove::pack(UciMove::from_standard(mv)).to_bytes())
}

/// The move of a game whose moves were found legal when it was read, so that legality is not tested again.
fn checked_before(position: &Chess, uci: UciMove) -> Option<Move> {
    let UciMove::Normal { from, to, promotion } = uci else { return None };
    let board = position.board();
    let role = board.role_at(from)?;
    if role == Role::King && from.file().distance(to.file()) == 2 {
        let corner = if to > from { Square::H1 } else { Square::A1 };
        let rook = position.turn().fold_wb(corner, corner.flip_vertical());
        return Some(Move::Castle { king: from, rook });
    }
    let capture = board.role_at(to);
    if role == Role::Pawn && from.file() != to.file() && capture.is_none() {
        return Some(Move::EnPassant { from, to });
    }
    Some(Move::Normal { role, from, capture, to, promotion })
}
