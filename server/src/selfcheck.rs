//! Whether a model that was just opened can be trusted with requests, and what its runs cost.

use std::time::{Duration, Instant};

use zeitnot_encoding::{Batch, Conditions, Game, LegalMoves, Situation, TimeControl};
use zeitnot_inference::{Answer, InferenceError};

use crate::{cost::CostModel, worker::Run};

/// Games whose last positions are asked for: an opening, Black to move, castling and en passant at hand, few men left.
const GAMES: [(&str, &[&str]); 5] = [
    ("", &[]),
    ("", &["e4"]),
    ("", &["e4", "e5", "Nf3", "Nc6", "Bb5", "a6", "Ba4", "Nf6"]),
    ("r3k2r/ppp1qppp/2n5/3pP3/8/2N5/PPPQ1PPP/R3K2R w KQkq d6 0 12", &[]),
    ("8/5k2/8/3K4/8/8/6P1/8 w - - 0 60", &["Kd6"]),
];
/// Most that a move's probability may differ between a run of one row and a run of several.
const TOLERANCE: f32 = 0.01;
/// Runs of each size that are timed.
const TIMED: usize = 2;

/// Runs every batch size, so that the first request finds memory and kernels ready, and compares what the rows of a
/// batch are answered with what each is answered alone. With `teach`, the cost model learns the runs' times.
///
/// # Errors
///
/// When a run fails, an answer is not finite, or an answer depends on the rest of the batch.
pub fn check(model: &mut dyn Run, cost: &CostModel, teach: bool) -> Result<(), InferenceError> {
    let games = games(&model.metadata().name)?;
    let rows = |count: usize| games.iter().map(|(situation, _)| situation).cycle().take(count);
    let together = answer(model, rows(games.len()))?;
    for (row, (situation, legal)) in games.iter().enumerate() {
        let alone = answer(model, std::iter::once(situation))?;
        let (alone, together) = (probabilities(&alone, 0, legal), probabilities(&together, row, legal));
        let name = || model.metadata().name.clone();
        let (Some(alone), Some(together)) = (alone, together) else {
            return Err(wrong(name(), format!("answers position {row} with numbers that are not finite")));
        };
        let apart = alone.iter().zip(&together).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        if apart > TOLERANCE {
            return Err(wrong(name(), format!("answers position {row} differently in a batch, by {apart}")));
        }
    }
    for size in CostModel::sizes(cost.max_batch()) {
        let batch = Batch::of(model.encoding(), rows(size));
        model.run(&batch)?;
        let mut best = Duration::MAX;
        for _ in 0..if teach { TIMED } else { 0 } {
            let started = Instant::now();
            model.run(&batch)?;
            best = best.min(started.elapsed());
        }
        if teach {
            cost.teach(size, best);
        }
    }
    Ok(())
}

fn games(name: &str) -> Result<Vec<(Situation, LegalMoves)>, InferenceError> {
    let conditions = Conditions {
        mover_rating: Some(1500),
        time_control: Some(TimeControl { initial: 300.0, increment: 0.0 }),
        mover_clock: Some(200.0),
        ..Conditions::default()
    };
    let game = |(fen, moves): (&str, &[&str])| {
        let game = Game::parse(fen, moves).map_err(|error| wrong(name.to_owned(), error.to_string()))?;
        Ok((game.situation(conditions), LegalMoves::of(game.position())))
    };
    GAMES.into_iter().map(game).collect()
}

fn answer<'a>(
    model: &mut dyn Run,
    situations: impl IntoIterator<Item = &'a Situation>,
) -> Result<Answer, InferenceError> {
    let batch = Batch::of(model.encoding(), situations);
    model.run(&batch)
}

fn probabilities(answer: &Answer, row: usize, legal: &LegalMoves) -> Option<Vec<f32>> {
    let probabilities = legal.probabilities(&answer.row(row)?.policy);
    probabilities.iter().all(|probability| probability.is_finite()).then_some(probabilities)
}

fn wrong(file: String, problem: String) -> InferenceError {
    InferenceError::Model { file, problem }
}
