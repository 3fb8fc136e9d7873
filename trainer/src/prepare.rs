//! `zeitnot-train prepare`: PGN in, Parquet shards out, every game accounted for.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Instant, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{
    filter::{Filter, Reason},
    pgn::{self, Dropped, Games},
    shard::ShardWriter,
};

/// Examples kept for each reason.
const EXAMPLES: usize = 3;

/// Options of `prepare`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// PGN files, plain or .zst
    #[arg(required = true)]
    pub inputs: Vec<PathBuf>,
    /// Folder of the shards
    #[arg(long)]
    pub out: PathBuf,
    /// Which games to keep
    #[command(flatten)]
    pub filter: Filter,
    /// Files read at the same time; 0 is one per core
    #[arg(long, default_value_t = 0)]
    pub jobs: usize,
    /// Most games in one shard
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub shard_games: u64,
}

/// What became of the games of one input.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Name of the input file.
    pub input: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// When it was last changed, in milliseconds since 1970.
    pub modified: u64,
    /// The filter used.
    pub filter: Filter,
    /// Most games in one shard.
    pub shard_games: u64,
    /// Games read.
    pub read: u64,
    /// Games kept.
    pub kept: u64,
    /// Plies of the kept games.
    pub positions: u64,
    /// Games left out, by reason.
    pub dropped: BTreeMap<Reason, Count>,
    /// Set when the file's end could not be read.
    pub damaged: Option<String>,
    /// Names of the shards written.
    pub shards: Vec<String>,
}

/// How many games were left out for a reason, and a few of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Count {
    /// How many.
    pub games: u64,
    /// Number in the file (from 1), id and detail of the first few.
    pub examples: Vec<String>,
}

impl Report {
    fn drop(&mut self, dropped: Dropped) {
        let count = self.dropped.entry(dropped.reason).or_default();
        count.games += 1;
        if count.examples.len() < EXAMPLES {
            let detail = if dropped.detail.is_empty() { String::new() } else { format!(": {}", dropped.detail) };
            count.examples.push(format!("{} game {} ({}){detail}", self.input, self.read, dropped.game));
        }
    }

    fn dropped_total(&self) -> u64 {
        self.dropped.values().map(|count| count.games).sum()
    }

    fn merge(&mut self, other: &Report) {
        self.read += other.read;
        self.kept += other.kept;
        self.positions += other.positions;
        for (&reason, count) in &other.dropped {
            let total = self.dropped.entry(reason).or_default();
            total.games += count.games;
            let room = EXAMPLES.saturating_sub(total.examples.len());
            total.examples.extend(count.examples.iter().take(room).cloned());
        }
    }
}

/// Prepares all inputs and returns the sum of their reports.
///
/// An input whose report is already in the output folder, for the same file and options, is not read again.
///
/// # Errors
///
/// When an input cannot be opened, two inputs share a name, or the output cannot be written. Damaged games and
/// damaged ends of files are reported, not errors.
pub fn run(options: &Options) -> Result<Report> {
    fs::create_dir_all(&options.out).with_context(|| format!("cannot create {}", options.out.display()))?;
    let inputs = with_names(&options.inputs)?;
    let bar = ProgressBar::new(inputs.iter().map(|input| input.bytes).sum());
    let style = "{elapsed_precise} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {msg} left {eta}";
    bar.set_style(ProgressStyle::with_template(style)?);
    let positions = AtomicU64::new(0);
    let started = Instant::now();

    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.jobs).build()?;
    let reports = pool.install(|| {
        inputs.par_iter().map(|input| prepare(input, options, &bar, &positions)).collect::<Result<Vec<_>>>()
    })?;
    bar.finish_and_clear();

    let mut total = Report { filter: options.filter.clone(), ..Report::default() };
    reports.iter().for_each(|report| total.merge(report));
    print(&reports, &total, positions.into_inner() as f64 / started.elapsed().as_secs_f64());
    Ok(total)
}

struct Input {
    path: PathBuf,
    /// File name without `.pgn` and `.zst`; shards and report are named after it.
    name: String,
    bytes: u64,
    modified: u64,
}

fn with_names(paths: &[PathBuf]) -> Result<Vec<Input>> {
    let mut inputs: Vec<Input> = Vec::new();
    for path in paths {
        let about = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
        let modified = about.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        let file = file_name(path);
        let name = file.trim_end_matches(".zst").trim_end_matches(".pgn").to_owned();
        if let Some(twin) = inputs.iter().find(|input| input.name == name) {
            bail!("{} and {} would write the same shards", twin.path.display(), path.display());
        }
        inputs.push(Input { path: path.clone(), name, bytes: about.len(), modified });
    }
    Ok(inputs)
}

