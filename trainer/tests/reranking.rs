//! Re-rankers from evidence to file: trained, judged, fitted to a player, and asked which searches are worth it.
//!
//! The engine of these tests likes the move that was played, so what it is worth is known beforehand.
#![cfg(feature = "tch")]
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use serde_json::json;
use zeitnot_encoding::evidence::Score;
use zeitnot_inference::{Reranker, Runtime};
use zeitnot_trainer::{
    annotate::{
        plan::{Plan, Selection},
        shard::{self, Evidence, Search},
    },
    rerank::{allocate, kept::StyleFile, known::Prior, report, style, train},
};

const PRIOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/zeitnot.onnx");

/// Shards of random games, and evidence about them: at depth 2 a guess, at depth 4 the move played is best.
fn evidence(folder: &Path) -> (PathBuf, PathBuf) {
    let data = common::shards(folder, 40);
    let selection = Selection { per_game: 20, per_player: 0, ..Selection::default() };
    let plan = Plan::read(&data, &selection).unwrap();
    let decisions = plan.places(0, plan.len()).map(|place| plan.decision(place).unwrap()).collect::<Vec<_>>();
    let games = decisions.iter().map(|(game, decision)| (game.id.clone(), game.site.clone(), decision.ply));
    let games = games.collect::<Vec<_>>();
    let mut prior = Prior::open(Path::new(PRIOR)).unwrap();
    let known = prior.without_evidence(decisions).unwrap();
    let rows = known.iter().zip(games).map(|(known, (game_id, site, ply))| {
        let places = &known.candidates.places;
        let like = |right: bool| {
            let score = |(rank, place): (usize, &usize)| {
                let liked = if right { *place == known.played } else { rank == ply % 3 };
                Some(Score::Centipawns(if liked { 250 } else { -10 * rank as i32 }))
            };
            places.iter().enumerate().map(score).collect::<Vec<_>>()
        };
        let search = |depth, nodes, right| Search { depth, nodes, scores: like(right) };
        Evidence {
            game_id,
            site,
            ply: ply as u16,
            candidates: known.candidates.indices.clone(),
            played: places.iter().position(|&place| place == known.played).map(|place| place as u8),
            searches: vec![search(2, 1_000, false), search(4, 1_000_000, true)],
        }
    });
    let out = folder.join("evidence");
    fs::create_dir_all(&out).unwrap();
    shard::write(&shard::path(&out, 0), &rows.collect::<Vec<_>>()).unwrap();
    let manifest = json!({
        "model": prior.model(), "engine": "Oracle", "engine_options": [], "depth": 4, "nodes": 0,
        "selection": selection, "decisions": plan.len(), "plan": plan.fingerprint(), "shard_decisions": 1000,
    });
    fs::write(out.join("annotate.json"), manifest.to_string()).unwrap();
    (data, out)
}

fn options(data: &Path, evidence: &Path, out: &Path) -> train::Options {
    let config = out.with_extension("toml");
    let recipe = "[network]\nwidth = 32\nheads = 4\nfeed_forward = 32\nlayers = 1\n\
        [training]\nbatch_size = 64\nepochs = 6\nstyle_from = 20\n[training.optimizer]\nlearning_rate = 0.005\n";
    fs::write(&config, recipe).unwrap();
    train::Options {
        config: Some(config),
        data: data.to_owned(),
        evidence: vec![evidence.to_owned()],
        unscored: 0,
        model: PRIOR.into(),
        out: out.to_owned(),
        init: None,
        without_engine: false,
        depths: Vec::new(),
        seed: None,
        name: "test".into(),
        trained_on: "random games".into(),
        license: String::new(),
    }
}

fn judged(data: &Path, evidence: &Path, rerankers: &[String], depth: Option<u8>, styles: &[PathBuf]) -> report::Report {
    let options = report::Options {
        rerankers: rerankers.to_vec(),
        evidence: vec![evidence.to_owned()],
        data: Some(data.to_owned()),
        depth,
        styles: styles.to_vec(),
    };
    let folder = tempfile::tempdir().unwrap();
    let (json, picture) = (folder.path().join("r.json"), folder.path().join("r.svg"));
    let report = report::run(&options, &[PRIOR.into()], 100, Some(&json), Some(&picture)).unwrap();
    assert!(fs::read_to_string(&picture).unwrap().contains("NLL gain over the prior"));
    let read: report::Report = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(read.n, report.n);
    report
}

