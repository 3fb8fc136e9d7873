//! What is asked of an engine, and what comes of it.

use std::time::Duration;

use shakmaty::{CastlingMode, Chess, Move, Position, uci::UciMove};

use crate::UciError;

/// When a search ends, whichever comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Plies.
    pub depth: Option<u32>,
    /// Nodes.
    pub nodes: Option<u64>,
    /// Time.
    pub movetime: Option<Duration>,
}

impl Limits {
    /// True when nothing ends the search.
    pub fn is_empty(&self) -> bool {
        *self == Limits::default()
    }
}

/// A position, and the moves to score.
#[derive(Clone, Debug)]
pub struct Search {
    /// Where to search.
    pub position: Chess,
    /// Legal moves, each once.
    pub candidates: Vec<Move>,
    /// When it ends.
    pub limits: Limits,
    /// Whether the engine forgets everything before, so that the result depends on nothing else: with one thread and a
    /// limit of depth or nodes it is then always the same.
    pub fresh: bool,
}

impl Search {
    /// Names of the candidates; castling is the king's two-square move.
    pub(crate) fn names(&self) -> Vec<String> {
        self.candidates.iter().map(|mv| UciMove::from_move(*mv, CastlingMode::Standard).to_string()).collect()
    }

    pub(crate) fn check(&self, has_deadline: bool) -> Result<(), UciError> {
        if self.candidates.is_empty() {
            return Err(UciError::NoCandidates);
        }
        if self.limits.is_empty() && !has_deadline {
            return Err(UciError::NoLimit);
        }
        let bad = |(place, mv): &(usize, &Move)| {
            !self.position.is_legal(**mv) || self.candidates.iter().take(*place).any(|earlier| earlier == *mv)
        };
        match self.candidates.iter().enumerate().find(bad) {
            None => Ok(()),
            Some((place, _)) => Err(UciError::IllegalCandidate(self.names().get(place).cloned().unwrap_or_default())),
        }
    }
}

/// A score from the mover's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Score {
    /// Centipawns.
    Centipawns(i32),
    /// Moves until mate: positive when the mover mates, negative when the mover is mated.
    Mate(i32),
}

impl Score {
    /// Higher is better for the mover.
    fn order(self) -> (i32, i32) {
        match self {
            Score::Mate(moves) if moves > 0 => (2, -moves),
            Score::Centipawns(cp) => (1, cp),
            Score::Mate(moves) => (0, -moves),
        }
    }
}

/// What is known of a candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The score.
    pub score: Score,
    /// Plies searched.
    pub depth: u32,
    /// Place by score, from 1; equals in the candidates' order.
    pub rank: u32,
}

/// What was known when a depth was complete for all candidates.
#[derive(Clone, Debug, PartialEq)]
pub struct Iteration {
    /// Plies.
    pub depth: u32,
    /// Nodes until then.
    pub nodes: u64,
    /// One score for each candidate.
    pub scores: Vec<Option<Score>>,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// One for each candidate: its score at the deepest complete depth, or where no depth was completed, the deepest
    /// score that there is.
    pub lines: Vec<Option<Line>>,
    /// The deepest complete depth; 0 when there is none.
    pub depth: u32,
    /// Nodes searched.
    pub nodes: u64,
    /// Time from the command to the end.
    pub time: Duration,
    /// Whether the limits ended it, not the deadline.
    pub complete: bool,
    /// Every complete depth, ascending.
    pub iterations: Vec<Iteration>,
}

/// Lines with ranks, from scores and their depths.
pub(crate) fn ranked(scores: &[Option<(u32, Score)>]) -> Vec<Option<Line>> {
    let mut order =
        scores.iter().enumerate().filter_map(|(place, own)| own.map(|own| (place, own))).collect::<Vec<_>>();
    order.sort_by(|(a, (_, left)), (b, (_, right))| right.order().cmp(&left.order()).then(a.cmp(b)));
    let mut lines = vec![None; scores.len()];
    for ((place, (depth, score)), rank) in order.into_iter().zip(1..) {
        if let Some(line) = lines.get_mut(place) {
            *line = Some(Line { score, depth, rank });
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_put_quick_mates_first_and_quick_defeats_last() {
        let scores = [
            Score::Mate(-2),
            Score::Centipawns(5),
            Score::Mate(4),
            Score::Mate(-9),
            Score::Mate(1),
            Score::Centipawns(5),
        ];
        let lines = ranked(&scores.map(|score| Some((3, score))));
        let ranks = lines.into_iter().map(|line| line.unwrap().rank).collect::<Vec<_>>();
        assert_eq!(ranks, [6, 3, 2, 5, 1, 4]);
        assert_eq!(ranked(&[None, Some((1, Score::Centipawns(0)))])[1].as_ref().unwrap().rank, 1);
    }

    #[test]
    fn a_search_names_what_is_wrong_with_it() {
        let position = Chess::default();
        let moves = position.legal_moves();
        let search = |candidates: Vec<Move>, depth| Search {
            position: position.clone(),
            candidates,
            limits: Limits { depth, ..Limits::default() },
            fresh: false,
        };
        assert_eq!(search(vec![], Some(1)).check(false), Err(UciError::NoCandidates));
        assert_eq!(search(vec![moves[0]], None).check(false), Err(UciError::NoLimit));
        assert_eq!(search(vec![moves[0]], None).check(true), Ok(()));
        let twice = search(vec![moves[0], moves[1], moves[0]], Some(1)).check(false);
        assert!(matches!(twice, Err(UciError::IllegalCandidate(_))), "{twice:?}");
    }
}
