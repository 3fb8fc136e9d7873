//! Writes a network with its trained weights as an ONNX file.
//!
//! Opset 20. Batch normalisation is folded into the convolutions, dropout disappears, and the batch axis is dynamic.

mod emitter;
pub mod quantize;

/// The minimal ONNX schema.
#[allow(missing_docs, unreachable_pub, reason = "generated")]
pub mod schema {
    include!(concat!(env!("OUT_DIR"), "/onnx.rs"));
}

use prost::Message;
use schema::{
    GraphProto, ModelProto, OperatorSetIdProto, StringStringEntryProto, TensorShapeProto, TypeProto, ValueInfoProto,
    tensor_shape_proto::{Dimension, dimension},
};

use zeitnot_encoding::{
    batch::{self, Input},
    rerank,
    targets::AUXILIARY,
    think_time, vocabulary,
};

use crate::{NetworkConfig, RerankerConfig, Weights, WeightsError, reranker};
use emitter::Emitter;

const IR_VERSION: i64 = 9;
const OPSET: i64 = 20;

/// Element types of ONNX.
#[derive(Clone, Copy, Debug)]
enum Element {
    Float = 1,
    Int64 = 7,
    Bool = 9,
}

/// Writes the network as the bytes of an ONNX file. `metadata` becomes `metadata_props`.
///
/// # Errors
///
/// [`WeightsError`] when a tensor is missing or has another shape.
pub fn export(
    config: &NetworkConfig,
    weights: &Weights,
    metadata: &[(String, String)],
) -> Result<Vec<u8>, WeightsError> {
    let mut emitter = Emitter::new(weights);
    let outputs = config.forward(&mut emitter);
    let named = [
        (Some(outputs.policy), "policy", Some(vec![vocabulary::SIZE])),
        (outputs.value, "value", Some(vec![])),
        (outputs.wdl, "wdl", Some(vec![3])),
        (outputs.think_time, "think_time", Some(vec![think_time::BINS.len()])),
        (outputs.auxiliary, "aux", Some(vec![AUXILIARY])),
        (outputs.pooled, "pooled", None),
        (outputs.ponder, "ponder", Some(vec![])),
    ];
    let mut output = Vec::new();
    for (node, name, sizes) in named {
        if let Some(node) = node {
            emitter.output(&node, name);
            output.push(value(name, Element::Float, sizes.as_deref()));
        }
    }
    assemble(emitter, config.encoding().inputs(), output, metadata)
}

/// Writes a re-ranker as the bytes of an ONNX file. `metadata` becomes `metadata_props`.
///
/// # Errors
///
/// As [`export`].
pub fn export_reranker(
    config: &RerankerConfig,
    weights: &Weights,
    metadata: &[(String, String)],
) -> Result<Vec<u8>, WeightsError> {
    let mut emitter = Emitter::new(weights);
    let residual = reranker::forward(&mut emitter, config);
    emitter.output(&residual, "residual");
    let output = vec![value("residual", Element::Float, Some(&[rerank::CANDIDATES]))];
    assemble(emitter, &rerank::INPUTS, output, metadata)
}

fn assemble(
    emitter: Emitter<'_>,
    inputs: &[Input],
    output: Vec<ValueInfoProto>,
    metadata: &[(String, String)],
) -> Result<Vec<u8>, WeightsError> {
    let (node, initializer) = emitter.finish()?;
    let input = inputs.iter().map(declare).collect();
    let graph = GraphProto { node, name: "zeitnot".to_owned(), initializer, input, output };
    let entry = |(key, value): &(String, String)| StringStringEntryProto { key: key.clone(), value: value.clone() };
    let model = ModelProto {
        ir_version: IR_VERSION,
        producer_name: "zeitnot".to_owned(),
        producer_version: env!("CARGO_PKG_VERSION").to_owned(),
        graph: Some(graph),
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: OPSET }],
        metadata_props: metadata.iter().map(entry).collect(),
    };
    Ok(model.encode_to_vec())
}

/// The same file with an entry of `metadata_props` set.
///
/// # Errors
///
/// When the bytes are not an ONNX file.
pub fn with_entry(model: &[u8], key: &str, text: &str) -> Result<Vec<u8>, prost::DecodeError> {
    let mut model = ModelProto::decode(model)?;
    model.metadata_props.retain(|entry| entry.key != key);
    model.metadata_props.push(StringStringEntryProto { key: key.to_owned(), value: text.to_owned() });
    Ok(model.encode_to_vec())
}

fn declare(input: &Input) -> ValueInfoProto {
    let element = match input.element {
        batch::Element::Float => Element::Float,
        batch::Element::Integer => Element::Int64,
        batch::Element::Boolean => Element::Bool,
    };
    value(input.name, element, Some(input.shape))
}

/// An input or output `[batch, sizes..]`; without sizes it is `[batch, width]`, for a width that the file does not say.
fn value(name: &str, element: Element, sizes: Option<&[usize]>) -> ValueInfoProto {
    let batch = dimension::Value::DimParam("batch".to_owned());
    let width = dimension::Value::DimParam("width".to_owned());
    let fixed = sizes.unwrap_or_default().iter().map(|&size| dimension::Value::DimValue(size as i64));
    let sizes = fixed.chain(sizes.is_none().then_some(width));
    let dim = std::iter::once(batch).chain(sizes).map(|value| Dimension { value: Some(value) }).collect();
    let shape = TensorShapeProto { dim };
    let tensor_type = schema::type_proto::Tensor { elem_type: element as i32, shape: Some(shape) };
    ValueInfoProto { name: name.to_owned(), r#type: Some(TypeProto { tensor_type: Some(tensor_type) }) }
}
