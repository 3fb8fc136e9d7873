//! An initial position and the moves played from it, checked move by move.

use shakmaty::{CastlingMode, Chess, Move, Position, PositionError, fen::Fen, san::SanPlus, uci::UciMove};
use thiserror::Error;

use crate::{Conditions, Situation};

/// A game up to the position to predict in.
#[derive(Clone, Debug)]
pub struct Game {
    situation: Situation,
}

/// Why a game cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GameError {
    /// The initial position is not a FEN or not a legal position.
    #[error("initial_fen: {0}")]
    InitialFen(String),
    /// The position belongs to a variant.
    #[error("initial_fen: {0} is not supported: only standard chess is")]
    Variant(&'static str),
    /// A move is neither UCI nor SAN.
    #[error("moves[{ply}]: `{text}` is neither a UCI nor a SAN move")]
    MoveSyntax {
        /// Index of the move, from 0.
        ply: usize,
        /// The move as given, shortened.
        text: String,
    },
    /// A move is not legal, or SAN names more than one move.
    #[error("moves[{ply}]: {text} is {problem} in this position")]
    Move {
        /// Index of the move, from 0.
        ply: usize,
        /// The move as given, shortened.
        text: String,
        /// `not legal` or `ambiguous`.
        problem: &'static str,
    },
}

impl GameError {
    /// The field at fault: `initial_fen` or `moves[ply]`.
    pub fn field(&self) -> String {
        match self {
            GameError::InitialFen(_) | GameError::Variant(_) => "initial_fen".to_owned(),
            GameError::MoveSyntax { ply, .. } | GameError::Move { ply, .. } => format!("moves[{ply}]"),
        }
    }

    /// What is wrong with it.
    pub fn problem(&self) -> String {
        let text = self.to_string();
        text.strip_prefix(&format!("{}: ", self.field())).unwrap_or(&text).to_owned()
    }
}

/// Why there is no move to predict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GameOver {
    /// The mover is checkmated.
    Checkmate,
    /// The mover has no legal move and is not in check.
    Stalemate,
    /// Neither side can mate.
    InsufficientMaterial,
    /// 75 moves by each side without a capture or pawn move.
    SeventyFiveMoves,
    /// The position occurred five times.
    FivefoldRepetition,
}

impl Game {
    /// Reads a game: a FEN (empty for the standard start) and moves in UCI or SAN.
    ///
    /// Castling may be written as the king's two-square move or as king takes rook, castling rights as `KQkq` or by
    /// rook files. Positions whose castling needs Chess960 rules, and FENs of variants, are refused.
    ///
    /// # Errors
    ///
    /// [`GameError`] names `initial_fen` or `moves[ply]`.
    pub fn parse<S: AsRef<str>>(initial_fen: &str, moves: &[S]) -> Result<Self, GameError> {
        let mut situation = Situation { position: initial_position(initial_fen)?, ..Situation::default() };
        for (ply, text) in moves.iter().enumerate() {
            let mv = parse_move(&situation.position, text.as_ref(), ply)?;
            situation.play(mv);
        }
        Ok(Game { situation })
    }

    /// The position to predict in.
    pub fn position(&self) -> &Chess {
        &self.situation.position
    }

    /// The situation of the player to move.
    pub fn situation(&self, conditions: Conditions) -> Situation {
        Situation { conditions, ..self.situation.clone() }
    }

    /// Why the game is over by rule, if it is. Draws that a player must claim do not count.
    pub fn over(&self) -> Option<GameOver> {
        let position = self.position();
        if position.is_checkmate() {
            Some(GameOver::Checkmate)
        } else if position.is_stalemate() {
            Some(GameOver::Stalemate)
        } else if position.is_insufficient_material() {
            Some(GameOver::InsufficientMaterial)
        } else if position.halfmoves() >= 150 {
            Some(GameOver::SeventyFiveMoves)
        } else if self.situation.past.repetitions() >= 4 {
            Some(GameOver::FivefoldRepetition)
        } else {
            None
        }
    }
}

fn initial_position(text: &str) -> Result<Chess, GameError> {
    if text.is_empty() {
        return Ok(Chess::default());
    }
    let fen = Fen::from_ascii(text.as_bytes()).map_err(|error| GameError::InitialFen(error.to_string()))?;
    let setup = fen.as_setup();
    if setup.pockets.is_some() {
        return Err(GameError::Variant("a pocket (Crazyhouse)"));
    }
    if setup.remaining_checks.is_some() {
        return Err(GameError::Variant("counting checks (Three-check)"));
    }
    if setup.promoted.any() {
        return Err(GameError::Variant("a mark for promoted pieces (Crazyhouse)"));
    }
    let rights = setup.castling_rights;
    fen.clone().into_position(CastlingMode::Standard).or_else(PositionError::ignore_too_much_material).map_err(
        |error| {
            let chess960 = rights.any() && fen.into_position::<Chess>(CastlingMode::Chess960).is_ok();
            if chess960 { GameError::Variant("Chess960 castling") } else { GameError::InitialFen(error.to_string()) }
        },
    )
}

