//! What a re-ranker must hold to, whatever its weights: through ONNX Runtime, as it is served.
#![cfg(feature = "tch")]
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

use shakmaty::Chess;
use tch::Device;
use zeitnot_encoding::{
    Game, LegalMoves, TimeControl,
    decode::softmax,
    evidence::Score,
    rerank::{CANDIDATES, Candidates, RerankBatch, Row, STYLE, Style},
};
use zeitnot_inference::{Reranker, RerankerMetadata, Runtime};
use zeitnot_network::{RerankerConfig, Weights, onnx, weights::Tensor};
use zeitnot_trainer::train::eager::Parameters;

const STYLED: Style = [0.5; STYLE];

/// Situations of real openings with made-up logits and scores: legal indices, logits, candidates, scores.
struct Case {
    legal: LegalMoves,
    logits: Vec<f32>,
    candidates: Candidates,
    scores: Vec<Option<Score>>,
    pooled: Vec<f32>,
}

fn cases() -> Vec<Case> {
    let lines: [&[&str]; 4] = [
        &[],
        &["e4", "e5", "Nf3", "Nc6", "Bb5"],
        &["d4", "d5", "c4", "dxc4", "e4", "b5", "a4"],
        &["e4", "e5", "Qh5", "Ke7"],
    ];
    let case = |(number, line): (usize, &&[&str])| {
        let position: Chess = Game::parse("", line).unwrap().position().clone();
        let legal = LegalMoves::of(&position);
        let value = |i: usize| ((i * 37 + number * 11) % 23) as f32 / 5.0 - 2.0;
        let logits = (0..legal.len()).map(value).collect::<Vec<_>>();
        let candidates = Candidates::of(legal.indices(), &logits);
        let score = |i: usize| match i % 5 {
            0 => None,
            4 => Some(Score::Mate(if i.is_multiple_of(2) { 3 } else { -2 })),
            _ => Some(Score::Centipawns(120 - 35 * i as i32)),
        };
        let scores = (0..candidates.len()).map(score).collect();
        let pooled = (0..128).map(|i| value(i) / 4.0).collect();
        Case { legal, logits, candidates, scores, pooled }
    };
    lines.iter().enumerate().map(case).collect()
}

impl Case {
    fn row<'a>(&'a self, candidates: &'a Candidates, scores: &'a [Option<Score>], style: Option<&'a Style>) -> Row<'a> {
        Row {
            indices: self.legal.indices(),
            logits: &self.logits,
            pooled: &self.pooled,
            time_control: Some(TimeControl { initial: 180.0, increment: 2.0 }),
            style,
            candidates,
            scores,
        }
    }

    fn residuals(&self, reranker: &mut Reranker, scores: &[Option<Score>]) -> Vec<f32> {
        let mut batch = RerankBatch::default();
        batch.push(&self.row(&self.candidates, scores, Some(&STYLED)));
        reranker.run(&batch).unwrap()
    }

    fn probabilities(&self, residuals: &[f32]) -> Vec<f32> {
        let mut logits = self.logits.clone();
        self.candidates.apply(&mut logits, residuals);
        softmax(logits.into_iter())
    }
}

fn open(config: &RerankerConfig, weights: &Weights) -> Reranker {
    let about = RerankerMetadata { name: "test".into(), ..RerankerMetadata::default() };
    let bytes = onnx::export_reranker(config, weights, &about.entries()).unwrap();
    Reranker::from_bytes(&Runtime::load(None).unwrap(), "test", &bytes, 1).unwrap()
}

/// The weights that training starts from.
fn untrained(config: &RerankerConfig) -> Weights {
    let parameters = Parameters::new(config.specs(), Device::Cpu, 7);
    let mut weights = Weights::default();
    for (name, tensor) in parameters.tensors() {
        let values = Vec::<f32>::try_from(tensor.detach().reshape([-1])).unwrap();
        weights.insert(name, Tensor { shape: tensor.size(), values });
    }
    weights
}

/// Weights of which none is zero.
fn arbitrary(config: &RerankerConfig) -> Weights {
    Weights::by_formula(&config.specs())
}

#[test]
fn an_untrained_reranker_gives_the_prior_on_every_legal_move() {
    let config = RerankerConfig::default();
    let mut reranker = open(&config, &untrained(&config));
    for case in cases() {
        let before = softmax(case.logits.iter().copied());
        let after = case.probabilities(&case.residuals(&mut reranker, &case.scores));
        for (before, after) in before.iter().zip(&after) {
            assert!((before - after).abs() <= 1e-6, "{before} {after}");
        }
    }
}