#[test]
fn a_reranker_learns_what_the_engine_is_worth_and_a_search_free_one_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let (data, evidence) = evidence(folder.path());
    let out = |name: &str| folder.path().join(name);
    let go = AtomicBool::new(false);
    let with = train::run(&options(&data, &evidence, &out("with")), &go).unwrap();
    let free = train::Options { without_engine: true, ..options(&data, &evidence, &out("free")) };
    let without = train::run(&free, &go).unwrap();
    assert!(with.nll < without.nll - 0.3, "{with:?} {without:?}");
    assert!((with.prior_nll - without.prior_nll).abs() < 1e-9);

    let onnx = |name: &str| format!("{name}={}", out(name).join("reranker.onnx").display());
    let report = judged(&data, &evidence, &[onnx("free"), onnx("with")], None, &[out("with").join("styles")]);
    let by_name = |name: &str| report.rerankers.iter().find(|own| own.name == name).unwrap();
    let shown = by_name("with");
    assert!(shown.overall.gain > 20.0 && shown.overall.gain_ci[0] > 0.0, "{:?}", shown.overall);
    assert!(shown.over_first.as_ref().unwrap().gain > 10.0);
    let hidden = by_name("with, engine hidden");
    assert!(hidden.overall.gain < shown.overall.gain - 10.0);
    // Whether evidence is shown to a search-free re-ranker makes no difference to it.
    let [free, blind] = ["free", "free, engine hidden"].map(|name| by_name(name).overall.nll);
    assert!((free - blind).abs() < 1e-6);
    assert!(report.rerankers.iter().all(|own| own.mass_error < 1e-5 && own.rest_error < 1e-5));
    assert!(by_name("with, styles").identity.is_some());
    let refuted = &shown.slices["refutation"];
    assert!(!refuted.is_empty());
    assert!(refuted.values().all(|gain| gain.gain > shown.overall.gain), "{refuted:?}");
    let ranks = &shown.slices["rank of the move played"];
    assert_eq!(ranks.values().map(|gain| gain.n).sum::<usize>(), report.n);
    // At the depth that guesses wrongly nothing is gained.
    let shallow = judged(&data, &evidence, &[onnx("with")], Some(2), &[]);
    assert!(shallow.rerankers[0].overall.gain < 0.0 && (shallow.nodes - 1000.0).abs() < 1.0);

    searches_are_chosen(folder.path(), &data, &evidence);
    a_style_is_fitted(folder.path());
    a_warm_start_goes_on(&data, &evidence, folder.path(), with.nll);
}

/// The deep search gains much, the shallow one loses: the choice is the deep one or none, by its price.
fn searches_are_chosen(folder: &Path, data: &Path, evidence: &Path) {
    let out = folder.join("allocated.onnx");
    let frontier = allocate::run(&allocate::Options {
        reranker: folder.join("with/reranker.onnx"),
        model: PRIOR.into(),
        data: data.to_owned(),
        evidence: vec![evidence.to_owned()],
        depths: vec![2, 4],
        ridge: 10.0,
        budget: 0.5,
        json: Some(folder.join("frontier.json")),
        picture: Some(folder.join("frontier.svg")),
        out: Some(out.clone()),
    })
    .unwrap();
    assert_eq!(frontier.fixed.iter().map(|point| point.depth).collect::<Vec<_>>(), [Some(0), Some(2), Some(4)]);
    assert!(frontier.fixed[2].nll < frontier.fixed[0].nll && frontier.fixed[1].nll > frontier.fixed[0].nll);
    let last = frontier.chosen.last().unwrap();
    assert!(last.nodes > 900_000.0 && frontier.chosen[0].nodes < 1.0, "{:?}", frontier.chosen);
    assert!((last.nll - frontier.fixed[2].nll).abs() < 0.1);
    let served = Reranker::open(&Runtime::load(None).unwrap(), &out, 1).unwrap();
    let allocator: zeitnot_inference::Allocator = serde_json::from_str(&served.metadata().allocator).unwrap();
    assert_eq!(allocator, frontier.allocator);
    assert!(allocator.price > 0.0);
}

fn a_style_is_fitted(folder: &Path) {
    let games = folder.join("random.pgn");
    let options = style::Options {
        reranker: folder.join("with"),
        model: PRIOR.into(),
        player: "w3".into(),
        games: vec![games],
        evidence: Vec::new(),
        data: None,
        prototype_start: false,
        limit: 0,
        epochs: 10,
        learning_rate: 0.05,
        pull: 0.0001,
        out: folder.join("styles/w3.json"),
    };
    let fitted = style::run(&options).unwrap();
    let file: StyleFile = serde_json::from_str(&fs::read_to_string(&options.out).unwrap()).unwrap();
    assert_eq!((file.reranker.as_str(), file.player.as_str(), file.values.len()), ("test", "w3", 32));
    assert_eq!(file.decisions, fitted.decisions);
    assert!(file.values.iter().any(|value| value.abs() > 1e-4), "it was learnt");
    assert!(fitted.generic.is_finite() && fitted.own.is_finite());
    let prototype = style::Options { prototype_start: true, epochs: 0, ..options.clone() };
    assert!(style::run(&prototype).is_ok());
    let nobody = style::Options { player: "nobody".into(), ..options };
    assert!(style::run(&nobody).unwrap_err().to_string().contains("decisions of nobody are too few"));
}

fn a_warm_start_goes_on(data: &Path, evidence: &Path, folder: &Path, before: f64) {
    let warm = train::Options {
        init: Some(folder.join("with")),
        unscored: 50,
        ..options(data, evidence, &folder.join("warm"))
    };
    let trained = train::run(&warm, &AtomicBool::new(false)).unwrap();
    assert!(trained.nll < before, "{} {before}", trained.nll);
    let error = train::run(&warm, &AtomicBool::new(true)).unwrap_err().to_string();
    assert!(error.contains("interrupted at step 0"), "{error}");
    let elsewhere = train::Options { data: folder.join("nothing"), ..warm };
    assert!(train::run(&elsewhere, &AtomicBool::new(false)).is_err());
}
