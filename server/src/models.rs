//! The models being served, and how they are loaded.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context, Result, bail};
use tokio::sync::{mpsc, oneshot};
use zeitnot_encoding::{Encoding, encodings};
use zeitnot_inference::{InferenceError, Metadata, Provider, Runtime, Session, SessionOptions};

use crate::{
    batcher::{self, Batcher},
    cache::Cache,
    config::Config,
    entries::{Ensemble, Entry},
    error::ServiceError,
    metrics::{Metrics, ModelMetrics},
    model_files::{self, EnsembleFile, Found, ModelFile},
    rerank::kit::{self, Kit},
    worker::{self, Open, Run},
};

/// A loaded model with its queue.
#[derive(Debug)]
pub struct Model {
    /// Names this loading of the model in the cache.
    pub id: u64,
    /// Where it came from.
    pub source: String,
    /// Fingerprint of its file.
    pub sha256: String,
    /// What the file says of itself.
    pub metadata: Metadata,
    /// How its situations are encoded.
    pub encoding: &'static dyn Encoding,
    /// Where it really runs.
    pub provider: Provider,
    /// Where its requests go.
    pub batcher: Batcher,
    /// Its figures.
    pub metrics: ModelMetrics,
}

/// All that is served, and what re-ranks its moves.
#[derive(Debug, Default)]
pub struct Models {
    /// By name, the default one first.
    entries: Vec<Entry>,
    models: Vec<Arc<Model>>,
    kit: Kit,
}

impl Models {
    /// What a name stands for; the default one when it is empty.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Starting`] before the models are loaded, [`ServiceError::UnknownModel`].
    pub fn get(&self, name: &str) -> Result<&Entry, ServiceError> {
        let default = self.entries.first().ok_or(ServiceError::Starting)?;
        if name.is_empty() {
            return Ok(default);
        }
        let found = self.entries.iter().find(|entry| entry.name() == name);
        found.ok_or_else(|| ServiceError::UnknownModel(name.chars().take(64).collect()))
    }

    /// All names, the default one first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// All models.
    pub fn all(&self) -> &[Arc<Model>] {
        &self.models
    }

    /// What re-ranks their moves.
    pub fn kit(&self) -> &Kit {
        &self.kit
    }

    /// Whether there are models and each can be computed.
    pub fn are_able(&self) -> bool {
        !self.models.is_empty() && self.models.iter().all(|model| model.batcher.is_able())
    }

    /// Names that are served here and not there.
    pub fn names_beyond(&self, others: &Models) -> Vec<String> {
        let there = others.entries.iter().map(Entry::name).collect::<HashSet<_>>();
        self.entries.iter().map(Entry::name).filter(|name| !there.contains(name)).map(str::to_owned).collect()
    }

    /// Names whose models or members were not served before.
    pub fn names_loaded_since(&self, before: &Models) -> Vec<String> {
        let kept = |entry: &&Entry| before.entries.iter().any(|old| old.is_same(entry));
        self.entries.iter().filter(|entry| !kept(entry)).map(|entry| entry.name().to_owned()).collect()
    }

    /// Whether the same is served, with the same default.
    pub fn is_same(&self, other: &Models) -> bool {
        let entries = self.entries.len() == other.entries.len();
        entries
            && self.entries.iter().zip(&other.entries).all(|(own, other)| own.is_same(other))
            && self.kit.is_same(&other.kit)
    }
}

/// Opens a session of a model file.
pub type Opener = Arc<dyn Fn(&ModelFile) -> Result<Box<dyn Run>, InferenceError> + Send + Sync>;

/// Opens sessions in ONNX Runtime, which is loaded at the first.
pub fn onnx_runtime(config: &Config) -> Opener {
    let options = SessionOptions { device: config.device, threads: config.threads };
    let library = config.onnxruntime.clone();
    Arc::new(move |file| {
        let runtime = Runtime::load(library.as_deref())?;
        Ok(Box::new(Session::from_bytes(&runtime, &file.source, &file.bytes, options)?))
    })
}

/// Loads models.
pub struct Loader {
    config: Arc<Config>,
    metrics: Metrics,
    cache: Cache,
    opener: Opener,
    changed: mpsc::UnboundedSender<()>,
}

impl Loader {
    /// A loader whose workers tell on `changed` when they become unable or able to work, and when they end.
    pub fn new(
        config: Arc<Config>,
        metrics: Metrics,
        cache: Cache,
        opener: Opener,
        changed: mpsc::UnboundedSender<()>,
    ) -> Self {
        Loader { config, metrics, cache, opener, changed }
    }

