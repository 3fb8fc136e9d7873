//! Think times as bins whose width grows with the time.

use crate::decode::softmax;

/// Lower ends of the bins in seconds; the last bin is open. Clocks of games count whole seconds, so that a bin holds
/// whole seconds: times from half a second below its lower end to half a second below its upper end.
pub const BINS: [f32; 24] = [
    0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 13.0, 17.0, 22.0, 29.0, 38.0, 50.0, 66.0, 87.0, 115.0, 152.0, 200.0,
    264.0, 348.0, 460.0, 608.0,
];

/// The bin of a think time in seconds.
pub fn bin(seconds: f32) -> usize {
    BINS.iter().skip(1).take_while(|&&end| seconds >= end).count()
}

/// A distribution of the time until the move.
#[derive(Clone, Debug, PartialEq)]
pub struct ThinkTime {
    probabilities: Vec<f32>,
}

impl ThinkTime {
    /// From the logits of the bins.
    pub fn of(logits: &[f32]) -> Self {
        ThinkTime { probabilities: softmax(logits.iter().copied()) }
    }

    /// From probabilities of the bins, which sum to 1.
    pub(crate) fn of_probabilities(probabilities: Vec<f32>) -> Self {
        ThinkTime { probabilities }
    }

    /// Probabilities of the bins; they sum to 1.
    pub fn probabilities(&self) -> &[f32] {
        &self.probabilities
    }

    /// The time in seconds below which a share of the distribution lies. Inside a bin the time is spread evenly from half
    /// a second below its lower end to half a second below its upper end; the open bin is taken to be as wide as the one
    /// before it.
    pub fn quantile(&self, share: f32) -> f32 {
        let [.., before, last] = BINS;
        let last = last + (last - before);
        let ends = BINS.iter().skip(1).copied().chain([last]);
        let mut below = 0.0;
        for ((&start, end), &probability) in BINS.iter().zip(ends).zip(&self.probabilities) {
            if below + probability >= share && probability > 0.0 {
                let (start, end) = ((start - 0.5).max(0.0), end - 0.5);
                return start + (end - start) * ((share - below) / probability).clamp(0.0, 1.0);
            }
            below += probability;
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_hold_their_lower_end() {
        assert_eq!([0.0, 0.9, 1.0, 6.5, 608.0, 9999.0].map(bin), [0, 0, 1, 6, 23, 23]);
        assert!(BINS.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn quantiles_follow_the_distribution() {
        let mut logits = [-100.0; BINS.len()];
        logits[2] = 0.0;
        logits[7] = 0.0;
        let time = ThinkTime::of(&logits);
        assert!((time.probabilities().iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert!((time.quantile(0.25) - 2.0).abs() < 1e-3);
        assert!((time.quantile(0.75) - 8.5).abs() < 1e-3);
        assert!(time.quantile(0.1) <= time.quantile(0.5) && time.quantile(0.5) <= time.quantile(0.9));
        logits[23] = 100.0;
        assert!((ThinkTime::of(&logits).quantile(1.0) - 755.5).abs() < 1e-3);
    }
}
