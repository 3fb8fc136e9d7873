//! Static 8-bit quantisation of the convolutions of an ONNX file's trunk: those between its other layers that keep the
//! number of channels.
//!
//! The first convolution stays f32, since its inputs have scales of their own, and so does one that ends in logits.
//! Kernels become int8 per output channel and biases int32; what flows into and out of a convolution passes a
//! `QuantizeLinear` and `DequantizeLinear` pair, which ONNX Runtime fuses with it. Everything else stays f32. Kernels use
//! seven bits, since two products of eight bits overflow the 16-bit sums of processors with AVX2.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use prost::Message;
use thiserror::Error;

use super::{
    emitter::int,
    schema::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto},
};

const FLOAT: i32 = 1;
const UINT8: i32 = 2;
const INT8: i32 = 3;
const INT32: i32 = 6;
/// Largest 7-bit weight.
const LARGEST_WEIGHT: f32 = 64.0;
/// Largest 32-bit bias, far enough from the end for the sums it is added to.
const LARGEST_BIAS: f32 = (1 << 30) as f32;

/// Why a file cannot be quantised.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum QuantizeError {
    /// The bytes are not an ONNX file.
    #[error("not an ONNX file: {0}")]
    Format(String),
    /// A convolution lacks a kernel or a bias of its own.
    #[error("the convolution {0} has no f32 kernel and bias as initializers")]
    Convolution(String),
    /// There is nothing to quantise.
    #[error("the network has no convolution that keeps the number of channels")]
    Nothing,
    /// The range of a tensor was not observed, or is not finite.
    #[error("the range of {0} is not known, or not finite")]
    Range(String),
}

/// The tensors around the convolutions.
#[derive(Debug, Default)]
struct Places {
    /// What flows into convolutions.
    inputs: BTreeSet<String>,
    /// What flows out of them, after the ReLU where one follows.
    outputs: BTreeSet<String>,
}

/// The tensors whose ranges quantisation needs.
///
/// # Errors
///
/// When the bytes are not an ONNX file, or one without convolutions.
pub fn observed(model: &[u8]) -> Result<Vec<String>, QuantizeError> {
    let places = places(&graph(&decode(model)?));
    if places.inputs.is_empty() {
        return Err(QuantizeError::Nothing);
    }
    Ok(places.inputs.union(&places.outputs).cloned().collect())
}

