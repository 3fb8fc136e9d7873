use super::{
    schema::{Format, NetworkFormat, SeUnit},
    *,
};
use crate::{NetworkConfig, specs};

/// A layer whose values are all `value`.
fn layer(size: usize, value: f32) -> Option<Layer> {
    let params = Some(vec![0xff; 2 * size]);
    Some(Layer { min_val: Some(0.0), max_val: Some(value), params, ..Layer::default() })
}

fn convolution(weights: usize, output: usize) -> Option<ConvBlock> {
    Some(ConvBlock {
        weights: layer(weights, 0.5),
        bn_means: layer(output, 0.25),
        bn_stddivs: layer(output, 1.0),
        ..ConvBlock::default()
    })
}

fn biased(weights: usize, output: usize) -> Option<ConvBlock> {
    Some(ConvBlock { weights: layer(weights, 0.5), biases: layer(output, 0.125), ..ConvBlock::default() })
}

/// A network of two channels and one block, with the policy of 80 planes.
fn net(gated: bool, wdl: bool) -> Net {
    let se = SeUnit { w1: layer(2 * 3, 0.1), b1: layer(3, 0.1), w2: layer(3 * 4, 0.1), b2: layer(4, 0.1) };
    let block = Residual { conv1: convolution(36, 2), conv2: convolution(36, 2), se: gated.then_some(se) };
    let values = if wdl { 3 } else { 1 };
    let network = NetworkFormat {
        input: Some(1),
        network: Some(if gated { 4 } else { 3 }),
        policy: Some(2),
        value: Some(if wdl { 2 } else { 1 }),
        ..NetworkFormat::default()
    };
    Net {
        magic: Some(MAGIC),
        license: Some("a licence".to_owned()),
        onnx_model: None,
        format: Some(Format { weights_encoding: Some(1), network_format: Some(network) }),
        weights: Some(schema::Weights {
            input: convolution(9 * lc0::PLANES * 2, 2),
            residual: vec![block],
            policy1: convolution(36, 2),
            policy: biased(9 * 2 * 80, 80),
            ip_pol_w: None,
            ip_pol_b: None,
            value: convolution(2, 1),
            ip1_val_w: layer(64 * 5, 0.1),
            ip1_val_b: layer(5, 0.1),
            ip2_val_w: layer(5 * values, 0.1),
            ip2_val_b: layer(values, 0.1),
        }),
    }
}

/// The same with the policy of 1,858 moves over four channels.
fn connected(mut net: Net) -> Net {
    let weights = net.weights.as_mut().unwrap();
    weights.policy1 = None;
    weights.policy = convolution(2 * 4, 4);
    weights.ip_pol_w = layer(64 * 4 * 1858, 0.1);
    weights.ip_pol_b = layer(1858, 0.1);
    network(&mut net).policy = Some(1);
    net
}

fn network(net: &mut Net) -> &mut NetworkFormat {
    net.format.as_mut().unwrap().network_format.as_mut().unwrap()
}

fn read(net: &Net) -> Result<(Lc0Config, Weights), Lc0Error> {
    decode(&net.encode_to_vec()).map(|file| (file.config, file.weights))
}

fn refused(change: impl FnOnce(&mut Net)) -> String {
    let mut net = net(true, true);
    change(&mut net);
    read(&net).unwrap_err().to_string()
}

#[test]
fn every_kind_of_network_has_all_tensors_its_definition_asks_for() {
    for (gated, wdl) in [(true, true), (true, false), (false, true), (false, false)] {
        for (net, channels) in [(net(gated, wdl), None), (connected(net(gated, wdl)), Some(4))] {
            let (config, weights) = read(&net).unwrap();
            assert_eq!((config.width, config.blocks, config.wdl), (2, 1, wdl));
            assert_eq!((config.squeeze, config.policy_channels), (gated.then_some(3), channels));
            for spec in specs::of(&NetworkConfig::Lc0(config)) {
                weights.get(&spec).unwrap();
            }
        }
    }
}

#[test]
fn files_that_do_not_tell_their_heads_have_the_first_there_were() {
    let mut gated = connected(net(true, false));
    *network(&mut gated) = NetworkFormat { network: Some(2), ..NetworkFormat::default() };
    let mut plain = connected(net(false, false));
    plain.format.as_mut().unwrap().network_format = None;
    for (net, squeeze) in [(gated, Some(3)), (plain, None)] {
        let (config, _) = read(&net).unwrap();
        assert_eq!((config.squeeze, config.policy_channels, config.wdl), (squeeze, Some(4), false));
    }
}

