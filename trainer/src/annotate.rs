//! `zeitnot-train annotate`: what an engine says of the prior's candidates, as Parquet shards.
//!
//! The decisions are cut into shards of a fixed size. A shard depends on the options alone and appears when it is whole,
//! so a run that was killed goes on with the first shard that is missing, and several machines can share the work by
//! `--index` and `--of`. The move played is never added to the candidates.
//!
//! # Layout
//!
//! - [`plan`]: which decisions, in which order.
//! - [`shard`]: the columns.
//! - [`manifest`]: what the shards of a folder were made with.

pub mod manifest;
pub mod plan;
pub mod shard;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use futures_util::{Stream, StreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::{sync::mpsc, time::Instant as TokioInstant};
use zeitnot_encoding::{Batch, LegalMoves, decode, rerank::Candidates};
use zeitnot_inference::{Device, Runtime, Session, SessionOptions};
use zeitnot_uci::{EngineConfig, Limits, Pool, Search, UciError};

use self::{manifest::Manifest, plan::Plan, shard::Evidence};
use crate::record::{Decision, GameRecord};

/// Searches of one position before it is given up.
const ATTEMPTS: usize = 3;
/// How long one search may take, with the time until a crashed engine is there again.
const PATIENCE: Duration = Duration::from_secs(600);

/// Options of `annotate`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Folder of shards of games, as `prepare` writes them
    #[arg(long)]
    pub data: PathBuf,
    /// The prior, an ONNX file
    #[arg(long)]
    pub model: PathBuf,
    /// Folder for the shards of evidence
    #[arg(long)]
    pub out: PathBuf,
    /// The UCI engine's program
    #[arg(long)]
    pub engine: PathBuf,
    /// Options to set on the engine, NAME=VALUE; Threads=1 and Hash=16 unless given
    #[arg(long = "engine-option", value_parser = engine_option)]
    pub engine_options: Vec<(String, String)>,
    /// Plies to search; 0 for no limit
    #[arg(long, default_value_t = 8)]
    pub depth: u32,
    /// Nodes to search; 0 for no limit
    #[arg(long, default_value_t = 0)]
    pub nodes: u64,
    /// Engine processes; 0 is one per core
    #[arg(long, default_value_t = 0)]
    pub engines: usize,
    /// Which decisions
    #[command(flatten)]
    pub selection: plan::Selection,
    /// Decisions in a shard
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub shard_decisions: u32,
    /// This machine's number among those that share the work
    #[arg(long, env = "JOB_COMPLETION_INDEX", default_value_t = 0)]
    pub index: usize,
    /// How many machines share the work
    #[arg(long, default_value_t = 1)]
    pub of: usize,
}

fn engine_option(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not NAME=VALUE"))?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// Decisions scored.
    pub decisions: usize,
    /// Of these, those whose move played is among the candidates.
    pub covered: usize,
    /// Decisions that no search scored.
    pub unscored: usize,
    /// Nodes searched.
    pub nodes: u64,
    /// Shards written.
    pub shards: usize,
    /// Shards that were there already.
    pub earlier: usize,
    /// Whether it was asked to stop before the end.
    pub interrupted: bool,
}

/// Annotates what is missing.
///
/// # Errors
///
/// When games, model or engine cannot be used, or the folder holds shards made with other options.
pub fn run(options: &Options, stop: &Arc<AtomicBool>) -> Result<Report> {
    if options.index >= options.of {
        bail!("--index {} is not below --of {}", options.index, options.of);
    }
    if options.depth == 0 && options.nodes == 0 {
        bail!("--depth and --nodes are both 0: the search would not end");
    }
    let plan = Plan::read(&options.data, &options.selection)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let report = runtime.block_on(annotate(options, Arc::new(plan), stop))?;
    println!(
        "{} decisions in {} shards ({} were there), {} unscored, move played among the candidates {:.1}%",
        report.decisions,
        report.shards,
        report.earlier,
        report.unscored,
        100.0 * report.covered as f64 / report.decisions.max(1) as f64
    );
    if report.interrupted {
        println!("stopped; the same command goes on");
    }
    Ok(report)
}

