//! Which files are models and ensembles of them, and when they change.

use std::{
    collections::{HashMap, HashSet},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use zeitnot_inference::Ensemble;

/// The embedded default model.
const EMBEDDED: &[u8] = include_bytes!("../../models/zeitnot.onnx");
const EMBEDDED_NAME: &str = "the embedded model";

/// A model file in memory.
#[derive(Clone, Debug)]
pub struct ModelFile {
    /// Its path, or a name for people.
    pub source: String,
    /// Its content.
    pub bytes: Arc<[u8]>,
    /// Fingerprint of the content, in hexadecimal.
    pub sha256: String,
}

/// A file that is served under a name.
#[derive(Clone, Debug)]
pub enum Found {
    /// A model.
    Model(ModelFile),
    /// An ensemble; its members are found too.
    Ensemble(EnsembleFile),
}

/// An ensemble's file in memory.
#[derive(Clone, Debug)]
pub struct EnsembleFile {
    /// Its path.
    pub source: String,
    /// Fingerprint of its content, in hexadecimal.
    pub sha256: String,
    /// How members are chosen.
    pub rule: Ensemble,
    /// Sources of the members' files.
    pub members: Vec<String>,
}

/// What changes when a file is written or replaced: size, time of change in nanoseconds, inode.
pub type Stamp = (PathBuf, u64, i128, u64);

/// Reads the model files: those named, and in the directories named those that end in `.onnx` or `.toml`, in order of
/// name. Members of an ensemble come after it, unless they were found before. The embedded model when nothing is named.
///
/// # Errors
///
/// When a file cannot be read, is no ensemble though its name ends in `.toml`, or a directory holds none.
pub fn read(paths: &[PathBuf]) -> Result<Vec<Found>> {
    if paths.is_empty() {
        return Ok(vec![Found::Model(ModelFile::new(EMBEDDED_NAME.to_owned(), EMBEDDED.into()))]);
    }
    let mut found = Vec::new();
    let mut known = Sources::default();
    for path in find(paths)? {
        if !Ensemble::is_named_by(&path) {
            known.add(&path, &mut found)?;
            continue;
        }
        if known.0.insert(real(&path)?, path.display().to_string()).is_some() {
            continue;
        }
        let (source, sha256) = (path.display().to_string(), ModelFile::read(&path)?.sha256);
        let rule = Ensemble::read(&path).context("--model")?;
        let place = found.len();
        let shown = || format!("{source}: a member cannot be served");
        let member = |member: &zeitnot_inference::ensemble::Member| known.add(&member.file, &mut found);
        let members = rule.members.iter().map(member).collect::<Result<Vec<_>>>().with_context(shown)?;
        found.insert(place, Found::Ensemble(EnsembleFile { source, sha256, rule, members }));
    }
    Ok(found)
}

/// Files that were found, by their real paths, with the names they have for people.
#[derive(Default)]
struct Sources(HashMap<PathBuf, String>);

impl Sources {
    /// The name for people of a model file, which is read if it is new.
    fn add(&mut self, path: &Path, found: &mut Vec<Found>) -> Result<String> {
        let real = real(path)?;
        if let Some(source) = self.0.get(&real) {
            return Ok(source.clone());
        }
        let file = ModelFile::read(path)?;
        let source = file.source.clone();
        self.0.insert(real, source.clone());
        found.push(Found::Model(file));
        Ok(source)
    }
}

fn real(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).with_context(|| format!("--model: cannot read {}", path.display()))
}

/// Reads one file that an option names.
///
/// # Errors
///
/// When it cannot be read, naming both.
pub fn read_one(option: &str, path: PathBuf) -> Result<ModelFile> {
    let source = path.display().to_string();
    let bytes = fs::read(&path).with_context(|| format!("{option}: cannot read {source}"))?;
    Ok(ModelFile::new(source, bytes.into()))
}

/// Stamps of the model files and of ensembles' members; none of a file that is not there.
pub fn stamps(paths: &[PathBuf]) -> Vec<Stamp> {
    let files = find(paths).unwrap_or_default();
    let ensembles = files.iter().filter(|path| Ensemble::is_named_by(path));
    let members = ensembles.filter_map(|path| Some(Ensemble::read(path).ok()?.members)).flatten();
    let members = members.map(|member| member.file).collect::<HashSet<_>>();
    let mut stamps = files.iter().chain(&members).filter_map(|path| stamp(path)).collect::<Vec<_>>();
    stamps.sort();
    stamps
}

