//! What training minimises: 1.0 policy + 0.25 value + 0.5 auxiliary.

use serde::{Deserialize, Serialize};
use tch::{Kind, Reduction, Tensor};
use zeitnot_encoding::{otter::AUXILIARY, vocabulary};
use zeitnot_network::Outputs;

use crate::feed::Batch;

/// Weights of the losses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossConfig {
    /// Cross-entropy of the move played, in nats.
    pub policy: f64,
    /// Squared error of the game's result.
    pub value: f64,
    /// Mean binary cross-entropy of the 141 auxiliary targets, in nats.
    pub auxiliary: f64,
    /// Whether the policy's softmax is over the legal moves, as it is when served, or over all 4,208.
    pub legal_only: bool,
}

impl Default for LossConfig {
    fn default() -> Self {
        LossConfig { policy: 1.0, value: 0.25, auxiliary: 0.5, legal_only: true }
    }
}

/// The losses of one batch.
pub struct Losses {
    /// The weighted sum.
    pub total: Tensor,
    /// Cross-entropy of the moves played, in nats.
    pub policy: Tensor,
    /// Squared error of the results.
    pub value: Tensor,
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
    let policy = logits.cross_entropy_for_logits(&played);
    let result = Tensor::from_slice(&batch.value).to_device(device);
    let value = outputs.value.to_kind(Kind::Float).mse_loss(&result, Reduction::Mean);
    let targets = Tensor::from_slice(&batch.auxiliary).view([rows, AUXILIARY as i64]).to_device(device);
    let auxiliary = outputs.auxiliary.to_kind(Kind::Float).binary_cross_entropy_with_logits(
        &targets,
        None::<&Tensor>,
        None::<&Tensor>,
        Reduction::Mean,
    );
    let hits = logits.argmax(-1, false).eq_tensor(&played);
    Losses {
        total: &policy * config.policy + &value * config.value + &auxiliary * config.auxiliary,
        policy: policy.detach(),
        value: value.detach(),
        auxiliary: auxiliary.detach(),
        accuracy: hits.to_kind(Kind::Float).mean(Kind::Float),
    }
}