#[test]
fn permuting_the_candidates_permutes_the_answer() {
    let config = RerankerConfig::default();
    let mut reranker = open(&config, &arbitrary(&config));
    for case in cases() {
        let mut straight = RerankBatch::default();
        straight.push(&case.row(&case.candidates, &case.scores, None));
        let residuals = reranker.run(&straight).unwrap();
        assert!(residuals.iter().any(|residual| residual.abs() > 1e-3), "the weights do something");

        // The prior's and the engine's blocks move with their candidate.
        let count = case.candidates.len();
        let order = (0..count).rev().map(|place| (place + 5) % count).collect::<Vec<_>>();
        let permuted = permute(&straight, &order);
        let moved = reranker.run(&permuted).unwrap();
        for (to, &from) in order.iter().enumerate() {
            assert!((moved[to] - residuals[from]).abs() < 1e-5, "{} {}", moved[to], residuals[from]);
        }
    }
}

/// The same row with its candidates in another order.
fn permute(batch: &RerankBatch, order: &[usize]) -> RerankBatch {
    let take = |values: &[f32], size: usize| {
        let moved = order.iter().flat_map(|&from| values[from * size..(from + 1) * size].to_vec());
        let mut moved = moved.collect::<Vec<_>>();
        moved.extend(&values[order.len() * size..]);
        moved
    };
    let mut tokens = order.iter().map(|&from| batch.candidates()[from]).collect::<Vec<_>>();
    tokens.extend(&batch.candidates()[order.len()..]);
    batch.with_candidates(tokens, take(batch.floats("prior"), 4), take(batch.floats("engine"), 5))
}

#[test]
fn a_reranker_without_evidence_is_the_search_free_model() {
    let with = RerankerConfig::default();
    let without = RerankerConfig { engine: false, ..with.clone() };
    let weights = arbitrary(&with);
    let mut free = open(&without, &weights);
    let mut blind = open(&with, &weights);
    for case in cases() {
        let hidden = case.residuals(&mut blind, &[]);
        let search_free = case.residuals(&mut free, &case.scores);
        let shown = case.residuals(&mut blind, &case.scores);
        for place in 0..case.candidates.len() {
            assert!((hidden[place] - search_free[place]).abs() < 1e-6);
        }
        assert!(hidden.iter().zip(&shown).any(|(hidden, shown)| (hidden - shown).abs() > 1e-3), "evidence matters");
    }
}

#[test]
fn mass_is_one_and_moves_that_are_no_candidates_keep_their_shares() {
    let config = RerankerConfig::default();
    let mut reranker = open(&config, &arbitrary(&config));
    for case in cases() {
        let before = softmax(case.logits.iter().copied());
        let after = case.probabilities(&case.residuals(&mut reranker, &case.scores));
        assert_eq!(after.len(), case.legal.len(), "illegal moves have no probability at all");
        assert!((after.iter().sum::<f32>() - 1.0).abs() < 1e-5);
        let others = (0..after.len()).filter(|place| !case.candidates.places.contains(place)).collect::<Vec<_>>();
        assert!(case.legal.len() <= CANDIDATES || !others.is_empty());
        for pair in others.windows(2) {
            let ratio = |p: &[f32]| p[pair[0]] / p[pair[1]];
            assert!((ratio(&before) / ratio(&after) - 1.0).abs() < 1e-4);
        }
    }
}

#[test]
fn rows_of_a_batch_do_not_look_at_each_other() {
    let config = RerankerConfig::default();
    let mut reranker = open(&config, &arbitrary(&config));
    let cases = cases();
    let mut all = RerankBatch::default();
    cases.iter().for_each(|case| all.push(&case.row(&case.candidates, &case.scores, Some(&STYLED))));
    let together = reranker.run(&all).unwrap();
    for (case, together) in cases.iter().zip(together.chunks(CANDIDATES)) {
        let alone = case.residuals(&mut reranker, &case.scores);
        for place in 0..case.candidates.len() {
            assert!((alone[place] - together[place]).abs() < 1e-5);
        }
    }
}

#[test]
fn another_kind_of_file_is_no_reranker() {
    let runtime = Runtime::load(None).unwrap();
    let model = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../models/zeitnot.onnx")).unwrap();
    let error = Reranker::from_bytes(&runtime, "zeitnot.onnx", &model, 1).err().unwrap().to_string();
    assert!(error.contains("zeitnot.onnx") && error.contains("rerank/1"), "{error}");
    let nameless = RerankerConfig::default();
    let bytes =
        onnx::export_reranker(&nameless, &arbitrary(&nameless), &RerankerMetadata::default().entries()).unwrap();
    let error = Reranker::from_bytes(&runtime, "nameless", &bytes, 1).err().unwrap().to_string();
    assert!(error.contains("zeitnot.name"), "{error}");
}
