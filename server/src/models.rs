//! The models being served.

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result};
use tokio::sync::mpsc;
use zeitnot_encoding::{Encoding, encodings};
use zeitnot_inference::{Metadata, Provider, Runtime, SessionOptions};

use crate::{
    batcher::{self, Batcher},
    config::Config,
    error::ServiceError,
    metrics::Metrics,
    worker::Plan,
};

/// The embedded default model.
const EMBEDDED: &[u8] = include_bytes!("../../models/zeitnot.onnx");
const EMBEDDED_NAME: &str = "the embedded model";

/// A model with its queue.
pub struct Model {
    /// What the file says of itself.
    pub metadata: Metadata,
    /// How its situations are encoded.
    pub encoding: &'static dyn Encoding,
    /// Where it really runs.
    pub provider: Provider,
    /// Where its requests go.
    pub batcher: Batcher,
}

/// All models, the default one first.
#[derive(Default)]
pub struct Models {
    models: Vec<Arc<Model>>,
}

impl Models {
    /// Opens the configured model, starts its workers and warms them.
    ///
    /// # Errors
    ///
    /// When the library or the model cannot be loaded.
    pub async fn load(config: &Config, metrics: &Metrics, dead: &mpsc::UnboundedSender<usize>) -> Result<Self> {
        let runtime = Runtime::load(config.onnxruntime.as_deref())?;
        let (file, bytes) = read(config.model.as_deref())?;
        let options = SessionOptions { device: config.device, threads: config.threads };
        let (batcher, queue) = batcher::queue(config.queue, config.max_batch, metrics);
        let plan =
            Plan { runtime, file, bytes, options, workers: config.worker_count(), warm_up: vec![1, config.max_batch] };
        let (metadata, provider) = plan.start(&queue, metrics, dead).await?;
        let Metadata { name, version, encoding, .. } = &metadata;
        metrics.models.with_label_values(&[name, version, encoding, provider.name()]).set(1);
        tracing::info!(name, version, encoding, provider = provider.name(), workers = plan.workers, "model is warm");
        let encoding = encodings::find(encoding).with_context(|| format!("{}: encoding {encoding}", plan.file))?;
        Ok(Models { models: vec![Arc::new(Model { metadata, encoding, provider, batcher })] })
    }

    /// A model by its name; the default one when the name is empty.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Starting`] before the models are loaded, [`ServiceError::UnknownModel`].
    pub fn get(&self, name: &str) -> Result<Arc<Model>, ServiceError> {
        let default = self.models.first().ok_or(ServiceError::Starting)?;
        if name.is_empty() {
            return Ok(Arc::clone(default));
        }
        let found = self.models.iter().find(|model| model.metadata.name == name);
        found.cloned().ok_or_else(|| ServiceError::UnknownModel(name.chars().take(64).collect()))
    }

    /// All models, the default one first.
    pub fn all(&self) -> &[Arc<Model>] {
        &self.models
    }
}

/// The bytes of a model file, or of the embedded model.
///
/// # Errors
///
/// When the file cannot be read.
pub fn read(path: Option<&Path>) -> Result<(String, Arc<[u8]>)> {
    match path {
        None => Ok((EMBEDDED_NAME.to_owned(), EMBEDDED.into())),
        Some(path) => {
            let shown = path.display().to_string();
            let bytes = std::fs::read(path).with_context(|| format!("--model: cannot read {shown}"))?;
            Ok((shown, bytes.into()))
        }
    }
}