fn prepare(input: &Input, options: &Options, bar: &ProgressBar, positions: &AtomicU64) -> Result<Report> {
    let report_path = options.out.join(format!("{}.report.json", input.name));
    if let Some(report) = earlier(&report_path, input, options) {
        bar.inc(input.bytes);
        return Ok(report);
    }
    remove_earlier(input, options, &report_path)?;
    let counted = bar.clone();
    let text = pgn::open(&input.path, move |read| counted.inc(read as u64))
        .with_context(|| format!("cannot read {}", input.path.display()))?;
    let mut output = Output::new(input, options);
    for game in Games::new(text, options.filter.clone()) {
        match game {
            Ok(outcome) => {
                let plies = output.take(outcome)?;
                let total = positions.fetch_add(plies, Ordering::Relaxed) + plies;
                if output.report.read.is_multiple_of(1024) {
                    bar.set_message(format!("{total} positions"));
                }
            }
            Err(error) => {
                output.report.damaged = Some(format!("after game {}: {error}", output.report.read));
                break;
            }
        }
    }
    let report = output.finish()?;
    write_atomically(&report_path, &serde_json::to_vec_pretty(&report)?)?;
    Ok(report)
}

/// Shards and report of one input, in the making.
struct Output<'a> {
    name: &'a str,
    options: &'a Options,
    shard: Option<ShardWriter>,
    report: Report,
}

impl<'a> Output<'a> {
    fn new(input: &'a Input, options: &'a Options) -> Self {
        let report = Report {
            input: file_name(&input.path),
            bytes: input.bytes,
            modified: input.modified,
            filter: options.filter.clone(),
            shard_games: options.shard_games,
            ..Report::default()
        };
        Output { name: &input.name, options, shard: None, report }
    }

    /// Takes in what reading a game gave; plies that are kept of it.
    fn take(&mut self, outcome: pgn::Verdict) -> Result<u64> {
        self.report.read += 1;
        let game = match outcome {
            Ok(game) => game,
            Err(dropped) => {
                self.report.drop(dropped);
                return Ok(0);
            }
        };
        let plies = game.moves.len() as u64;
        self.report.kept += 1;
        self.report.positions += plies;
        let number = self.report.shards.len();
        let path = || self.options.out.join(format!("{}-{number:05}.parquet", self.name));
        let shard = self.shard.get_or_insert_with(|| ShardWriter::new(path()));
        shard.push(game)?;
        if shard.len() as u64 >= self.options.shard_games {
            self.close()?;
        }
        Ok(plies)
    }

    /// Completes the open shard.
    fn close(&mut self) -> Result<()> {
        if let Some(shard) = self.shard.take() {
            self.report.shards.push(file_name(&shard.finish()?));
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Report> {
        self.close()?;
        Ok(self.report)
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The report of an earlier run over the same file with the same options, if its shards are still there.
fn earlier(path: &Path, input: &Input, options: &Options) -> Option<Report> {
    let report: Report = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    let same_input = (report.bytes, report.modified) == (input.bytes, input.modified);
    let same_options = report.filter == options.filter && report.shard_games == options.shard_games;
    let whole = report.shards.iter().all(|shard| options.out.join(shard).is_file());
    (same_input && same_options && whole).then_some(report)
}

/// Removes what an earlier run with other options, or one that was cut short, left of this input.
fn remove_earlier(input: &Input, options: &Options, report: &Path) -> Result<()> {
    if report.is_file() {
        fs::remove_file(report)?;
    }
    for entry in fs::read_dir(&options.out)? {
        let path = entry?.path();
        let name = file_name(&path);
        let number = name.strip_prefix(&input.name).and_then(|rest| rest.strip_prefix('-')).unwrap_or_default();
        let number = number.strip_suffix(".tmp").unwrap_or(number).strip_suffix(".parquet");
        if number.is_some_and(|number| number.len() == 5 && number.bytes().all(|byte| byte.is_ascii_digit())) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Writes a file that appears under its name when it is whole.
///
/// # Errors
///
/// When the disk does not take it.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let temporary = path.with_extension("tmp");
    fs::write(&temporary, bytes).with_context(|| format!("cannot write {}", temporary.display()))?;
    fs::rename(&temporary, path).with_context(|| format!("cannot write {}", path.display()))
}

fn print(reports: &[Report], total: &Report, speed: f64) {
    println!("{:<44} {:>9} {:>9} {:>12}", "input", "read", "kept", "positions");
    for report in reports {
        println!("{:<44} {:>9} {:>9} {:>12}", report.input, report.read, report.kept, report.positions);
        if let Some(damage) = &report.damaged {
            println!("  damaged {damage}");
        }
    }
    println!("{:<44} {:>9} {:>9} {:>12}", "total", total.read, total.kept, total.positions);
    println!("\ndropped {}, by reason:", total.dropped_total());
    for (reason, count) in &total.dropped {
        println!("  {:<16} {:>9}", reason.name(), count.games);
        count.examples.iter().for_each(|example| println!("    {example}"));
    }
    println!("\nread = kept + dropped: {} = {} + {}", total.read, total.kept, total.dropped_total());
    println!("{speed:.0} positions/s read in this run");
}
