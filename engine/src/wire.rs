//! Between the wire and the pool: validation of requests, and answers.

mod answer;

use std::time::Duration;

use shakmaty::{CastlingMode, Chess, EnPassantMode, Move, fen::Fen, uci::UciMove};
use zeitnot_proto::engine::v1;
use zeitnot_uci::{Limits, Search};

pub use answer::{answer, duration};

use crate::{
    cache::Key,
    config::Config,
    error::{EngineError, Violation},
};

/// No position has more legal moves.
const MOST_CANDIDATES: usize = 218;
/// Longest FEN in bytes; the longest that means something has about 90.
const LONGEST_FEN: usize = 128;

/// How much a request may ask for.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    depth: u32,
    nodes: u64,
    movetime: Duration,
}

impl Caps {
    /// Those of the options.
    pub fn of(config: &Config) -> Self {
        Caps { depth: config.max_depth, nodes: config.max_nodes, movetime: config.max_movetime() }
    }
}

/// A request that makes sense.
#[derive(Clone, Debug)]
pub struct Question {
    /// The candidates as the request orders them.
    pub asked: Vec<String>,
    /// What is asked, whatever the order.
    pub key: Key,
    position: Chess,
    /// In the key's order.
    moves: Vec<Move>,
}

impl Question {
    /// Reads a request.
    ///
    /// # Errors
    ///
    /// [`EngineError::Invalid`], which names every bad field.
    pub fn read(request: v1::EvaluateCandidatesRequest, caps: &Caps) -> Result<Self, EngineError> {
        let mut violations = Vec::new();
        let limits = limits(request.limits.as_ref(), caps, &mut violations);
        let position = position(&request.fen).map_err(|problem| violations.push(Violation::new("fen", problem))).ok();
        let moves = candidates(&request.candidates, position.as_ref(), &mut violations);
        let Some(position) = position.filter(|_| violations.is_empty()) else {
            return Err(EngineError::Invalid(violations));
        };
        let fen = Fen::from_position(&position, EnPassantMode::Legal).to_string();
        let (candidates, moves) = moves.into_iter().unzip();
        Ok(Question { asked: request.candidates, key: Key { fen, candidates, limits }, position, moves })
    }

    /// The search that answers it.
    pub fn search(&self) -> Search {
        let (position, candidates) = (self.position.clone(), self.moves.clone());
        Search { position, candidates, limits: self.key.limits, fresh: false }
    }
}

/// A position that engines can be given: beyond too much material, of which some run over their buffers.
fn position(fen: &str) -> Result<Chess, String> {
    if fen.len() > LONGEST_FEN {
        return Err(format!("is longer than {LONGEST_FEN} bytes"));
    }
    let fen = fen.parse::<Fen>().map_err(|error| error.to_string())?;
    fen.into_position(CastlingMode::Standard).map_err(|error| error.to_string())
}

/// The candidates, sorted by their names. Without a position only their number is looked at.
fn candidates(names: &[String], position: Option<&Chess>, violations: &mut Vec<Violation>) -> Vec<(String, Move)> {
    if names.is_empty() || names.len() > MOST_CANDIDATES {
        let problem = format!("there are {}, not 1 to {MOST_CANDIDATES}", names.len());
        violations.push(Violation::new("candidates", problem));
        return Vec::new();
    }
    let Some(position) = position else { return Vec::new() };
    let mut known = std::collections::BTreeMap::new();
    for (number, name) in names.iter().enumerate() {
        let problem = match legal(name, position) {
            Ok(mv) if known.insert(name.clone(), mv).is_none() => continue,
            Ok(_) => format!("{name} is there twice"),
            Err(problem) => problem,
        };
        violations.push(Violation::new(format!("candidates[{number}]"), problem));
    }
    known.into_iter().collect()
}

fn legal(name: &str, position: &Chess) -> Result<Move, String> {
    let shown = || name.chars().filter(|letter| !letter.is_control()).take(8).collect::<String>();
    let uci = name.parse::<UciMove>().map_err(|_| format!("`{}` is no move in UCI", shown()))?;
    let mv = uci.to_move(position).map_err(|_| format!("{} is not legal", shown()))?;
    let proper = UciMove::from_move(mv, CastlingMode::Standard).to_string();
    // Each move has one name, so that none is there twice under two.
    if proper == name { Ok(mv) } else { Err(format!("{} is written {proper}", shown())) }
}

fn limits(asked: Option<&v1::Limits>, caps: &Caps, violations: &mut Vec<Violation>) -> Limits {
    let none = v1::Limits::default();
    let asked = asked.unwrap_or(&none);
    if *asked == none {
        violations.push(Violation::new("limits", "has neither depth, nodes nor movetime"));
    }
    if asked.depth > caps.depth {
        violations.push(Violation::new("limits.depth", format!("{} is more than {}", asked.depth, caps.depth)));
    }
    if asked.nodes > caps.nodes {
        violations.push(Violation::new("limits.nodes", format!("{} is more than {}", asked.nodes, caps.nodes)));
    }
    let movetime = asked.movetime.as_ref().map(time).transpose();
    let movetime = movetime.unwrap_or_else(|problem| {
        violations.push(Violation::new("limits.movetime", problem));
        None
    });
    if movetime.is_some_and(|time| time > caps.movetime) {
        let problem = format!("is more than {} ms", caps.movetime.as_millis());
        violations.push(Violation::new("limits.movetime", problem));
    }
    Limits {
        depth: (asked.depth > 0).then_some(asked.depth),
        nodes: (asked.nodes > 0).then_some(asked.nodes),
        movetime,
    }
}

/// Whole milliseconds, as UCI knows them.
fn time(time: &prost_types::Duration) -> Result<Duration, String> {
    let seconds = u64::try_from(time.seconds).map_err(|_| "is negative".to_owned())?;
    match u32::try_from(time.nanos) {
        Ok(nanos) if nanos >= 1_000_000_000 => Err("has a second or more of nanos".to_owned()),
        Ok(0) if seconds == 0 => Err("is zero".to_owned()),
        Ok(nanos) => Ok(Duration::from_secs(seconds) + Duration::from_millis(u64::from(nanos.div_ceil(1_000_000)))),
        Err(_) => Err("is negative".to_owned()),
    }
}

#[cfg(test)]
mod tests;
