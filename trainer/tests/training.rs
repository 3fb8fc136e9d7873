//! Runs from shards to a judged model.
#![cfg(feature = "tch")]
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::fs;

use common::{
    shards,
    training::{options, stop},
};
use zeitnot_encoding::{
    Zeitnot,
    zeitnot::{CONDITIONS, NOWHERE},
};
use zeitnot_inference::Metadata;
use zeitnot_network::{NetworkConfig, Weights, onnx, specs};
use zeitnot_trainer::{
    evaluate, export,
    feed::{Batch, Feed, Feeding, Hide, Plan, Selection, TeacherFile},
    model_file::About,
    shard, train,
};

fn feeding(hide: Hide) -> Feeding {
    Feeding { encoding: &Zeitnot, hide, leak_clock: false }
}

fn batches(plan: Plan, feeding: Feeding, first: u64, threads: usize) -> impl Iterator<Item = Batch> {
    Feed::start(plan, feeding, &[], first, threads).unwrap().map(Result::unwrap)
}

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
    let steps = (2 * total / 10) as u64;
    let plan = || Plan::new(games.clone(), &Selection::default(), 3, 10, steps).unwrap();
    assert_eq!(plan().decisions(), total);
    let one = batches(plan(), feeding(Hide::default()), 0, 1).collect::<Vec<_>>();
    let three = batches(plan(), feeding(Hide::default()), 0, 3).collect::<Vec<_>>();
    assert_eq!(one, three);
    let late = batches(plan(), feeding(Hide::default()), 5, 2).collect::<Vec<_>>();
    assert_eq!(late[..], one[5..]);
    assert!(one.iter().all(|batch| batch.inputs.rows() == 10 && batch.policy.len() == 10));

    // One epoch holds every decision once: the sum of an input over it does not depend on the seed.
    let whole = |seed| {
        let plan = Plan::new(games.clone(), &Selection::default(), seed, total, 1).unwrap();
        let batch = batches(plan, feeding(Hide::default()), 0, 1).next().unwrap();
        let histories = batch.inputs.integers("moves").chunks(40);
        let mut rows = batch.policy.iter().zip(histories).map(|(p, h)| (*p, h.to_vec())).collect::<Vec<_>>();
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
    let batch = |hide| {
        let plan = Plan::new(games.clone(), &Selection::default(), 1, 500, 1).unwrap();
        batches(plan, feeding(hide), 0, 1).next().unwrap()
    };
    let some = Hide { history: 0.3, time: 0.6, ratings: 0.6, systems: 0.5, all: 0.0 };
    let hidden = batch(some);
    assert_eq!(hidden, batch(some));
    let shown = batch(Hide::default());
    assert_eq!(hidden.policy, shown.policy);
    // Shares of decisions without recent moves, and without the mover's and the opponent's rating, initial time, and
    // the mover's and the opponent's clock.
    let blind = |batch: &Batch| {
        let moves = batch.inputs.integers("moves").chunks(40).filter(|moves| moves[0] == NOWHERE).count();
        let unknown = [1, 7, 13, 17, 19].map(|flag| {
            let rows = batch.inputs.floats("conditions").chunks(CONDITIONS);
            rows.filter(|row| row[flag] == 1.0).count() as f64 / 500.0
        });
        (moves as f64 / 500.0, unknown)
    };
    let (moves, [mover, opponent, initial, own, theirs]) = blind(&hidden);
    assert!((0.25..0.45).contains(&moves), "{moves}");
    assert!((0.3..0.5).contains(&mover) && (0.3..0.5).contains(&opponent), "{mover} {opponent}");
    assert!((0.1..0.2).contains(&initial) && (0.35..0.55).contains(&own) && (0.35..0.55).contains(&theirs));
    let nothing = batch(Hide { all: 0.25, ..Hide::default() });
    let rows = nothing.inputs.floats("conditions").chunks(CONDITIONS);
    let blank = rows.filter(|row| [1, 7, 13, 17, 19].iter().all(|&flag| row[flag] == 1.0)).count();
    assert!((95..155).contains(&blank), "{blank} of 500");
    let (first_plies, none) = blind(&shown);
    assert!(first_plies < 0.1);
    assert_eq!(none, [0.0; 5]);
}

