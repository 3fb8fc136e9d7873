//! Runs from shards to a judged model.
#![cfg(feature = "tch")]
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::fs;

use common::{
    shards,
    training::{options, stop},
};
use zeitnot_trainer::{
    evaluate, export,
    feed::{Hide, Plan},
    model_file::About,
    shard, train,
};

#[test]
fn a_run_is_never_overwritten_or_continued_with_another_recipe_or_other_games() {
    let folder = tempfile::tempdir().unwrap();
    let data = shards(folder.path(), 4);
    let recipe = common::tiny_recipe(folder.path(), 2);
    let mut options = options(&recipe, &data, &folder.path().join("run"));
    train::run(&options, &stop(false)).unwrap();
    let error = train::run(&options, &stop(false)).unwrap_err().to_string();
    assert!(error.contains("--resume"), "{error}");
    options.resume = true;
    let text = fs::read_to_string(&recipe).unwrap();
    fs::write(&recipe, text.replace("residual_blocks = 1", "residual_blocks = 2")).unwrap();
    let refused = |options: &train::Options| train::run(options, &stop(false)).unwrap_err().to_string();
    assert!(refused(&options).contains("another network"));
    fs::write(&recipe, text.replace("batch_size = 32", "batch_size = 16")).unwrap();
    assert!(refused(&options).contains("other [training] values"));
    fs::write(&recipe, text).unwrap();
    options.data = shards(&folder.path().join("others"), 3);
    assert!(refused(&options).contains("decisions"));
}

#[test]
fn batches_do_not_depend_on_the_number_of_threads_and_cover_an_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let games = shard::read(&shard::list(&shards(folder.path(), 8)).unwrap()[0]).unwrap();
    let total = games.iter().map(|game| game.moves.len()).sum::<usize>();
    let plan = || Plan::new(games.clone(), 3, 10, Hide::default()).unwrap();
    assert_eq!(plan().decisions(), total);
    let steps = (2 * total / 10) as u64;
    let one = plan().start(0, steps, 1).collect::<Vec<_>>();
    let three = plan().start(0, steps, 3).collect::<Vec<_>>();
    assert_eq!(one, three);
    let late = plan().start(5, steps, 2).collect::<Vec<_>>();
    assert_eq!(late[..], one[5..]);
    assert!(one.iter().all(|batch| batch.inputs.rows() == 10 && batch.policy.len() == 10));

    // One epoch holds every decision once: the sum of an input over it does not depend on the seed.
    let whole = |seed| {
        let plan = Plan::new(games.clone(), seed, total, Hide::default()).unwrap();
        let batch = plan.start(0, 1, 1).next().unwrap();
        let mut rows =
            batch.policy.iter().zip(batch.inputs.history.chunks(20)).map(|(p, h)| (*p, h.to_vec())).collect::<Vec<_>>();
        let order = rows.clone();
        rows.sort();
        (rows, order)
    };
    let ((rows_1, order_1), (rows_2, order_2)) = (whole(1), whole(2));
    assert_eq!(rows_1, rows_2);
    assert_ne!(order_1, order_2);
}

#[test]
fn hidden_conditions_are_hidden_in_their_share_and_the_same_way_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let games = shard::read(&shard::list(&shards(folder.path(), 20)).unwrap()[0]).unwrap();
    let batch = |hide| Plan::new(games.clone(), 1, 500, hide).unwrap().start(0, 1, 1).next().unwrap();
    let hidden = batch(Hide { history: 0.3, time: 0.6 });
    assert_eq!(hidden, batch(Hide { history: 0.3, time: 0.6 }));
    let shown = batch(Hide::default());
    assert_eq!((&hidden.policy, &hidden.inputs.board), (&shown.policy, &shown.inputs.board));
    let blind = |batch: &zeitnot_trainer::feed::Batch| {
        let moves = batch.inputs.history_mask.chunks(20).filter(|mask| !mask.contains(&true)).count();
        let clocks = batch.inputs.clock.chunks(2).filter(|clock| clock[0] == 0.0).count();
        (moves as f64 / 500.0, clocks as f64 / 500.0)
    };
    let ((moves, clocks), (first_plies, none)) = (blind(&hidden), blind(&shown));
    assert!((0.25..0.45).contains(&moves) && (0.5..0.7).contains(&clocks), "{moves} {clocks}");
    assert!(first_plies < 0.1 && none == 0.0);
}

