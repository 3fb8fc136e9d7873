//! The inputs of `rerank/1`: the prior's most probable moves as tokens, with what an engine says of them.
//!
//! | input | type, shape | content |
//! |---|---|---|
//! | `policy` | f32 `[B, 4208]` | log-probability / 8 of each legal move under the prior, 0 for illegal moves |
//! | `pooled` | f32 `[B, 256]` | the prior's pooled hidden state, then zeros |
//! | `time_control` | f32 `[B, 2]` | ln(1 + initial) / 7, ln(1 + increment) / 3, in seconds; 0 when unknown |
//! | `style` | f32 `[B, 32]` | the player's style; zeros for the generic player |
//! | `candidates` | i64 `[B, 16]` | 1 + vocabulary index, 0 where there are fewer |
//! | `prior` | f32 `[B, 16, 4]` | log-probability / 8, rank / 16, gap to the best / 8, is top |
//! | `engine` | f32 `[B, 16, 5]` | scored, clamp(cp / 1000, -3, 3) / 3, clamp(loss / 500, 0, 4) / 4, rank / 16, is best; zeros when unscored |
//!
//! The output `residual` f32 `[B, 16]` is added to the candidates' logits.

use crate::{
    TimeControl,
    batch::{Element, Input},
    decode::softmax,
    evidence::{Score, ranks},
    vocabulary,
};

/// Name of the encoding.
pub const NAME: &str = "rerank/1";
/// Most moves that are re-ranked.
pub const CANDIDATES: usize = 16;
/// Numbers of a style.
pub const STYLE: usize = 32;
/// Most numbers of the prior's pooled hidden state.
pub const POOLED: usize = 256;
/// Largest number of a style, by size; larger ones could make a network's answer no number.
pub const LARGEST: f32 = 100.0;
/// Numbers of a candidate's prior block.
pub const PRIOR: usize = 4;
/// Numbers of a candidate's engine block.
pub const ENGINE: usize = 5;
/// Log-probability below which a move counts as this improbable.
const LEAST: f32 = -24.0;

/// A style: how a player differs from others of the rating.
pub type Style = [f32; STYLE];

/// The prior's most probable legal moves, best first.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidates {
    /// Places among the legal moves.
    pub places: Vec<usize>,
    /// Vocabulary indices.
    pub indices: Vec<u16>,
    /// Log-probabilities under the prior.
    pub log_probabilities: Vec<f32>,
}

impl Candidates {
    /// The most probable of the legal moves. `indices` and `logits` are those of all legal moves.
    pub fn of(indices: &[u16], logits: &[f32]) -> Self {
        let mut order = indices.iter().copied().zip(log_softmax(logits)).enumerate().collect::<Vec<_>>();
        order.sort_by(|(_, a), (_, b)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        order.truncate(CANDIDATES);
        Candidates {
            places: order.iter().map(|(place, _)| *place).collect(),
            indices: order.iter().map(|(_, (index, _))| *index).collect(),
            log_probabilities: order.iter().map(|(_, (_, log))| *log).collect(),
        }
    }

    /// The legal moves with these vocabulary indices, in this order; `None` when one of them is not legal.
    pub fn named(indices: &[u16], logits: &[f32], chosen: &[u16]) -> Option<Self> {
        let logs = log_softmax(logits);
        let place = |index: &u16| indices.iter().position(|own| own == index);
        let places = chosen.iter().map(place).collect::<Option<Vec<_>>>()?;
        let log_probabilities = places.iter().map(|&place| logs.get(place).copied()).collect::<Option<_>>()?;
        Some(Candidates { places, indices: chosen.to_vec(), log_probabilities })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// True when there is no legal move.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Adds the residuals to the candidates' logits; the other moves keep theirs.
    pub fn apply(&self, logits: &mut [f32], residuals: &[f32]) {
        for (place, residual) in self.places.iter().zip(residuals) {
            if let Some(logit) = logits.get_mut(*place) {
                *logit += residual;
            }
        }
    }
}

/// Log-probabilities, not below -24.
fn log_softmax(logits: &[f32]) -> Vec<f32> {
    softmax(logits.iter().copied()).into_iter().map(|p| p.ln().max(LEAST)).collect()
}

/// What a re-ranker is told of one situation.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// Vocabulary indices of the legal moves.
    pub indices: &'a [u16],
    /// The prior's logits of the legal moves.
    pub logits: &'a [f32],
    /// The prior's pooled hidden state; empty when it gives none.
    pub pooled: &'a [f32],
    /// The game's time control.
    pub time_control: Option<TimeControl>,
    /// The player's style; none for the generic player.
    pub style: Option<&'a Style>,
    /// The moves to re-rank.
    pub candidates: &'a Candidates,
    /// What an engine says of them, in their order; empty without an engine.
    pub scores: &'a [Option<Score>],
}

/// The inputs of the network.
pub const INPUTS: [Input; 7] = [
    Input { name: "policy", element: Element::Float, shape: &[vocabulary::SIZE] },
    Input { name: "pooled", element: Element::Float, shape: &[POOLED] },
    Input { name: "time_control", element: Element::Float, shape: &[2] },
    Input { name: "style", element: Element::Float, shape: &[STYLE] },
    Input { name: "candidates", element: Element::Integer, shape: &[CANDIDATES] },
    Input { name: "prior", element: Element::Float, shape: &[CANDIDATES, PRIOR] },
    Input { name: "engine", element: Element::Float, shape: &[CANDIDATES, ENGINE] },
];

/// Rows of a re-ranker's inputs, in row-major order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RerankBatch {
    rows: usize,
    policy: Vec<f32>,
    pooled: Vec<f32>,
    time_control: Vec<f32>,
    style: Vec<f32>,
    candidates: Vec<i64>,
    prior: Vec<f32>,
    engine: Vec<f32>,
}

