//! `zeitnot-train compare`: any models on the same decisions, in one table.
//!
//! # Layout
//!
//! - [`paired`]: how often two models choose the same move, and how much better one is, with intervals.
//! - [`speed`]: positions a second.
//! - [`cited`]: published figures, which stand beside and are never mixed in.
//! - [`page`]: the Markdown page.
//! - [`picture`]: curves by rating and the agreement as a map.

pub mod cited;
pub mod page;
pub mod paired;
pub mod picture;
pub mod speed;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};
use zeitnot_inference::{Device, Runtime};

use self::{cited::Cited, paired::Difference};
use crate::{
    evaluate::{
        self, judge,
        report::{Evaluation, ModelFigures},
    },
    prepare::write_atomically,
};

/// Options of `compare`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Models, ONNX files or the .toml files of ensembles; the first is the one the others are compared with
    #[arg(long = "model", required = true, num_args = 1..)]
    pub models: Vec<PathBuf>,
    /// Held-out games, .pgn or .pgn.zst
    #[arg(long, required = true, num_args = 1..)]
    pub games: Vec<PathBuf>,
    /// At most this many decisions of each file, in file order
    #[arg(long)]
    pub limit: Option<usize>,
    /// Published figures to stand beside, a TOML file
    #[arg(long)]
    pub cited: Option<PathBuf>,
    /// Write all figures as JSON
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Write the tables as a Markdown page
    #[arg(long)]
    pub page: Option<PathBuf>,
    /// Draw accuracy and likelihood by rating, and the agreement, as SVG
    #[arg(long)]
    pub picture: Option<PathBuf>,
    /// Bootstrap samples behind each interval
    #[arg(long, default_value_t = 1000)]
    pub samples: usize,
    /// Threads, one session each; 0 is one per core
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
    /// Where to run the models: auto, cpu or cuda
    #[arg(long, default_value = "cpu")]
    pub device: Device,
}

/// Several models on identical decisions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// What was judged.
    pub judged: Vec<GamesFile>,
    /// What each model is, and its figures.
    pub models: Vec<Compared>,
    /// Percentage of decisions in which the most probable moves of two models are the same, in the order of the models.
    pub agreement: Vec<Vec<f64>>,
    /// All pairs of models.
    pub differences: Vec<Difference>,
    /// Published figures of other conditions.
    pub cited: Vec<Cited>,
}

/// A file of games.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GamesFile {
    /// Its name.
    pub file: String,
    /// Games judged.
    pub games: usize,
    /// Decisions judged.
    pub decisions: usize,
}

/// A model among others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Compared {
    /// Its encoding.
    pub encoding: String,
    /// Positions a second on one thread.
    pub positions_per_second: f64,
    /// Its figures.
    #[serde(flatten)]
    pub figures: ModelFigures,
}

/// Judges the models, prints the tables, and writes JSON, page and picture where asked.
///
/// # Errors
///
/// When a model or a file cannot be read or written.
pub fn run(options: &Options) -> Result<Comparison> {
    let cited = options.cited.as_deref().map(cited::read).transpose()?.unwrap_or_default();
    let runtime = Runtime::load(None)?;
    let (mut judged, mut games) = (Vec::new(), Vec::new());
    for path in &options.games {
        let own = evaluate::held_out(path, options.limit)?;
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        judged.push(GamesFile { file, games: own.len(), decisions: own.iter().map(|game| game.plies).sum() });
        games.extend(own);
    }
    anyhow::ensure!(!games.is_empty(), "the files hold no game to judge");
    let how = evaluation(options);
    let verdicts = judge::judge(&runtime, &games, &how)?;
    let mut contenders = judge::open(&runtime, &how)?;
    let speeds = speed::measure(&mut contenders, &games)?;
    let figures = Evaluation::of(&verdicts, &how).models;
    let models = figures.into_iter().zip(&contenders).zip(speeds).map(|((figures, contender), speed)| Compared {
        encoding: contender.encoding().to_owned(),
        positions_per_second: speed,
        figures: ModelFigures { by_history: Default::default(), ..figures },
    });
    let comparison = Comparison {
        judged,
        models: models.collect(),
        agreement: paired::agreement(&verdicts),
        differences: paired::differences(&verdicts, options.samples),
        cited,
    };
    let page = comparison.page(options.picture.as_deref().zip(options.page.as_deref()));
    print!("{page}");
    if let Some(path) = &options.json {
        write_atomically(path, &serde_json::to_vec_pretty(&comparison)?)?;
    }
    if let Some(path) = &options.picture {
        comparison.picture(path)?;
    }
    if let Some(path) = &options.page {
        write_atomically(path, page.as_bytes())?;
    }
    Ok(comparison)
}

fn evaluation(options: &Options) -> evaluate::Options {
    evaluate::Options {
        models: options.models.clone(),
        history_lengths: vec![usize::MAX],
        samples: options.samples,
        threads: options.threads,
        device: options.device,
        ..evaluate::Options::default()
    }
}
