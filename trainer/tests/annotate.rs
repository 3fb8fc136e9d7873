//! Annotation by a real engine: what it writes, and that nothing is lost when it is killed.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use zeitnot_encoding::evidence::Score;
use zeitnot_trainer::annotate::{manifest::Manifest, shard};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Stockfish, where `make setup` has put it; otherwise the test says that it skips.
fn engine() -> Option<PathBuf> {
    let path = Path::new(ROOT).join(".native/bin/stockfish");
    if !path.is_file() {
        eprintln!("SKIPPED: there is no .native/bin/stockfish; `make setup` fetches it");
        return None;
    }
    Some(path)
}

fn annotate(engine: &Path, data: &Path, out: &Path, more: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_zeitnot-train"))
        .args(["annotate", "--depth", "5", "--engines", "2", "--shard-decisions", "16", "--per-game", "12"])
        .arg("--model")
        .arg(Path::new(ROOT).join("models/zeitnot.onnx"))
        .arg("--engine")
        .arg(engine)
        .arg("--data")
        .arg(data)
        .arg("--out")
        .arg(out)
        .args(more)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn finish(child: Child) -> (bool, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The shards of a folder, by name.
fn shards(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let shards = files.filter(|path| path.extension().is_some_and(|extension| extension == "parquet"));
    shards.map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap())).collect()
}

#[test]
fn a_run_killed_five_times_ends_with_the_shards_of_an_undisturbed_one() {
    let Some(engine) = engine() else { return };
    let folder = tempfile::tempdir().unwrap();
    let data = common::shards(folder.path(), 30);
    let undisturbed = folder.path().join("undisturbed");
    let (ended, errors) = finish(annotate(&engine, &data, &undisturbed, &[]));
    assert!(ended, "{errors}");
    let expected = shards(&undisturbed);
    assert!(expected.len() >= 10, "{}", expected.len());

    let killed = folder.path().join("killed");
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let mut cut_short = 0;
    for _ in 0..5 {
        let mut child = annotate(&engine, &data, &killed, &[]);
        // Waits until it has written something new, then a random while more.
        let before = if killed.is_dir() { shards(&killed).len() } else { 0 };
        while child.try_wait().unwrap().is_none() && (!killed.is_dir() || shards(&killed).len() <= before) {
            sleep(Duration::from_millis(2));
        }
        sleep(Duration::from_millis(random.random_range(0..60)));
        child.kill().unwrap();
        cut_short += usize::from(!finish(child).0);
    }
    assert!(cut_short >= 3, "the kills came too late to mean anything");
    let (ended, errors) = finish(annotate(&engine, &data, &killed, &[]));
    assert!(ended, "{errors}");
    assert_eq!(shards(&killed), expected);

    // Two machines share the work; together they write the same.
    let shared = folder.path().join("shared");
    let machines = ["0", "1"].map(|index| annotate(&engine, &data, &shared, &["--index", index, "--of", "2"]));
    for machine in machines {
        let (ended, errors) = finish(machine);
        assert!(ended, "{errors}");
    }
    assert_eq!(shards(&shared), expected);
}

#[test]
fn evidence_is_about_the_priors_candidates_and_other_options_need_another_folder() {
    let Some(engine) = engine() else { return };
    let folder = tempfile::tempdir().unwrap();
    let data = common::shards(folder.path(), 6);
    let out = folder.path().join("evidence");
    let (ended, errors) = finish(annotate(&engine, &data, &out, &["--limit", "40"]));
    assert!(ended, "{errors}");
    let rows = shard::read_folder(&out).unwrap();
    assert!(!rows.is_empty() && rows.len() <= 40);
    let mut left_out = 0;
    for row in &rows {
        assert!((2..=16).contains(&row.candidates.len()));
        left_out += usize::from(row.played.is_none());
        let deepest = row.at(9).unwrap();
        assert_eq!((deepest.depth, deepest.scores.len()), (5, row.candidates.len()));
        assert!(row.searches.is_sorted_by(|a, b| a.depth < b.depth && a.nodes <= b.nodes));
        assert!(deepest.scores.iter().all(|score| score.is_some_and(|score| score.worth().abs() <= 32_000)));
    }
    assert!(left_out > 0, "random moves are not always among the candidates, and are not added");
    assert!(
        rows.iter().any(|row| matches!(row.at(5).unwrap().scores[0], Some(Score::Centipawns(cp)) if cp.abs() > 100))
    );

    let manifest = Manifest::read(&out).unwrap();
    assert!(manifest.engine.starts_with("Stockfish") && manifest.model.name.starts_with("zeitnot"), "{manifest:?}");
    let (ended, errors) = finish(annotate(&engine, &data, &out, &["--limit", "41"]));
    assert!(!ended && errors.contains("choose another --out"), "{errors}");
    let (ended, errors) = finish(annotate(Path::new("/nowhere/engine"), &data, &folder.path().join("none"), &[]));
    assert!(!ended && errors.contains("/nowhere/engine"), "{errors}");
}
