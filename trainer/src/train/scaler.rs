//! Dynamic loss scaling, which keeps small gradients from vanishing in half precision.

use serde::{Deserialize, Serialize};
use tch::Device;

const HIGHEST: f64 = 65_536.0;
const PATIENCE: u32 = 1000;

/// Halves the scale when gradients overflow, doubles it after a thousand good steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScaler {
    scale: f64,
    highest: f64,
    good: u32,
}

impl LossScaler {
    /// Scales on CUDA, where steps run in half precision; 1 elsewhere.
    pub fn for_device(device: Device) -> Self {
        let highest = if device.is_cuda() { HIGHEST } else { 1.0 };
        LossScaler { scale: highest, highest, good: 0 }
    }

    /// The same on another device than it was saved on; unchanged on the same kind.
    pub fn on(self, device: Device) -> Self {
        let fresh = LossScaler::for_device(device);
        if self.highest == fresh.highest { self } else { fresh }
    }

    /// What the loss is multiplied by.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Learns whether the last gradients were finite.
    pub fn update(&mut self, finite: bool) {
        if !finite {
            self.scale = (self.scale / 2.0).max(1.0);
            self.good = 0;
            return;
        }
        self.good += 1;
        if self.good >= PATIENCE {
            self.scale = (self.scale * 2.0).min(self.highest);
            self.good = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_halves_on_overflow_and_recovers() {
        let mut scaler = LossScaler::for_device(Device::Cuda(0));
        scaler.update(false);
        assert_eq!(scaler.scale(), HIGHEST / 2.0);
        (0..PATIENCE).for_each(|_| scaler.update(true));
        assert_eq!(scaler.scale(), HIGHEST);
    }

    #[test]
    fn nothing_is_scaled_in_full_precision() {
        let mut scaler = LossScaler::for_device(Device::Cpu);
        scaler.update(false);
        (0..2 * PATIENCE).for_each(|_| scaler.update(true));
        assert_eq!(scaler.scale(), 1.0);
    }
}
