//! What training minimises: a weighted sum of policy, value, think time and auxiliary losses.

use serde::{Deserialize, Serialize};
use tch::{Kind, Reduction, Tensor};
use zeitnot_encoding::{targets::AUXILIARY, vocabulary};
use zeitnot_network::Outputs;

use crate::feed::{Batch, UNKNOWN};

/// Weights of the losses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossConfig {
    /// Cross-entropy of the move played, in nats.
    pub policy: f64,
    /// The game's result: squared error of a value, or cross-entropy of win, draw and loss in nats.
    pub value: f64,
    /// Cross-entropy of the think time's bin, in nats.
    pub think_time: f64,
    /// Mean binary cross-entropy of the 141 auxiliary targets, in nats.
    pub auxiliary: f64,
    /// Share of the policy's target that is the teacher's distribution, if there is a teacher; the rest is the move
    /// played.
    pub teacher: f64,
    /// Whether the policy's softmax is over the legal moves, as it is when served, or over all 4,208.
    pub legal_only: bool,
}

impl Default for LossConfig {
    fn default() -> Self {
        LossConfig { policy: 1.0, value: 0.25, think_time: 0.1, auxiliary: 0.5, teacher: 0.5, legal_only: true }
    }
}

/// The losses of one batch.
pub struct Losses {
    /// The weighted sum.
    pub total: Tensor,
    /// Cross-entropy of the moves played, in nats.
    pub policy: Tensor,
    /// Squared error, or cross-entropy, of the results.
    pub value: Tensor,
    /// Cross-entropy of the think times, in nats.
    pub think_time: Tensor,
    /// Mean binary cross-entropy of the auxiliary targets, in nats.
    pub auxiliary: Tensor,
    /// Share of moves that have the highest logit.
    pub accuracy: Tensor,
}

/// Computes the losses.
pub fn of(outputs: &Outputs<Tensor>, batch: &Batch, config: &LossConfig) -> Losses {
    let device = outputs.policy.device();
    let rows = batch.policy.len() as i64;
    let played = Tensor::from_slice(&batch.policy).to_device(device);
    let mut logits = outputs.policy.to_kind(Kind::Float);
    if config.legal_only {
        let illegal = Tensor::from_slice(&batch.legal).view([rows, vocabulary::SIZE as i64]).logical_not();
        logits = logits.masked_fill(&illegal.to_device(device), -1e9);
    }
    let scores = logits.log_softmax(-1, Kind::Float);
    let policy = scores.nll_loss(&played);
    let taught = if batch.teacher.is_empty() {
        policy.shallow_clone()
    } else {
        let teacher = Tensor::from_slice(&batch.teacher).view([rows, vocabulary::SIZE as i64]).to_device(device);
        let divergence = -(scores * teacher).sum(Kind::Float) / rows as f64;
        &policy * (1.0 - config.teacher) + divergence * config.teacher
    };
    let value = value(outputs, batch);
    let think_time = think_time(outputs, batch);
    let auxiliary = auxiliary(outputs, batch);
    let hits = logits.argmax(-1, false).eq_tensor(&played);
    Losses {
        total: &taught * config.policy
            + &value * config.value
            + &think_time * config.think_time
            + &auxiliary * config.auxiliary,
        policy: policy.detach(),
        value: value.detach(),
        think_time: think_time.detach(),
        auxiliary: auxiliary.detach(),
        accuracy: hits.to_kind(Kind::Float).mean(Kind::Float),
    }
}

fn value(outputs: &Outputs<Tensor>, batch: &Batch) -> Tensor {
    let device = outputs.policy.device();
    if let Some(wdl) = &outputs.wdl {
        let place = |&value: &f32| 1 - value as i64; // Win, draw, loss are 1, 0, -1.
        let result = Tensor::from_slice(&batch.value.iter().map(place).collect::<Vec<_>>()).to_device(device);
        return wdl.to_kind(Kind::Float).cross_entropy_for_logits(&result);
    }
    let result = Tensor::from_slice(&batch.value).to_device(device);
    match &outputs.value {
        Some(value) => value.to_kind(Kind::Float).mse_loss(&result, Reduction::Mean),
        None => Tensor::from(0f32).to_device(device),
    }
}

