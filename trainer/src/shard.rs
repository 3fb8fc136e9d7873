//! Parquet shards: one row a game, compressed with zstd.
//!
//! | column | type | content |
//! |---|---|---|
//! | `game_id`, `site`, `event`, `date` | string | as in the PGN |
//! | `white`, `black`, `white_title`, `black_title` | string | players, empty when unknown |
//! | `white_rating`, `black_rating` | u16? | |
//! | `initial_seconds`, `increment_seconds` | f32? | time control |
//! | `result` | i8 | 1 White won, 0 draw, -1 Black won |
//! | `moves` | list of u16 | from + 64 to + 4096 promotion (0 none, 2 knight, 3 bishop, 4 rook, 5 queen); a1 = 0 |
//! | `clocks` | list of f32? | seconds left after each ply; empty when there are no clocks |

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result, anyhow};
use arrow_array::{
    Array, Float32Array, Int8Array, ListArray, RecordBatch, StringArray, UInt16Array,
    builder::{Float32Builder, Int8Builder, ListBuilder, StringBuilder, UInt16Builder},
    cast::AsArray,
    types::{Float32Type, Int8Type, UInt16Type},
};
use parquet::{
    arrow::{ArrowWriter, arrow_reader::ParquetRecordBatchReaderBuilder},
    basic::{Compression, ZstdLevel},
    file::properties::WriterProperties,
};
use shakmaty::Color;
use zeitnot_encoding::TimeControl;

use crate::record::{GameRecord, Player};

/// Games held in memory before they are written as a row group.
const ROW_GROUP: usize = 8192;

/// Writes one shard; it appears under its name when it is whole.
pub struct ShardWriter {
    path: PathBuf,
    temporary: PathBuf,
    writer: Option<ArrowWriter<File>>,
    games: Vec<GameRecord>,
    written: usize,
}

impl ShardWriter {
    /// Starts a shard.
    pub fn new(path: PathBuf) -> Self {
        let temporary = path.with_extension("parquet.tmp");
        ShardWriter { path, temporary, writer: None, games: Vec::new(), written: 0 }
    }

    /// Appends a game.
    ///
    /// # Errors
    ///
    /// When the disk does not take it.
    pub fn push(&mut self, game: GameRecord) -> Result<()> {
        self.games.push(game);
        if self.games.len() >= ROW_GROUP { self.flush() } else { Ok(()) }
    }

    /// Games so far.
    pub fn len(&self) -> usize {
        self.written + self.games.len()
    }

    /// True before the first game.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Completes the shard and gives it its name.
    ///
    /// # Errors
    ///
    /// When the disk does not take it.
    pub fn finish(mut self) -> Result<PathBuf> {
        self.flush()?;
        if let Some(writer) = self.writer.take() {
            writer.close()?;
            fs::rename(&self.temporary, &self.path)?;
        }
        Ok(self.path)
    }

    fn flush(&mut self) -> Result<()> {
        if self.games.is_empty() {
            return Ok(());
        }
        let batch = to_batch(&self.games)?;
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let properties = WriterProperties::builder()
                    .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
                    .set_dictionary_enabled(true)
                    .build();
                let file = File::create(&self.temporary).with_context(|| self.temporary.display().to_string())?;
                self.writer.insert(ArrowWriter::try_new(file, batch.schema(), Some(properties))?)
            }
        };
        writer.write(&batch)?;
        writer.flush()?;
        self.written += self.games.len();
        self.games.clear();
        Ok(())
    }
}

fn to_batch(games: &[GameRecord]) -> Result<RecordBatch> {
    let text = |field: fn(&GameRecord) -> &str| -> Arc<dyn Array> {
        let mut builder = StringBuilder::new();
        games.iter().for_each(|game| builder.append_value(field(game)));
        Arc::new(builder.finish())
    };
    let rating = |field: fn(&GameRecord) -> Option<u16>| -> Arc<dyn Array> {
        let mut builder = UInt16Builder::new();
        games.iter().for_each(|game| builder.append_option(field(game)));
        Arc::new(builder.finish())
    };
    let seconds = |field: fn(TimeControl) -> f32| -> Arc<dyn Array> {
        let mut builder = Float32Builder::new();
        games.iter().for_each(|game| builder.append_option(game.time_control.map(field)));
        Arc::new(builder.finish())
    };
    let mut result = Int8Builder::new();
    let mut moves = ListBuilder::new(UInt16Builder::new());
    let mut clocks = ListBuilder::new(Float32Builder::new());
    for game in games {
        result.append_value(game.winner.map_or(0, |winner| winner.fold_wb(1, -1)));
        moves.values().append_slice(&game.moves);
        moves.append(true);
        game.clocks.iter().for_each(|&clock| clocks.values().append_option(clock));
        clocks.append(true);
    }
    let batch = RecordBatch::try_from_iter([
        ("game_id", text(|game| &game.id)),
        ("site", text(|game| &game.site)),
        ("event", text(|game| &game.event)),
        ("date", text(|game| &game.date)),
        ("white", text(|game| &game.white.name)),
        ("black", text(|game| &game.black.name)),
        ("white_title", text(|game| &game.white.title)),
        ("black_title", text(|game| &game.black.title)),
        ("white_rating", rating(|game| game.white.rating)),
        ("black_rating", rating(|game| game.black.rating)),
        ("initial_seconds", seconds(|control| control.initial)),
        ("increment_seconds", seconds(|control| control.increment)),
        ("result", Arc::new(result.finish()) as Arc<dyn Array>),
        ("moves", Arc::new(moves.finish())),
        ("clocks", Arc::new(clocks.finish())),
    ])?;
    Ok(batch)
}

