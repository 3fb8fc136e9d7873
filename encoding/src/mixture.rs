//! Answers of several networks to one situation, mixed by weight.

use crate::{Outlook, ThinkTime, decode::softmax};

/// Least probability whose logarithm is taken.
const LEAST: f32 = 1e-30;

/// Logits of the mixture of some distributions over the same moves, given as logits and weight. The weights sum to 1.
pub fn logits(parts: &[(&[f32], f32)]) -> Vec<f32> {
    let mut sums = vec![0.0; parts.first().map_or(0, |(logits, _)| logits.len())];
    for (logits, weight) in parts {
        let shares = softmax(logits.iter().copied());
        sums.iter_mut().zip(shares).for_each(|(sum, share)| *sum += weight * share);
    }
    sums.into_iter().map(|sum: f32| sum.max(LEAST).ln()).collect()
}

/// The mixture of expected results; win, draw and loss are told apart when all parts do.
pub fn outlook(parts: &[(Outlook, f32)]) -> Outlook {
    let expected_score = parts.iter().map(|(outlook, weight)| weight * outlook.expected_score).sum();
    let mut wdl = Some([0.0; 3]);
    for (outlook, weight) in parts {
        wdl = wdl.zip(outlook.wdl).map(|(sum, own)| {
            let mut sum: [f32; 3] = sum;
            sum.iter_mut().zip(own).for_each(|(sum, own)| *sum += weight * own);
            sum
        });
    }
    Outlook { expected_score, wdl }
}

/// The mixture of think times, when all parts predict one.
pub fn think_time(parts: &[(Option<&ThinkTime>, f32)]) -> Option<ThinkTime> {
    let mut sums = vec![0.0; crate::think_time::BINS.len()];
    for (time, weight) in parts {
        sums.iter_mut().zip((*time)?.probabilities()).for_each(|(sum, share)| *sum += weight * share);
    }
    Some(ThinkTime::of_probabilities(sums))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_mixed_and_not_logits() {
        let (sure, even) = ([100.0, 0.0], [3.0, 3.0]);
        let mixed = softmax(logits(&[(&sure, 0.5), (&even, 0.5)]).into_iter());
        assert!((mixed[0] - 0.75).abs() < 1e-6 && (mixed[1] - 0.25).abs() < 1e-6, "{mixed:?}");
        let alone = logits(&[(&sure, 1.0), (&even, 0.0)]);
        assert!(alone.iter().all(|logit| logit.is_finite()), "{alone:?}");
    }

    #[test]
    fn results_are_mixed() {
        let certain = Outlook { expected_score: 1.0, wdl: Some([1.0, 0.0, 0.0]) };
        let drawn = Outlook { expected_score: 0.5, wdl: Some([0.0, 1.0, 0.0]) };
        let mixed = outlook(&[(certain, 0.25), (drawn, 0.75)]);
        assert_eq!(mixed, Outlook { expected_score: 0.625, wdl: Some([0.25, 0.75, 0.0]) });
        assert_eq!(outlook(&[(certain, 0.5), (Outlook { wdl: None, ..drawn }, 0.5)]).wdl, None);
    }

    #[test]
    fn think_times_are_mixed_when_all_predict_one() {
        let at = |bin: usize| {
            let mut logits = [-100.0; 24];
            logits[bin] = 0.0;
            ThinkTime::of(&logits)
        };
        let (fast, slow) = (at(1), at(9));
        let mixed = think_time(&[(Some(&fast), 0.75), (Some(&slow), 0.25)]).unwrap();
        assert!((mixed.probabilities()[1] - 0.75).abs() < 1e-6 && (mixed.probabilities()[9] - 0.25).abs() < 1e-6);
        assert_eq!(think_time(&[(Some(&fast), 0.5), (None, 0.5)]), None);
    }
}
