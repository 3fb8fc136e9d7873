//! AdamW and Muon, whose state can be saved, with warm-up, cosine decay and gradient clipping.
//!
//! tch's own optimizers keep their state inside libtorch, where a checkpoint cannot reach it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, anyhow};
use serde::{Deserialize, Serialize};
use tch::{Device, Tensor, no_grad};
use zeitnot_network::specs::{Init, Spec};

use super::eager::Parameters;

const BETA_1: f64 = 0.9;
const BETA_2: f64 = 0.999;
const EPSILON: f64 = 1e-8;

/// Momentum of Muon.
const MOMENTUM: f64 = 0.95;
/// Root mean square of a Muon step at learning rate 1, near that of AdamW, so that both share one learning rate.
const MUON_SCALE: f64 = 0.2;
/// Matrices with a side shorter than this are left to AdamW.
const MUON_LEAST: i64 = 16;

/// The rule by which weights change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// AdamW for all tensors.
    Adamw,
    /// Muon for kernels and matrices, AdamW for tables, narrow matrices, scales and shifts.
    Muon,
}

/// How weights are changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimizerConfig {
    /// The rule.
    pub algorithm: Algorithm,
    /// Highest learning rate.
    pub learning_rate: f64,
    /// Where the rate ends, as a share of the highest.
    pub floor: f64,
    /// Share of the steps over which the rate falls; between rise and fall it stays. A run that has not begun to fall
    /// can be prolonged by another recipe with `--init`.
    pub decay: f64,
    /// Share of the steps over which the rate rises.
    pub warm_up: f64,
    /// Decay of matrices and kernels; scales, shifts and tables of one axis are left alone.
    pub weight_decay: f64,
    /// Largest norm of all gradients together.
    pub clip: f64,
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        OptimizerConfig {
            algorithm: Algorithm::Adamw,
            learning_rate: 1e-3,
            floor: 0.02,
            decay: 0.9,
            warm_up: 0.1,
            weight_decay: 0.01,
            clip: 1.0,
        }
    }
}

impl OptimizerConfig {
    /// The learning rate of a step: linear warm-up, constant, then half a cosine to the floor.
    pub fn rate(&self, step: u64, steps: u64) -> f64 {
        let (done, steps) = (step as f64 + 1.0, steps as f64);
        let warm_up = (self.warm_up * steps).max(1.0);
        let decay = (self.decay * steps).clamp(1.0, (steps - warm_up).max(1.0));
        let risen = (done / warm_up).min(1.0);
        let fallen = ((done - (steps - decay)) / decay).clamp(0.0, 1.0);
        let cosine = 0.5 * (1.0 + (std::f64::consts::PI * fallen).cos());
        self.learning_rate * risen * (self.floor + (1.0 - self.floor) * cosine)
    }
}

/// First and second moments of every learnt tensor; Muon leaves the second at zero.
pub struct Optimizer {
    moments: BTreeMap<String, (Tensor, Tensor)>,
    /// The tensors that Muon may change.
    matrices: BTreeSet<String>,
}

