//! A tiny `zeitnot/1` network from a few hundred real games to a served prediction.
#![cfg(feature = "tch")]
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use common::{
    serving::Served,
    training::{options, stop},
};
use zeitnot_proto::v1::{Clock, Mover, Opponent, Position, PredictRequest, PredictResponse, RatingSystem, TimeControl};
use zeitnot_trainer::{
    calibrate, evaluate, export,
    model_file::About,
    quantize,
    shard::ShardWriter,
    train::{self, End},
};

const RECIPE: &str = r#"
name = "tiny-zeitnot"

[network]
encoding = "zeitnot/1"
width = 16
blocks = 1
move_planes = 4
move_tokens = 8
time = true
condition = 16
squeeze = 8
policy = { kind = "from-to", width = 16 }
heads = 16

[training]
seed = 3
batch_size = 64
steps = 300
checkpoint_every = 1000
log_every = 50
hide = { history = 0.1, time = 0.1, ratings = 0.1, systems = 0.1 }
optimizer = { algorithm = "muon", learning_rate = 2e-2 }
"#;

/// Shards of the first 400 games of a file.
fn shards(games: &Path, folder: &Path) -> PathBuf {
    let out = folder.join("shards");
    fs::create_dir_all(&out).unwrap();
    let mut writer = ShardWriter::new(out.join("rapid-00000.parquet"));
    for held_out in evaluate::held_out(games, None).unwrap().into_iter().take(400) {
        writer.push(held_out.game).unwrap();
    }
    writer.finish().unwrap();
    out
}

#[test]
fn a_tiny_network_is_trained_exported_judged_and_served() {
    let Some(games) = common::shared("games") else { return };
    let folder = tempfile::tempdir().unwrap();
    let data = shards(&games.join("train-rapid-00.pgn.zst"), folder.path());
    let recipe = folder.path().join("tiny.toml");
    fs::write(&recipe, RECIPE).unwrap();
    let run = folder.path().join("run");
    let ended = train::run(&options(&recipe, &data, &run), &stop(false)).unwrap();
    let lines = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    let figure = |name: &str| last[name].as_f64().unwrap();
    assert_eq!(ended.why, End::Finished);
    // Moves drawn at random cost 3.3 nats, results 1.1, think times 3.2.
    assert!(figure("policy_loss") < 2.55, "{last}");
    assert!(figure("value_loss") < 1.0 && figure("think_time_loss") < 2.75, "{last}");

    let model = folder.path().join("tiny.onnx");
    let export = |int8: quantize::Options, out: &Path| {
        let about = About { license: "GPL-3.0-or-later".into(), ..About::default() };
        export::export(&export::Options { checkpoint: run.clone(), about, int8, out: out.to_owned() })
    };
    export(quantize::Options::default(), &model).unwrap();
    let held_out = games.join("heldout-rapid.pgn.zst");
    let int8 = quantize::Options {
        int8: true,
        calibration: Some(data.clone()),
        calibration_positions: 256,
        held_out: vec![held_out.clone()],
        limit: Some(2000),
    };
    let small = folder.path().join("tiny-int8.onnx");
    export(int8, &small).unwrap();
    let mut left = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    assert!(left.all(|path| path.extension().is_none_or(|extension| extension != "tmp")));

    let options = calibrate::Options {
        model: small.clone(),
        games: vec![held_out],
        limit: Some(2000),
        json: None,
        picture: Some(folder.path().join("c.svg")),
    };
    let calibration = calibrate::run(&options).unwrap();
    let times = calibration.think_time.unwrap();
    assert!(calibration.after.nll < 2.75 && times.nll < times.nll_of_the_mean, "{:?} {times:?}", calibration.after);
    assert!(fs::read_to_string(folder.path().join("c.svg")).unwrap().contains("think time"));

    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(serve_and_predict(&model));
    runtime.block_on(serve_and_predict(&small));
}

async fn serve_and_predict(model: &Path) {
    let mut served = Served::start(&[model]).await;
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    let moves = ["e4", "e5", "Nf3"].map(str::to_owned).to_vec();
    let known = PredictRequest {
        position: Some(Position { initial_fen: String::new(), moves }),
        mover: Some(Mover { rating: Some(1700), rating_system: RatingSystem::Lichess.into(), style: None }),
        opponent: Some(Opponent { rating: Some(1650), rating_system: RatingSystem::Lichess.into() }),
        time_control: Some(TimeControl { initial: seconds(600), increment: seconds(0) }),
        clock: Some(Clock { mover_remaining: seconds(300), opponent_remaining: seconds(500) }),
        ..PredictRequest::default()
    };
    let answer = served.predict(&known).await.unwrap();
    whole(&answer, 29);
    let conditions = answer.conditions.unwrap();
    assert_eq!((conditions.mover_remaining, conditions.opponent_remaining), (seconds(300), seconds(500)));
    assert_eq!(conditions.mover_rating_system(), RatingSystem::Lichess);
    assert!(conditions.unknown.is_empty() && conditions.notes.is_empty());

    let unknown = PredictRequest { position: known.position, ..PredictRequest::default() };
    let blind = served.predict(&unknown).await.unwrap();
    whole(&blind, 29);
    assert_ne!(blind.moves, answer.moves, "conditions make a difference");
    let names = [
        "mover.rating",
        "opponent.rating",
        "mover.rating_system",
        "opponent.rating_system",
        "time_control",
        "clock.mover_remaining",
        "clock.opponent_remaining",
    ];
    assert_eq!(blind.conditions.unwrap().unknown, names);
    served.stop().await;
}

/// Every part of an answer is there and consistent.
fn whole(answer: &PredictResponse, moves: usize) {
    assert_eq!(answer.model.as_ref().unwrap().encoding, "zeitnot/1");
    assert_eq!(answer.moves.len(), moves);
    let total = answer.moves.iter().map(|mv| f64::from(mv.probability)).sum::<f64>();
    assert!((total - 1.0).abs() < 1e-5, "{total}");
    let outlook = answer.outlook.unwrap();
    let [win, draw, loss] = [outlook.win, outlook.draw, outlook.loss].map(Option::unwrap);
    assert!((win + draw + loss - 1.0).abs() < 1e-5);
    assert!((outlook.expected_score - win - 0.5 * draw).abs() < 1e-5);
    let time = answer.think_time.unwrap();
    let seconds = |duration: Option<prost_types::Duration>| Duration::try_from(duration.unwrap()).unwrap();
    let [p10, median, p90] = [time.p10, time.median, time.p90].map(seconds);
    assert!(p10 <= median && median <= p90 && p90 > Duration::from_secs(1), "{time:?}");
}
