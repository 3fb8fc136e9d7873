//! What an engine says of moves, and what follows from it for a human.

/// Centipawns that a mate counts as, before its length is taken off.
pub const MATE: i32 = 32_000;
/// Largest loss of one move in centipawns, so that a missed mate does not decide a mean.
pub const MOST_LOSS: i32 = 1000;
/// Loss of expected score from which a move is a blunder: 0.3 on a scale from -1 to 1, as lichess judges.
pub const BLUNDER: f32 = 0.15;

/// An engine's score of a move, from the mover's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Score {
    /// Centipawns.
    Centipawns(i32),
    /// Moves until mate: positive when the mover mates, negative when the mover is mated.
    Mate(i32),
}

impl Score {
    /// One scale for both kinds: centipawns, where a mate is worth 32,000 less its length.
    pub fn worth(self) -> i32 {
        match self {
            Score::Centipawns(cp) => cp.clamp(1000 - MATE, MATE - 1000),
            Score::Mate(moves) if moves > 0 => MATE - moves.min(999),
            Score::Mate(moves) => -MATE - moves.max(-999),
        }
    }

    /// The score of a worth.
    pub fn of_worth(worth: i32) -> Self {
        match worth {
            _ if worth > MATE - 1000 => Score::Mate(MATE - worth),
            _ if worth < 1000 - MATE => Score::Mate(-MATE - worth),
            cp => Score::Centipawns(cp),
        }
    }

    /// Expected score from 0 to 1, by the curve that lichess fitted to its games.
    pub fn expected(self) -> f32 {
        let cp = self.worth().clamp(-MOST_LOSS, MOST_LOSS) as f32;
        1.0 / (1.0 + (-0.003_682_08 * cp).exp())
    }
}

/// Centipawns by which each scored move is worse than the best scored one, at most [`MOST_LOSS`].
pub fn losses(scores: &[Option<Score>]) -> Vec<Option<u32>> {
    let capped = |score: &Score| score.worth().clamp(-MOST_LOSS, MOST_LOSS);
    let best = scores.iter().flatten().map(capped).max().unwrap_or_default();
    let loss = |score: &Score| (best - capped(score)).clamp(0, MOST_LOSS).unsigned_abs();
    scores.iter().map(|score| score.as_ref().map(loss)).collect()
}

/// Places by score, from 1; equals in the order given.
pub fn ranks(scores: &[Option<Score>]) -> Vec<Option<u32>> {
    let worths = scores.iter().map(|score| score.map(Score::worth)).collect::<Vec<_>>();
    let rank = |(place, worth): (usize, &Option<i32>)| {
        let own = (*worth)?;
        let better =
            |(other, worth): &(usize, &Option<i32>)| worth.is_some_and(|w| w > own || (w == own && *other < place));
        Some(1 + worths.iter().enumerate().filter(better).count() as u32)
    };
    worths.iter().enumerate().map(rank).collect()
}

/// What a coach reads from scores and probabilities of the same moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Insight {
    /// Sum over the scored moves of probability times loss, in centipawns.
    pub expected_loss: f32,
    /// Sum of the probabilities of the scored moves that cost at least [`BLUNDER`] of the expected score.
    pub blunder_probability: f32,
    /// Place of the most probable blunder.
    pub likely_mistake: Option<usize>,
    /// Place of the best move.
    pub best: usize,
    /// Probability of all scored moves together.
    pub scored_probability: f32,
}

impl Insight {
    /// From the scores of moves and their probabilities. `None` unless two moves are scored, and these are likelier to be
    /// played than the others: less evidence would make any move look safe.
    pub fn of(scores: &[Option<Score>], probabilities: &[f32]) -> Option<Self> {
        let best = ranks(scores).iter().position(|rank| *rank == Some(1))?;
        let costs = score_losses(scores);
        let losses = losses(scores);
        let (mut covered, mut loss, mut blunders) = (0.0, 0.0, 0.0);
        let mut likely: Option<(usize, f32)> = None;
        for (place, ((cost, own), &probability)) in costs.iter().zip(&losses).zip(probabilities).enumerate() {
            let (Some(cost), Some(own)) = (cost, own) else { continue };
            covered += probability;
            loss += probability * *own as f32;
            if *cost >= BLUNDER {
                blunders += probability;
                if likely.is_none_or(|(_, most)| probability > most) {
                    likely = Some((place, probability));
                }
            }
        }
        if scores.iter().flatten().count() < 2 || covered < 0.5 {
            return None;
        }
        Some(Insight {
            expected_loss: loss,
            blunder_probability: blunders,
            likely_mistake: likely.map(|(place, _)| place),
            best,
            scored_probability: covered,
        })
    }
}

/// Expected score that each scored move costs against the best scored one.
pub fn score_losses(scores: &[Option<Score>]) -> Vec<Option<f32>> {
    let best = scores.iter().flatten().map(|score| score.expected()).fold(0.0, f32::max);
    scores.iter().map(|score| score.map(|score| (best - score.expected()).max(0.0))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Score::{Centipawns, Mate};

    #[test]
    fn mates_outweigh_centipawns_and_shorter_ones_longer() {
        let ascending = [
            Mate(-1),
            Mate(-7),
            Centipawns(-40_000),
            Centipawns(-5),
            Centipawns(0),
            Centipawns(40_000),
            Mate(7),
            Mate(1),
        ];
        assert!(ascending.is_sorted_by(|a, b| a.worth() < b.worth()), "{ascending:?}");
        for score in [Mate(-1), Mate(3), Centipawns(-123), Centipawns(0)] {
            assert_eq!(Score::of_worth(score.worth()), score);
        }
        assert!((Centipawns(0).expected() - 0.5).abs() < 1e-6);
        assert!(Mate(2).expected() > 0.97 && Mate(-2).expected() < 0.03);
    }

    #[test]
    fn losses_and_ranks_are_against_the_best_scored_move() {
        let scores = [Some(Centipawns(10)), None, Some(Centipawns(60)), Some(Mate(-3)), Some(Centipawns(60))];
        assert_eq!(losses(&scores), [Some(50), None, Some(0), Some(1000), Some(0)]);
        assert_eq!(ranks(&scores), [Some(3), None, Some(1), Some(4), Some(2)]);
    }

    #[test]
    fn insight_weighs_losses_by_probability() {
        let scores = [Some(Centipawns(-300)), Some(Centipawns(100)), None, Some(Centipawns(50))];
        let insight = Insight::of(&scores, &[0.5, 0.25, 0.15, 0.1]).unwrap();
        assert_eq!((insight.best, insight.likely_mistake), (1, Some(0)));
        assert!((insight.scored_probability - 0.85).abs() < 1e-6);
        assert!((insight.blunder_probability - 0.5).abs() < 1e-6);
        assert!((insight.expected_loss - (0.5 * 400.0 + 0.1 * 50.0)).abs() < 1e-3);
        assert_eq!(Insight::of(&[None, None], &[0.5, 0.5]), None);
        assert_eq!(Insight::of(&[Some(Centipawns(5)), None], &[0.9, 0.1]), None, "one move alone is no evidence");
        assert_eq!(Insight::of(&[Some(Centipawns(5)), Some(Centipawns(9)), None], &[0.1, 0.2, 0.7]), None);
        let harmless = Insight::of(&[Some(Centipawns(5)), Some(Centipawns(0))], &[0.4, 0.6]).unwrap();
        assert_eq!((harmless.blunder_probability, harmless.likely_mistake), (0.0, None));
    }
}
