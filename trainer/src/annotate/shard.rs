//! Shards of evidence: Parquet, one row a decision.
//!
//! | column | type | content |
//! |---|---|---|
//! | `game_id`, `site` | string | the game, as in its shard |
//! | `ply` | u16 | the decision, from 0 |
//! | `candidates` | list of u16 | the prior's most probable moves, best first, as vocabulary indices |
//! | `played` | u8? | place of the move played among the candidates |
//! | `depths` | list of u8 | depths at which all candidates were scored, ascending; empty when none was |
//! | `nodes` | list of u64 | nodes until each depth was complete |
//! | `scores` | list of i32? | scores at each depth, one candidate after the other: centipawns from the mover's side, a mate 32,000 less its moves |

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, anyhow};
use arrow_array::{
    Array, ListArray, PrimitiveArray, RecordBatch, StringArray, UInt8Array, UInt16Array,
    builder::{Int32Builder, ListBuilder, StringBuilder, UInt8Builder, UInt16Builder, UInt64Builder},
    cast::AsArray,
    types::{ArrowPrimitiveType, Int32Type, UInt8Type, UInt16Type, UInt64Type},
};
use parquet::{
    arrow::{ArrowWriter, arrow_reader::ParquetRecordBatchReaderBuilder},
    basic::{Compression, ZstdLevel},
    file::properties::WriterProperties,
};
use zeitnot_encoding::evidence::Score;
use zeitnot_uci::Evaluation;

/// A decision's candidates and what an engine says of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// The game's id.
    pub game_id: String,
    /// Where it was played.
    pub site: String,
    /// The decision, from 0.
    pub ply: u16,
    /// Vocabulary indices, most probable first.
    pub candidates: Vec<u16>,
    /// Place of the move played among them.
    pub played: Option<u8>,
    /// Complete depths, ascending.
    pub searches: Vec<Search>,
}

/// The scores of one complete depth.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// Plies.
    pub depth: u8,
    /// Nodes until it was complete.
    pub nodes: u64,
    /// One score for each candidate.
    pub scores: Vec<Option<Score>>,
}

impl Evidence {
    /// The search of a depth, or the deepest one before it; none when that is too shallow a search to have ended.
    pub fn at(&self, depth: u8) -> Option<&Search> {
        self.searches.iter().rev().find(|search| search.depth <= depth)
    }
}

/// What is kept of an evaluation: every depth at which all candidates were scored.
pub fn searches(evaluation: &Evaluation) -> Vec<Search> {
    let score = |score: zeitnot_uci::Score| match score {
        zeitnot_uci::Score::Centipawns(cp) => Score::Centipawns(cp),
        zeitnot_uci::Score::Mate(moves) => Score::Mate(moves),
    };
    let search = |iteration: &zeitnot_uci::Iteration| Search {
        depth: u8::try_from(iteration.depth).unwrap_or(u8::MAX),
        nodes: iteration.nodes,
        scores: iteration.scores.iter().map(|own| own.map(score)).collect(),
    };
    evaluation.iterations.iter().map(search).collect()
}

/// The path of a shard.
pub fn path(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("evidence-{number:05}.parquet"))
}

/// Writes a shard; it appears under its name when it is whole.
///
/// # Errors
///
/// When the disk does not take it.
pub fn write(path: &Path, rows: &[Evidence]) -> Result<()> {
    let batch = to_batch(rows)?;
    let temporary = temporary(path);
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?)).build();
    let file = File::create(&temporary).with_context(|| temporary.display().to_string())?;
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties))?;
    writer.write(&batch)?;
    writer.into_inner()?.sync_all()?;
    fs::rename(&temporary, path).with_context(|| path.display().to_string())
}

/// A name for an unfinished file that no other machine uses, though all call their process 1.
pub(super) fn temporary(path: &Path) -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    path.with_extension(format!("{}-{now}.tmp", std::process::id()))
}

fn to_batch(rows: &[Evidence]) -> Result<RecordBatch> {
    let text = |field: fn(&Evidence) -> &str| -> Arc<dyn Array> {
        let mut builder = StringBuilder::new();
        rows.iter().for_each(|row| builder.append_value(field(row)));
        Arc::new(builder.finish())
    };
    let mut plies = UInt16Builder::new();
    let mut played = UInt8Builder::new();
    let mut candidates = ListBuilder::new(UInt16Builder::new());
    let mut depths = ListBuilder::new(UInt8Builder::new());
    let mut nodes = ListBuilder::new(UInt64Builder::new());
    let mut scores = ListBuilder::new(Int32Builder::new());
    for row in rows {
        plies.append_value(row.ply);
        played.append_option(row.played);
        candidates.values().append_slice(&row.candidates);
        candidates.append(true);
        for search in &row.searches {
            depths.values().append_value(search.depth);
            nodes.values().append_value(search.nodes);
            search.scores.iter().for_each(|score| scores.values().append_option(score.map(Score::worth)));
        }
        depths.append(true);
        nodes.append(true);
        scores.append(true);
    }
    Ok(RecordBatch::try_from_iter([
        ("game_id", text(|row| &row.game_id)),
        ("site", text(|row| &row.site)),
        ("ply", Arc::new(plies.finish()) as Arc<dyn Array>),
        ("candidates", Arc::new(candidates.finish())),
        ("played", Arc::new(played.finish())),
        ("depths", Arc::new(depths.finish())),
        ("nodes", Arc::new(nodes.finish())),
        ("scores", Arc::new(scores.finish())),
    ])?)
}