async fn annotate(options: &Options, plan: Arc<Plan>, stop: &Arc<AtomicBool>) -> Result<Report> {
    let engines = match options.engines {
        0 => thread::available_parallelism().map_or(1, usize::from),
        engines => engines,
    };
    let pool = Pool::start(engine(options), engines, 2 * engines).await.context("the engine does not start")?;
    let (session, model) = open(options)?;
    std::fs::create_dir_all(&options.out).with_context(|| format!("cannot create {}", options.out.display()))?;
    Manifest::of(options, &plan, model, &pool.info().name).settle(&options.out)?;

    let size = options.shard_decisions as usize;
    let mine = (0..plan.len().div_ceil(size)).filter(|shard| shard % options.of == options.index).collect::<Vec<_>>();
    let (there, missing): (Vec<usize>, Vec<usize>) =
        mine.into_iter().partition(|&number| shard::path(&options.out, number).is_file());
    let bar = bar(&plan, size, &missing)?;
    let mut report = Report { earlier: there.len(), ..Report::default() };
    let waiting = ask_prior(session, plan, missing, size, Arc::clone(stop));
    let searches = waiting.map(|task| score(&pool, task, limits(options))).buffered(2 * engines);
    let written = write(options, searches, &mut report, &bar, stop).await;
    bar.finish_and_clear();
    pool.shutdown().await;
    written?;
    report.interrupted = stop.load(Ordering::Relaxed);
    Ok(report)
}

fn engine(options: &Options) -> EngineConfig {
    let given = |name: &str| options.engine_options.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
    let defaults = [("Threads", "1"), ("Hash", "16")].into_iter().filter(|(name, _)| !given(name));
    let mut config = EngineConfig::new(options.engine.clone());
    config.options = defaults.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    config.options.extend(options.engine_options.iter().cloned());
    config
}

fn limits(options: &Options) -> Limits {
    Limits {
        depth: (options.depth > 0).then_some(options.depth),
        nodes: (options.nodes > 0).then_some(options.nodes),
        movetime: None,
    }
}

/// The prior, and what the manifest says of it.
fn open(options: &Options) -> Result<(Session, manifest::Model)> {
    let runtime = Runtime::load(None)?;
    let session = Session::open(&runtime, &options.model, SessionOptions { device: Device::Cpu, threads: 1 })?;
    let model = manifest::Model::of(&options.model, session.metadata())?;
    Ok((session, model))
}

fn bar(plan: &Plan, size: usize, missing: &[usize]) -> Result<ProgressBar> {
    let left = missing.iter().map(|number| plan.len().saturating_sub(number * size).min(size) as u64).sum();
    let bar = ProgressBar::new(left);
    bar.enable_steady_tick(Duration::from_millis(500));
    bar.set_style(ProgressStyle::with_template(
        "{elapsed_precise} {wide_bar} {pos}/{len} decisions {per_sec} left {eta}",
    )?);
    Ok(bar)
}

/// A decision that waits for its scores, or the end of a shard.
enum Task {
    Search(Box<Searching>),
    End(usize),
}

struct Searching {
    evidence: Evidence,
    search: Search,
}

/// Runs the prior on a thread of its own, a shard's decisions at once, some ahead of the engines. Decisions without a
/// choice are left out.
fn ask_prior(
    mut session: Session,
    plan: Arc<Plan>,
    missing: Vec<usize>,
    size: usize,
    stop: Arc<AtomicBool>,
) -> impl Stream<Item = Result<Task>> {
    let (sender, receiver) = mpsc::channel(2 * size);
    thread::spawn(move || {
        for number in missing {
            let tasks = candidates(&mut session, &plan, number * size, size);
            let failed = tasks.is_err();
            let tasks = match tasks {
                Ok(tasks) => tasks.into_iter().map(Ok).chain([Ok(Task::End(number))]).collect::<Vec<_>>(),
                Err(error) => vec![Err(error)],
            };
            for task in tasks {
                // Nobody wants it when the writer has failed.
                if stop.load(Ordering::Relaxed) || sender.blocking_send(task).is_err() {
                    return;
                }
            }
            if failed {
                return;
            }
        }
    });
    stream::unfold(receiver, |mut receiver| async move { receiver.recv().await.map(|task| (task, receiver)) })
}

