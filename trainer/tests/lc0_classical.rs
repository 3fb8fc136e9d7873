//! A file with the fully connected policy and a scalar value through import and ONNX Runtime, against plain loops.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::{fs, io::Write};

use prost::Message;
use shakmaty::Square;
use zeitnot_encoding::{Batch, Conditions, Game, Lc0, vocabulary};
use zeitnot_inference::{Device, Runtime, Session, SessionOptions};
use zeitnot_network::lc0::reader::schema::{
    ConvBlock, Format, Layer, Net, NetworkFormat, Residual, SeUnit, Weights as File,
};
use zeitnot_trainer::{
    import::{self, Files, Import},
    model_file::About,
};

const WIDTH: usize = 5;
const SQUEEZE: usize = 3;
const POLICY: usize = 2;
const HIDDEN: usize = 7;

/// A layer with values of a wave of its own around `middle`, and what a reader should find in it.
fn layer(size: usize, seed: usize, middle: f32, span: f32) -> (Option<Layer>, Vec<f32>) {
    let wave = |i: usize| (0.731 * i as f64 + 1.618 * seed as f64).sin();
    let codes = (0..size).map(|i| ((wave(i) + 1.0) * 32767.5) as u16).collect::<Vec<_>>();
    let (least, most) = (middle - span, middle + span);
    let values = codes.iter().map(|&code| least + (most - least) * f32::from(code) / 65535.0).collect();
    let params = Some(codes.iter().flat_map(|code| code.to_le_bytes()).collect());
    (Some(Layer { min_val: Some(least), max_val: Some(most), params, ..Layer::default() }), values)
}

/// A convolution with its normalisation, in the file and as plain numbers.
struct Plain {
    kernel: Vec<f32>,
    scale: Vec<f32>,
    shift: Vec<f32>,
    mean: Vec<f32>,
    variance: Vec<f32>,
}

fn convolution(input: usize, output: usize, taps: usize, seed: usize) -> (Option<ConvBlock>, Plain) {
    let (weights, kernel) = layer(input * output * taps, seed, 0.0, (3.0 / (input * taps) as f32).sqrt());
    let (bn_gammas, scale) = layer(output, seed + 1, 1.0, 0.2);
    let (bn_betas, shift) = layer(output, seed + 2, 0.1, 0.2);
    let (bn_means, mean) = layer(output, seed + 3, 0.0, 0.1);
    let (bn_stddivs, variance) = layer(output, seed + 4, 1.0, 0.3);
    let block = ConvBlock { weights, bn_gammas, bn_betas, bn_means, bn_stddivs, biases: None };
    (Some(block), Plain { kernel, scale, shift, mean, variance })
}

impl Plain {
    /// A convolution over `side` by `side` squares around each, then the normalisation.
    fn run(&self, x: &[f32], side: usize) -> Vec<f32> {
        let (input, output) = (x.len() / 64, self.scale.len());
        let reach = side as i32 / 2;
        let mut out = vec![0.0; output * 64];
        for o in 0..output {
            for (cell, value) in out[o * 64..(o + 1) * 64].iter_mut().enumerate() {
                let (rank, file) = (cell as i32 / 8, cell as i32 % 8);
                let mut sum = 0.0;
                for i in 0..input {
                    for dr in -reach..=reach {
                        for df in -reach..=reach {
                            let (r, f) = (rank + dr, file + df);
                            if (0..8).contains(&r) && (0..8).contains(&f) {
                                let tap = ((dr + reach) as usize * side) + (df + reach) as usize;
                                let weight = self.kernel[(o * input + i) * side * side + tap];
                                sum += weight * x[i * 64 + (r * 8 + f) as usize];
                            }
                        }
                    }
                }
                *value = self.scale[o] * (sum - self.mean[o]) / (self.variance[o] + 1e-5).sqrt() + self.shift[o];
            }
        }
        out
    }
}

fn linear(x: &[f32], weight: &[f32], bias: &[f32]) -> Vec<f32> {
    let row = |(o, bias): (usize, &f32)| {
        let weights = &weight[o * x.len()..(o + 1) * x.len()];
        bias + weights.iter().zip(x).map(|(w, x)| w * x).sum::<f32>()
    };
    bias.iter().enumerate().map(row).collect()
}

fn relu(mut x: Vec<f32>) -> Vec<f32> {
    x.iter_mut().for_each(|value| *value = value.max(0.0));
    x
}