impl RerankBatch {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The f32 values of an input, none for another name.
    pub fn floats(&self, name: &str) -> &[f32] {
        match name {
            "policy" => &self.policy,
            "pooled" => &self.pooled,
            "time_control" => &self.time_control,
            "style" => &self.style,
            "prior" => &self.prior,
            "engine" => &self.engine,
            _ => &[],
        }
    }

    /// The candidates' tokens.
    pub fn candidates(&self) -> &[i64] {
        &self.candidates
    }

    /// The same situations with other candidate tokens, prior blocks and engine blocks.
    pub fn with_candidates(&self, candidates: Vec<i64>, prior: Vec<f32>, engine: Vec<f32>) -> Self {
        RerankBatch { candidates, prior, engine, ..self.clone() }
    }

    /// Appends all rows of another batch.
    pub fn append(&mut self, other: &RerankBatch) {
        self.rows += other.rows;
        self.policy.extend_from_slice(&other.policy);
        self.pooled.extend_from_slice(&other.pooled);
        self.time_control.extend_from_slice(&other.time_control);
        self.style.extend_from_slice(&other.style);
        self.candidates.extend_from_slice(&other.candidates);
        self.prior.extend_from_slice(&other.prior);
        self.engine.extend_from_slice(&other.engine);
    }

    /// Appends one situation.
    pub fn push(&mut self, row: &Row<'_>) {
        self.rows += 1;
        self.push_policy(row);
        let pooled = row.pooled.iter().copied().chain(std::iter::repeat(0.0));
        self.pooled.extend(pooled.take(POOLED));
        self.time_control.extend(
            row.time_control
                .map_or([0.0; 2], |control| [control.initial.ln_1p() / 7.0, control.increment.ln_1p() / 3.0]),
        );
        self.style.extend(row.style.unwrap_or(&[0.0; STYLE]));
        self.push_candidates(row.candidates);
        self.push_engine(row.scores);
    }

    fn push_policy(&mut self, row: &Row<'_>) {
        let first = self.policy.len();
        self.policy.resize(first + vocabulary::SIZE, 0.0);
        for (&index, log) in row.indices.iter().zip(log_softmax(row.logits)) {
            if let Some(cell) = self.policy.get_mut(first + usize::from(index)) {
                *cell = log / 8.0;
            }
        }
    }

    fn push_candidates(&mut self, candidates: &Candidates) {
        let best = candidates.log_probabilities.first().copied().unwrap_or_default();
        for (rank, (&index, &log)) in candidates.indices.iter().zip(&candidates.log_probabilities).enumerate() {
            self.candidates.push(1 + i64::from(index));
            let is_top = if rank == 0 { 1.0 } else { 0.0 };
            self.prior.extend([log / 8.0, (rank + 1) as f32 / CANDIDATES as f32, (best - log) / 8.0, is_top]);
        }
        self.candidates.resize(self.rows * CANDIDATES, 0);
        self.prior.resize(self.rows * CANDIDATES * PRIOR, 0.0);
    }

