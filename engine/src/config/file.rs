//! Options from a TOML file.

use std::{ffi::OsString, fs, path::Path};

use anyhow::{Context, Result, bail};
use clap::Command;

/// Reads a TOML file as the flags it stands for, except those that are given already.
///
/// # Errors
///
/// Names the file, and the line or the key.
pub fn as_flags(path: &Path, command: &Command, is_given: impl Fn(&str) -> bool) -> Result<Vec<OsString>> {
    let shown = || path.display().to_string();
    let text = fs::read_to_string(path).with_context(shown)?;
    let table: toml::Table = toml::from_str(&text).with_context(shown)?;
    let mut flags = Vec::new();
    for (key, value) in &table {
        let known = command.get_arguments().find(|argument| argument.get_long() == Some(key));
        let Some(argument) = known.filter(|_| key != "config") else {
            bail!("{}: there is no option `{key}`", path.display());
        };
        if is_given(argument.get_id().as_str()) {
            continue;
        }
        let values = match value {
            toml::Value::Array(values) => values.iter().map(plain).collect(),
            value => plain(value).map(|value| vec![value]),
        };
        let problem = || format!("{}: `{key}` is not a text, a number or a list of them", path.display());
        flags.extend(values.with_context(problem)?.iter().map(|value| OsString::from(format!("--{key}={value}"))));
    }
    Ok(flags)
}

fn plain(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(_) | toml::Value::Float(_) | toml::Value::Datetime(_) => None,
        toml::Value::Array(_) | toml::Value::Table(_) => None,
    }
}
