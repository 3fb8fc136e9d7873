//! Floating-point numbers of files, as the 32-bit ones that networks are made of.

use half::{bf16, f16};
use pytorch_reader::DType;
use safetensors::Dtype;

/// A kind of floating-point number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Float {
    F16,
    Bf16,
    F32,
    F64,
}

impl Float {
    /// The kind that a safetensors file names; none of integers and of kinds too narrow for weights.
    pub(super) fn of_safetensors(kind: Dtype) -> Option<Self> {
        match kind {
            Dtype::F16 => Some(Float::F16),
            Dtype::BF16 => Some(Float::Bf16),
            Dtype::F32 => Some(Float::F32),
            Dtype::F64 => Some(Float::F64),
            _ => None,
        }
    }

    /// The kind that a checkpoint names; none of integers.
    pub(super) fn of_pytorch(kind: DType) -> Option<Self> {
        match kind {
            DType::F16 => Some(Float::F16),
            DType::BF16 => Some(Float::Bf16),
            DType::F32 => Some(Float::F32),
            DType::F64 => Some(Float::F64),
            _ => None,
        }
    }

    /// The numbers of some little-endian bytes.
    pub(super) fn values(self, bytes: &[u8]) -> Vec<f32> {
        match self {
            Float::F16 => each(bytes, |bytes| f16::from_le_bytes(bytes).to_f32()),
            Float::Bf16 => each(bytes, |bytes| bf16::from_le_bytes(bytes).to_f32()),
            Float::F32 => each(bytes, f32::from_le_bytes),
            Float::F64 => each(bytes, |bytes| f64::from_le_bytes(bytes) as f32),
        }
    }
}

fn each<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    let (numbers, _) = bytes.as_chunks::<N>();
    numbers.iter().map(|&bytes| value(bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_are_read() {
        let numbers = [1.0, -2.5, 0.0];
        let bytes = |bytes: fn(f32) -> Vec<u8>| numbers.into_iter().flat_map(bytes).collect::<Vec<_>>();
        for (kind, bytes) in [
            (Float::F16, bytes(|x| f16::from_f32(x).to_le_bytes().to_vec())),
            (Float::Bf16, bytes(|x| bf16::from_f32(x).to_le_bytes().to_vec())),
            (Float::F32, bytes(|x| x.to_le_bytes().to_vec())),
            (Float::F64, bytes(|x| f64::from(x).to_le_bytes().to_vec())),
        ] {
            assert_eq!(kind.values(&bytes), numbers, "{kind:?}");
        }
    }
}