fn parse_move(position: &Chess, text: &str, ply: usize) -> Result<Move, GameError> {
    let shown = || text.chars().take(16).collect::<String>();
    let problem = |problem| GameError::Move { ply, text: shown(), problem };
    if let Ok(uci) = text.parse::<UciMove>() {
        return uci.to_move(position).map_err(|_| problem("not legal"));
    }
    let castling = if text.starts_with("0-0") { text.replace('0', "O") } else { text.to_owned() };
    let san = SanPlus::from_ascii(castling.as_bytes()).map_err(|_| GameError::MoveSyntax { ply, text: shown() })?.san;
    san.to_move(position).map_err(|error| match error {
        shakmaty::san::SanError::IllegalSan => problem("not legal"),
        shakmaty::san::SanError::AmbiguousSan => problem("ambiguous"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(fen: &str, moves: &[&str]) -> String {
        Game::parse(fen, moves).unwrap_err().to_string()
    }

    #[test]
    fn uci_san_and_king_takes_rook_name_the_same_castling() {
        let start = ["e4", "e7e5", "Nf3", "g8f6", "Bc4", "f8c5"];
        let positions = ["e1g1", "e1h1", "O-O", "0-0"].map(|castling| {
            let moves = start.iter().copied().chain([castling]).collect::<Vec<_>>();
            let game = Game::parse("", &moves).unwrap();
            (game.position().clone(), *game.situation(Conditions::default()).history.tokens())
        });
        assert!(positions.iter().all(|position| position == &positions[0]));
    }

    #[test]
    fn shredder_castling_rights_are_read_and_real_chess960_is_refused() {
        assert!(Game::parse("r3k2r/8/8/8/8/8/8/R3K2R w HAha - 0 1", &["e1h1"]).is_ok());
        assert!(error("1r2k2r/8/8/8/8/8/8/1R2K2R w HBhb - 0 1", &[]).contains("Chess960"));
        assert!(error("8/8/8/8/8/8/8/8[QN] w - - 0 1", &[]).contains("Crazyhouse"));
        assert!(error("k7/8/8/8/8/8/8/K7 w - - 3+2 0 1", &[]).contains("Three-check"));
    }

    #[test]
    fn errors_name_the_ply_and_the_move() {
        assert_eq!(error("", &["e4", "e5", "Nf7"]), "moves[2]: Nf7 is not legal in this position");
        assert_eq!(error("", &["e4", "banana"]), "moves[1]: `banana` is neither a UCI nor a SAN move");
        assert_eq!(error("", &["e2e5"]), "moves[0]: e2e5 is not legal in this position");
        assert_eq!(error("", &["0000"]), "moves[0]: 0000 is not legal in this position");
        let knights = "4k3/8/8/8/8/8/8/N1N1K3 w - - 0 1";
        assert_eq!(error(knights, &["Nb3"]), "moves[0]: Nb3 is ambiguous in this position");
        assert!(error("banana", &[]).starts_with("initial_fen: "));
        assert!(error("8/8/8/8/8/8/8/K7 w - - 0 1", &[]).contains("missing king"));
    }

    #[test]
    fn games_that_are_over_say_why() {
        let over = |fen: &str, moves: &[&str]| Game::parse(fen, moves).unwrap().over();
        assert_eq!(over("", &["f3", "e5", "g4", "Qh4#"]), Some(GameOver::Checkmate));
        assert_eq!(over("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", &[]), Some(GameOver::Stalemate));
        assert_eq!(over("7k/8/6K1/8/8/8/8/6N1 b - - 0 1", &[]), Some(GameOver::InsufficientMaterial));
        assert_eq!(over("7k/8/6K1/8/8/8/8/6R1 b - - 150 90", &[]), Some(GameOver::SeventyFiveMoves));
        let shuffle = ["Nf3", "Nf6", "Ng1", "Ng8"].repeat(4);
        assert_eq!(over("", &shuffle), Some(GameOver::FivefoldRepetition));
        assert_eq!(over("", &shuffle[..12]), None);
    }
}
