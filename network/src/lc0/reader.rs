//! Reads weights files of Leela Chess Zero: gzip'd protobuf with 16-bit layers.

use std::{io::Read, path::Path};

use flate2::read::GzDecoder;
use prost::Message;
use thiserror::Error;
use zeitnot_encoding::lc0;

use self::schema::{ConvBlock, Layer, Net, Residual};
use crate::{Lc0Config, Weights, graph::EPSILON, weights::Tensor};

/// The minimal schema of the files.
#[allow(missing_docs, unreachable_pub, reason = "generated")]
pub mod schema {
    include!(concat!(env!("OUT_DIR"), "/zeitnot.lc0.rs"));
}

const MAGIC: u32 = 0x1c0;
/// Largest file after decompression, in bytes: more than 40 blocks of 512 channels need.
const LARGEST: u64 = 1 << 29;

/// Why a weights file cannot be read.
#[derive(Debug, Error)]
pub enum Lc0Error {
    /// The file cannot be read or decompressed.
    #[error("{0}")]
    Read(#[from] std::io::Error),
    /// The file is larger than any network.
    #[error("holds more than {LARGEST} bytes")]
    Size,
    /// The file is not a weights file.
    #[error("not a weights file of Leela Chess Zero: {0}")]
    Format(String),
    /// The network is of a kind that is not read.
    #[error("{0} is not supported")]
    Unsupported(String),
    /// A layer is missing or has another size than the network needs.
    #[error("{layer} has {found} values, the network needs {expected}")]
    Layer {
        /// Name of the layer in the file.
        layer: String,
        /// Values found; 0 when it is missing.
        found: usize,
        /// Values needed.
        expected: usize,
    },
}

/// Reads a `.pb.gz` file.
///
/// # Errors
///
/// [`Lc0Error`], which does not name the file.
pub fn read(path: &Path) -> Result<(Lc0Config, Weights), Lc0Error> {
    parse(std::fs::File::open(path)?)
}

/// Reads gzip'd weights.
///
/// # Errors
///
/// [`Lc0Error`].
pub fn parse(compressed: impl Read) -> Result<(Lc0Config, Weights), Lc0Error> {
    let mut bytes = Vec::new();
    GzDecoder::new(compressed).take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(Lc0Error::Size);
    }
    decode(&bytes)
}

/// Reads weights that are not compressed.
///
/// # Errors
///
/// [`Lc0Error`].
pub fn decode(bytes: &[u8]) -> Result<(Lc0Config, Weights), Lc0Error> {
    let net = Net::decode(bytes).map_err(|error| Lc0Error::Format(error.to_string()))?;
    if net.magic() != MAGIC {
        return Err(Lc0Error::Format(format!("its magic number is {:#x}", net.magic())));
    }
    check(&net)?;
    build(&net)
}

/// Refuses by name what is not read.
fn check(net: &Net) -> Result<(), Lc0Error> {
    let format = net.format.unwrap_or_default();
    let network = format.network_format.unwrap_or_default();
    let unsupported = |what: String| Err(Lc0Error::Unsupported(what));
    if format.weights_encoding() != 1 {
        return unsupported(format!("weights encoding {}", format.weights_encoding()));
    }
    if network.input() != 1 {
        return unsupported(format!("input format {}, other than 112 classical planes,", network.input()));
    }
    if !(1..=4).contains(&network.network()) {
        return unsupported(format!("network structure {}, other than residual blocks,", network.network()));
    }
    if network.policy() != 2 {
        return unsupported(format!("policy format {}, other than 80 planes,", network.policy()));
    }
    if !(1..=2).contains(&network.value()) {
        return unsupported(format!("value format {}", network.value()));
    }
    Ok(())
}

