//! Maia-1 networks through import and ONNX Runtime, against an independent converter.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::{collections::BTreeMap, fs, io::Write};

use serde::Deserialize;
use zeitnot_encoding::{Batch, Conditions, Game, Lc0, LegalMoves};
use zeitnot_inference::{Device, Runtime, Session, SessionOptions};
use zeitnot_trainer::{
    import::{self, Files, Import},
    model_file::About,
};

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    moves: Vec<String>,
    expected: BTreeMap<String, Expected>,
}

#[derive(Deserialize)]
struct Expected {
    wdl: [f32; 3],
    policy: BTreeMap<String, f32>,
}

#[test]
fn probabilities_and_outlook_are_those_of_the_independent_converter() {
    let golden: Golden = serde_json::from_str(include_str!("../../encoding/tests/data/maia1-golden.json")).unwrap();
    let Some(maia) = common::shared("maia1") else { return };
    let folder = tempfile::tempdir().unwrap();
    for rating in ["1100", "1500", "1900"] {
        let (file, out) = (maia.join(format!("maia-{rating}.pb.gz")), folder.path().join(format!("{rating}.onnx")));
        import::run(&Import::Lc0(Files { file, out: out.clone(), about: About::default(), int8: Default::default() }))
            .unwrap();
        let options = SessionOptions { device: Device::Cpu, threads: 2 };
        let mut session = Session::open(&Runtime::load(None).unwrap(), &out, options).unwrap();
        assert_eq!(session.metadata().name, format!("maia-{rating}"));
        for (number, case) in golden.cases.iter().enumerate() {
            let game = Game::parse("", &case.moves).unwrap();
            let situation = game.situation(Conditions::default());
            let answer = session.run(&Batch::of(&Lc0, [&situation])).unwrap().row(0).unwrap();
            let expected = &case.expected[rating];
            for (ours, theirs) in answer.outlook.wdl.unwrap().iter().zip(expected.wdl) {
                assert!((ours - theirs).abs() < 1e-4, "outlook of case {number} by {rating}: {ours} {theirs}");
            }
            let ranked = LegalMoves::of(game.position()).rank(game.position(), &answer.policy);
            assert_eq!(ranked.len(), expected.policy.len());
            for mv in ranked {
                let theirs = expected.policy[&mv.uci];
                assert!((mv.probability - theirs).abs() < 1e-4, "{} of case {number} by {rating}", mv.uci);
            }
        }
    }
}

#[test]
fn files_that_are_no_weights_are_refused_by_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |bytes: &[u8]| {
        let (file, out) = (folder.path().join("maia.pb.gz"), folder.path().join("maia.onnx"));
        fs::write(&file, bytes).unwrap();
        let error = import::run(&Import::Lc0(Files {
            file,
            out: out.clone(),
            about: About::default(),
            int8: Default::default(),
        }))
        .unwrap_err();
        assert!(!out.exists());
        format!("{error:#}")
    };
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    assert!(refused(b"banana").contains("maia.pb.gz: "));
    assert!(refused(&gzip(b"banana")).contains("not a weights file of Leela Chess Zero"));
    assert!(refused(&gzip(&[])).contains("magic number is 0x0"));
    let magic = [0x0d, 0xc0, 0x01, 0, 0];
    let format = |network: &[u8]| {
        let mut bytes = magic.to_vec();
        bytes.extend([0x22, 4 + network.len() as u8, 0x08, 1, 0x12, network.len() as u8]);
        bytes.extend(network);
        gzip(&bytes)
    };
    assert!(refused(&gzip(&magic)).contains("weights encoding 0 (unknown) is not supported"));
    assert!(refused(&format(&[0x08, 9])).contains("network structure 0 (unknown)"));
    assert!(refused(&format(&[0x08, 9, 0x18, 4])).contains("input format 9 (newer than this reader)"));
    assert!(refused(&format(&[0x08, 1, 0x18, 4, 0x20, 3])).contains("policy format 3 (attention) is not supported"));
    assert!(refused(&format(&[0x08, 1, 0x18, 4, 0x20, 2, 0x28, 2])).contains("input.weights has 0 values"));
    let Some(maia) = common::shared("maia1") else { return };
    let whole = fs::read(maia.join("maia-1100.pb.gz")).unwrap();
    assert!(refused(&whole[..whole.len() / 2]).contains("maia.pb.gz"));
}
