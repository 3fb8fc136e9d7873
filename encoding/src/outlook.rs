//! How a game is expected to end.

use crate::decode::softmax;

/// The expected result for the mover.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlook {
    /// 1 for a win, 0.5 for a draw, 0 for a loss.
    pub expected_score: f32,
    /// Probabilities of a win, a draw and a loss, which sum to 1, if the model tells them apart.
    pub wdl: Option<[f32; 3]>,
}

impl Outlook {
    /// From a value in [-1, 1].
    pub fn of_value(value: f32) -> Self {
        Outlook { expected_score: (0.5 + 0.5 * value).clamp(0.0, 1.0), wdl: None }
    }

    /// From the logits of win, draw and loss.
    pub fn of_logits(logits: [f32; 3]) -> Self {
        let shares = softmax(logits.into_iter());
        let mut wdl = [0.0; 3];
        wdl.copy_from_slice(&shares);
        let [win, draw, _] = wdl;
        Outlook { expected_score: win + 0.5 * draw, wdl: Some(wdl) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn win_draw_and_loss_sum_to_one_and_give_the_score() {
        let outlook = Outlook::of_logits([1.0, 0.0, -1.0]);
        let wdl = outlook.wdl.unwrap();
        assert!((wdl.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert!(wdl[0] > wdl[1] && wdl[1] > wdl[2]);
        assert!((outlook.expected_score - (wdl[0] + 0.5 * wdl[1])).abs() < 1e-6);
        assert_eq!(Outlook::of_value(-1.0), Outlook { expected_score: 0.0, wdl: None });
    }
}