/// The same file with further outputs, to observe them.
///
/// # Errors
///
/// When the bytes are not an ONNX file.
pub fn with_outputs(model: &[u8], names: &[String]) -> Result<Vec<u8>, QuantizeError> {
    let mut model = decode(model)?;
    if let Some(graph) = &mut model.graph {
        let outputs = names.iter().map(|name| ValueInfoProto { name: name.clone(), r#type: None });
        graph.output.extend(outputs);
    }
    Ok(model.encode_to_vec())
}

/// Quantises the convolutions. `ranges` holds least and largest value of each [`observed`] tensor.
///
/// # Errors
///
/// [`QuantizeError`].
pub fn quantize(model: &[u8], ranges: &BTreeMap<String, (f32, f32)>) -> Result<Vec<u8>, QuantizeError> {
    let mut model = decode(model)?;
    let old = graph(&model);
    let places = places(&old);
    let mut new = Quantizer { graph: GraphProto { node: Vec::new(), ..old.clone() }, scales: HashMap::new() };
    for name in places.inputs.union(&places.outputs) {
        let range = ranges.get(name).filter(|(least, largest)| least.is_finite() && largest.is_finite());
        let &(least, largest) = range.ok_or_else(|| QuantizeError::Range(name.clone()))?;
        new.activation(name, least, largest);
    }
    for input in &old.input {
        new.pass(&input.name);
    }
    for node in &old.node {
        let mut node = node.clone();
        let is_convolution = is_trunk(&old, &node);
        for (place, name) in node.input.iter_mut().enumerate() {
            if places.outputs.contains(name) || (is_convolution && place == 0) {
                *name = format!("{name}.dequantized");
            }
        }
        if is_convolution {
            new.convolution(&mut node)?;
        }
        let outputs = node.output.clone();
        new.graph.node.push(node);
        outputs.iter().for_each(|name| new.pass(name));
    }
    model.graph = Some(new.graph);
    Ok(model.encode_to_vec())
}

fn decode(model: &[u8]) -> Result<ModelProto, QuantizeError> {
    ModelProto::decode(model).map_err(|error| QuantizeError::Format(error.to_string()))
}

fn graph(model: &ModelProto) -> GraphProto {
    model.graph.clone().unwrap_or_default()
}

fn places(graph: &GraphProto) -> Places {
    let mut places = Places::default();
    for node in graph.node.iter().filter(|node| is_trunk(graph, node)) {
        places.inputs.extend(node.input.first().cloned());
        let Some(output) = node.output.first() else { continue };
        let mut readers = graph.node.iter().filter(|reader| reader.input.contains(output));
        let only = readers.next().filter(|_| readers.next().is_none());
        let relu = only.filter(|reader| reader.op_type == "Relu").and_then(|relu| relu.output.first());
        places.outputs.insert(relu.unwrap_or(output).clone());
    }
    places
}

/// Whether a node is a convolution that keeps the number of channels, between other layers of the trunk: one that does
/// not read the inputs and does not end in logits.
fn is_trunk(graph: &GraphProto, node: &NodeProto) -> bool {
    let (from, to) = (node.input.first(), node.output.first());
    let reads_relu = graph.node.iter().any(|maker| maker.op_type == "Relu" && maker.output.first() == from);
    let is_read = |reader: &NodeProto| reader.op_type != "Reshape" && to.is_some_and(|to| reader.input.contains(to));
    if !reads_relu || !graph.node.iter().any(is_read) {
        return false;
    }
    let kernel = node.input.get(1).and_then(|name| graph.initializer.iter().find(|tensor| tensor.name == *name));
    node.op_type == "Conv"
        && kernel.is_some_and(|kernel| matches!(kernel.dims.as_slice(), [to, from, ..] if to == from))
}

struct Quantizer {
    graph: GraphProto,
    /// Scale of each quantised tensor.
    scales: HashMap<String, f32>,
}

impl Quantizer {
    fn tensor(&mut self, name: &str, dims: &[i64], data_type: i32, raw_data: Vec<u8>) {
        self.graph.initializer.push(TensorProto { dims: dims.to_vec(), data_type, name: name.to_owned(), raw_data });
    }

    fn node(&mut self, op: &str, input: [&str; 3], output: &str, axis: Option<i64>) {
        self.graph.node.push(NodeProto {
            input: input.map(str::to_owned).to_vec(),
            output: vec![output.to_owned()],
            name: format!("{op}_{output}"),
            op_type: op.to_owned(),
            attribute: axis.map(|axis| int("axis", axis)).into_iter().collect(),
        });
    }

    /// Scale and zero point of a tensor, over a range that holds 0.
    fn activation(&mut self, name: &str, least: f32, largest: f32) {
        let (least, largest) = (least.min(0.0), largest.max(0.0));
        let scale = ((largest - least) / 255.0).max(1e-9);
        let zero = (-least / scale).round().clamp(0.0, 255.0) as u8;
        self.scales.insert(name.to_owned(), scale);
        self.tensor(&format!("{name}.scale"), &[], FLOAT, scale.to_le_bytes().to_vec());
        self.tensor(&format!("{name}.zero"), &[], UINT8, vec![zero]);
    }

    /// Quantises and dequantises a tensor that was just made, if it is one of those observed.
    fn pass(&mut self, name: &str) {
        if self.scales.contains_key(name) {
            let (scale, zero) = (format!("{name}.scale"), format!("{name}.zero"));
            let (quantized, dequantized) = (format!("{name}.quantized"), format!("{name}.dequantized"));
            self.node("QuantizeLinear", [name, &scale, &zero], &quantized, None);
            self.node("DequantizeLinear", [&quantized, &scale, &zero], &dequantized, None);
        }
    }

    fn convolution(&mut self, node: &mut NodeProto) -> Result<(), QuantizeError> {
        let problem = || QuantizeError::Convolution(node.name.clone());
        let [input, kernel, bias] = node.input.as_slice() else { return Err(problem()) };
        let (kernel, bias) = (kernel.clone(), bias.clone());
        let scale = input.strip_suffix(".dequantized").and_then(|name| self.scales.get(name)).copied();
        let scale = scale.ok_or_else(problem)?;
        let (dims, values) = self.take(&kernel).ok_or_else(problem)?;
        let (_, biases) = self.take(&bias).ok_or_else(problem)?;

        let channel = dims.iter().skip(1).product::<i64>().max(1) as usize;
        let largest = |row: &[f32]| row.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        // A channel with hardly any weights still needs a scale that its bias fits.
        let least = |bias: &f32| (bias.abs() / (scale * LARGEST_BIAS)).max(1e-12);
        let rows = values.chunks(channel).zip(&biases);
        let scales = rows.map(|(row, bias)| (largest(row) / LARGEST_WEIGHT).max(least(bias))).collect::<Vec<_>>();
        let weights = values.chunks(channel).zip(&scales);
        let weights = weights.flat_map(|(row, scale)| row.iter().map(move |value| (value / scale).round() as i8 as u8));
        let raw = weights.collect();
        self.tensor(&kernel, &dims, INT8, raw);
        let products = scales.iter().map(|own| own * scale).collect::<Vec<_>>();
        let sums = biases.iter().zip(&products).map(|(bias, scale)| (bias / scale).round() as i32);
        let raw = sums.flat_map(i32::to_le_bytes).collect();
        let rows = scales.len() as i64;
        self.tensor(&bias, &[rows], INT32, raw);
        for (name, scales, kind, size) in [(&kernel, &scales, INT8, 1), (&bias, &products, INT32, 4)] {
            let raw = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
            self.tensor(&format!("{name}.scale"), &[rows], FLOAT, raw);
            self.tensor(&format!("{name}.zero"), &[rows], kind, vec![0; rows as usize * size]);
            let (scale, zero) = (format!("{name}.scale"), format!("{name}.zero"));
            self.node("DequantizeLinear", [name, &scale, &zero], &format!("{name}.dequantized"), Some(0));
        }
        node.input = vec![input.clone(), format!("{kernel}.dequantized"), format!("{bias}.dequantized")];
        Ok(())
    }

    /// Takes an f32 initializer out of the graph.
    fn take(&mut self, name: &str) -> Option<(Vec<i64>, Vec<f32>)> {
        let place =
            self.graph.initializer.iter().position(|tensor| tensor.name == name && tensor.data_type == FLOAT)?;
        let tensor = self.graph.initializer.remove(place);
        let (values, _) = tensor.raw_data.as_chunks::<4>();
        Some((tensor.dims, values.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()))
    }
}

#[cfg(test)]
mod tests;
