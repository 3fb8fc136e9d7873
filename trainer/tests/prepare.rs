//! `prepare` accounts for every game.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::{fs, path::Path};

use shakmaty::Color;
use zeitnot_trainer::{
    filter::{Filter, Reason},
    prepare::{Options, Report, run},
    shard,
};

fn options(inputs: &[&Path], out: &Path, filter: Filter) -> Options {
    let inputs = inputs.iter().map(|path| path.to_path_buf()).collect();
    Options { inputs, out: out.to_owned(), filter, jobs: 1, shard_games: 200_000 }
}

fn mixed() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/mixed.pgn")
}

fn accounted(report: &Report) -> bool {
    report.read == report.kept + report.dropped.values().map(|count| count.games).sum::<u64>()
}

#[test]
fn every_game_is_kept_or_dropped_for_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let report = run(&options(&[&mixed()], folder.path(), Filter::default())).unwrap();
    assert_eq!((report.read, report.kept, report.positions), (9, 2, 20));
    assert!(accounted(&report));
    let reasons = report.dropped.keys().copied().collect::<Vec<_>>();
    let expected = [
        Reason::Variant,
        Reason::SetUpPosition,
        Reason::NoResult,
        Reason::NoRating,
        Reason::Bot,
        Reason::BrokenMoves,
        Reason::TooShort,
    ];
    assert_eq!(reasons, expected);
    let broken = &report.dropped[&Reason::BrokenMoves].examples[0];
    assert!(broken.starts_with("mixed.pgn game 2 (illegal): ply 2: Nf7"), "{broken}");
}

#[test]
fn shards_give_back_what_was_read() {
    let folder = tempfile::tempdir().unwrap();
    run(&options(&[&mixed()], folder.path(), Filter::default())).unwrap();
    let shards = shard::list(folder.path()).unwrap();
    let games = shard::read(&shards[0]).unwrap();
    let [first, second] = &games[..] else { panic!("{} games", games.len()) };
    assert_eq!((first.id.as_str(), first.winner, first.white.rating), ("kept", Some(Color::White), Some(1500)));
    assert_eq!(first.clocks[2], Some(598.5));
    assert_eq!(first.time_control.unwrap().increment, 5.0);
    assert_eq!((second.date.as_str(), second.winner, second.time_control), ("2023.05.06", None, None));
    assert!(second.clocks.is_empty());

    let decisions = first.decisions().collect::<Vec<_>>();
    assert_eq!(decisions.len(), 10);
    let clocks = decisions.iter().map(|decision| decision.situation.conditions.mover_clock).collect::<Vec<_>>();
    assert_eq!(&clocks[..5], [600.0, 600.0, 600.0, 600.0, 598.5].map(Some), "never the clock after the move");
    for (ply, decision) in decisions.iter().enumerate() {
        let alone = first.decision(ply).unwrap();
        assert_eq!(alone.situation.position, decision.situation.position);
        assert_eq!(alone.situation.history, decision.situation.history);
        assert_eq!(alone.played, decision.played);
    }
    assert!(decisions[6].played.is_castle());
}

#[test]
fn filters_are_applied_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let kept = |name: &str, filter: Filter| {
        let report = run(&options(&[&mixed()], &folder.path().join(name), filter)).unwrap();
        assert!(accounted(&report));
        report.kept
    };
    let all = Filter::default();
    assert_eq!(kept("clocks", Filter { clocks: true, ..all.clone() }), 1);
    assert_eq!(kept("class", Filter { time_class: vec!["rapid".into()], ..all.clone() }), 1);
    assert_eq!(kept("rating", Filter { min_rating: 2000, ..all.clone() }), 1);
    assert_eq!(kept("rated", Filter { rated_only: true, ..all.clone() }), 1);
    assert_eq!(kept("bots", Filter { keep_bots: true, ..all }), 3);
}

