//! Evidence and insight of an answer.

use shakmaty::{CastlingMode, san::SanPlus, uci::UciMove};
use zeitnot_encoding::{
    decode::softmax,
    evidence::{self, BLUNDER, Insight, Score},
};
use zeitnot_proto::v1;

use super::Query;
use crate::rerank::stage::Evidence;

/// What an engine says, at the places of the legal moves, of which there are so many.
pub(super) fn by_place(evidence: Option<&Evidence>, legal: usize) -> Vec<Option<v1::Evidence>> {
    let mut told = vec![None; legal];
    let Some(Evidence { candidates, scored }) = evidence else { return told };
    let (ranks, losses) = (evidence::ranks(&scored.scores), evidence::losses(&scored.scores));
    let said = scored.scores.iter().zip(&scored.depths).zip(ranks.into_iter().zip(losses));
    for (&place, ((score, &depth), (rank, loss))) in candidates.places.iter().zip(said) {
        let (Some(own), Some(score), Some(rank), Some(loss)) = (told.get_mut(place), score, rank, loss) else {
            continue;
        };
        *own = Some(v1::Evidence { score: Some(wire_score(*score)), rank, depth, loss });
    }
    told
}

/// What a coach reads from the evidence and the probabilities that these logits stand for.
pub(super) fn insight(query: &Query, evidence: &Evidence, logits: &[f32]) -> Option<v1::Insight> {
    let scores = evidence.placed(query.legal.len());
    let probabilities = softmax(logits.iter().copied());
    let insight = Insight::of(&scores, &probabilities)?;
    let (losses, costs) = (evidence::losses(&scores), evidence::score_losses(&scores));
    let probability = |place: usize| probabilities.get(place).copied();
    let mistake = |place: usize| {
        let (uci, san) = names(query, place)?;
        let (loss, score_loss) = ((*losses.get(place)?)?, (*costs.get(place)?)?);
        Some(v1::Mistake { uci, san, probability: probability(place)?, loss, score_loss })
    };
    let best = |place: usize| {
        let (uci, san) = names(query, place)?;
        Some(v1::BestMove { uci, san, probability: probability(place)? })
    };
    Some(v1::Insight {
        expected_loss: insight.expected_loss,
        blunder_probability: insight.blunder_probability,
        blunder_threshold: BLUNDER,
        likely_mistake: insight.likely_mistake.and_then(mistake),
        best_move: best(insight.best),
        scored_probability: insight.scored_probability,
    })
}

fn wire_score(score: Score) -> v1::evidence::Score {
    match score {
        Score::Centipawns(cp) => v1::evidence::Score::Centipawns(cp),
        Score::Mate(moves) => v1::evidence::Score::Mate(moves),
    }
}

/// A legal move's names in UCI and SAN.
fn names(query: &Query, place: usize) -> Option<(String, String)> {
    let mv = *query.legal.moves().get(place)?;
    let san = SanPlus::from_move(query.game.position().clone(), mv);
    Some((UciMove::from_move(mv, CastlingMode::Standard).to_string(), san.to_string()))
}