#[test]
fn a_leaked_clock_is_that_after_the_move() {
    let folder = tempfile::tempdir().unwrap();
    let games = shard::read(&shard::list(&shards(folder.path(), 4)).unwrap()[0]).unwrap();
    let clocks = |leak_clock| {
        let plan = Plan::new(games.clone(), &Selection::default(), 1, 60, 1).unwrap();
        let feeding = Feeding { leak_clock, ..feeding(Hide::default()) };
        let batch = batches(plan, feeding, 0, 1).next().unwrap();
        batch.inputs.floats("conditions").chunks(CONDITIONS).map(|row| row[16]).collect::<Vec<_>>()
    };
    // In these games every move but the first costs its player time, so the clock after it shows less.
    let (after, before) = (clocks(true), clocks(false));
    let falls = after.iter().zip(&before).filter(|(after, before)| after < before).count();
    assert!(after.iter().zip(&before).all(|(after, before)| after <= before) && falls > 50, "{falls}");
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
    assert_eq!(train::run(&second, &stop(false)).unwrap().why, train::End::Finished);
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
    export::export(&export::Options { checkpoint: run, about, int8: Default::default(), out: model.clone() }).unwrap();
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
        ..evaluate::Options::default()
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

    // With the clock after the move the groups are the same and the answers are not, of a network that surely looks at
    // it: one that has learnt a few games by heart may not.
    let table: toml::Table = toml::from_str(&fs::read_to_string(&recipe).unwrap()).unwrap();
    let config: NetworkConfig = table["network"].clone().try_into().unwrap();
    let weights = Weights::by_formula(&specs::of(&config));
    let metadata = Metadata::new(config.encoding(), "formula", "1", "nothing", "none");
    let looks = folder.path().join("formula.onnx");
    fs::write(&looks, onnx::export(&config, &weights, &metadata.entries()).unwrap()).unwrap();
    let judge = evaluate::Options { models: vec![looks], ..judge };
    let honest = evaluate::run(&judge).unwrap();
    let leaked = evaluate::run(&evaluate::Options { leak_clock: true, ..judge }).unwrap();
    let counts = |evaluation: &evaluate::report::Evaluation| {
        evaluation.models[0].by_clock.iter().map(|(name, figures)| (name.clone(), figures.n)).collect::<Vec<_>>()
    };
    assert_eq!(counts(&honest), counts(&leaked));
    assert_ne!(honest.models[0].overall.nll, leaked.models[0].overall.nll);
}

#[test]
fn a_slice_ends_with_a_checkpoint_and_the_next_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let data = shards(folder.path(), 4);
    let recipe = common::tiny_recipe(folder.path(), 100_000);
    let mut options = options(&recipe, &data, &folder.path().join("run"));
    options.resume = true;
    options.stop_after = Some(1);
    let step = || {
        assert_eq!(train::run(&options, &stop(false)).unwrap().why, train::End::TimeUp);
        train::checkpoint::Checkpoint::newest(&options.out).unwrap().unwrap().state().unwrap().step
    };
    let (first, second) = (step(), step());
    assert!(0 < first && first < second, "{first} {second}");
}

#[test]
fn a_network_learns_from_teachers_chosen_by_rating() {
    let folder = tempfile::tempdir().unwrap();
    let data = shards(folder.path(), 4);
    let recipe = common::tiny_recipe(folder.path(), 3);
    let run = folder.path().join("run");
    train::run(&options(&recipe, &data, &run), &stop(false)).unwrap();
    let model = folder.path().join("teacher.onnx");
    let about = About::default();
    export::export(&export::Options { checkpoint: run, about, int8: Default::default(), out: model.clone() }).unwrap();

    // A teacher gives every decision probabilities that sum to 1 over its legal moves.
    let games = shard::read(&shard::list(&data).unwrap()[0]).unwrap();
    let plan = Plan::new(games, &Selection::default(), 1, 40, 1).unwrap();
    let teachers =
        ["1200", "1900"].map(|rating| format!("{rating}={}", model.display()).parse::<TeacherFile>().unwrap());
    let feed = Feed::start(plan, feeding(Hide::default()), &teachers, 0, 1).unwrap();
    let batch = feed.map(Result::unwrap).next().unwrap();
    for (row, legal) in batch.teacher.chunks(4208).zip(batch.legal.chunks(4208)) {
        assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-4);
        assert!(row.iter().zip(legal).all(|(&probability, &legal)| legal == (probability > 0.0)));
    }

    let loss = |teachers: &[TeacherFile], out: &str| {
        let mut options = options(&recipe, &data, &folder.path().join(out));
        options.teachers = teachers.to_vec();
        train::run(&options, &stop(false)).unwrap().loss
    };
    assert_ne!(loss(&teachers, "taught"), loss(&[], "alone"));
    let mut other = options(&recipe, &data, &folder.path().join("taught"));
    other.resume = true;
    let error = train::run(&other, &stop(false)).unwrap_err().to_string();
    assert!(error.contains("other teachers: [\"1200=teacher.onnx\", \"1900=teacher.onnx\"]"), "{error}");
    let missing = ["nowhere.onnx".parse::<TeacherFile>().unwrap()];
    let mut options = options(&recipe, &data, &folder.path().join("never"));
    options.teachers = missing.to_vec();
    let error = format!("{:#}", train::run(&options, &stop(false)).unwrap_err());
    assert!(error.contains("nowhere.onnx"), "{error}");
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
