//! Players' styles, from a folder of `NAME.json` as `zeitnot-train fit-style` writes them.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use zeitnot_encoding::rerank::{LARGEST, STYLE, Style};

/// Longest name of a style.
const LONGEST_NAME: usize = 64;

/// Styles by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Styles(BTreeMap<String, Named>);

#[derive(Clone, Debug, PartialEq)]
struct Named {
    reranker: String,
    values: Style,
}

/// A style's file.
#[derive(Debug, Deserialize)]
struct File {
    /// The re-ranker that it was learnt for.
    reranker: String,
    /// Whose it is.
    #[serde(rename = "player")]
    _player: String,
    /// Decisions that it was learnt from.
    #[serde(rename = "decisions")]
    _decisions: u64,
    values: Vec<f32>,
}

impl Styles {
    /// Reads a folder. Other files than `*.json`, and hidden ones, are left alone.
    ///
    /// # Errors
    ///
    /// Names the option, the file and the problem.
    pub fn read(folder: &Path) -> Result<Self> {
        let shown = || format!("--styles: cannot read {}", folder.display());
        let entries = fs::read_dir(folder).with_context(shown)?.collect::<std::io::Result<Vec<_>>>();
        let mut styles = BTreeMap::new();
        for path in entries.with_context(shown)?.iter().map(fs::DirEntry::path) {
            let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
            if hidden || path.extension().is_none_or(|end| end != "json") {
                continue;
            }
            let (name, style) = read(&path).with_context(|| format!("--styles: {}", path.display()))?;
            styles.insert(name, style);
        }
        Ok(Styles(styles))
    }

    /// A style by its name.
    pub fn get(&self, name: &str) -> Option<&Style> {
        self.0.get(name).map(|style| &style.values)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all were learnt for this re-ranker; for another one the numbers mean nothing.
    ///
    /// # Errors
    ///
    /// Names the option and the style.
    pub fn check(&self, reranker: &str) -> Result<()> {
        match self.0.iter().find(|(_, style)| style.reranker != reranker) {
            Some((name, style)) => {
                bail!(
                    "--styles: {name} is for the re-ranker `{}`, not for `{reranker}`, which is served",
                    style.reranker
                )
            }
            None => Ok(()),
        }
    }
}

fn read(path: &Path) -> Result<(String, Named)> {
    let name = path.file_stem().and_then(|name| name.to_str()).context("its name is not Unicode")?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(plain) {
        bail!("its name may have {LONGEST_NAME} letters, digits and -_. at most");
    }
    let file: File = serde_json::from_str(&fs::read_to_string(path)?)?;
    let found = file.values.len();
    let values = Style::try_from(file.values).ok().with_context(|| format!("{found} values, not {STYLE}"))?;
    if !values.iter().all(|value| value.abs() <= LARGEST) {
        bail!("its values are not between -{LARGEST} and {LARGEST}");
    }
    Ok((name.to_owned(), Named { reranker: file.reranker, values }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_are_the_json_files_of_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let style = |values: &str| format!(r#"{{"reranker":"r","player":"Tal","decisions":9,"values":[{values}]}}"#);
        let values = ["0.5"; STYLE].join(",");
        write("tal.json", &style(&values));
        write(".hidden.json", "x");
        write("readme.md", "x");
        let styles = Styles::read(folder.path()).unwrap();
        assert_eq!((styles.len(), styles.get("tal"), styles.get("nobody")), (1, Some(&[0.5; STYLE]), None));
        assert!(styles.check("r").is_ok());
        let wrong = styles.check("other").unwrap_err().to_string();
        assert!(wrong.contains("tal is for the re-ranker `r`"), "{wrong}");
        for (text, problem) in [
            (style("1,2"), "2 values, not 32"),
            (style(&values.replacen("0.5", "1e39", 1)), "number out of range"),
            ("{}".to_owned(), "missing field"),
            ("banana".to_owned(), "expected value"),
        ] {
            write("bad.json", &text);
            let error = format!("{:#}", Styles::read(folder.path()).unwrap_err());
            assert!(error.contains("bad.json") && error.contains(problem), "{error}");
        }
        fs::remove_file(folder.path().join("bad.json")).unwrap();
        write("a b.json", &style(&values));
        let error = format!("{:#}", Styles::read(folder.path()).unwrap_err());
        assert!(error.contains("a b.json: its name may have"), "{error}");
        assert!(
            format!("{:#}", Styles::read(Path::new("/nowhere")).unwrap_err())
                .contains("--styles: cannot read /nowhere")
        );
    }
}
