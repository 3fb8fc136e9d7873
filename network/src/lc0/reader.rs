//! Reads weights files of Leela Chess Zero: gzip'd protobuf with 16-bit layers.

use std::{io::Read, path::Path};

use flate2::read::GzDecoder;
use prost::Message;
use thiserror::Error;
use zeitnot_encoding::lc0::{self, Policy};

use self::schema::{ConvBlock, Layer, Net, Outline, Residual};
use super::format::{self, Kind};
use crate::{Lc0Config, Weights, graph::EPSILON, weights::Tensor};

/// The minimal schema of the files.
#[allow(missing_docs, unreachable_pub, reason = "generated")]
pub mod schema {
    include!(concat!(env!("OUT_DIR"), "/zeitnot.lc0.rs"));
}

const MAGIC: u32 = 0x1c0;
/// Largest file after decompression, in bytes: more than 40 blocks of 512 channels need.
const LARGEST: u64 = 1 << 29;
/// Most residual blocks, as [`Lc0Config::check`] has it.
const MOST_BLOCKS: usize = 64;

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

/// What a file holds.
#[derive(Clone, Debug)]
pub struct Lc0File {
    /// The network.
    pub config: Lc0Config,
    /// Its weights.
    pub weights: Weights,
    /// Their licence, as the file tells it; empty where it does not.
    pub license: String,
}

/// Reads a `.pb.gz` file.
///
/// # Errors
///
/// [`Lc0Error`], which does not name the file.
pub fn read(path: &Path) -> Result<Lc0File, Lc0Error> {
    parse(std::fs::File::open(path)?)
}

/// Reads gzip'd weights.
///
/// # Errors
///
/// [`Lc0Error`].
pub fn parse(compressed: impl Read) -> Result<Lc0File, Lc0Error> {
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
pub fn decode(bytes: &[u8]) -> Result<Lc0File, Lc0Error> {
    let format = |error: prost::DecodeError| Lc0Error::Format(error.to_string());
    // Counted before they are read, since a file of empty blocks would need a hundred times its size.
    let blocks = Outline::decode(bytes).map_err(format)?.weights.unwrap_or_default().residual.len();
    if blocks > MOST_BLOCKS {
        return Err(Lc0Error::Format(format!("{blocks} residual blocks, more than {MOST_BLOCKS}")));
    }
    let net = Net::decode(bytes).map_err(format)?;
    if net.magic() != MAGIC {
        return Err(Lc0Error::Format(format!("its magic number is {:#x}", net.magic())));
    }
    let (config, weights) = build(&net)?;
    Ok(Lc0File { config, weights, license: net.license.unwrap_or_default() })
}

fn build(net: &Net) -> Result<(Lc0Config, Weights), Lc0Error> {
    let kind = format::kind(net)?;
    let nothing = schema::Weights::default();
    let file = net.weights.as_ref().unwrap_or(&nothing);
    let config = config(&kind, file)?;
    config.check().map_err(Lc0Error::Format)?;

    let (width, value_hidden) = (config.width as usize, config.value_hidden as usize);
    let mut builder = Builder { weights: Weights::default() };
    builder.convolution("input", file.input.as_ref(), lc0::PLANES, width)?;
    for (number, block) in file.residual.iter().enumerate() {
        builder.block(&format!("blocks.{number}"), block, width, config.squeeze.map(|squeeze| squeeze as usize))?;
    }
    match config.policy_channels {
        Some(channels) => {
            let (channels, moves) = (channels as usize, Policy::Moves.size());
            builder.squares("policy", file.policy.as_ref(), width, channels)?;
            builder.linear("policy.0", file.ip_pol_w.as_ref(), file.ip_pol_b.as_ref(), 64 * channels, moves)?;
        }
        None => {
            builder.convolution("policy.1", file.policy1.as_ref(), width, width)?;
            builder.convolution("policy.2", file.policy.as_ref(), width, Policy::Planes.size() / 64)?;
        }
    }
    let (channels, values) = (config.value_channels as usize, if config.wdl { 3 } else { 1 });
    builder.squares("value", file.value.as_ref(), width, channels)?;
    builder.linear("value.0", file.ip1_val_w.as_ref(), file.ip1_val_b.as_ref(), 64 * channels, value_hidden)?;
    builder.linear("value.1", file.ip2_val_w.as_ref(), file.ip2_val_b.as_ref(), value_hidden, values)?;
    Ok((config, builder.weights))
}

/// The sizes of a network, by those of its layers.
fn config(kind: &Kind, file: &schema::Weights) -> Result<Lc0Config, Lc0Error> {
    if let Some(number) = file.residual.iter().position(|block| block.se.is_some() != kind.gated) {
        let said = if kind.gated { "lacks" } else { "has" };
        return Err(Lc0Error::Format(format!("block {number} {said} squeeze-and-excitation, unlike the format says")));
    }
    let width = rows(file.input.as_ref(), 9 * lc0::PLANES, "input")?;
    let policy_channels = match kind.policy {
        Policy::Moves => Some(rows(file.policy.as_ref(), width, "policy")? as i64),
        Policy::Planes => None,
    };
    let first = file.residual.first().and_then(|block| block.se.as_ref());
    Ok(Lc0Config {
        width: width as i64,
        blocks: file.residual.len() as i64,
        squeeze: first.map(|unit| size(unit.b1.as_ref()) as i64),
        policy_channels,
        value_channels: rows(file.value.as_ref(), width, "value")? as i64,
        value_hidden: size(file.ip1_val_b.as_ref()) as i64,
        wdl: kind.wdl,
    })
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
    format::linear16(&format!("{name} in encoding"), layer.encoding.filter(|&told| told != 0).unwrap_or(1))?;
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

    /// The 1x1 convolution of a head, its normalisation folded in.
    fn squares(&mut self, name: &str, block: Option<&ConvBlock>, input: usize, output: usize) -> Result<(), Lc0Error> {
        let block = block.cloned().unwrap_or_default();
        let mut kernel = values(&format!("{name}.weights"), block.weights.as_ref(), input * output)?;
        let [scale, shift, mean, variance] = statistics(name, &block, output)?;
        let factors = scale.iter().zip(&variance).map(|(s, v)| s / (v + EPSILON as f32).sqrt()).collect::<Vec<_>>();
        for (row, factor) in kernel.chunks_mut(input).zip(&factors) {
            row.iter_mut().for_each(|value| *value *= factor);
        }
        let bias = shift.iter().zip(&mean).zip(&factors).map(|((s, m), f)| s - m * f).collect();
        self.insert(&format!("{name}.conv.weight"), &[output, input], kernel);
        self.insert(&format!("{name}.conv.bias"), &[output], bias);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
