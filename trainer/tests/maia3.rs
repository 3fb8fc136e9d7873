//! Maia-3 networks against the reference package, their tensors filled by the closed formula.
#![cfg(feature = "tch")]
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use serde::Deserialize;
use tch::Device;
use zeitnot_encoding::{Batch, Conditions, Game, LegalMoves, Maia3, decode::softmax};
use zeitnot_inference::{Metadata, Runtime, Session, SessionOptions};
use zeitnot_network::{Maia3Config, NetworkConfig, Weights, onnx, specs};
use zeitnot_trainer::{parity::difference, train::eager::Network};

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
    legal: Vec<String>,
    logit: Vec<f32>,
    probability: Vec<f32>,
    value_logits: [f32; 3],
    ponder: f32,
}

fn golden() -> Golden {
    let golden: Golden = serde_json::from_str(include_str!("../../encoding/tests/data/maia3-golden.json")).unwrap();
    assert_eq!(golden.cases.len(), 26);
    golden
}

/// The published network of five million parameters.
fn five_million() -> Maia3Config {
    toml::from_str(
        "width = 256\nblocks = 8\nheads = 8\nfeed_forward = 512\nrating = 128\npolicy = 256\n\
         bias = { hidden = 64, generated = 64, per_square = 0 }",
    )
    .unwrap()
}

fn situation(case: &Case) -> (Game, zeitnot_encoding::Situation) {
    let game = Game::parse("", &case.moves).unwrap();
    let conditions = Conditions {
        mover_rating: Some(case.mover_elo),
        opponent_rating: Some(case.opponent_elo),
        ..Conditions::default()
    };
    let situation = game.situation(conditions);
    (game, situation)
}

#[test]
fn logits_value_and_ponder_are_those_of_the_reference() {
    let golden = golden();
    let config = NetworkConfig::Maia3(five_million());
    let specs = specs::of(&config);
    let ours = specs.iter().map(|spec| (spec.name.clone(), spec.shape.clone())).collect::<Vec<_>>();
    assert_eq!(ours, golden.tensors, "tensor names and shapes are those of a published checkpoint");
    let weights = Weights::by_formula(&specs);
    assert_eq!(Maia3Config::of(&weights).unwrap(), five_million());

    let bytes = onnx::export(&config, &weights, &Metadata::new(&Maia3, "formula", "1", "", "").entries()).unwrap();
    let options = SessionOptions { device: zeitnot_inference::Device::Cpu, threads: 2 };
    let mut session = Session::from_bytes(&Runtime::load(None).unwrap(), "formula", &bytes, options).unwrap();
    for (number, case) in golden.cases.iter().enumerate() {
        let (game, situation) = situation(case);
        let batch = Batch::of(&Maia3, [&situation]);
        let answer = session.run(&batch).unwrap();
        let legal = LegalMoves::of(game.position());
        let probabilities = legal.probabilities(&answer.policy);
        for (((uci, logit), probability), place) in
            case.legal.iter().zip(&case.logit).zip(&case.probability).zip(places(&legal, &case.legal))
        {
            let ours = answer.policy[usize::from(legal.indices()[place])];
            assert!((ours - logit).abs() < 1e-4, "logit of {uci} of case {number}: {ours} {logit}");
            assert!((probabilities[place] - probability).abs() < 1e-5, "{uci} of case {number}");
        }
        let [loss, draw, win] = case.value_logits;
        for (ours, theirs) in answer.wdl.iter().zip([win, draw, loss]) {
            assert!((ours - theirs).abs() < 1e-4, "value of case {number}: {ours} {theirs}");
        }
        let expected = softmax([win, draw, loss].into_iter());
        let outlook = answer.row(0).unwrap().outlook;
        assert!((outlook.expected_score - expected[0] - 0.5 * expected[1]).abs() < 1e-5);
        let ponder = session.tensors(&batch, &["ponder".to_owned()]).unwrap().remove(0);
        assert!((ponder[0] - case.ponder).abs() < 1e-4, "ponder of case {number}");
    }
}

fn places<'a>(legal: &'a LegalMoves, named: &'a [String]) -> impl Iterator<Item = usize> + 'a {
    let name = |mv| shakmaty::uci::UciMove::from_standard(mv).to_string();
    named.iter().map(move |uci| legal.moves().iter().position(|&mv| name(mv) == *uci).unwrap())
}

#[test]
fn tch_and_onnx_agree_for_all_published_sizes() {
    let bias = |hidden, generated, per_square| zeitnot_network::maia3::BiasConfig { hidden, generated, per_square };
    // Widths, heads and biases of the published sizes, with fewer blocks than they have.
    let sizes = [
        (192, 6, 192, bias(64, 64, 0)),
        (256, 8, 256, bias(64, 64, 0)),
        (512, 16, 512, bias(128, 128, 32)),
        (1024, 32, 1024, bias(128, 128, 32)),
    ];
    for (width, heads, policy, bias) in sizes {
        for per_square_bias in [false, true] {
            let config = Maia3Config {
                width,
                blocks: 1,
                heads,
                feed_forward: 2 * width,
                policy,
                bias,
                per_square_bias: per_square_bias && bias.per_square > 0,
                ..five_million()
            };
            let network = NetworkConfig::Maia3(config.clone());
            let weights = Weights::by_formula(&specs::of(&network));
            assert_eq!(Maia3Config::of(&weights).unwrap(), config);
            let bytes = onnx::export(&network, &weights, &Metadata::new(&Maia3, "a", "1", "", "").entries()).unwrap();
            let eager = Network::with_weights(&network, Device::Cpu, &weights).unwrap();
            for rows in [1, 3] {
                let batch = zeitnot_trainer::model_file::samples(&Maia3, rows);
                let gap = difference(&eager, &bytes, &batch).unwrap();
                assert!(gap < 1e-4, "width {width}, {rows} rows: {gap}");
            }
        }
    }
}
