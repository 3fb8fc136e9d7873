//! From an engine's lines to scores of the candidates.

use std::{collections::BTreeMap, time::Duration};

use shakmaty::{Chess, Move};

use crate::{Evaluation, Iteration, Score, UciError, info::Info, search::ranked};

/// Whose move a line begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// A candidate's.
    Candidate,
    /// A legal move that is no candidate: the engine does not know `searchmoves`.
    Unlisted,
}

/// Scores by depth, as they come in.
#[derive(Debug)]
pub(crate) struct Collector<'a> {
    position: &'a Chess,
    candidates: &'a [Move],
    nodes: u64,
    depths: BTreeMap<u32, (u64, Vec<Option<Score>>)>,
    /// The newest score of each depth, whatever the move, with the nodes until then.
    newest: BTreeMap<u32, (u64, Score)>,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(position: &'a Chess, candidates: &'a [Move]) -> Self {
        Collector { position, candidates, nodes: 0, depths: BTreeMap::new(), newest: BTreeMap::new() }
    }

    /// Takes in a line.
    ///
    /// # Errors
    ///
    /// [`UciError::Lied`] when its first move cannot be played.
    pub(crate) fn take(&mut self, info: &Info) -> Result<About, UciError> {
        let illegal = |_| UciError::Lied(format!("{} cannot be played", info.first));
        let mv = info.first.to_move(self.position).map_err(illegal)?;
        self.nodes = self.nodes.max(info.nodes);
        let Some(place) = self.candidates.iter().position(|own| *own == mv) else { return Ok(About::Unlisted) };
        if !info.bound {
            self.newest.insert(info.depth, (info.nodes, info.score));
            self.insert(info.depth, place, info.nodes, info.score);
        }
        Ok(About::Candidate)
    }

    /// Notes a score.
    pub(crate) fn insert(&mut self, depth: u32, place: usize, nodes: u64, score: Score) {
        let (known, scores) = self.depths.entry(depth).or_insert_with(|| (0, vec![None; self.candidates.len()]));
        if let Some(cell) = scores.get_mut(place) {
            // A line that is only repeated says nothing of when the depth was complete.
            if cell.is_none() {
                *known = nodes.max(*known);
            }
            *cell = Some(score);
        }
    }

    /// Notes a score of a search of its own, whose nodes are added to the others'.
    pub(crate) fn add(&mut self, depth: u32, place: usize, nodes: u64, score: Score) {
        let before = self.depths.get(&depth).map_or(0, |(known, _)| *known);
        self.insert(depth, place, before.saturating_add(nodes), score);
    }

    /// Depths at which every candidate has a score, ascending.
    pub(crate) fn depths(&self) -> Vec<u32> {
        let whole = self.depths.iter().filter(|(_, (_, scores))| scores.iter().all(Option::is_some));
        whole.map(|(depth, _)| *depth).collect()
    }

    /// Depths at which any candidate has a score, ascending.
    pub(crate) fn reached(&self) -> Vec<u32> {
        self.depths.keys().copied().collect()
    }

    /// The newest score of each depth, with the nodes until then: of a search of one line, its result.
    pub(crate) fn newest(&self) -> impl Iterator<Item = (u32, u64, Score)> {
        self.newest.iter().map(|(depth, (nodes, score))| (*depth, *nodes, *score))
    }

    /// Nodes so far.
    pub(crate) fn nodes(&self) -> u64 {
        self.nodes
    }

    /// Notes nodes that were searched elsewhere.
    pub(crate) fn count(&mut self, nodes: u64) {
        self.nodes = nodes.max(self.nodes);
    }

    /// What is known so far; nothing when no candidate has a score.
    pub(crate) fn finish(&self, time: Duration, complete: bool) -> Option<Evaluation> {
        let whole = |(depth, (nodes, scores)): (&u32, &(u64, Vec<Option<Score>>))| {
            let all = scores.iter().all(Option::is_some);
            all.then(|| Iteration { depth: *depth, nodes: *nodes, scores: scores.clone() })
        };
        let iterations = self.depths.iter().filter_map(whole).collect::<Vec<_>>();
        let scores = match iterations.last() {
            Some(last) => last.scores.iter().map(|score| score.map(|score| (last.depth, score))).collect(),
            None => self.deepest(),
        };
        if scores.iter().all(Option::is_none) {
            return None;
        }
        let depth = iterations.last().map_or(0, |last| last.depth);
        Some(Evaluation { lines: ranked(&scores), depth, nodes: self.nodes, time, complete, iterations })
    }

    fn deepest(&self) -> Vec<Option<(u32, Score)>> {
        let of = |place: usize| {
            let deepest =
                self.depths.iter().rev().map(|(depth, (_, scores))| (*depth, scores.get(place).copied().flatten()));
            deepest.filter_map(|(depth, score)| Some((depth, score?))).next()
        };
        (0..self.candidates.len()).map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use shakmaty::Position;

    use super::*;
    use crate::info::{Output, parse};

    fn take(collector: &mut Collector<'_>, line: &str) -> Result<About, UciError> {
        match parse(line).unwrap() {
            Output::Info(info) => collector.take(&info),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_deepest_complete_depth_counts_and_bounds_do_not() {
        let position = Chess::default();
        let moves = position.legal_moves();
        let named = |name: &str| {
            *moves.iter().find(|mv| mv.to_uci(shakmaty::CastlingMode::Standard).to_string() == name).unwrap()
        };
        let candidates = [named("e2e4"), named("a2a3")];
        let mut collector = Collector::new(&position, &candidates);
        assert_eq!(collector.finish(Duration::ZERO, true), None);
        for line in [
            "info depth 1 score cp 20 nodes 10 pv e2e4",
            "info depth 1 score cp 5 nodes 12 pv a2a3",
            "info depth 2 score cp 90 nodes 50 pv a2a3",
            "info depth 2 score cp 99 lowerbound nodes 60 pv e2e4",
        ] {
            assert_eq!(take(&mut collector, line), Ok(About::Candidate));
        }
        let evaluation = collector.finish(Duration::ZERO, false).unwrap();
        assert_eq!((evaluation.depth, evaluation.nodes, evaluation.iterations.len()), (1, 60, 1));
        assert_eq!(evaluation.lines[0].as_ref().unwrap().rank, 1);
        assert_eq!(take(&mut collector, "info depth 2 score cp 9 pv d2d4"), Ok(About::Unlisted));
        assert!(matches!(take(&mut collector, "info depth 2 score cp 9 pv e7e5"), Err(UciError::Lied(_))));
    }
}