    /// Reads the files of models, re-ranker and styles. Files that are served already are kept as they are; the others are opened, checked and
    /// warmed.
    ///
    /// # Errors
    ///
    /// When any file cannot be served, naming it. Nothing is left running of what was begun.
    pub async fn load(&self, served: &Models) -> Result<Models> {
        let paths = self.config.model.clone();
        let found = tokio::task::spawn_blocking(move || model_files::read(&paths)).await??;
        let mut models: Vec<Arc<Model>> = Vec::new();
        let mut places = Vec::new();
        for found in found {
            match found {
                Found::Ensemble(file) => places.push(Place::Ensemble(file)),
                Found::Model(file) => {
                    let same =
                        served.models.iter().find(|model| model.source == file.source && model.sha256 == file.sha256);
                    let model = match same {
                        Some(model) => Arc::clone(model),
                        None => {
                            let source = file.source.clone();
                            Arc::new(self.open(file).await.with_context(|| format!("{source} cannot be served"))?)
                        }
                    };
                    models.push(Arc::clone(&model));
                    places.push(Place::Model(model));
                }
            }
        }
        let mut entries = places.into_iter().map(|place| place.entry(&models)).collect::<Result<Vec<_>>>()?;
        let names = entries.iter().map(|entry| (entry.source(), entry.name()));
        check_names(names, self.config.default_model.as_deref())?;
        let default = |entry: &Entry| Some(entry.name()) == self.config.default_model.as_deref();
        if let Some(place) = entries.iter().position(default) {
            entries.swap(0, place);
        }
        let kit = kit::load(&self.config, &self.metrics.rerank, &self.changed, &served.kit).await?;
        Ok(Models { entries, models, kit })
    }

    /// Opens one model and starts its workers.
    async fn open(&self, file: ModelFile) -> Result<Model> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let ModelFile { source, sha256, .. } = file.clone();
        let first = {
            let (opener, file) = (Arc::clone(&self.opener), file.clone());
            tokio::task::spawn_blocking(move || opener(&file)).await??
        };
        let name = first.metadata().name.clone(); // Its figures carry it.
        let provider = first.provider();
        let metrics = self.metrics.model(&name);
        let limits = self.config.limits(provider);
        let (batcher, queue) = batcher::queue(limits, self.cache.clone(), metrics.clone());
        let open: Open = {
            let opener = Arc::clone(&self.opener);
            Arc::new(move || same_provider(opener(&file)?, provider, &file.source))
        };
        let (mut first, mut opened) = (Some(first), None);
        // One after the other, to leave processors to what is being served.
        for number in 0..limits.workers {
            let (ready, answer) = oneshot::channel();
            worker::spawn(number, first.take(), Arc::clone(&open), queue.clone(), self.changed.clone(), ready)
                .context("the system gives no thread for a worker")?;
            opened = Some(answer.await.context("a worker panicked at its start")??);
        }
        let metadata = opened.context("no worker was started")?;
        let Metadata { name, version, encoding, .. } = &metadata;
        tracing::info!(name, version, encoding, provider = provider.name(), workers = limits.workers, "model is warm");
        let encoding = encodings::find(encoding).with_context(|| format!("encoding {encoding}"))?;
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Model { id, source, sha256, metadata, encoding, provider, batcher, metrics })
    }
}

/// A name whose models are all open when the others are.
enum Place {
    Model(Arc<Model>),
    Ensemble(EnsembleFile),
}

impl Place {
    fn entry(self, models: &[Arc<Model>]) -> Result<Entry> {
        let EnsembleFile { source, sha256, rule, members } = match self {
            Place::Model(model) => return Ok(Entry::Model(model)),
            Place::Ensemble(file) => file,
        };
        let member = |member: &String| {
            let found = models.iter().find(|model| model.source == *member);
            found.cloned().with_context(|| format!("{source}: {member} is not open"))
        };
        let members = members.iter().map(member).collect::<Result<Vec<_>>>()?;
        Ok(Entry::Ensemble(Arc::new(Ensemble { source, sha256, rule, members })))
    }
}

/// A session, if it runs where the model's first one does. With `--device auto` one might else run on the CPU while the
/// server says CUDA.
fn same_provider(model: Box<dyn Run>, first: Provider, file: &str) -> Result<Box<dyn Run>, InferenceError> {
    if model.provider() == first {
        return Ok(model);
    }
    let problem = format!("runs on {} now, its first session on {}", model.provider().name(), first.name());
    Err(InferenceError::Model { file: file.to_owned(), problem })
}

/// What is wrong with the names of models that are to be served together: pairs of file and name.
///
/// # Errors
///
/// Names the file and the model.
pub fn check_names<'a>(models: impl IntoIterator<Item = (&'a str, &'a str)>, default: Option<&str>) -> Result<()> {
    let mut names = HashSet::new();
    for (source, name) in models {
        if !names.insert(name) {
            bail!("{source}: another file also holds a model `{name}`");
        }
    }
    match default {
        Some(name) if !names.contains(name) => bail!("--default-model: no file holds a model `{name}`"),
        _ => Ok(()),
    }
}
