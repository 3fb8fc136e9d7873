//! One definition, two interpreters: tch and ONNX Runtime agree with the reference implementation and each other.
#![cfg(feature = "tch")]
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::path::Path;

use serde::Deserialize;
use sha2::{Digest, Sha256};
use shakmaty::{Chess, Move, Position, uci::UciMove};
use tch::Device;
use zeitnot_encoding::{Batch, Conditions, Encoding, Otter, Situation, Zeitnot};
use zeitnot_inference::{Answer, Metadata, Runtime, Session, SessionOptions};
use zeitnot_network::{NetworkConfig, OtterConfig, Weights, onnx, specs};
use zeitnot_trainer::{
    import::{self, Files, Import},
    model_file::{About, samples},
    parity::{TOLERANCE, answer, difference},
    train::{
        checkpoint::read_weights,
        config::{Condition, TrainConfig},
        eager::Network,
    },
};

#[derive(Deserialize)]
struct Golden {
    tensors: Vec<(String, Vec<i64>)>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    moves: Vec<String>,
    mover_elo: u16,
    opponent_elo: u16,
    time_control: String,
    clock_seconds: Option<f32>,
    legal: Vec<usize>,
    formula_network: Outputs,
}

#[derive(Deserialize)]
struct Outputs {
    policy_at_legal: Vec<f32>,
    value: f32,
    aux_first_13: Vec<f32>,
}

impl Case {
    fn push(&self, batch: &mut Batch) {
        let mut situation = Situation::default();
        self.moves.iter().for_each(|uci| situation.play(as_written(&situation.position, uci)));
        situation.conditions = Conditions {
            mover_rating: Some(self.mover_elo),
            opponent_rating: Some(self.opponent_elo),
            time_control: self.time_control.parse().ok(),
            mover_clock: self.clock_seconds,
            ..Conditions::default()
        };
        batch.push(&situation);
    }

    /// Largest difference from a row of an answer.
    fn gap(&self, answer: &Answer, row: usize) -> f32 {
        let policy = answer.row(row).unwrap().policy;
        let value = answer.value[row];
        let expected = &self.formula_network;
        let policy = self.legal.iter().zip(&expected.policy_at_legal).map(|(&i, e)| policy[i] - e);
        let auxiliary = answer.auxiliary[row * 141..].iter().zip(&expected.aux_first_13).map(|(a, e)| a - e);
        policy.chain(auxiliary).chain([value - expected.value]).map(f32::abs).fold(0.0, f32::max)
    }
}

/// One case of the data contains a pawn's capture of an empty square, which the reference plays as written.
fn as_written(position: &Chess, text: &str) -> Move {
    let uci: UciMove = text.parse().unwrap();
    let UciMove::Normal { from, to, promotion } = uci else { panic!("{text}") };
    let role = position.board().role_at(from).unwrap();
    uci.to_move(position).unwrap_or(Move::Normal { role, from, capture: None, to, promotion })
}

fn reference() -> NetworkConfig {
    NetworkConfig::Otter(OtterConfig::reference())
}

fn reference_onnx(weights: &Weights) -> Vec<u8> {
    onnx::export(&reference(), weights, &Metadata::new(&Otter, "formula", "1", "", "").entries()).unwrap()
}

#[test]
fn tch_and_onnx_match_the_reference_at_every_batch_size() {
    let golden: Golden = serde_json::from_str(include_str!("../../encoding/tests/data/otter-golden.json")).unwrap();
    let specs = specs::of(&reference());
    let ours = specs.iter().map(|spec| (spec.name.clone(), spec.shape.clone())).collect::<Vec<_>>();
    assert_eq!(ours, golden.tensors, "tensor names and shapes are those of the published file");
    assert_eq!(golden.cases.len(), 76);

    let weights = Weights::by_formula(&specs);
    let network = Network::with_weights(&reference(), Device::Cpu, &weights).unwrap();
    let options = SessionOptions { device: zeitnot_inference::Device::Cpu, threads: 2 };
    let runtime = Runtime::load(None).unwrap();
    let mut session = Session::from_bytes(&runtime, "formula", &reference_onnx(&weights), options).unwrap();
    for size in [1, 3, 16] {
        for cases in golden.cases.chunks(size) {
            let mut batch = Batch::new(&Otter, size);
            cases.iter().for_each(|case| case.push(&mut batch));
            batch.pad(size);
            let (tch, onnx) = (answer(&network, &batch).unwrap(), session.run(&batch).unwrap());
            assert!(tch.policy.iter().chain(&onnx.policy).all(|logit| logit.is_finite()), "padding rows stay finite");
            for (row, case) in cases.iter().enumerate() {
                assert!(case.gap(&tch, row) < 3e-5, "tch, batch of {size}: {}", case.gap(&tch, row));
                assert!(case.gap(&onnx, row) < 3e-5, "ONNX, batch of {size}: {}", case.gap(&onnx, row));
            }
        }
    }
}

