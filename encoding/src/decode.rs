//! From logits to probabilities of the legal moves.

use shakmaty::{CastlingMode, Chess, Move, Position, san::SanPlus, uci::UciMove};

use crate::vocabulary;

/// The legal moves of a position with their vocabulary indices.
#[derive(Clone, Debug)]
pub struct LegalMoves {
    moves: Vec<Move>,
    indices: Vec<u16>,
}

/// A move with its probability among the legal moves.
#[derive(Clone, Debug, PartialEq)]
pub struct RankedMove {
    /// The move.
    pub mv: Move,
    /// Name in UCI; castling is the king's two-square move.
    pub uci: String,
    /// Name in standard algebraic notation, with `+` or `#`.
    pub san: String,
    /// Probability; those of all legal moves sum to 1.
    pub probability: f32,
}

impl LegalMoves {
    /// The legal moves of a position.
    pub fn of(position: &Chess) -> Self {
        let mover = position.turn();
        let (moves, indices) =
            position.legal_moves().into_iter().filter_map(|mv| Some((mv, vocabulary::index_of(mv, mover)?))).unzip();
        LegalMoves { moves, indices }
    }

    /// The moves.
    pub fn moves(&self) -> &[Move] {
        &self.moves
    }

    /// Vocabulary indices, in the order of the moves.
    pub fn indices(&self) -> &[u16] {
        &self.indices
    }

    /// Number of legal moves.
    pub fn len(&self) -> usize {
        self.moves.len()
    }

    /// True when the game is over.
    pub fn is_empty(&self) -> bool {
        self.moves.is_empty()
    }

    /// Softmax over the legal moves. `policy` holds 4,208 logits.
    pub fn probabilities(&self, policy: &[f32]) -> Vec<f32> {
        softmax(gather(&self.indices, policy).into_iter())
    }

    /// All legal moves, most probable first; equals in vocabulary order. `policy` holds 4,208 logits.
    pub fn rank(&self, position: &Chess, policy: &[f32]) -> Vec<RankedMove> {
        self.top(position, &gather(&self.indices, policy), self.len())
    }

    /// The `k` most probable legal moves. `logits` are those of the legal moves, in the order of [`Self::indices`].
    pub fn top(&self, position: &Chess, logits: &[f32], k: usize) -> Vec<RankedMove> {
        let probabilities = softmax(logits.iter().copied());
        let mut order = self
            .moves
            .iter()
            .zip(&self.indices)
            .zip(probabilities)
            .map(|((&mv, &i), p)| (mv, i, p))
            .collect::<Vec<_>>();
        order.sort_by(|a, b| b.2.total_cmp(&a.2).then(a.1.cmp(&b.1)));
        order.truncate(k);
        order
            .into_iter()
            .map(|(mv, _, probability)| RankedMove {
                mv,
                uci: UciMove::from_move(mv, CastlingMode::Standard).to_string(),
                san: SanPlus::from_move(position.clone(), mv).to_string(),
                probability,
            })
            .collect()
    }
}

/// The logits at these indices of a policy's 4,208.
pub fn gather(indices: &[u16], policy: &[f32]) -> Vec<f32> {
    indices.iter().map(|&index| policy.get(usize::from(index)).copied().unwrap_or(f32::NEG_INFINITY)).collect()
}

/// Softmax, computed in double precision.
pub fn softmax(logits: impl Iterator<Item = f32> + Clone) -> Vec<f32> {
    let highest = logits.clone().fold(f32::NEG_INFINITY, f32::max);
    let weights = logits.map(|logit| f64::from(logit - highest).exp()).collect::<Vec<_>>();
    let total = weights.iter().sum::<f64>();
    weights.into_iter().map(|weight| (weight / total) as f32).collect()
}