#[test]
fn a_run_can_start_from_the_weights_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let data = shards(folder.path(), 4);
    let recipe = common::tiny_recipe(folder.path(), 2);
    let first = folder.path().join("first");
    train::run(&options(&recipe, &data, &first), &stop(false)).unwrap();
    let mut second = options(&recipe, &data, &folder.path().join("second"));
    second.init = Some(first.clone());
    second.steps = Some(1);
    assert!(train::run(&second, &stop(false)).unwrap().finished);
    second.out = folder.path().join("third");
    second.without = vec![train::config::Condition::History];
    let error = train::run(&second, &stop(false)).unwrap_err().to_string();
    assert!(error.contains("has shape"), "{error}");
}

#[test]
fn a_small_network_learns_a_few_games_and_is_judged_on_them() {
    let folder = tempfile::tempdir().unwrap();
    let data = shards(folder.path(), 2);
    let recipe = common::tiny_recipe(folder.path(), 400);
    let run = folder.path().join("run");
    let loss = train::run(&options(&recipe, &data, &run), &stop(false)).unwrap().loss;
    assert!(loss < 2.0, "random games of some 25 legal moves a ply start near 3.6: {loss}");

    let model = folder.path().join("tiny.onnx");
    let about = About { trained_on: "random games".into(), ..About::default() };
    export::export(&export::Options { checkpoint: run, about, out: model.clone() }).unwrap();
    let (json, picture) = (folder.path().join("e.json"), folder.path().join("e.svg"));
    let judge = evaluate::Options {
        models: vec![model.clone(), model],
        games: vec![folder.path().join("random.pgn")],
        limit: Some(50),
        history_lengths: vec![0, 20],
        json: Some(json.clone()),
        picture: Some(picture.clone()),
        samples: 100,
        threads: 2,
        device: zeitnot_inference::Device::Cpu,
    };
    evaluate::run(&judge).unwrap();
    let figures: serde_json::Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    let [first, second] = [0, 1].map(|model| &figures["models"][model]);
    assert_eq!(first, second, "the same model on identical decisions");
    assert_eq!(first["overall"]["n"], 50);
    assert_eq!(first["overall"], first["by_history"]["20"]);
    let full = &first["overall"]["top1"];
    assert!(full.as_f64().unwrap() > 40.0, "{full}");
    assert_ne!(first["overall"]["nll"], first["by_history"]["0"]["nll"], "the history makes a difference");
    let [low, high] = [0, 1].map(|end| first["overall"]["top1_ci"][end].as_f64().unwrap());
    assert!(low <= full.as_f64().unwrap() && full.as_f64().unwrap() <= high);
    let counted =
        |group: &str| first[group].as_object().unwrap().values().map(|f| f["n"].as_u64().unwrap()).sum::<u64>();
    assert_eq!([counted("by_rating"), counted("by_phase"), counted("by_clock")], [50, 50, 50]);
    assert!(fs::read_to_string(picture).unwrap().contains("by share of the clock left"));
}

#[test]
fn a_recipe_with_a_mistake_is_refused_by_line_or_field() {
    let folder = tempfile::tempdir().unwrap();
    let recipe = common::tiny_recipe(folder.path(), 2);
    let text = fs::read_to_string(&recipe).unwrap();
    let error = |changed: String| {
        fs::write(&recipe, changed).unwrap();
        format!("{:#}", train::config::TrainConfig::read(&recipe).unwrap_err())
    };
    assert!(error(text.replace("stem = ", "stern = ")).contains("unknown field `stern`"));
    assert!(error(text.replace("heads = 2\ncross", "heads = 3\ncross")).contains("network.heads: 3 does not divide"));
    assert!(error(text.replace("batch_size = 32", "batch_size = 0")).contains("training.batch_size"));
    assert!(error(text.replace("batch_size = 32", "batch_size = -1")).contains("tiny.toml"));
}
