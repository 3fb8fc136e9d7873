//! A trained re-ranker as files: `reranker.safetensors`, `reranker.json`, `reranker.onnx`, and `styles/NAME.json` for
//! each player who got a style.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use tch::{Device, Tensor, no_grad};
use zeitnot_encoding::rerank::{CANDIDATES, RerankBatch, STYLE};
use zeitnot_inference::{Reranker, RerankerMetadata, Runtime};
use zeitnot_network::{Weights, onnx};

use super::{
    known::Known,
    loss::Rows,
    train::{RerankRecipe, styles_of},
};
use crate::{parity::TOLERANCE, prepare::write_atomically, train::eager::Parameters};

/// What a re-ranker was made of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct About {
    /// Its name.
    pub name: String,
    /// Name of the prior.
    pub prior: String,
    /// The engines whose evidence it saw.
    pub engines: Vec<String>,
    /// Decisions it was trained on.
    pub decisions: usize,
    /// The recipe.
    pub recipe: RerankRecipe,
    /// Players with a style, and their rows in the table.
    pub players: BTreeMap<String, i64>,
    /// What the file says it was trained on.
    pub trained_on: String,
    /// Licence of the weights.
    pub license: String,
}

/// A player's style, as the server reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StyleFile {
    /// Name of the re-ranker it belongs to.
    pub reranker: String,
    /// The player.
    pub player: String,
    /// Decisions it was learnt from.
    pub decisions: usize,
    /// 32 numbers.
    pub values: Vec<f32>,
}

/// The name of a player, with the site it belongs to.
pub fn player((site, name): &(String, String)) -> String {
    format!("{site}-{name}")
}

/// A player's name as that of a file, which the server takes for the style's.
fn file_name(player: &str) -> String {
    let fine = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    player.chars().map(fine).collect::<String>().trim_start_matches('.').to_owned()
}

/// Writes all files, after a check that ONNX Runtime answers as tch does.
///
/// # Errors
///
/// When the disk does not take them, or the answers differ.
pub fn write(folder: &Path, about: &About, parameters: &Parameters, known: &[Known]) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let tensors = parameters.tensors().iter().map(|(name, tensor)| (name.as_str(), tensor)).collect::<Vec<_>>();
    let weights = folder.join("reranker.safetensors");
    Tensor::write_safetensors(&tensors, &weights)?;
    write_atomically(&folder.join("reranker.json"), &serde_json::to_vec_pretty(about)?)?;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    known.iter().for_each(|known| *counts.entry(player(&known.player)).or_default() += 1);
    let styles = folder.join("styles");
    if styles.is_dir() {
        std::fs::remove_dir_all(&styles)?; // Of an earlier training, which would pass for this one's.
    }
    for (name, values) in styles_of(parameters, &about.players)? {
        let decisions = counts.get(&name).copied().unwrap_or_default();
        let style = StyleFile { reranker: about.name.clone(), player: name.clone(), decisions, values };
        write_atomically(&styles.join(format!("{}.json", file_name(&name))), &serde_json::to_vec(&style)?)?;
    }
    let bytes = onnx::export_reranker(&about.recipe.network, &Weights::read(&weights)?, &metadata(about).entries())?;
    let sample = known.iter().take(64).collect::<Vec<_>>();
    let difference = difference(about, parameters, &bytes, &sample)?;
    if difference > TOLERANCE {
        bail!("ONNX Runtime differs from tch by {difference:.2e}, more than {TOLERANCE:.0e}; no ONNX file is written");
    }
    write_atomically(&folder.join("reranker.onnx"), &bytes)?;
    println!("{}: {} KiB, differs from tch by {difference:.1e}", folder.display(), bytes.len() / 1024);
    Ok(())
}

fn metadata(about: &About) -> RerankerMetadata {
    RerankerMetadata {
        name: about.name.clone(),
        version: "1".to_owned(),
        prior: about.prior.clone(),
        trained_on: about.trained_on.clone(),
        license: about.license.clone(),
        ..RerankerMetadata::default()
    }
}

/// The largest difference between the residuals of tch and of ONNX Runtime.
fn difference(about: &About, parameters: &Parameters, onnx: &[u8], sample: &[&Known]) -> Result<f32> {
    let style = [0.25; STYLE];
    let shown = sample.iter().map(|known| (*known, known.scores(u8::MAX))).collect::<Vec<_>>();
    let mut batch = RerankBatch::default();
    shown.iter().for_each(|(known, scores)| batch.push(&known.row(Some(&style), scores)));
    let theirs = Reranker::from_bytes(&Runtime::load(None)?, "the new file", onnx, 1)?.run(&batch)?;
    let styles = Tensor::from_slice(&style).repeat([shown.len() as i64, 1]);
    let ours = no_grad(|| Rows::of(&shown).residuals(&about.recipe.network, parameters, Some(&styles), false))?;
    let ours = Vec::<f32>::try_from(ours.reshape([-1]))?;
    let pairs = ours.chunks(CANDIDATES).zip(theirs.chunks(CANDIDATES)).zip(sample);
    let there = pairs.flat_map(|((ours, theirs), known)| ours.iter().zip(theirs).take(known.candidates.len()));
    let gap =
        |(ours, theirs): (&f32, &f32)| if (ours - theirs).is_nan() { f32::INFINITY } else { (ours - theirs).abs() };
    Ok(there.map(gap).fold(0.0, f32::max))
}

/// What a re-ranker's folder says of it.
///
/// # Errors
///
/// When it is missing or damaged, naming the file.
pub fn about(folder: &Path) -> Result<About> {
    let path = folder.join("reranker.json");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// A re-ranker's tensors.
///
/// # Errors
///
/// When they are missing or damaged, naming the file.
pub fn weights(folder: &Path) -> Result<Weights> {
    Ok(Weights::read(&folder.join("reranker.safetensors"))?)
}

/// A re-ranker on tch.
///
/// # Errors
///
/// As [`about`] and [`weights`]; also when a tensor is missing.
pub fn read(folder: &Path) -> Result<(About, Parameters)> {
    let about = about(folder)?;
    let parameters = Parameters::with_weights(about.recipe.network.specs(), Device::Cpu, &weights(folder)?)?;
    Ok((about, parameters))
}
