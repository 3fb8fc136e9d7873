//! What the shards of a folder were made with, so that no folder mixes two kinds.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use zeitnot_inference::Metadata;

use super::{Options, plan::Plan, plan::Selection};
use crate::prepare::write_atomically;

/// The file's name.
const NAME: &str = "annotate.json";

/// Everything a shard depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Name and version of the prior.
    pub model: String,
    /// Name that the engine gives itself.
    pub engine: String,
    /// Options set on it.
    pub engine_options: Vec<(String, String)>,
    /// Plies; 0 for no limit.
    pub depth: u32,
    /// Nodes; 0 for no limit.
    pub nodes: u64,
    /// Which decisions.
    pub selection: Selection,
    /// Decisions that were selected.
    pub decisions: usize,
    /// Decisions in a shard.
    pub shard_decisions: u32,
}

impl Manifest {
    pub(super) fn of(options: &Options, plan: &Plan, model: &Metadata, engine: &str) -> Self {
        Manifest {
            model: format!("{} {}", model.name, model.version),
            engine: engine.to_owned(),
            engine_options: options.engine_options.clone(),
            depth: options.depth,
            nodes: options.nodes,
            selection: options.selection.clone(),
            decisions: plan.len(),
            shard_decisions: options.shard_decisions,
        }
    }

    /// The manifest of a folder.
    ///
    /// # Errors
    ///
    /// When there is none, or it is damaged.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(NAME);
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }

    /// Writes it into a new folder, or makes sure that the folder's is the same.
    pub(super) fn settle(&self, folder: &Path) -> Result<()> {
        let path = folder.join(NAME);
        if !path.is_file() {
            return write_atomically(&path, &serde_json::to_vec_pretty(self)?);
        }
        let (found, own) = (serde_json::to_value(Manifest::read(folder)?)?, serde_json::to_value(self)?);
        let differs = own.as_object().into_iter().flatten().find(|(key, value)| found.get(key) != Some(*value));
        match differs {
            None => Ok(()),
            Some((key, value)) => {
                let was = found.get(key).map(ToString::to_string).unwrap_or_default();
                bail!(
                    "{}: the shards were made with {key} = {was}, this run has {value}; choose another --out",
                    path.display()
                )
            }
        }
    }
}
