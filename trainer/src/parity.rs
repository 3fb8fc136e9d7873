//! Whether ONNX Runtime answers what tch does.

use anyhow::Result;
use tch::{Kind, Tensor, no_grad};
use zeitnot_encoding::OtterBatch;
use zeitnot_inference::{Answer, Runtime, Session, SessionOptions};

use crate::train::eager::Network;

/// Largest difference between tch and ONNX Runtime that a file may show, absolute or relative to the value.
pub const TOLERANCE: f32 = 1e-4;

/// The largest difference between tch and ONNX Runtime over all outputs of a batch, absolute or relative to the
/// value, whichever is smaller.
///
/// # Errors
///
/// When either cannot run the network.
pub fn difference(network: &Network, onnx: &[u8], batch: &OtterBatch) -> Result<f32> {
    let runtime = Runtime::load(None)?;
    let options = SessionOptions { device: zeitnot_inference::Device::Cpu, threads: 1 };
    let theirs = Session::from_bytes(&runtime, "the exported network", onnx, options)?.run(batch)?;
    let ours = answer(network, batch)?;
    let pairs = [(&ours.policy, &theirs.policy), (&ours.value, &theirs.value), (&ours.auxiliary, &theirs.auxiliary)];
    if pairs.iter().any(|(ours, theirs)| ours.len() != theirs.len()) {
        return Ok(f32::INFINITY);
    }
    let gap = |(a, b): (&f32, &f32)| {
        let gap = (a - b).abs() / a.abs().max(1.0);
        if gap.is_nan() { f32::INFINITY } else { gap }
    };
    Ok(pairs.into_iter().flat_map(|(a, b)| a.iter().zip(b)).map(gap).fold(0.0, f32::max))
}

/// What the network answers on tch.
///
/// # Errors
///
/// When the network lacks a tensor.
pub fn answer(network: &Network, batch: &OtterBatch) -> Result<Answer> {
    let outputs = no_grad(|| network.forward(batch, false))?;
    let values = |tensor: &Tensor| Vec::<f32>::try_from(tensor.to_kind(Kind::Float).contiguous().view(-1));
    Ok(Answer {
        policy: values(&outputs.policy)?,
        value: values(&outputs.value)?,
        auxiliary: values(&outputs.auxiliary)?,
    })
}
