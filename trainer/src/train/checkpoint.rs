//! Checkpoints: a folder each, complete or absent.
//!
//! `step-00001200/` holds `network.safetensors`, `optimizer.safetensors` and `state.json`. It is written under another
//! name and renamed when whole; the newest two are kept.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use tch::Tensor;
use zeitnot_network::Weights;

use super::{config::TrainConfig, eager::Network, optimizer::Optimizer, scaler::LossScaler};

const NETWORK: &str = "network.safetensors";
const PREFIX: &str = "step-";
const KEPT: usize = 2;

/// A saved state of a run.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Its folder.
    pub folder: PathBuf,
}

/// What a run needs beside tensors to go on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// Steps done.
    pub step: u64,
    /// Decisions in the shards it was trained on.
    pub decisions: usize,
    /// The recipe.
    pub config: TrainConfig,
    /// The teachers, as rating and file name.
    #[serde(default)]
    pub teachers: Vec<String>,
    /// Loss scaling.
    pub scaler: LossScaler,
}

impl Checkpoint {
    /// A checkpoint by its folder, or by a run's folder, which means its newest.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn find(folder: &Path) -> Result<Self> {
        if folder.join("state.json").is_file() {
            return Ok(Checkpoint { folder: folder.to_owned() });
        }
        match Checkpoint::newest(folder)? {
            Some(checkpoint) => Ok(checkpoint),
            None => bail!("{} is no checkpoint and holds none", folder.display()),
        }
    }

    /// The newest checkpoint of a run's folder.
    ///
    /// # Errors
    ///
    /// When the folder cannot be read.
    pub fn newest(run: &Path) -> Result<Option<Self>> {
        Ok(list(run)?.pop().map(|folder| Checkpoint { folder }))
    }

    /// Saves a checkpoint and removes all but the newest two.
    ///
    /// # Errors
    ///
    /// When the disk does not take it.
    pub fn save(run: &Path, state: &State, network: &Network, optimizer: &Optimizer) -> Result<()> {
        let folder = run.join(format!("{PREFIX}{:08}", state.step));
        let temporary = run.join("unfinished");
        let _ = fs::remove_dir_all(&temporary); // Absent unless a save was interrupted.
        fs::create_dir_all(&temporary)?;
        write_weights(&temporary, network)?;
        Tensor::write_safetensors(&optimizer.state(), temporary.join("optimizer.safetensors"))?;
        fs::write(temporary.join("state.json"), serde_json::to_vec_pretty(state)?)?;
        for entry in fs::read_dir(&temporary)? {
            File::open(entry?.path())?.sync_all()?;
        }
        let _ = fs::remove_dir_all(&folder); // There when a resumed run saves the same step again.
        fs::rename(&temporary, &folder).with_context(|| format!("cannot write {}", folder.display()))?;
        let old = list(run)?;
        for folder in old.iter().rev().skip(KEPT) {
            fs::remove_dir_all(folder)?;
        }
        Ok(())
    }

    /// Step, recipe and loss scaling.
    ///
    /// # Errors
    ///
    /// When the file is missing or damaged.
    pub fn state(&self) -> Result<State> {
        let path = self.folder.join("state.json");
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&bytes).with_context(|| path.display().to_string())
    }

    /// The network's tensors.
    ///
    /// # Errors
    ///
    /// When the file is missing or damaged.
    pub fn weights(&self) -> Result<Weights> {
        Ok(Weights::read(&self.folder.join(NETWORK))?)
    }

    /// The optimizer's moments.
    ///
    /// # Errors
    ///
    /// When the file is missing or damaged.
    pub fn optimizer(&self) -> Result<Vec<(String, Tensor)>> {
        let path = self.folder.join("optimizer.safetensors");
        Tensor::read_safetensors(&path).with_context(|| format!("cannot read {}", path.display()))
    }
}

/// Writes a network's tensors as `network.safetensors` into a folder.
///
/// # Errors
///
/// When the disk does not take it.
pub fn write_weights(folder: &Path, network: &Network) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let tensors = network.parameters.tensors().iter().map(|(name, tensor)| (name.as_str(), tensor)).collect::<Vec<_>>();
    Ok(Tensor::write_safetensors(&tensors, folder.join(NETWORK))?)
}

/// Reads weights from a safetensors file, a folder that holds one, or a run's newest checkpoint.
///
/// # Errors
///
/// When there are none.
pub fn read_weights(path: &Path) -> Result<Weights> {
    if path.is_file() {
        Ok(Weights::read(path)?)
    } else if path.join(NETWORK).is_file() {
        Ok(Weights::read(&path.join(NETWORK))?)
    } else {
        Checkpoint::find(path)?.weights()
    }
}

/// Checkpoint folders of a run, oldest first.
fn list(run: &Path) -> Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    if !run.is_dir() {
        return Ok(folders);
    }
    for entry in fs::read_dir(run).with_context(|| format!("cannot read {}", run.display()))? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with(PREFIX) && path.join("state.json").is_file() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}