/// The mean over the decisions whose think time is known; 0 when there is none.
fn think_time(outputs: &Outputs<Tensor>, batch: &Batch) -> Tensor {
    let device = outputs.policy.device();
    let known = batch.think_time.iter().filter(|&&bin| bin != UNKNOWN).count();
    match &outputs.think_time {
        Some(logits) if known > 0 => {
            let bins = Tensor::from_slice(&batch.think_time).to_device(device);
            let logits = logits.to_kind(Kind::Float);
            logits.cross_entropy_loss(&bins, None::<&Tensor>, Reduction::Mean, UNKNOWN, 0.0)
        }
        _ => Tensor::from(0f32).to_device(device),
    }
}

fn auxiliary(outputs: &Outputs<Tensor>, batch: &Batch) -> Tensor {
    let device = outputs.policy.device();
    let Some(logits) = &outputs.auxiliary else { return Tensor::from(0f32).to_device(device) };
    let targets = Tensor::from_slice(&batch.auxiliary).view([-1, AUXILIARY as i64]).to_device(device);
    let logits = logits.to_kind(Kind::Float);
    logits.binary_cross_entropy_with_logits(&targets, None::<&Tensor>, None::<&Tensor>, Reduction::Mean)
}

#[cfg(test)]
mod tests {
    use tch::Device;
    use zeitnot_encoding::{Batch as Inputs, Zeitnot, think_time::BINS};

    use super::*;

    /// Two decisions whose legal moves are the first two of the vocabulary, with all logits 0 but those given.
    fn losses(logits: [f32; 2], teacher: Option<[f32; 2]>, think_time: [i64; 2], config: &LossConfig) -> Losses {
        let row = |first: f32, second: f32| {
            let mut row = vec![0.0; vocabulary::SIZE];
            row[..2].copy_from_slice(&[first, second]);
            row
        };
        let legal = row(1.0, 1.0).iter().map(|&cell| cell == 1.0).collect::<Vec<_>>();
        let batch = Batch {
            inputs: Inputs::new(&Zeitnot, 0),
            policy: vec![0, 0],
            legal: legal.repeat(2),
            value: vec![1.0, -1.0],
            think_time: think_time.to_vec(),
            auxiliary: vec![0.0; 2 * AUXILIARY],
            teacher: teacher.map(|[first, second]| row(first, second).repeat(2)).unwrap_or_default(),
        };
        let mut policy = row(logits[0], logits[1]).repeat(2);
        policy[2] = 50.0; // Illegal, and left out.
        let zeros = |size: usize| Tensor::zeros([2, size as i64], (Kind::Float, Device::Cpu));
        let outputs = Outputs {
            policy: Tensor::from_slice(&policy).view([2, -1]),
            value: None,
            wdl: Some(zeros(3)),
            think_time: Some(zeros(BINS.len())),
            auxiliary: Some(zeros(AUXILIARY)),
            pooled: None,
            ponder: None,
        };
        of(&outputs, &batch, config)
    }

    fn close(tensor: &Tensor, expected: f64) {
        assert!((tensor.double_value(&[]) - expected).abs() < 1e-5, "{tensor:?} {expected}");
    }

    const UNTIMED: [i64; 2] = [UNKNOWN; 2];

    #[test]
    fn the_policy_is_judged_among_the_legal_moves_and_unknown_think_times_are_left_out() {
        let config = LossConfig { policy: 1.0, value: 0.0, think_time: 0.0, auxiliary: 0.0, ..LossConfig::default() };
        let ours = losses([3f32.ln(), 0.0], None, [4, UNKNOWN], &config);
        close(&ours.policy, -(0.75f64).ln());
        close(&ours.total, -(0.75f64).ln());
        close(&ours.value, 3f64.ln());
        close(&ours.think_time, (BINS.len() as f64).ln());
        close(&ours.accuracy, 1.0);
        close(&losses([0.0, 0.0], None, UNTIMED, &config).think_time, 0.0);
    }

    #[test]
    fn a_teacher_has_its_share_of_the_target() {
        let config = LossConfig { value: 0.0, think_time: 0.0, auxiliary: 0.0, teacher: 0.25, ..LossConfig::default() };
        let ours = losses([3f32.ln(), 0.0], Some([0.5, 0.5]), UNTIMED, &config);
        let taught = -0.5 * (0.75f64.ln() + 0.25f64.ln());
        close(&ours.policy, -(0.75f64).ln());
        close(&ours.total, 0.75 * -(0.75f64).ln() + 0.25 * taught);
    }
}