fn build(net: &Net) -> Result<(Lc0Config, Weights), Lc0Error> {
    let nothing = schema::Weights::default();
    let file = net.weights.as_ref().unwrap_or(&nothing);
    let mut builder = Builder { weights: Weights::default() };
    let format = net.format.unwrap_or_default().network_format.unwrap_or_default();
    let wdl = format.value() == 2;
    let width = rows(file.input.as_ref(), 9 * lc0::PLANES, "input")?;
    let value_channels = rows(file.value.as_ref(), width, "value")?;
    let value_hidden = size(file.ip1_val_b.as_ref());
    let gated = matches!(format.network(), 2 | 4);
    if let Some(number) = file.residual.iter().position(|block| block.se.is_some() != gated) {
        let said = if gated { "lacks" } else { "has" };
        return Err(Lc0Error::Format(format!("block {number} {said} squeeze-and-excitation, unlike the format says")));
    }
    let first = file.residual.first().and_then(|block| block.se.as_ref());
    let squeeze = first.map(|unit| size(unit.b1.as_ref()) as i64);
    let config = Lc0Config {
        width: width as i64,
        blocks: file.residual.len() as i64,
        squeeze,
        value_channels: value_channels as i64,
        value_hidden: value_hidden as i64,
        wdl,
    };
    config.check().map_err(Lc0Error::Format)?;

    builder.convolution("input", file.input.as_ref(), lc0::PLANES, width)?;
    for (number, block) in file.residual.iter().enumerate() {
        builder.block(&format!("blocks.{number}"), block, width, squeeze.map(|squeeze| squeeze as usize))?;
    }
    builder.convolution("policy.1", file.policy1.as_ref(), width, width)?;
    builder.convolution("policy.2", file.policy.as_ref(), width, 80)?;
    builder.value_convolution(file.value.as_ref(), width, value_channels)?;
    builder.linear("value.0", file.ip1_val_w.as_ref(), file.ip1_val_b.as_ref(), 64 * value_channels, value_hidden)?;
    builder.linear(
        "value.1",
        file.ip2_val_w.as_ref(),
        file.ip2_val_b.as_ref(),
        value_hidden,
        if wdl { 3 } else { 1 },
    )?;
    Ok((config, builder.weights))
}

fn size(layer: Option<&Layer>) -> usize {
    layer.map_or(0, |layer| layer.params().len() / 2)
}

/// Output channels of a convolution, by the size of its kernel.
fn rows(block: Option<&ConvBlock>, row: usize, name: &str) -> Result<usize, Lc0Error> {
    let found = size(block.and_then(|block| block.weights.as_ref()));
    if found == 0 || !found.is_multiple_of(row) {
        return Err(Lc0Error::Layer { layer: format!("{name}.weights"), found, expected: row });
    }
    Ok(found / row)
}

/// The values of a layer.
fn values(name: &str, layer: Option<&Layer>, expected: usize) -> Result<Vec<f32>, Lc0Error> {
    let found = size(layer);
    let Some(layer) = layer.filter(|_| found == expected) else {
        return Err(Lc0Error::Layer { layer: name.to_owned(), found, expected });
    };
    let (least, span) = (layer.min_val(), layer.max_val() - layer.min_val());
    let (pairs, _) = layer.params().as_chunks::<2>();
    Ok(pairs.iter().map(|&pair| least + span * f32::from(u16::from_le_bytes(pair)) / 65535.0).collect())
}

