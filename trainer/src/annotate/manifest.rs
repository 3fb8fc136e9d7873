//! What the shards of a folder were made with, so that no folder mixes two kinds.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use zeitnot_inference::Metadata;

use super::{
    Options,
    plan::{Plan, Selection},
    shard::temporary,
};

/// The file's name.
const NAME: &str = "annotate.json";

/// Everything a shard depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The prior.
    pub model: Model,
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
    /// Fingerprint of which these are.
    pub plan: String,
    /// Decisions in a shard.
    pub shard_decisions: u32,
}

/// A prior, as evidence remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// Its name and version.
    pub name: String,
    /// Fingerprint of its file.
    pub sha256: String,
}

impl Model {
    /// The prior in a file.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub fn of(path: &Path, about: &Metadata) -> Result<Self> {
        let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
        Ok(Model { name: format!("{} {}", about.name, about.version), sha256: hex(&Sha256::digest(&bytes)) })
    }
}

pub(super) fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Manifest {
    pub(super) fn of(options: &Options, plan: &Plan, model: Model, engine: &str) -> Self {
        Manifest {
            model,
            engine: engine.to_owned(),
            engine_options: options.engine_options.clone(),
            depth: options.depth,
            nodes: options.nodes,
            selection: options.selection.clone(),
            decisions: plan.len(),
            plan: plan.fingerprint(),
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
        // Several machines may begin at once: the first to link its file wins, the others compare.
        let temporary = temporary(&path);
        std::fs::write(&temporary, serde_json::to_vec_pretty(self)?)
            .with_context(|| temporary.display().to_string())?;
        let linked = std::fs::hard_link(&temporary, &path);
        std::fs::remove_file(&temporary).with_context(|| temporary.display().to_string())?;
        match linked {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
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