#[test]
fn a_second_run_reads_nothing_again_and_another_filter_does() {
    let folder = tempfile::tempdir().unwrap();
    run(&options(&[&mixed()], folder.path(), Filter::default())).unwrap();
    let shard = shard::list(folder.path()).unwrap().remove(0);
    let written = fs::metadata(&shard).unwrap().modified().unwrap();
    let again = run(&options(&[&mixed()], folder.path(), Filter::default())).unwrap();
    assert_eq!(again.read, 9);
    assert_eq!(fs::metadata(&shard).unwrap().modified().unwrap(), written);
    let other = run(&options(&[&mixed()], folder.path(), Filter { min_plies: 2, ..Filter::default() })).unwrap();
    assert_eq!(other.kept, 3);

    // Shards of an earlier run do not stay when there are fewer of them.
    let mut split = options(&[&mixed()], folder.path(), Filter { min_plies: 2, ..Filter::default() });
    split.shard_games = 1;
    run(&split).unwrap();
    assert_eq!(shard::list(folder.path()).unwrap().len(), 3);
    split.shard_games = 2;
    run(&split).unwrap();
    assert_eq!(shard::list(folder.path()).unwrap().len(), 2);
}

#[test]
fn a_damaged_file_costs_its_end_alone() {
    let folder = tempfile::tempdir().unwrap();
    let whole = zstd::encode_all(common::random_games(200, 40, 3).as_bytes(), 3).unwrap();
    let damaged = folder.path().join("damaged.pgn.zst");
    fs::write(&damaged, &whole[..whole.len() / 2]).unwrap();
    let out = folder.path().join("out");
    let report = run(&options(&[&damaged, &mixed()], &out, Filter::default())).unwrap();
    assert!(accounted(&report));
    assert!(report.kept >= 2, "the other file is whole");
    let text = fs::read_to_string(out.join("damaged.report.json")).unwrap();
    let own: Report = serde_json::from_str(&text).unwrap();
    assert!(own.damaged.unwrap().starts_with("after game "));
}

#[test]
fn a_tag_that_never_ends_costs_its_game_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tag.pgn");
    let whole = common::random_games(1, 20, 2);
    let long = "x".repeat(100_000);
    let unended = format!("[White \"never ends\n{}", whole.replace("[Event", "[Round \"1\"]\n[Event"));
    let overlong = whole.replace("Rated Rapid game", &long).replace("2024.01.02", &long);
    fs::write(&file, format!("{whole}{unended}{whole}{overlong}{whole}")).unwrap();
    let report = run(&options(&[&file], &folder.path().join("out"), Filter::default())).unwrap();
    assert!(accounted(&report));
    // A quote that is missing at the end of a line does no harm.
    assert_eq!((report.read, report.kept), (5, 4), "{report:?}");
    assert_eq!(report.dropped[&Reason::BrokenText].games, 1);
}

#[test]
fn inputs_that_would_write_the_same_shards_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let twin = folder.path().join("mixed.pgn");
    fs::copy(mixed(), &twin).unwrap();
    let error = run(&options(&[&mixed(), &twin], &folder.path().join("out"), Filter::default())).unwrap_err();
    assert!(error.to_string().contains("would write the same shards"));
}

#[test]
fn shards_are_split_at_the_number_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let games = folder.path().join("random.pgn");
    fs::write(&games, common::random_games(25, 20, 1)).unwrap();
    let options = Options { shard_games: 10, ..options(&[&games], &folder.path().join("out"), Filter::default()) };
    run(&options).unwrap();
    let sizes =
        shard::list(&options.out).unwrap().iter().map(|path| shard::read(path).unwrap().len()).collect::<Vec<_>>();
    assert_eq!(sizes, [10, 10, 5]);
}

#[test]
fn real_games_are_all_accounted_for() {
    let Some(games) = common::shared("games") else { return };
    let folder = tempfile::tempdir().unwrap();
    let inputs = ["heldout-rapid.pgn.zst", "heldout-blitz.pgn.zst"].map(|name| games.join(name));
    let inputs = inputs.iter().map(std::path::PathBuf::as_path).collect::<Vec<_>>();
    let report = run(&options(&inputs, folder.path(), Filter { clocks: true, ..Filter::default() })).unwrap();
    assert_eq!((report.read, report.kept, report.positions), (324 + 974, 324 + 974, 20_695 + 69_607));
    assert!(accounted(&report));
}