/// The four vectors that normalise a convolution: scale, shift, mean, variance.
fn statistics(name: &str, block: &ConvBlock, size: usize) -> Result<[Vec<f32>; 4], Lc0Error> {
    if block.bn_means.is_none() {
        // Biases alone are a normalisation that changes nothing else.
        let shift = values(&format!("{name}.biases"), block.biases.as_ref(), size)?;
        return Ok([vec![1.0; size], shift, vec![0.0; size], vec![1.0 - EPSILON as f32; size]]);
    }
    let vector = |part: &str, layer: Option<&Layer>| values(&format!("{name}.{part}"), layer, size);
    let scale = match &block.bn_gammas {
        Some(layer) => vector("bn_gammas", Some(layer))?,
        None => vec![1.0; size],
    };
    let shift = match &block.bn_betas {
        Some(layer) => vector("bn_betas", Some(layer))?,
        None => vec![0.0; size],
    };
    let mut mean = vector("bn_means", block.bn_means.as_ref())?;
    if block.biases.is_some() {
        let biases = vector("biases", block.biases.as_ref())?;
        mean.iter_mut().zip(biases).for_each(|(mean, bias)| *mean -= bias);
    }
    Ok([scale, shift, mean, vector("bn_stddivs", block.bn_stddivs.as_ref())?])
}

struct Builder {
    weights: Weights,
}

impl Builder {
    fn insert(&mut self, name: &str, shape: &[usize], values: Vec<f32>) {
        let shape = shape.iter().map(|&size| size as i64).collect();
        self.weights.insert(name, Tensor { shape, values });
    }

    fn convolution(
        &mut self,
        name: &str,
        block: Option<&ConvBlock>,
        input: usize,
        output: usize,
    ) -> Result<(), Lc0Error> {
        let block = block.cloned().unwrap_or_default();
        let kernel = values(&format!("{name}.weights"), block.weights.as_ref(), 9 * input * output)?;
        self.insert(&format!("{name}.conv.weight"), &[output, input, 3, 3], kernel);
        let parts = ["weight", "bias", "running_mean", "running_var"];
        for (part, vector) in parts.into_iter().zip(statistics(name, &block, output)?) {
            self.insert(&format!("{name}.norm.{part}"), &[output], vector);
        }
        Ok(())
    }

    fn block(&mut self, name: &str, block: &Residual, width: usize, squeeze: Option<usize>) -> Result<(), Lc0Error> {
        self.convolution(&format!("{name}.1"), block.conv1.as_ref(), width, width)?;
        self.convolution(&format!("{name}.2"), block.conv2.as_ref(), width, width)?;
        if let Some(squeeze) = squeeze {
            let unit = block.se.clone().unwrap_or_default();
            let name = format!("{name}.excitation");
            self.linear(&format!("{name}.0"), unit.w1.as_ref(), unit.b1.as_ref(), width, squeeze)?;
            self.linear(&format!("{name}.1"), unit.w2.as_ref(), unit.b2.as_ref(), squeeze, 2 * width)?;
        }
        Ok(())
    }

    fn linear(
        &mut self,
        name: &str,
        weight: Option<&Layer>,
        bias: Option<&Layer>,
        input: usize,
        output: usize,
    ) -> Result<(), Lc0Error> {
        let weight = values(&format!("{name}.weight"), weight, input * output)?;
        let bias = values(&format!("{name}.bias"), bias, output)?;
        self.insert(&format!("{name}.weight"), &[output, input], weight);
        self.insert(&format!("{name}.bias"), &[output], bias);
        Ok(())
    }

    /// The 1x1 convolution of the value head, its normalisation folded in.
    fn value_convolution(&mut self, block: Option<&ConvBlock>, input: usize, output: usize) -> Result<(), Lc0Error> {
        let block = block.cloned().unwrap_or_default();
        let mut kernel = values("value.weights", block.weights.as_ref(), input * output)?;
        let [scale, shift, mean, variance] = statistics("value", &block, output)?;
        let factors = scale.iter().zip(&variance).map(|(s, v)| s / (v + EPSILON as f32).sqrt()).collect::<Vec<_>>();
        for (row, factor) in kernel.chunks_mut(input).zip(&factors) {
            row.iter_mut().for_each(|value| *value *= factor);
        }
        let bias = shift.iter().zip(&mean).zip(&factors).map(|((s, m), f)| s - m * f).collect();
        self.insert("value.conv.weight", &[output, input], kernel);
        self.insert("value.conv.bias", &[output], bias);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
