//! The ONNX Runtime library, loaded once for the process.

use std::{
    path::{Path, PathBuf},
    sync::Mutex,
};

use ort::environment::Environment;

use crate::InferenceError;

/// Environment variable that names the library when no path is given.
pub const PATH_VARIABLE: &str = "ORT_DYLIB_PATH";

/// A loaded ONNX Runtime.
#[derive(Clone)]
pub struct Runtime {
    environment: Environment,
}

impl Runtime {
    /// Loads the library from `path`, or from where [`PATH_VARIABLE`] points. Later calls give the same runtime.
    ///
    /// # Errors
    ///
    /// [`InferenceError::Library`] when it is not there, is no ONNX Runtime, or is older than 1.30.
    pub fn load(path: Option<&Path>) -> Result<Self, InferenceError> {
        static LOADED: Mutex<Option<Runtime>> = Mutex::new(None);
        // A poisoned lock means that another thread panicked while loading; what it left is None.
        let mut loaded = LOADED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(runtime) = loaded.as_ref() {
            return Ok(runtime.clone());
        }
        let path = path.map(Path::to_owned).or_else(|| std::env::var_os(PATH_VARIABLE).map(PathBuf::from));
        let problem =
            |path: &Path, problem: String| InferenceError::Library { path: path.display().to_string(), problem };
        let path = path.ok_or_else(|| {
            problem(Path::new("nowhere"), format!("give its path, or set {PATH_VARIABLE}; `make setup` installs it"))
        })?;
        if !path.is_file() {
            return Err(problem(&path, "there is no such file; `make setup` installs it".to_owned()));
        }
        let builder = ort::init_from(&path).map_err(|error| problem(&path, error.to_string()))?;
        let environment = builder.with_name("zeitnot").with_telemetry(false).build()?;
        environment.set_log_level(ort::logging::LogLevel::Warning);
        Ok(loaded.insert(Runtime { environment }).clone())
    }

    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }
}