/// The file and a plain computation of its 1,858 logits and its value.
fn network() -> (Net, impl Fn(&[f32]) -> (Vec<f32>, f32)) {
    let (input, plain_input) = convolution(112, WIDTH, 9, 10);
    let (conv1, first) = convolution(WIDTH, WIDTH, 9, 20);
    let (conv2, second) = convolution(WIDTH, WIDTH, 9, 30);
    let (w1, squeeze) = layer(WIDTH * SQUEEZE, 40, 0.0, 0.5);
    let (b1, squeeze_bias) = layer(SQUEEZE, 41, 0.0, 0.2);
    let (w2, excite) = layer(SQUEEZE * 2 * WIDTH, 42, 0.0, 0.5);
    let (b2, excite_bias) = layer(2 * WIDTH, 43, 0.0, 0.2);
    let (policy, plain_policy) = convolution(WIDTH, POLICY, 1, 50);
    let (ip_pol_w, logits) = layer(POLICY * 64 * 1858, 60, 0.0, 0.2);
    let (ip_pol_b, logits_bias) = layer(1858, 61, 0.0, 0.2);
    let (value, plain_value) = convolution(WIDTH, 1, 1, 70);
    let (ip1_val_w, hidden) = layer(64 * HIDDEN, 80, 0.0, 0.2);
    let (ip1_val_b, hidden_bias) = layer(HIDDEN, 81, 0.1, 0.2);
    let (ip2_val_w, last) = layer(HIDDEN, 82, 0.0, 0.5);
    let (ip2_val_b, last_bias) = layer(1, 83, 0.0, 0.2);
    let block = Residual { conv1, conv2, se: Some(SeUnit { w1, b1, w2, b2 }) };
    let net = Net {
        magic: Some(0x1c0),
        // The second structure tells nothing of its heads: one value and 1,858 moves.
        format: Some(Format {
            weights_encoding: Some(1),
            network_format: Some(NetworkFormat { input: Some(1), network: Some(2), ..NetworkFormat::default() }),
        }),
        weights: Some(File {
            input,
            residual: vec![block],
            policy,
            ip_pol_w,
            ip_pol_b,
            value,
            ip1_val_w,
            ip1_val_b,
            ip2_val_w,
            ip2_val_b,
            policy1: None,
        }),
        ..Net::default()
    };
    let run = move |planes: &[f32]| {
        let trunk = relu(plain_input.run(planes, 3));
        let inner = second.run(&relu(first.run(&trunk, 3)), 3);
        let means = inner.chunks(64).map(|channel| channel.iter().sum::<f32>() / 64.0).collect::<Vec<_>>();
        let gates = linear(&relu(linear(&means, &squeeze, &squeeze_bias)), &excite, &excite_bias);
        let gated = |(cell, value): (usize, &f32)| {
            let gate = 1.0 / (1.0 + (-gates[cell / 64]).exp());
            value * gate + gates[WIDTH + cell / 64] + trunk[cell]
        };
        let trunk = relu(inner.iter().enumerate().map(gated).collect());
        let policy = linear(&relu(plain_policy.run(&trunk, 1)), &logits, &logits_bias);
        let value = relu(linear(&relu(plain_value.run(&trunk, 1)), &hidden, &hidden_bias));
        (policy, linear(&value, &last, &last_bias)[0].tanh())
    };
    (net, run)
}

/// The 1,858 moves in the published order, made from how pieces move rather than from the vocabulary.
fn published_order() -> Vec<String> {
    let mut moves = Vec::new();
    for from in Square::ALL {
        for to in Square::ALL {
            let files = (i32::from(to.file()) - i32::from(from.file())).abs();
            let ranks = (i32::from(to.rank()) - i32::from(from.rank())).abs();
            let slides = (files == 0) != (ranks == 0) || (files == ranks && files > 0);
            if slides || files * ranks == 2 {
                moves.push(format!("{from}{to}"));
            }
        }
    }
    for from in 'a'..='h' {
        for to in 'a'..='h' {
            if (i32::from(from as u8) - i32::from(to as u8)).abs() <= 1 {
                moves.extend(['q', 'r', 'b'].map(|piece| format!("{from}7{to}8{piece}")));
            }
        }
    }
    moves
}

#[test]
fn logits_and_value_are_those_of_plain_loops() {
    let (net, plain) = network();
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("old.pb.gz"), folder.path().join("old.onnx"));
    let mut gzip = flate2::write::GzEncoder::new(fs::File::create(&file).unwrap(), flate2::Compression::fast());
    gzip.write_all(&net.encode_to_vec()).unwrap();
    gzip.finish().unwrap();
    import::run(&Import::Lc0(Files { file, out: out.clone(), about: About::default(), int8: Default::default() }))
        .unwrap();

    let options = SessionOptions { device: Device::Cpu, threads: 1 };
    let mut session = Session::open(&Runtime::load(None).unwrap(), &out, options).unwrap();
    let order = published_order();
    assert_eq!(order.len(), 1858);
    let cases: [(&str, &[&str]); 4] = [
        ("", &[]),
        ("", &["e2e4", "e7e5", "g1f3", "b8c6", "f1c4", "f8c5"]),
        ("r3k2r/8/8/8/8/8/8/R3K2R b KQkq - 3 20", &[]),
        ("8/P6k/8/8/8/8/p6K/4R3 w - - 0 1", &[]),
    ];
    for (fen, moves) in cases {
        let game = Game::parse(fen, moves).unwrap();
        let situation = game.situation(Conditions::default());
        let batch = Batch::of(&Lc0, [&situation]);
        let answer = session.run(&batch).unwrap();
        let (logits, value) = plain(batch.floats("planes"));
        assert!((answer.row(0).unwrap().outlook.expected_score - f64::from(1.0 + value) as f32 / 2.0).abs() < 1e-4);
        let king_at_home = batch.floats("planes")[5 * 64 + 4] == 1.0;
        for (index, entry) in vocabulary::entries().iter().enumerate() {
            let mut uci = format!("{}{}", entry.from, entry.to);
            if let Some(role) = entry.promotion {
                if entry.from.rank() != shakmaty::Rank::Seventh {
                    continue; // No move in the mover's frame.
                }
                uci.extend((role != shakmaty::Role::Knight).then_some(role.char()));
            }
            if king_at_home && (uci == "e1g1" || uci == "e1c1") {
                uci = uci.replace("g1", "h1").replace("c1", "a1");
            }
            if let Some(place) = order.iter().position(|mv| *mv == uci) {
                let ours = answer.policy[index];
                assert!((ours - logits[place]).abs() < 1e-4, "{uci} after {moves:?}: {ours} {}", logits[place]);
            }
        }
    }
}
