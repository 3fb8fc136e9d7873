//! AdamW whose state can be saved, with warm-up, cosine decay and gradient clipping.
//!
//! tch's own optimizers keep their state inside libtorch, where a checkpoint cannot reach it.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use serde::{Deserialize, Serialize};
use tch::{Device, Tensor, no_grad};

use super::eager::Network;

const BETA_1: f64 = 0.9;
const BETA_2: f64 = 0.999;
const EPSILON: f64 = 1e-8;

/// How weights are changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimizerConfig {
    /// Highest learning rate.
    pub learning_rate: f64,
    /// Where the cosine ends, as a share of the highest rate.
    pub floor: f64,
    /// Share of the steps over which the rate rises.
    pub warm_up: f64,
    /// Decay of matrices and kernels; scales, shifts and tables of one axis are left alone.
    pub weight_decay: f64,
    /// Largest norm of all gradients together.
    pub clip: f64,
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        OptimizerConfig { learning_rate: 1e-3, floor: 0.02, warm_up: 0.1, weight_decay: 0.01, clip: 1.0 }
    }
}

impl OptimizerConfig {
    /// The learning rate of a step: linear warm-up, then a cosine to the floor.
    pub fn rate(&self, step: u64, steps: u64) -> f64 {
        let warm_up = (self.warm_up * steps as f64).max(1.0);
        let done = step as f64 + 1.0;
        if done <= warm_up {
            return self.learning_rate * done / warm_up;
        }
        let progress = ((done - warm_up) / (steps as f64 - warm_up).max(1.0)).min(1.0);
        let cosine = 0.5 * (1.0 + (std::f64::consts::PI * progress).cos());
        self.learning_rate * (self.floor + (1.0 - self.floor) * cosine)
    }
}

/// First and second moments of every learnt tensor.
pub struct AdamW {
    moments: BTreeMap<String, (Tensor, Tensor)>,
}

impl AdamW {
    /// Moments of zero.
    pub fn new(network: &Network) -> Self {
        let moments = network.learnt().map(|(name, tensor)| {
            let zeros = || tensor.detach().zeros_like();
            (name.clone(), (zeros(), zeros()))
        });
        AdamW { moments: moments.collect() }
    }

    /// The moments as named tensors, for a checkpoint.
    pub fn state(&self) -> Vec<(String, Tensor)> {
        let named = |name: &str, part: &str, tensor: &Tensor| (format!("{name}.{part}"), tensor.shallow_clone());
        self.moments.iter().flat_map(|(name, (m, v))| [named(name, "first", m), named(name, "second", v)]).collect()
    }

    /// Takes moments back from a checkpoint.
    ///
    /// # Errors
    ///
    /// When one is missing.
    pub fn restore(&mut self, state: Vec<(String, Tensor)>, device: Device) -> Result<()> {
        let mut state = state.into_iter().collect::<BTreeMap<_, _>>();
        for (name, (first, second)) in &mut self.moments {
            let mut take = |part: &str| {
                let key = format!("{name}.{part}");
                state.remove(&key).ok_or_else(|| anyhow!("the optimizer's state lacks {key}"))
            };
            *first = take("first")?.to_device(device);
            *second = take("second")?.to_device(device);
        }
        Ok(())
    }

    /// Clips the gradients and changes the weights. `step` counts from 0. Gives the norm of the gradients before
    /// clipping; when that is not finite nothing changes.
    pub fn step(&mut self, network: &Network, config: &OptimizerConfig, rate: f64, step: u64, scale: f64) -> f64 {
        no_grad(|| {
            let gradients =
                network.learnt().map(|(_, tensor)| tensor.grad()).filter(Tensor::defined).collect::<Vec<_>>();
            let norms = gradients.iter().map(Tensor::norm).collect::<Vec<_>>();
            let norm = Tensor::stack(&norms, 0).norm().double_value(&[]) / scale;
            if norm.is_finite() {
                let factor = (config.clip / (norm + 1e-6)).min(1.0) / scale;
                self.update(network, config, rate, step as f64 + 1.0, factor);
            }
            for mut gradient in gradients {
                let _ = gradient.zero_();
            }
            norm
        })
    }

    fn update(&mut self, network: &Network, config: &OptimizerConfig, rate: f64, count: f64, factor: f64) {
        let correction_1 = 1.0 - BETA_1.powf(count);
        let correction_2 = 1.0 - BETA_2.powf(count);
        for (name, tensor) in network.learnt() {
            let gradient = tensor.grad();
            let Some((first, second)) = self.moments.get_mut(name).filter(|_| gradient.defined()) else { continue };
            let gradient = gradient * factor;
            let _ = first.lerp_(&gradient, 1.0 - BETA_1);
            let _ = second.g_mul_scalar_(BETA_2);
            let scaled = gradient * (1.0 - BETA_2).sqrt();
            let _ = second.addcmul_(&scaled, &scaled);
            let mut weight = tensor.shallow_clone();
            if tensor.dim() >= 2 {
                let _ = weight.g_mul_scalar_(1.0 - rate * config.weight_decay);
            }
            let denominator = (&*second / correction_2).sqrt() + EPSILON;
            let change = &*first / denominator * (-rate / correction_1);
            let _ = weight.g_add_(&change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_rises_then_falls_to_the_floor() {
        let config = OptimizerConfig { learning_rate: 1.0, floor: 0.1, warm_up: 0.1, ..OptimizerConfig::default() };
        assert!((config.rate(0, 100) - 0.1).abs() < 1e-12);
        assert!((config.rate(9, 100) - 1.0).abs() < 1e-12);
        assert!((config.rate(54, 100) - 0.55).abs() < 1e-12);
        assert!((config.rate(99, 100) - 0.1).abs() < 1e-12);
        assert!((config.rate(500, 100) - 0.1).abs() < 1e-12);
    }
}
