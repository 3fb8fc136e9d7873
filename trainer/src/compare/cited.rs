//! Published figures of other conditions.

use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// A published figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cited {
    /// What was measured, as its authors name it.
    pub model: String,
    /// The figure with its unit.
    pub figure: String,
    /// On which games, of which players, with what left out.
    pub conditions: String,
    /// Where it is published.
    pub source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    figure: Vec<Cited>,
}

/// Reads a TOML file of `[[figure]]` tables.
///
/// # Errors
///
/// When it cannot be read, naming the file and the line.
pub fn read(path: &Path) -> Result<Vec<Cited>> {
    let shown = || path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(shown)?;
    Ok(toml::from_str::<File>(&text).with_context(shown)?.figure)
}