    fn push_engine(&mut self, scores: &[Option<Score>]) {
        let best = scores.iter().flatten().map(|score| score.worth()).max().unwrap_or_default();
        for (score, rank) in scores.iter().zip(ranks(scores)).take(CANDIDATES) {
            let (Some(score), Some(rank)) = (score, rank) else {
                self.engine.extend([0.0; ENGINE]);
                continue;
            };
            let cp = score.worth() as f32;
            let loss = (best - score.worth()) as f32;
            let is_best = if rank == 1 { 1.0 } else { 0.0 };
            self.engine.extend([
                1.0,
                (cp / 1000.0).clamp(-3.0, 3.0) / 3.0,
                (loss / 500.0).clamp(0.0, 4.0) / 4.0,
                rank as f32 / CANDIDATES as f32,
                is_best,
            ]);
        }
        self.engine.resize(self.rows * CANDIDATES * ENGINE, 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Score::{Centipawns, Mate};

    fn row<'a>(candidates: &'a Candidates, scores: &'a [Option<Score>]) -> Row<'a> {
        Row {
            indices: &[30, 10, 20],
            logits: &[0.0, 2.0, 1.0],
            pooled: &[0.5, -0.5],
            time_control: Some(TimeControl { initial: 180.0, increment: 2.0 }),
            style: None,
            candidates,
            scores,
        }
    }

    #[test]
    fn candidates_are_the_most_probable_moves_equals_by_index() {
        let candidates = Candidates::of(&[30, 10, 20], &[0.0, 2.0, 1.0]);
        assert_eq!((candidates.places, candidates.indices), (vec![1, 2, 0], vec![10, 20, 30]));
        let named = Candidates::named(&[30, 10, 20], &[0.0, 200.0, 1.0], &[20, 10]).unwrap();
        assert_eq!((named.places, named.log_probabilities), (vec![2, 1], vec![LEAST, 0.0]));
        assert_eq!(Candidates::named(&[30, 10], &[0.0, 2.0], &[11]), None);
        let many = (0..40).collect::<Vec<u16>>();
        assert_eq!(Candidates::of(&many, &[1.0; 40]).indices, (0..16).collect::<Vec<u16>>());
        assert!(Candidates::of(&[], &[]).is_empty());
    }

    #[test]
    fn residuals_are_added_to_their_moves_alone() {
        let candidates = Candidates { places: vec![2, 0], indices: vec![5, 6], log_probabilities: vec![-0.1, -2.0] };
        let mut logits = [1.0, 2.0, 3.0];
        candidates.apply(&mut logits, &[0.5, -1.0, 9.0]);
        assert_eq!(logits, [0.0, 2.0, 3.5]);
    }

    #[test]
    fn features_are_those_of_the_paper() {
        let candidates = Candidates::of(&[30, 10, 20], &[0.0, 2.0, 1.0]);
        let mut batch = RerankBatch::default();
        batch.push(&row(&candidates, &[Some(Centipawns(-150)), None, Some(Mate(2))]));
        assert_eq!(batch.candidates()[..4], [11, 21, 31, 0]);
        let top = candidates.log_probabilities[0];
        assert_eq!(batch.floats("prior")[..4], [top / 8.0, 1.0 / 16.0, 0.0, 1.0]);
        assert!((batch.floats("prior")[6] - 1.0 / 8.0).abs() < 1e-6, "one nat behind the best");
        assert_eq!(batch.floats("engine")[..5], [1.0, -0.05, 1.0, 2.0 / 16.0, 0.0]);
        assert_eq!(batch.floats("engine")[5..10], [0.0; 5], "unscored is all zero");
        assert_eq!(batch.floats("engine")[10..15], [1.0, 1.0, 0.0, 1.0 / 16.0, 1.0]);
        assert_eq!(batch.floats("policy").iter().filter(|&&value| value != 0.0).count(), 3);
        assert!((batch.floats("time_control")[0] - 181f32.ln() / 7.0).abs() < 1e-6);
        assert_eq!(batch.floats("pooled")[..3], [0.5, -0.5, 0.0]);
        for input in INPUTS.iter().filter(|input| input.element == Element::Float) {
            assert_eq!(batch.floats(input.name).len(), input.size(), "{}", input.name);
        }
    }

    #[test]
    fn without_an_engine_its_block_is_zero_and_rows_stay_in_step() {
        let candidates = Candidates::of(&[30, 10, 20], &[0.0, 2.0, 1.0]);
        let mut batch = RerankBatch::default();
        batch.push(&row(&candidates, &[]));
        let mut other = RerankBatch::default();
        other.push(&Row { style: Some(&[1.0; STYLE]), time_control: None, ..row(&candidates, &[]) });
        batch.append(&other);
        assert_eq!(batch.rows(), 2);
        assert!(batch.floats("engine").iter().all(|&value| value == 0.0));
        assert_eq!(batch.floats("style")[STYLE - 1..=STYLE], [0.0, 1.0]);
        assert_eq!(batch.candidates().len(), 2 * CANDIDATES);
    }
}