/// The stamp of one file, if it is there.
pub fn stamp(path: &Path) -> Option<Stamp> {
    let found = fs::metadata(path).ok()?;
    let changed = i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec());
    Some((path.to_owned(), found.len(), changed, found.ino()))
}

/// Paths of the model files.
///
/// # Errors
///
/// As [`read`], but for the content.
pub fn find(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        let shown = || format!("--model: cannot read {}", path.display());
        if !fs::metadata(path).with_context(shown)?.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries =
            fs::read_dir(path).with_context(shown)?.collect::<std::io::Result<Vec<_>>>().with_context(shown)?;
        // A name that starts with a dot is a file being written, or Kubernetes' own.
        let hidden = |path: &Path| path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        let found = entries.iter().map(fs::DirEntry::path);
        let is_model = |path: &PathBuf| path.extension().is_some_and(|end| end == "onnx" || end == "toml");
        let mut found = found.filter(|path| is_model(path) && !hidden(path));
        let mut found = found.by_ref().collect::<Vec<_>>();
        if found.is_empty() {
            bail!("--model: there is no .onnx or .toml file in {}", path.display());
        }
        found.sort();
        files.extend(found);
    }
    Ok(files)
}

impl ModelFile {
    fn read(path: &Path) -> Result<Self> {
        read_one("--model", path.to_owned())
    }

    /// A file of this content; `source` names it for people.
    pub fn new(source: String, bytes: Arc<[u8]>) -> Self {
        let sha256 = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        ModelFile { source, bytes, sha256 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_give_their_models_in_order_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| fs::write(folder.path().join(name), name).unwrap();
        assert!(read(&[folder.path().to_owned()]).unwrap_err().to_string().contains("no .onnx or .toml file in"));
        ["b.onnx", "a.onnx", ".c.onnx", "readme.txt", "d.onnx.tmp"].into_iter().for_each(write);
        let files = read(&[folder.path().to_owned(), folder.path().join("readme.txt")]).unwrap();
        assert_eq!(names(&files), ["a.onnx", "b.onnx", "readme.txt"]);
        let missing = read(&[folder.path().join("e.onnx")]).unwrap_err();
        assert!(format!("{missing:#}").contains("e.onnx: No such file"), "{missing:#}");
    }

    fn names(found: &[Found]) -> Vec<&str> {
        let source = |found| match found {
            &Found::Model(ModelFile { ref source, .. }) | &Found::Ensemble(EnsembleFile { ref source, .. }) => source,
        };
        found.iter().map(|found| source(found).rsplit('/').next().unwrap()).collect()
    }

    #[test]
    fn members_of_ensembles_are_found_once() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let member = |rating: u16, file: &str| format!("[[member]]\nrating = {rating}\nfile = \"{file}\"\n");
        let members = member(1200, "../models/b.onnx") + &member(1100, "c.onnx");
        let models = folder.path().join("models");
        fs::create_dir(&models).unwrap();
        write("models/b.onnx", "b");
        write("models/c.onnx", "c");
        write("models/d.toml", &format!("name = \"d\"\n{members}"));
        let found = read(&[models.join("d.toml"), models.clone()]).unwrap();
        assert_eq!(names(&found), ["d.toml", "c.onnx", "b.onnx"]);
        let Found::Ensemble(ensemble) = &found[0] else { panic!() };
        let members = ensemble.members.iter().map(|source| source.rsplit('/').next().unwrap()).collect::<Vec<_>>();
        assert_eq!(members, ["c.onnx", "b.onnx"], "by rating");
        let before = stamps(&[models.join("d.toml")]);
        assert_eq!(before.len(), 3);
        write("models/c.onnx", "changed");
        assert_ne!(before, stamps(&[models.join("d.toml")]), "a member changed");
        fs::remove_file(models.join("c.onnx")).unwrap();
        let error = format!("{:#}", read(&[models.join("d.toml")]).unwrap_err());
        assert!(error.contains("d.toml: a member") && error.contains("c.onnx"), "{error}");
        write("models/d.toml", "name = 1");
        assert!(format!("{:#}", read(&[models]).unwrap_err()).contains("d.toml: TOML parse error"));
    }

    #[test]
    fn a_stamp_changes_with_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let paths = [folder.path().to_owned()];
        assert!(stamps(&paths).is_empty());
        fs::write(folder.path().join("a.onnx"), "1").unwrap();
        let first = stamps(&paths);
        assert_eq!(first, stamps(&paths));
        fs::write(folder.path().join("b"), "1").unwrap();
        fs::rename(folder.path().join("b"), folder.path().join("a.onnx")).unwrap();
        assert_ne!(first, stamps(&paths), "same size, another file");
    }
}
