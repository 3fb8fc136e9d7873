//! Which files are models, and when they change.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

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

/// What changes when a file is written or replaced: size, time of change in nanoseconds, inode.
pub type Stamp = (PathBuf, u64, i128, u64);

/// Reads the model files: those named, and in the directories named those that end in `.onnx`, in order of name. The
/// embedded model when nothing is named.
///
/// # Errors
///
/// When a file cannot be read or a directory holds none.
pub fn read(paths: &[PathBuf]) -> Result<Vec<ModelFile>> {
    if paths.is_empty() {
        return Ok(vec![ModelFile::new(EMBEDDED_NAME.to_owned(), EMBEDDED.into())]);
    }
    find(paths)?.into_iter().map(|path| read_one("--model", path)).collect()
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

/// Stamps of the model files; none of a file that is not there.
pub fn stamps(paths: &[PathBuf]) -> Vec<Stamp> {
    find(paths).unwrap_or_default().iter().filter_map(|path| stamp(path)).collect()
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
        let mut found = found.filter(|path| path.extension().is_some_and(|end| end == "onnx") && !hidden(path));
        let mut found = found.by_ref().collect::<Vec<_>>();
        if found.is_empty() {
            bail!("--model: there is no .onnx file in {}", path.display());
        }
        found.sort();
        files.extend(found);
    }
    Ok(files)
}

impl ModelFile {
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
        assert!(read(&[folder.path().to_owned()]).unwrap_err().to_string().contains("no .onnx file in"));
        ["b.onnx", "a.onnx", ".c.onnx", "readme.txt", "d.onnx.tmp"].into_iter().for_each(write);
        let files = read(&[folder.path().to_owned(), folder.path().join("readme.txt")]).unwrap();
        let names = files.iter().map(|file| file.source.rsplit('/').next().unwrap()).collect::<Vec<_>>();
        assert_eq!(names, ["a.onnx", "b.onnx", "readme.txt"]);
        assert_eq!(&*files[0].bytes, b"a.onnx");
        let missing = read(&[folder.path().join("e.onnx")]).unwrap_err();
        assert!(format!("{missing:#}").contains("e.onnx: No such file"), "{missing:#}");
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
