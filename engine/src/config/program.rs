//! Where the engine's program is.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};

/// The engine that is looked for when none is named.
pub(super) const NAME: &str = "stockfish";
/// Where it may be beside PATH: Debian's package, and `make setup`.
const PLACES: [&str; 2] = ["/usr/games/stockfish", ".native/bin/stockfish"];

/// The engine that is there, when none is named.
pub(super) fn find() -> Option<PathBuf> {
    in_path(Path::new(NAME)).or_else(|| PLACES.iter().map(PathBuf::from).find(|path| can_run(path)))
}

/// Whether the program can be run.
///
/// # Errors
///
/// Names the option, and the program.
pub(super) fn check(program: Option<&Path>) -> Result<()> {
    match program {
        None if find().is_none() => {
            bail!("--program: there is no {NAME} in PATH, nor {}; name an engine", PLACES.join(" nor "))
        }
        None => Ok(()),
        // A name alone is looked for in PATH, as a shell does.
        Some(name) if name.components().count() == 1 && in_path(name).is_some() => Ok(()),
        Some(path) if can_run(path) => Ok(()),
        Some(path) => bail!("--program: {}: there is no such program", path.display()),
    }
}

fn in_path(name: &Path) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| can_run(path))
}

fn can_run(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}
