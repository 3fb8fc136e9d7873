use zeitnot_encoding::Zeitnot;

use super::*;
use crate::{NetworkConfig, PolicyConfig, Weights, ZeitnotConfig, onnx, specs, weights::Tensor};

/// A network whose stem keeps the number of channels, which must not make it part of the trunk.
fn model(change: impl FnOnce(&mut Weights)) -> Vec<u8> {
    let config = NetworkConfig::Zeitnot(ZeitnotConfig {
        width: 32,
        blocks: 2,
        move_planes: 7,
        move_tokens: 4,
        time: true,
        condition: 8,
        squeeze: 8,
        policy: PolicyConfig::FromTo { width: 8 },
        heads: 8,
    });
    assert_eq!(config.encoding().name(), zeitnot_encoding::Encoding::name(&Zeitnot));
    let mut weights = Weights::by_formula(&specs::of(&config));
    change(&mut weights);
    onnx::export(&config, &weights, &[]).unwrap()
}

fn ranges(model: &[u8]) -> BTreeMap<String, (f32, f32)> {
    observed(model).unwrap().into_iter().map(|name| (name, (0.0, 4.0))).collect()
}

fn quantized(model: &[u8]) -> GraphProto {
    graph(&decode(&quantize(model, &ranges(model)).unwrap()).unwrap())
}

fn initializer<'a>(graph: &'a GraphProto, name: &str) -> &'a TensorProto {
    graph.initializer.iter().find(|tensor| tensor.name == name).unwrap()
}

#[test]
fn the_trunk_is_quantised_and_every_node_follows_what_it_reads() {
    let graph = quantized(&model(|_| ()));
    let count = |op: &str| graph.node.iter().filter(|node| node.op_type == op).count();
    // Four convolutions of two blocks; around them stem's output, two block outputs and two inner activations.
    assert_eq!((count("Conv"), count("QuantizeLinear")), (5, 6));
    let kernels = graph.initializer.iter().filter(|tensor| tensor.data_type == INT8 && tensor.dims.len() == 4);
    assert_eq!(kernels.count(), 4, "the stem stays f32");
    let mut known = graph.input.iter().map(|input| input.name.clone()).collect::<BTreeSet<_>>();
    known.extend(graph.initializer.iter().map(|tensor| tensor.name.clone()));
    for node in &graph.node {
        assert!(node.input.iter().all(|name| known.contains(name)), "{} reads what is not there yet", node.name);
        known.extend(node.output.iter().cloned());
    }
}

#[test]
fn kernels_have_seven_bits() {
    let graph = quantized(&model(|_| ()));
    let kernels = graph.initializer.iter().filter(|tensor| tensor.data_type == INT8 && tensor.dims.len() == 4);
    let largest = kernels.flat_map(|tensor| &tensor.raw_data).map(|&byte| (byte as i8).unsigned_abs()).max();
    assert_eq!(largest, Some(64));
}

#[test]
fn a_channel_without_weights_keeps_its_bias() {
    let model = model(|weights| {
        let kernel = Tensor { shape: vec![32, 32, 3, 3], values: vec![0.0; 32 * 32 * 9] };
        weights.insert("blocks.0.conv1.weight", kernel);
        weights.insert("blocks.0.norm1.bias", Tensor { shape: vec![32], values: vec![0.7; 32] });
    });
    let graph = quantized(&model);
    let bias = initializer(&graph, "blocks.0.conv1.weight.folded_bias");
    let scale = initializer(&graph, "blocks.0.conv1.weight.folded_bias.scale");
    let value = i32::from_le_bytes(bias.raw_data[..4].try_into().unwrap());
    let scale = f32::from_le_bytes(scale.raw_data[..4].try_into().unwrap());
    let before = {
        let graph = super::graph(&decode(&model).unwrap());
        let tensor = initializer(&graph, "blocks.0.conv1.weight.folded_bias").clone();
        f32::from_le_bytes(tensor.raw_data[..4].try_into().unwrap())
    };
    assert!(before > 0.5 && (value as f32 * scale - before).abs() < 1e-4, "{before} {value} {scale}");
}

#[test]
fn what_cannot_be_quantised_is_refused() {
    let model = model(|_| ());
    assert!(matches!(observed(b"banana"), Err(QuantizeError::Format(_))));
    assert_eq!(observed(&[]), Err(QuantizeError::Nothing));
    let mut ranges = ranges(&model);
    let first = ranges.keys().next().unwrap().clone();
    ranges.insert(first.clone(), (0.0, f32::INFINITY));
    assert_eq!(quantize(&model, &ranges), Err(QuantizeError::Range(first.clone())));
    ranges.remove(&first);
    assert_eq!(quantize(&model, &ranges), Err(QuantizeError::Range(first)));
}
