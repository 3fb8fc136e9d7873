//! A stopped run goes on as if it had not been stopped.
//!
//! Alone in its binary: libtorch's random numbers are the process's, and another test's would disturb them.
#![cfg(feature = "tch")]
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::{fs, path::Path};

use common::{
    shards,
    training::{options, stop},
};
use zeitnot_trainer::train::{self, End, checkpoint::Checkpoint};

#[test]
fn a_resumed_run_ends_where_an_undisturbed_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let data = shards(folder.path(), 12);
    let recipe = common::tiny_recipe(folder.path(), 14);
    let undisturbed = folder.path().join("undisturbed");
    let expected = train::run(&options(&recipe, &data, &undisturbed), &stop(false)).unwrap();
    assert_eq!(expected.why, End::Finished);

    // Stopped after every one of its first four steps.
    let resumed = folder.path().join("resumed");
    let mut again = options(&recipe, &data, &resumed);
    for _ in 0..4 {
        assert_eq!(train::run(&again, &stop(true)).unwrap().why, End::Interrupted);
        again.resume = true;
    }
    assert_eq!(Checkpoint::newest(&resumed).unwrap().unwrap().state().unwrap().step, 4);
    // What a save leaves behind when it is cut short is no checkpoint.
    fs::create_dir(resumed.join("unfinished")).unwrap();
    fs::create_dir(resumed.join("step-00000099")).unwrap();
    let ended = train::run(&again, &stop(false)).unwrap();
    assert!((ended.loss - expected.loss).abs() < 1e-4, "{ended:?} {expected:?}");

    let newest = |run: &Path| Checkpoint::newest(run).unwrap().unwrap();
    assert_eq!(newest(&undisturbed).weights().unwrap(), newest(&resumed).weights().unwrap());
    let lines = |run: &Path| fs::read_to_string(run.join("metrics.jsonl")).unwrap().lines().count();
    assert_eq!(lines(&undisturbed), 7);
    assert!(fs::read_to_string(undisturbed.join("curves.svg")).unwrap().contains("top-1 (%)"));
}