fn recipe(name: &str, without: &[Condition]) -> NetworkConfig {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes").join(name);
    TrainConfig::read(&path).unwrap().without(without).unwrap().network
}

#[test]
fn every_recipe_exports_to_what_it_trains() {
    assert_eq!(recipe("reference.toml", &[]), reference());
    let both = [Condition::History, Condition::Time];
    for file in ["zeitnot.toml", "compact.toml"] {
        for without in [&[][..], &[Condition::Time], &[Condition::History], &both] {
            let config = recipe(file, without);
            let weights = Weights::by_formula(&specs::of(&config));
            let network = Network::with_weights(&config, Device::Cpu, &weights).unwrap();
            let metadata = Metadata::new(config.encoding(), file, "1", "", "");
            let bytes = onnx::export(&config, &weights, &metadata.entries()).unwrap();
            for size in [1, 3, 16] {
                let mut batch = samples(config.encoding(), size);
                for padded in [size, size + 2] {
                    batch.pad(padded);
                    let gap = difference(&network, &bytes, &batch).unwrap();
                    assert!(gap < 1e-4, "{file} without {without:?} at {size} of {padded}: {gap}");
                }
            }
        }
    }
}

#[test]
fn the_reference_network_has_15_million_parameters() {
    let count = specs::of(&reference()).iter().filter(|spec| spec.learnt).map(|spec| spec.size()).sum::<usize>();
    assert!((15_250_000..15_350_000).contains(&count), "{count}");
}

#[test]
fn switched_off_conditions_do_not_reach_the_outputs() {
    for (file, encoding) in [("zeitnot.toml", &Zeitnot as &dyn Encoding), ("compact.toml", &Otter)] {
        let mut situations = game();
        let seen = Batch::of(encoding, &situations);
        for situation in &mut situations {
            situation.history.truncate(0);
            let Conditions { mover_rating, opponent_rating, .. } = situation.conditions;
            situation.conditions = Conditions { mover_rating, opponent_rating, ..Conditions::default() };
        }
        let blind = Batch::of(encoding, &situations);
        assert_ne!(seen, blind);
        let answers = |without: &[Condition]| {
            let config = recipe(file, without);
            let weights = Weights::by_formula(&specs::of(&config));
            let network = Network::with_weights(&config, Device::Cpu, &weights).unwrap();
            [&seen, &blind].map(|batch| answer(&network, batch).unwrap())
        };
        let [with, without] = answers(&[Condition::History, Condition::Time]);
        assert_eq!(with, without, "{file}");
        let [with, without] = answers(&[]);
        assert_ne!(with, without, "{file}");
    }
}

/// Situations of one game, with all that is known of them.
fn game() -> Vec<Situation> {
    let conditions = Conditions {
        mover_rating: Some(1500),
        opponent_rating: Some(1600),
        time_control: "300+3".parse().ok(),
        mover_clock: Some(200.0),
        opponent_clock: Some(100.0),
        ..Conditions::default()
    };
    let mut situation = Situation { conditions, ..Situation::default() };
    let moves = ["e2e4", "e7e5", "g1f3", "b8c6"].map(|uci| uci.parse::<UciMove>().unwrap());
    moves
        .map(|uci| {
            situation.play(uci.to_move(&situation.position).unwrap());
            situation.clone()
        })
        .into()
}