/// The evidence of a folder, in the order of its shards.
///
/// # Errors
///
/// When the folder cannot be read, is empty, or holds another file, naming it.
pub fn read_folder(folder: &Path) -> Result<Vec<Evidence>> {
    let mut rows = Vec::new();
    for path in crate::shard::list(folder)? {
        rows.extend(read(&path).with_context(|| format!("cannot read the evidence {}", path.display()))?);
    }
    Ok(rows)
}

/// Reads one shard.
///
/// # Errors
///
/// When it is not one, naming the column.
pub fn read(path: &Path) -> Result<Vec<Evidence>> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?.build()?;
    let mut rows = Vec::new();
    for batch in reader {
        let batch = batch?;
        let columns = Columns::of(&batch)?;
        for row in 0..batch.num_rows() {
            rows.push(columns.evidence(row)?);
        }
    }
    Ok(rows)
}

struct Columns<'a> {
    game_id: &'a StringArray,
    site: &'a StringArray,
    ply: &'a UInt16Array,
    played: &'a UInt8Array,
    lists: [&'a ListArray; 4],
}

impl<'a> Columns<'a> {
    fn of(batch: &'a RecordBatch) -> Result<Self> {
        let column = |name: &str| batch.column_by_name(name).ok_or_else(|| anyhow!("there is no column `{name}`"));
        let wrong = |name: &str, kind: &str| anyhow!("column `{name}` is not {kind}");
        let text = |name: &str| column(name)?.as_string_opt().ok_or_else(|| wrong(name, "text"));
        let list = |name: &str| column(name)?.as_list_opt().ok_or_else(|| wrong(name, "a list"));
        Ok(Columns {
            game_id: text("game_id")?,
            site: text("site")?,
            ply: column("ply")?.as_primitive_opt().ok_or_else(|| wrong("ply", "u16"))?,
            played: column("played")?.as_primitive_opt().ok_or_else(|| wrong("played", "u8"))?,
            lists: [list("candidates")?, list("depths")?, list("nodes")?, list("scores")?],
        })
    }

    fn evidence(&self, row: usize) -> Result<Evidence> {
        let [candidates, depths, nodes, scores] = self.lists.map(|list| list.value(row));
        let candidates = values::<UInt16Type>(&candidates, "candidates")?.values().to_vec();
        let (depths, nodes) = (values::<UInt8Type>(&depths, "depths")?, values::<UInt64Type>(&nodes, "nodes")?);
        let scores = values::<Int32Type>(&scores, "scores")?.iter().map(|worth| worth.map(Score::of_worth));
        let scores = scores.collect::<Vec<_>>();
        if scores.len() != depths.len() * candidates.len() || nodes.len() != depths.len() {
            return Err(anyhow!("row {row}: scores, nodes, depths and candidates do not fit"));
        }
        let searches = depths.values().iter().zip(nodes.values()).zip(scores.chunks(candidates.len().max(1)));
        let searches =
            searches.map(|((&depth, &nodes), scores)| Search { depth, nodes, scores: scores.to_vec() }).collect();
        Ok(Evidence {
            game_id: self.game_id.value(row).to_owned(),
            site: self.site.value(row).to_owned(),
            ply: self.ply.value(row),
            played: self.played.is_valid(row).then(|| self.played.value(row)),
            candidates,
            searches,
        })
    }
}

fn values<'a, T: ArrowPrimitiveType>(array: &'a Arc<dyn Array>, name: &str) -> Result<&'a PrimitiveArray<T>> {
    array.as_primitive_opt::<T>().ok_or_else(|| anyhow!("column `{name}` holds other values than it should"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_is_read_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let search = |depth, worths: [Option<i32>; 2]| Search {
            depth,
            nodes: 1000 * u64::from(depth),
            scores: worths.map(|worth| worth.map(Score::of_worth)).to_vec(),
        };
        let rows = vec![
            Evidence {
                game_id: "g".into(),
                site: "otb".into(),
                ply: 7,
                candidates: vec![5, 900],
                played: Some(1),
                searches: vec![search(1, [Some(10), None]), search(2, [Some(31_998), Some(-40)])],
            },
            Evidence { game_id: "h".into(), candidates: vec![1, 2], ..Evidence::default() },
        ];
        write(&path(folder.path(), 3), &rows).unwrap();
        assert_eq!(read_folder(folder.path()).unwrap(), rows);
        assert_eq!(rows[0].at(9).unwrap().scores[0], Some(Score::Mate(2)));
        assert_eq!((rows[0].at(1).unwrap().depth, rows[0].at(0), rows[1].at(8)), (1, None, None));
    }
}
