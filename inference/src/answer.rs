//! What a model answers.

use zeitnot_encoding::{Outlook, ThinkTime, targets::AUXILIARY, think_time, vocabulary};

/// Outputs of a batch of B rows, in row-major order; those the model does not have are empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// f32 `[B, 4208]` logits.
    pub policy: Vec<f32>,
    /// f32 `[B]`: expected result for the mover, in [-1, 1].
    pub value: Vec<f32>,
    /// f32 `[B, 3]` logits: the mover wins, draws, loses.
    pub wdl: Vec<f32>,
    /// f32 `[B, 24]` logits of the think time's bins.
    pub think_time: Vec<f32>,
    /// f32 `[B, 141]` logits.
    pub auxiliary: Vec<f32>,
    /// f32 `[B, P]`: the pooled hidden state, for re-rankers; P is the model's own.
    pub pooled: Vec<f32>,
}

/// What a model answers to one situation.
#[derive(Clone, Debug, PartialEq)]
pub struct RowAnswer {
    /// 4,208 logits.
    pub policy: Vec<f32>,
    /// How the game is expected to end.
    pub outlook: Outlook,
    /// How long the mover is expected to think, if the model knows.
    pub think_time: Option<ThinkTime>,
    /// The pooled hidden state; empty when the model does not give it.
    pub pooled: Vec<f32>,
}

impl Answer {
    /// The answer to a row. `None` when there is no such row, or when one of its numbers is not finite.
    pub fn row(&self, row: usize) -> Option<RowAnswer> {
        let mut parts = self.outputs().into_iter().filter_map(|(_, size, values)| part(values, row, size));
        if !parts.all(|values| values.iter().all(|value| value.is_finite())) {
            return None;
        }
        let outlook = match (part(&self.wdl, row, 3), part(&self.value, row, 1)) {
            (Some(logits), _) => Outlook::of_logits(logits.try_into().ok()?),
            (None, Some(value)) => Outlook::of_value(*value.first()?),
            (None, None) => return None,
        };
        let think_time = part(&self.think_time, row, think_time::BINS.len());
        let policy = part(&self.policy, row, vocabulary::SIZE)?;
        let pooled = part(&self.pooled, row, self.pooled_size()).unwrap_or_default().to_vec();
        Some(RowAnswer { policy: policy.to_vec(), outlook, think_time: think_time.map(ThinkTime::of), pooled })
    }

    /// All outputs with the number of values in a row, for comparisons.
    pub fn outputs(&self) -> [(&'static str, usize, &[f32]); 6] {
        [
            ("policy", vocabulary::SIZE, &self.policy),
            ("value", 1, &self.value),
            ("wdl", 3, &self.wdl),
            ("think_time", think_time::BINS.len(), &self.think_time),
            ("aux", AUXILIARY, &self.auxiliary),
            ("pooled", self.pooled_size(), &self.pooled),
        ]
    }

    fn pooled_size(&self) -> usize {
        self.pooled.len() / (self.policy.len() / vocabulary::SIZE).max(1)
    }
}

fn part(values: &[f32], row: usize, size: usize) -> Option<&[f32]> {
    values.get(row * size..(row + 1) * size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Answer {
        Answer { policy: vec![0.5; 2 * vocabulary::SIZE], wdl: vec![0.0; 6], ..Answer::default() }
    }

    #[test]
    fn win_draw_and_loss_come_before_a_value() {
        let both = Answer { value: vec![1.0; 2], ..answer() };
        assert!((both.row(0).unwrap().outlook.expected_score - 0.5).abs() < 1e-6);
        let value = Answer { wdl: Vec::new(), ..both };
        assert_eq!(value.row(1).unwrap().outlook, Outlook::of_value(1.0));
        assert!(value.row(1).unwrap().think_time.is_none());
        assert_eq!(Answer { value: Vec::new(), ..value }.row(0), None, "nothing says how the game ends");
    }

    #[test]
    fn a_row_that_is_not_there_or_not_finite_has_no_answer() {
        assert!(answer().row(1).is_some() && answer().row(2).is_none());
        let spoil = |change: fn(&mut Answer)| {
            let mut answer = Answer { value: vec![0.0; 2], think_time: vec![0.0; 48], ..answer() };
            change(&mut answer);
            [answer.row(0).is_some(), answer.row(1).is_some()]
        };
        assert_eq!(spoil(|_| ()), [true, true]);
        assert_eq!(spoil(|answer| answer.policy[7] = f32::NAN), [false, true]);
        assert_eq!(spoil(|answer| answer.value[1] = f32::INFINITY), [true, false]);
        assert_eq!(spoil(|answer| answer.wdl[3] = f32::NEG_INFINITY), [true, false]);
        assert_eq!(spoil(|answer| answer.think_time[0] = f32::NAN), [false, true]);
    }
}