#[test]
fn a_file_that_differs_from_the_network_is_noticed() {
    let config = recipe("compact.toml", &[]);
    let specs = specs::of(&config);
    let weights = Weights::by_formula(&specs);
    let mut changed = weights.clone();
    let spec = specs.iter().find(|spec| spec.name == "policy.to.weight").unwrap();
    let mut tensor = weights.get(spec).unwrap().clone();
    tensor.values[0] += 0.5;
    changed.insert(&spec.name, tensor);
    let bytes = onnx::export(&config, &changed, &Metadata::new(&Otter, "changed", "1", "", "").entries()).unwrap();
    let network = Network::with_weights(&config, Device::Cpu, &weights).unwrap();
    assert!(difference(&network, &bytes, &samples(&Otter, 16)).unwrap() > TOLERANCE);
}

#[test]
fn published_weights_become_a_model_and_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let config = reference();
    let weights = Weights::by_formula(&specs::of(&config));
    let file = folder.path().join("otter.safetensors");
    let network = Network::with_weights(&config, Device::Cpu, &weights).unwrap();
    // The published file also holds counters, which are not f32.
    let mut tensors = network
        .parameters
        .tensors()
        .iter()
        .map(|(name, tensor)| (name.clone(), tensor.shallow_clone()))
        .collect::<Vec<_>>();
    tensors.push(("board_encoder.stem.1.num_batches_tracked".into(), tch::Tensor::from(12i64)));
    tch::Tensor::write_safetensors(&tensors, &file).unwrap();

    let (out, run) = (folder.path().join("otter.onnx"), folder.path().join("run"));
    let about = About::default();
    let files = Files { file: file.clone(), out: out.clone(), about, int8: Default::default() };
    let import = Import::Otter { files, checkpoint: Some(run.clone()) };
    import::run(&import).unwrap();
    let runtime = Runtime::load(None).unwrap();
    let options = SessionOptions { device: zeitnot_inference::Device::Cpu, threads: 1 };
    let session = Session::open(&runtime, &out, options).unwrap();
    let metadata = session.metadata();
    assert_eq!((metadata.encoding.as_str(), metadata.license.as_str()), ("otter/1", "MIT"));
    let sha256 = format!("{:x}", Sha256::digest(std::fs::read(&file).unwrap()));
    let name = file.file_name().unwrap().to_string_lossy();
    assert_eq!((metadata.source.as_str(), metadata.source_sha256.as_str()), (&*name, sha256.as_str()));
    assert_eq!(read_weights(&run).unwrap(), weights);

    tensors.retain(|(name, _)| name != "value_proj.3.bias");
    tch::Tensor::write_safetensors(&tensors, &file).unwrap();
    let error = format!("{:#}", import::run(&import).unwrap_err());
    assert!(error.contains("tensor value_proj.3.bias is missing"), "{error}");
}

#[test]
fn models_that_cannot_be_served_are_refused_by_name() {
    let config = recipe("compact.toml", &[]);
    let weights = Weights::by_formula(&specs::of(&config));
    let runtime = Runtime::load(None).unwrap();
    let options = SessionOptions { device: zeitnot_inference::Device::Cpu, threads: 1 };
    let refused = |bytes: &[u8]| Session::from_bytes(&runtime, "a.onnx", bytes, options).unwrap_err().to_string();
    let stranger = Metadata { encoding: "otter/9".into(), ..Metadata::new(&Otter, "a", "1", "", "") };
    let bytes = onnx::export(&config, &weights, &stranger.entries()).unwrap();
    assert!(refused(&bytes).contains("a.onnx: zeitnot.encoding is `otter/9`"));
    assert!(refused(b"banana").contains("a.onnx: ONNX Runtime cannot read it"));
    if Path::new("/dev/nvidia0").exists() {
        return;
    }
    let cuda = SessionOptions { device: zeitnot_inference::Device::Cuda, threads: 1 };
    let good = onnx::export(&config, &weights, &Metadata::new(&Otter, "a", "1", "", "").entries()).unwrap();
    let error = Session::from_bytes(&runtime, "a.onnx", &good, cuda).unwrap_err().to_string();
    assert!(error.starts_with("CUDA cannot be used"), "{error}");
}