#[test]
fn the_licence_is_the_files_own() {
    assert_eq!(decode(&net(true, true).encode_to_vec()).unwrap().license, "a licence");
}

#[test]
fn formats_that_are_not_read_are_refused_by_name() {
    type Change = fn(&mut Net);
    let cases: [(Change, &str); 12] = [
        (|net| net.onnx_model = Some(schema::OnnxModel {}), "an ONNX model in place of weights"),
        (|net| net.format = None, "weights encoding 0 (unknown)"),
        (|net| net.format.as_mut().unwrap().weights_encoding = Some(2), "weights encoding 2 (FLOAT16)"),
        (|net| network(net).network = Some(6), "network structure 6 (attention body)"),
        (|net| network(net).network = Some(77), "network structure 77 (newer than this reader)"),
        (|net| network(net).input = Some(3), "input format 3 (112 planes with canonicalization)"),
        (|net| network(net).input = None, "input format 0 (unknown)"),
        (|net| network(net).policy = Some(3), "policy format 3 (attention)"),
        (|net| network(net).value = Some(3), "value format 3 (parameters)"),
        (|net| network(net).default_activation = Some(1), "activation 1 (Mish)"),
        (
            |net| net.weights.as_mut().unwrap().ip2_val_w.as_mut().unwrap().encoding = Some(4),
            "value.1.weight in encoding 4 (FLOAT32)",
        ),
        (|net| net.format.as_mut().unwrap().network_format = None, "block 0 has squeeze-and-excitation"),
    ];
    for (change, expected) in cases {
        let said = refused(change);
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn a_crowd_of_empty_blocks_is_refused_before_it_takes_memory() {
    // A network whose tower has a million blocks of no bytes.
    let tower = [0x12, 0].repeat(1 << 20);
    let mut bytes = net(true, true).encode_to_vec();
    bytes.push(0x52);
    prost::encoding::encode_varint(tower.len() as u64, &mut bytes);
    bytes.extend(tower);
    let said = decode(&bytes).unwrap_err().to_string();
    assert!(said.contains("1048577 residual blocks, more than 64"), "{said}");
}

#[test]
fn biases_stand_for_a_normalisation_or_shift_its_mean() {
    let mut net = net(true, true);
    let weights = net.weights.as_mut().unwrap();
    weights.input.as_mut().unwrap().biases = layer(2, 0.125);
    let (config, weights) = read(&net).unwrap();
    let specs = specs::of(&NetworkConfig::Lc0(config));
    let first = |name: &str| weights.get(specs.iter().find(|spec| spec.name == name).unwrap()).unwrap().values[0];
    assert_eq!([first("policy.2.norm.bias"), first("policy.2.norm.running_mean")], [0.125, 0.0]);
    assert_eq!(first("input.norm.running_mean"), 0.125);
    assert_eq!(first("blocks.0.1.norm.running_mean"), 0.25);
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let weights = |net: &mut Net, change: fn(&mut schema::Weights)| change(net.weights.as_mut().unwrap());
    let lacking = refused(|net| weights(net, |weights| weights.residual[0].se = None));
    assert!(lacking.contains("block 0 lacks squeeze-and-excitation"), "{lacking}");
    let short = refused(|net| weights(net, |weights| weights.ip2_val_b = layer(2, 1.0)));
    assert_eq!(short, "value.1.bias has 2 values, the network needs 3");
    let gone = refused(|net| weights(net, |weights| weights.policy1 = None));
    assert_eq!(gone, "policy.1.weights has 0 values, the network needs 36");
    let unconnected = refused(|net| network(net).policy = Some(1));
    assert_eq!(unconnected, "policy.biases has 80 values, the network needs 720");
    let empty = refused(|net| weights(net, |weights| weights.ip1_val_b = layer(0, 1.0)));
    assert!(empty.contains("network.value_hidden: 0"), "{empty}");
    assert!(refused(|net| net.magic = Some(7)).contains("magic number is 0x7"));
}

#[test]
fn more_than_the_largest_file_is_not_read() {
    use std::io::Write;
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let zeros = vec![0; 1 << 20];
    (0..=LARGEST >> 20).for_each(|_| bomb.write_all(&zeros).unwrap());
    assert!(matches!(parse(bomb.finish().unwrap().as_slice()), Err(Lc0Error::Size)));
}
