//! Whether ONNX Runtime answers what tch does.

use anyhow::Result;
use tch::{Kind, Tensor, no_grad};
use zeitnot_encoding::Batch;
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
pub fn difference(network: &Network, onnx: &[u8], batch: &Batch) -> Result<f32> {
    let runtime = Runtime::load(None)?;
    let options = SessionOptions { device: zeitnot_inference::Device::Cpu, threads: 1 };
    let theirs = Session::from_bytes(&runtime, "the exported network", onnx, options)?.run(batch)?;
    let ours = answer(network, batch)?;
    let pairs = ours.outputs().into_iter().zip(theirs.outputs());
    if pairs.clone().any(|((_, _, ours), (_, _, theirs))| ours.len() != theirs.len()) {
        return Ok(f32::INFINITY);
    }
    let gap = |(a, b): (&f32, &f32)| {
        let gap = (a - b).abs() / a.abs().max(1.0);
        if gap.is_nan() { f32::INFINITY } else { gap }
    };
    Ok(pairs.flat_map(|((_, _, a), (_, _, b))| a.iter().zip(b)).map(gap).fold(0.0, f32::max))
}

/// What the network answers on tch.
///
/// # Errors
///
/// When the network lacks a tensor.
pub fn answer(network: &Network, batch: &Batch) -> Result<Answer> {
    let outputs = no_grad(|| network.forward(batch, false))?;
    let values = |tensor: &Tensor| Vec::<f32>::try_from(tensor.to_kind(Kind::Float).contiguous().view(-1));
    let optional = |tensor: &Option<Tensor>| tensor.as_ref().map_or_else(|| Ok(Vec::new()), values);
    Ok(Answer {
        policy: values(&outputs.policy)?,
        value: optional(&outputs.value)?,
        wdl: optional(&outputs.wdl)?,
        think_time: optional(&outputs.think_time)?,
        auxiliary: optional(&outputs.auxiliary)?,
        pooled: optional(&outputs.pooled)?,
    })
}
