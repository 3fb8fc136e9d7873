//! What a step of the re-ranker minimises: the negative log-likelihood of the moves played, over all legal moves.

use anyhow::Result;
use tch::{Device, Kind, Tensor};
use zeitnot_encoding::{
    batch::Element,
    evidence::Score,
    rerank::{CANDIDATES, INPUTS, RerankBatch, STYLE},
};
use zeitnot_network::{RerankerConfig, reranker};

use super::known::Known;
use crate::train::eager::{Parameters, shape};

/// Logit of what is no move.
const NO_MOVE: f32 = -1e9;

/// Decisions as tensors.
pub struct Rows {
    inputs: RerankBatch,
    /// f32 `[B, L]`: the prior's logits of the legal moves, -1e9 beyond them.
    logits: Tensor,
    /// i64 `[B, 16]`: the candidates' places among the legal moves; absent ones point to the column after the last.
    places: Tensor,
    /// i64 `[B]`: place of the move played.
    played: Tensor,
}

impl Rows {
    /// Of decisions with the scores to show of each; empty scores hide the engine.
    pub fn of(decisions: &[(&Known, &[Option<Score>])]) -> Self {
        let widest = decisions.iter().map(|(known, _)| known.logits.len()).max().unwrap_or_default();
        let mut inputs = RerankBatch::default();
        let (mut logits, mut places, mut played) = (Vec::new(), Vec::new(), Vec::new());
        for (row, (known, scores)) in decisions.iter().enumerate() {
            inputs.push(&known.row(None, scores));
            logits.extend(&known.logits);
            logits.resize((row + 1) * widest, NO_MOVE);
            places.extend(known.candidates.places.iter().map(|&place| place as i64));
            places.resize((row + 1) * CANDIDATES, widest as i64);
            played.push(known.played as i64);
        }
        let rows = decisions.len() as i64;
        Rows {
            inputs,
            logits: Tensor::from_slice(&logits).view([rows, widest as i64]),
            places: Tensor::from_slice(&places).view([rows, CANDIDATES as i64]),
            played: Tensor::from_slice(&played),
        }
    }

    /// The residuals, f32 `[B, 16]`. `style` is f32 `[B, 32]`.
    ///
    /// # Errors
    ///
    /// When the network lacks a tensor.
    pub fn residuals(
        &self,
        config: &RerankerConfig,
        parameters: &Parameters,
        style: Option<&Tensor>,
        training: bool,
    ) -> Result<Tensor> {
        let rows = self.inputs.rows();
        let inputs = INPUTS.iter().map(|input| {
            let values = match (input.element, input.name) {
                (Element::Integer, _) => Tensor::from_slice(self.inputs.candidates()),
                (_, "style") => {
                    let none = || Tensor::zeros([rows as i64, STYLE as i64], (Kind::Float, Device::Cpu));
                    style.map_or_else(none, Tensor::shallow_clone)
                }
                _ => Tensor::from_slice(self.inputs.floats(input.name)),
            };
            (input.name, values.reshape(shape(rows, input).as_slice()))
        });
        parameters.run(inputs, training, |graph| reranker::forward(graph, config))
    }

    /// Negative log-likelihood of each move played, in nats: `[B]`.
    pub fn nll(&self, residuals: &Tensor) -> Tensor {
        let rows = self.logits.size2().map_or(0, |(rows, _)| rows);
        let spare = Tensor::full([rows, 1], f64::from(NO_MOVE), (Kind::Float, Device::Cpu));
        let logits = Tensor::cat(&[&self.logits, &spare], 1).scatter_add(1, &self.places, residuals);
        let logs = logits.log_softmax(-1, None::<Kind>);
        -logs.gather(1, &self.played.unsqueeze(1), false).squeeze_dim(1)
    }
}
