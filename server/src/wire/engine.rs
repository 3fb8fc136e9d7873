//! Between the wire of the engine sidecars and the domain. A sidecar is another process, and what it says is judged.

use std::time::Duration;

use prost_types::Duration as WireDuration;
use zeitnot_encoding::evidence::Score;
use zeitnot_proto::engine::v1;

use crate::rerank::{
    budget::Plan,
    engines::{Question, Scored},
};

/// Largest score in centipawns that an engine may give; those there are stay below a third of it.
const MOST_CENTIPAWNS: i32 = 100_000;
/// Longest mate, in moves, that an engine may see.
const LONGEST_MATE: i32 = 999;
/// What sidecars search at most as they come: plies, nodes and time.
const MOST_DEPTH: u32 = 64;
const MOST_NODES: u64 = 1_000_000_000;
const LONGEST: Duration = Duration::from_secs(30);
/// Deepest search that an engine may tell of.
const DEEPEST: u32 = 1000;

/// A question for a sidecar.
pub fn ask(question: &Question, plan: &Plan) -> v1::EvaluateCandidatesRequest {
    // Whole milliseconds, by which a sidecar's cache can find the same question again.
    let milliseconds = plan.movetime.min(LONGEST).as_millis() as i32;
    let movetime = WireDuration { seconds: i64::from(milliseconds / 1000), nanos: milliseconds % 1000 * 1_000_000 };
    v1::EvaluateCandidatesRequest {
        fen: question.fen.clone(),
        candidates: question.candidates.clone(),
        limits: Some(v1::Limits {
            depth: plan.depth.min(MOST_DEPTH),
            nodes: plan.nodes.min(MOST_NODES),
            movetime: Some(movetime),
        }),
    }
}

/// What a sidecar answered, in the order of the candidates, whatever its own.
///
/// # Errors
///
/// What is wrong with it, in words.
pub fn heard(question: &Question, answer: &v1::EvaluateCandidatesResponse) -> Result<Scored, String> {
    let (asked, scored) = (question.candidates.len(), answer.scores.len());
    if asked != scored {
        return Err(format!("{scored} scores for {asked} candidates"));
    }
    let mut found = Scored { scores: vec![None; asked], depths: vec![0; asked] };
    let mut seen = vec![false; asked];
    for (number, candidate) in answer.scores.iter().enumerate() {
        let in_place = question.candidates.get(number).is_some_and(|uci| *uci == candidate.uci);
        let place =
            if in_place { Some(number) } else { question.candidates.iter().position(|uci| *uci == candidate.uci) };
        let Some(place) = place else {
            return Err(format!("`{}` is no candidate", candidate.uci.chars().take(8).collect::<String>()));
        };
        match seen.get_mut(place) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err(format!("{} is scored twice", candidate.uci)),
        }
        let score = score(candidate)?;
        if let (Some(own), Some(depth)) = (found.scores.get_mut(place), found.depths.get_mut(place)) {
            (*own, *depth) = (score, candidate.depth);
        }
    }
    Ok(found)
}

fn score(candidate: &v1::CandidateScore) -> Result<Option<Score>, String> {
    use v1::candidate_score::Score::{Centipawns, Mate};
    if candidate.depth > DEEPEST {
        return Err(format!("{} at depth {}", candidate.uci, candidate.depth));
    }
    match candidate.score {
        None => Ok(None),
        Some(Centipawns(cp)) if cp.unsigned_abs() <= MOST_CENTIPAWNS.unsigned_abs() => Ok(Some(Score::Centipawns(cp))),
        Some(Mate(moves)) if moves != 0 && moves.unsigned_abs() <= LONGEST_MATE.unsigned_abs() => {
            Ok(Some(Score::Mate(moves)))
        }
        Some(absurd) => Err(format!("{} is worth {absurd:?}", candidate.uci)),
    }
}

#[cfg(test)]
mod tests {
    use v1::candidate_score::Score::{Centipawns, Mate};

    use super::*;

    fn question() -> Question {
        Question { fen: String::new(), candidates: ["e2e4", "d2d4"].map(str::to_owned).to_vec() }
    }

    fn answer(scores: &[(&str, Option<v1::candidate_score::Score>)]) -> v1::EvaluateCandidatesResponse {
        let score =
            |(uci, score): &(&str, _)| v1::CandidateScore { uci: (*uci).to_owned(), score: *score, rank: 9, depth: 4 };
        v1::EvaluateCandidatesResponse { scores: scores.iter().map(score).collect(), ..Default::default() }
    }

    #[test]
    fn scores_find_their_moves_in_any_order() {
        let expected = Scored { scores: vec![Some(Score::Centipawns(30)), None], depths: vec![4, 4] };
        assert_eq!(
            heard(&question(), &answer(&[("e2e4", Some(Centipawns(30))), ("d2d4", None)])),
            Ok(expected.clone())
        );
        assert_eq!(heard(&question(), &answer(&[("d2d4", None), ("e2e4", Some(Centipawns(30)))])), Ok(expected));
    }

    #[test]
    fn nonsense_is_not_believed() {
        let good = Some(Centipawns(1));
        let wrong = |scores: &[_]| heard(&question(), &answer(scores)).unwrap_err();
        assert_eq!(wrong(&[("e2e4", good)]), "1 scores for 2 candidates");
        assert_eq!(wrong(&[("e2e4", good), ("e2e5", good)]), "`e2e5` is no candidate");
        assert_eq!(wrong(&[("e2e4", good), ("e2e4", good)]), "e2e4 is scored twice");
        for absurd in [Centipawns(i32::MIN), Centipawns(100_001), Mate(0), Mate(i32::MIN), Mate(5000)] {
            assert!(wrong(&[("e2e4", good), ("d2d4", Some(absurd))]).starts_with("d2d4 is worth"));
        }
    }
}