/// The shards of a folder, sorted by name.
///
/// # Errors
///
/// When the folder cannot be read or has no shard.
pub fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut shards = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read the folder {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "parquet") {
            shards.push(path);
        }
    }
    shards.sort();
    if shards.is_empty() {
        return Err(anyhow!("{} has no .parquet shard; make some with `zeitnot-train prepare`", folder.display()));
    }
    Ok(shards)
}

/// Reads the games of a shard.
///
/// # Errors
///
/// When the file is not a shard, naming it.
pub fn read(path: &Path) -> Result<Vec<GameRecord>> {
    read_all(path).with_context(|| format!("cannot read the shard {}", path.display()))
}

fn read_all(path: &Path) -> Result<Vec<GameRecord>> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?.build()?;
    let mut games = Vec::new();
    for batch in reader {
        let batch = batch?;
        let columns = Columns::of(&batch)?;
        games.extend((0..batch.num_rows()).map(|row| columns.game(row)));
    }
    Ok(games)
}

/// The columns of a row group.
struct Columns<'a> {
    texts: [&'a StringArray; 8],
    ratings: [&'a UInt16Array; 2],
    control: [&'a Float32Array; 2],
    result: &'a Int8Array,
    moves: &'a ListArray,
    clocks: &'a ListArray,
}

impl<'a> Columns<'a> {
    fn of(batch: &'a RecordBatch) -> Result<Self> {
        let column = |name: &str| batch.column_by_name(name).ok_or_else(|| anyhow!("there is no column `{name}`"));
        let text = |name: &str| column(name)?.as_string_opt().ok_or_else(|| anyhow!("column `{name}` is not text"));
        let rating = |name: &str| {
            column(name)?.as_primitive_opt::<UInt16Type>().ok_or_else(|| anyhow!("column `{name}` is not u16"))
        };
        let seconds = |name: &str| {
            column(name)?.as_primitive_opt::<Float32Type>().ok_or_else(|| anyhow!("column `{name}` is not f32"))
        };
        let list = |name: &str| column(name)?.as_list_opt().ok_or_else(|| anyhow!("column `{name}` is not a list"));
        let result = column("result")?.as_primitive_opt::<Int8Type>();
        Ok(Columns {
            texts: [
                text("game_id")?,
                text("site")?,
                text("event")?,
                text("date")?,
                text("white")?,
                text("black")?,
                text("white_title")?,
                text("black_title")?,
            ],
            ratings: [rating("white_rating")?, rating("black_rating")?],
            control: [seconds("initial_seconds")?, seconds("increment_seconds")?],
            result: result.ok_or_else(|| anyhow!("column `result` is not i8"))?,
            moves: list("moves")?,
            clocks: list("clocks")?,
        })
    }

    fn game(&self, row: usize) -> GameRecord {
        let [id, site, event, date, white, black, white_title, black_title] =
            self.texts.map(|column| column.value(row).to_owned());
        let [white_rating, black_rating] = self.ratings.map(|column| column.is_valid(row).then(|| column.value(row)));
        let [initial, increment] = self.control.map(|column| column.is_valid(row).then(|| column.value(row)));
        let moves = self.moves.value(row);
        let clocks = self.clocks.value(row);
        GameRecord {
            id,
            site,
            event,
            date,
            white: Player { name: white, title: white_title, rating: white_rating },
            black: Player { name: black, title: black_title, rating: black_rating },
            time_control: initial.zip(increment).map(|(initial, increment)| TimeControl { initial, increment }),
            winner: match self.result.value(row) {
                0 => None,
                result if result > 0 => Some(Color::White),
                _ => Some(Color::Black),
            },
            moves: moves.as_primitive_opt::<UInt16Type>().map(|moves| moves.values().to_vec()).unwrap_or_default(),
            clocks: clocks.as_primitive_opt::<Float32Type>().map(|clocks| clocks.iter().collect()).unwrap_or_default(),
        }
    }
}