fn candidates(session: &mut Session, plan: &Plan, first: usize, size: usize) -> Result<Vec<Task>> {
    let mut decisions = Vec::new();
    let mut batch = Batch::new(session.encoding(), size);
    for place in plan.places(first, size) {
        let (game, decision) = plan.decision(place)?;
        if LegalMoves::of(&decision.situation.position).len() > 1 {
            batch.push(&decision.situation);
            decisions.push((game, decision));
        }
    }
    if decisions.is_empty() {
        return Ok(Vec::new());
    }
    let answer = session.run(&batch)?;
    let task = |(row, (game, decision)): (usize, (&GameRecord, Decision))| {
        let name = &session.metadata().name;
        let answer = answer.row(row).ok_or_else(|| anyhow!("{name} answers with numbers that are not finite"))?;
        let position = decision.situation.position;
        let legal = LegalMoves::of(&position);
        let candidates = Candidates::of(legal.indices(), &decode::gather(legal.indices(), &answer.policy));
        let moves = candidates.places.iter().filter_map(|&place| legal.moves().get(place).copied()).collect::<Vec<_>>();
        let evidence = Evidence {
            game_id: game.id.clone(),
            site: game.site.clone(),
            ply: u16::try_from(decision.ply)?,
            played: moves.iter().position(|mv| *mv == decision.played).and_then(|place| u8::try_from(place).ok()),
            candidates: candidates.indices,
            searches: Vec::new(),
        };
        let search = Search { position, candidates: moves, limits: Limits::default(), fresh: true };
        Ok(Task::Search(Box::new(Searching { evidence, search })))
    };
    decisions.into_iter().enumerate().map(task).collect()
}

/// What the writer gets, in the order of the decisions.
enum Scored {
    Row(Box<Evidence>),
    End(usize),
}

/// Scores a decision. One whose every search makes the engine talk nonsense stays without scores, which depends on nothing but
/// the position; when an engine is killed or cannot be had, nothing is written that another run would not write.
async fn score(pool: &Pool, task: Result<Task>, limits: Limits) -> Result<Scored> {
    let Searching { mut evidence, search } = match task? {
        Task::Search(searching) => *searching,
        Task::End(number) => return Ok(Scored::End(number)),
    };
    let search = Search { limits, ..search };
    for attempt in 1..=ATTEMPTS {
        match pool.evaluate(search.clone(), Some(TokioInstant::now() + PATIENCE)).await {
            Ok(evaluation) if evaluation.complete => {
                evidence.searches = shard::searches(&evaluation);
                break;
            }
            Ok(_) if attempt == ATTEMPTS => {
                bail!("game {}, ply {}: no search comes to its end", evidence.game_id, evidence.ply)
            }
            // It fell silent and was stopped; another process may do better.
            Ok(_) => {}
            Err(error) => {
                let (game, ply) = (&evidence.game_id, evidence.ply);
                tracing::warn!(%error, attempt, game, ply, "the search failed");
                if attempt == ATTEMPTS && !matches!(error, UciError::Lied(_)) {
                    return Err(error).with_context(|| format!("game {game}, ply {ply} cannot be scored"));
                }
            }
        }
    }
    Ok(Scored::Row(Box::new(evidence)))
}

async fn write(
    options: &Options,
    scored: impl Stream<Item = Result<Scored>>,
    report: &mut Report,
    bar: &ProgressBar,
    stop: &AtomicBool,
) -> Result<()> {
    let mut scored = std::pin::pin!(scored);
    let mut rows: Vec<Evidence> = Vec::new();
    let started = Instant::now();
    while let Some(next) = scored.next().await {
        if stop.load(Ordering::Relaxed) {
            break; // What is searched is given up with the stream.
        }
        match next? {
            Scored::Row(row) => {
                bar.inc(1);
                rows.push(*row);
            }
            Scored::End(number) => {
                shard::write(&shard::path(&options.out, number), &rows)?;
                report.shards += 1;
                report.decisions += rows.len();
                report.covered += rows.iter().filter(|row| row.played.is_some()).count();
                report.unscored += rows.iter().filter(|row| row.searches.is_empty()).count();
                report.nodes +=
                    rows.iter().filter_map(|row| row.searches.last()).map(|search| search.nodes).sum::<u64>();
                rows.clear();
            }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("{:.2} decisions/s, {:.0} nodes/s", report.decisions as f64 / seconds, report.nodes as f64 / seconds);
    Ok(())
}
