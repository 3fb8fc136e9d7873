//! Writes a network with its trained weights as an ONNX file.
//!
//! Opset 20. Batch normalisation is folded into the convolutions, dropout disappears, and the batch axis is dynamic.

mod emitter;

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

use crate::{Inputs, OtterConfig, Weights, WeightsError, otter};

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
pub fn export(config: &OtterConfig, weights: &Weights, metadata: &[(String, String)]) -> Result<Vec<u8>, WeightsError> {
    let mut emitter = emitter::Emitter::new(weights);
    let name = |name: &str| name.to_owned();
    let inputs = Inputs {
        board: name("board"),
        history: name("history"),
        history_mask: name("history_mask"),
        mover_elo: name("mover_elo"),
        opponent_elo: name("opponent_elo"),
        time_control: name("time_control"),
        clock: name("clock"),
    };
    let outputs = otter::forward(&mut emitter, config, &inputs);
    for (value, name) in [(outputs.policy, "policy"), (outputs.value, "value"), (outputs.auxiliary, "aux")] {
        emitter.output(&value, name);
    }
    let (node, initializer) = emitter.finish()?;

    let graph = GraphProto {
        node,
        name: "zeitnot".to_owned(),
        initializer,
        input: vec![
            value("board", Element::Float, &[18, 8, 8]),
            value("history", Element::Int64, &[20]),
            value("history_mask", Element::Bool, &[20]),
            value("mover_elo", Element::Int64, &[]),
            value("opponent_elo", Element::Int64, &[]),
            value("time_control", Element::Int64, &[]),
            value("clock", Element::Float, &[2]),
        ],
        output: vec![
            value("policy", Element::Float, &[zeitnot_encoding::vocabulary::SIZE as i64]),
            value("value", Element::Float, &[]),
            value("aux", Element::Float, &[zeitnot_encoding::otter::AUXILIARY as i64]),
        ],
    };
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

/// An input or output `[batch, sizes..]`.
fn value(name: &str, element: Element, sizes: &[i64]) -> ValueInfoProto {
    let batch = dimension::Value::DimParam("batch".to_owned());
    let sizes = sizes.iter().map(|&size| dimension::Value::DimValue(size));
    let dim = std::iter::once(batch).chain(sizes).map(|value| Dimension { value: Some(value) }).collect();
    let shape = TensorShapeProto { dim };
    let tensor_type = schema::type_proto::Tensor { elem_type: element as i32, shape: Some(shape) };
    ValueInfoProto { name: name.to_owned(), r#type: Some(TypeProto { tensor_type: Some(tensor_type) }) }
}