impl Optimizer {
    /// Moments of zero.
    pub fn new(parameters: &Parameters) -> Self {
        let moments = parameters.learnt().map(|(name, tensor)| {
            let zeros = || tensor.detach().zeros_like();
            (name.clone(), (zeros(), zeros()))
        });
        let matrices = parameters.specs().iter().filter(|spec| is_matrix(spec)).map(|spec| spec.name.clone());
        Optimizer { moments: moments.collect(), matrices: matrices.collect() }
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
    pub fn step(&mut self, parameters: &Parameters, config: &OptimizerConfig, rate: f64, step: u64, scale: f64) -> f64 {
        no_grad(|| {
            let gradients =
                parameters.learnt().map(|(_, tensor)| tensor.grad()).filter(Tensor::defined).collect::<Vec<_>>();
            let norms = gradients.iter().map(Tensor::norm).collect::<Vec<_>>();
            let norm = Tensor::stack(&norms, 0).norm().double_value(&[]) / scale;
            if norm.is_finite() {
                let factor = (config.clip / (norm + 1e-6)).min(1.0) / scale;
                self.update(parameters, config, rate, step as f64 + 1.0, factor);
            }
            for mut gradient in gradients {
                let _ = gradient.zero_();
            }
            norm
        })
    }

    fn update(&mut self, parameters: &Parameters, config: &OptimizerConfig, rate: f64, count: f64, factor: f64) {
        for (name, tensor) in parameters.learnt() {
            let gradient = tensor.grad();
            let Some((first, second)) = self.moments.get_mut(name).filter(|_| gradient.defined()) else { continue };
            let gradient = gradient * factor;
            let mut weight = tensor.shallow_clone();
            if tensor.dim() >= 2 {
                let _ = weight.g_mul_scalar_(1.0 - rate * config.weight_decay);
            }
            let change = if config.algorithm == Algorithm::Muon && self.matrices.contains(name) {
                muon(first, gradient)
            } else {
                adam(first, second, gradient, count)
            };
            let _ = weight.g_add_(&(change * -rate));
        }
    }
}

fn is_matrix(spec: &Spec) -> bool {
    let rows = spec.shape.first().copied().unwrap_or_default();
    let columns = spec.shape.iter().skip(1).product::<i64>();
    matches!(spec.init, Init::Uniform(_)) && spec.shape.len() >= 2 && rows.min(columns) >= MUON_LEAST
}

/// Adam's direction (Kingma and Ba 2015), corrected for the `count`-th step.
fn adam(first: &mut Tensor, second: &mut Tensor, gradient: Tensor, count: f64) -> Tensor {
    let _ = first.lerp_(&gradient, 1.0 - BETA_1);
    let _ = second.g_mul_scalar_(BETA_2);
    let scaled = gradient * (1.0 - BETA_2).sqrt();
    let _ = second.addcmul_(&scaled, &scaled);
    let denominator = (&*second / (1.0 - BETA_2.powf(count))).sqrt() + EPSILON;
    &*first / denominator / (1.0 - BETA_1.powf(count))
}

/// Muon's direction (Jordan et al. 2024): the momentum with all its singular values near 1.
fn muon(first: &mut Tensor, gradient: Tensor) -> Tensor {
    let _ = first.lerp_(&gradient, 1.0 - MOMENTUM);
    let ahead = gradient.lerp(first, MOMENTUM);
    let rows = ahead.size().first().copied().unwrap_or(1);
    let flat = ahead.view([rows, -1]);
    let columns = flat.size().last().copied().unwrap_or(1);
    let scale = MUON_SCALE * (rows.max(columns) as f64).sqrt();
    (orthogonal(&flat) * scale).reshape(ahead.size())
}

/// Five Newton-Schulz steps of degree five, which push the singular values to between 0.7 and 1.2.
fn orthogonal(matrix: &Tensor) -> Tensor {
    let tall = matrix.size2().is_ok_and(|(rows, columns)| rows > columns);
    let mut x = if tall { matrix.transpose(0, 1) } else { matrix.shallow_clone() };
    x = &x / (x.norm() + 1e-7);
    for _ in 0..5 {
        let square = x.matmul(&x.transpose(0, 1));
        let polynomial = &square * -4.7750 + square.matmul(&square) * 2.0315;
        x = &x * 3.4445 + polynomial.matmul(&x);
    }
    if tall { x.transpose(0, 1) } else { x }
}

#[cfg(test)]
mod tests {
    use tch::Kind;

    use super::*;

    #[test]
    fn muon_makes_all_singular_values_alike() {
        tch::manual_seed(1);
        for shape in [[24, 80], [80, 24]] {
            let matrix = Tensor::randn(shape, (Kind::Float, Device::Cpu));
            let (_, values, _) = orthogonal(&matrix).svd(true, false);
            assert!(values.min().double_value(&[]) > 0.5 && values.max().double_value(&[]) < 1.3, "{shape:?}");
        }
    }

    #[test]
    fn the_rate_rises_then_falls_to_the_floor() {
        let config = OptimizerConfig { learning_rate: 1.0, floor: 0.1, warm_up: 0.1, ..OptimizerConfig::default() };
        assert!((config.rate(0, 100) - 0.1).abs() < 1e-12);
        assert!((config.rate(9, 100) - 1.0).abs() < 1e-12);
        assert!((config.rate(54, 100) - 0.55).abs() < 1e-12);
        assert!((config.rate(99, 100) - 0.1).abs() < 1e-12);
        assert!((config.rate(500, 100) - 0.1).abs() < 1e-12);
        let late = OptimizerConfig { decay: 0.2, ..config };
        assert!([9, 40, 79].iter().all(|&step| (late.rate(step, 100) - 1.0).abs() < 1e-12));
        assert!((late.rate(89, 100) - 0.55).abs() < 1e-12);
    }
}
