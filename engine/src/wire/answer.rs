//! Answers.

use std::time::Duration;

use zeitnot_proto::engine::v1::{self, candidate_score};
use zeitnot_uci::{Evaluation, Line, Score};

use super::Question;

/// The answer to a question, in the order in which it was asked.
pub fn answer(
    question: &Question,
    evaluation: &Evaluation,
    cached: bool,
    engine: String,
) -> v1::EvaluateCandidatesResponse {
    let score = |name: &String| {
        let place = question.key.candidates.binary_search(name).ok();
        let line = place.and_then(|place| evaluation.lines.get(place)).and_then(Option::as_ref);
        candidate(name, line)
    };
    v1::EvaluateCandidatesResponse {
        scores: question.asked.iter().map(score).collect(),
        depth: evaluation.depth,
        nodes: evaluation.nodes,
        time: Some(duration(evaluation.time)),
        complete: evaluation.complete,
        cached,
        engine,
    }
}

fn candidate(name: &str, line: Option<&Line>) -> v1::CandidateScore {
    let score = line.map(|line| match line.score {
        Score::Centipawns(centipawns) => candidate_score::Score::Centipawns(centipawns),
        Score::Mate(moves) => candidate_score::Score::Mate(moves),
    });
    let (rank, depth) = line.map_or((0, 0), |line| (line.rank, line.depth));
    v1::CandidateScore { uci: name.to_owned(), score, rank, depth }
}

/// A duration on the wire.
pub fn duration(time: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        nanos: time.subsec_nanos().cast_signed(),
    }
}
