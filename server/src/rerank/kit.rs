//! What re-ranks: the re-ranker and the styles made for it. Loaded with the models, and swapped with them.

use std::{fs, path::PathBuf, sync::Arc};

use anyhow::{Context, Result, bail};
use tokio::sync::mpsc;
use zeitnot_encoding::{
    Game, LegalMoves,
    rerank::{CANDIDATES, Candidates, RerankBatch, Row},
};
use zeitnot_inference::{
    Allocator, InferenceError, Provider, Reranker, RerankerMetadata, Runtime, allocation::FEATURES,
};

use super::{
    reranker::{Open, Run, Runner},
    styles::Styles,
};
use crate::{
    config::{Config, RerankOptions},
    metrics::RerankMetrics,
    model_files::{self, ModelFile, Stamp},
};

/// The embedded re-ranker.
const EMBEDDED: &[u8] = include_bytes!("../../../models/reranker.onnx");
const EMBEDDED_NAME: &str = "the embedded re-ranker";
/// Most that a residual may differ between a run of one row and a run of several.
const TOLERANCE: f32 = 0.01;

/// The re-ranker and the styles.
#[derive(Clone, Debug, Default)]
pub struct Kit {
    /// The re-ranker, if there is one.
    pub reranker: Option<Arc<Loaded>>,
    /// The styles.
    pub styles: Arc<Styles>,
}

/// A re-ranker being served.
#[derive(Debug)]
pub struct Loaded {
    /// Where it came from.
    source: String,
    /// Fingerprint of its file.
    sha256: String,
    /// What the file says of itself.
    pub metadata: RerankerMetadata,
    /// Chooses which searches are worth their time, if it came with one.
    pub allocator: Option<Allocator>,
    /// Where its requests go.
    pub runner: Runner,
}

impl Kit {
    /// Whether both are the same re-ranker and styles.
    pub fn is_same(&self, other: &Kit) -> bool {
        let same = match (&self.reranker, &other.reranker) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (None, None) => true,
            _ => false,
        };
        same && self.styles == other.styles
    }
}

/// Whether the options ask for a re-ranker. The embedded one is of use with engines or styles alone.
pub fn is_wanted(options: &RerankOptions) -> bool {
    let of_use = !options.engines.is_empty() || options.styles.is_some();
    options.reranker_file().is_some() || (of_use && !options.without_reranker())
}

/// Reads the styles.
///
/// # Errors
///
/// Names the option, the file and the problem.
pub fn styles(options: &RerankOptions) -> Result<Styles> {
    if options.styles.is_some() && !is_wanted(options) {
        bail!("--styles: give a --reranker, too");
    }
    Ok(options.styles.as_deref().map(Styles::read).transpose()?.unwrap_or_default())
}

/// Stamps of all files.
pub fn stamps(options: &RerankOptions) -> Vec<Stamp> {
    let styles = options.styles.as_ref().and_then(|folder| fs::read_dir(folder).ok());
    let mut paths = styles.into_iter().flatten().flatten().map(|entry| entry.path()).collect::<Vec<PathBuf>>();
    paths.sort();
    options.reranker_file().into_iter().chain(&paths).filter_map(|path| model_files::stamp(path)).collect()
}

/// Loads what the options name. A re-ranker that is served already is kept as it is; another is opened, checked and
/// warmed. `changed` is told when its threads end.
///
/// # Errors
///
/// When a file cannot be used, naming it. Nothing is left running of what was begun.
pub async fn load(
    config: &Arc<Config>,
    metrics: &RerankMetrics,
    changed: &mpsc::UnboundedSender<()>,
    served: &Kit,
) -> Result<Kit> {
    let own = Arc::clone(config);
    let (file, styles) =
        tokio::task::spawn_blocking(move || -> Result<_> { Ok((file(&own.rerank)?, styles(&own.rerank)?)) }).await??;
    let Some(file) = file else { return Ok(Kit { reranker: None, styles: Arc::new(styles) }) };
    let same = |loaded: &&Arc<Loaded>| loaded.source == file.source && loaded.sha256 == file.sha256;
    let loaded = match served.reranker.as_ref().filter(same) {
        Some(loaded) => Arc::clone(loaded),
        None => {
            let (own, metrics, changed) = (Arc::clone(config), metrics.clone(), changed.clone());
            Arc::new(tokio::task::spawn_blocking(move || start(&own, file, &metrics, &changed)).await??)
        }
    };
    styles.check(&loaded.metadata.name)?;
    Ok(Kit { reranker: Some(loaded), styles: Arc::new(styles) })
}

/// Opens and checks what the options name, without serving it, and says what it is; nothing without a re-ranker.
///
/// # Errors
///
/// As [`load`].
pub fn describe(config: &Config) -> Result<Option<String>> {
    let Some(file) = file(&config.rerank)? else { return Ok(None) };
    let (_, metadata) = open(config, &file)?;
    allocator(&metadata.allocator).with_context(|| file.source.clone())?;
    let styles = styles(&config.rerank)?;
    styles.check(&metadata.name)?;
    let RerankerMetadata { name, version, prior, .. } = &metadata;
    let styles = styles.len();
    Ok(Some(format!(
        "{}: {name} version {version}, re-ranks {prior}\n  sha256 {}, {styles} styles",
        file.source, file.sha256
    )))
}

fn file(options: &RerankOptions) -> Result<Option<ModelFile>> {
    match options.reranker_file() {
        Some(path) => model_files::read_one("--reranker", path.clone()).map(Some),
        None if is_wanted(options) => Ok(Some(ModelFile::new(EMBEDDED_NAME.to_owned(), EMBEDDED.into()))),
        None => Ok(None),
    }
}

fn start(
    config: &Config,
    file: ModelFile,
    metrics: &RerankMetrics,
    changed: &mpsc::UnboundedSender<()>,
) -> Result<Loaded> {
    let shown = || format!("{} cannot be served", file.source);
    let (first, metadata) = open(config, &file).with_context(shown)?;
    let allocator = allocator(&metadata.allocator).with_context(shown)?;
    let again: Open = {
        let (library, threads, file) = (config.onnxruntime.clone(), config.threads, file.clone());
        Arc::new(move || {
            let runtime = Runtime::load(library.as_deref())?;
            Ok(Box::new(Reranker::from_bytes(&runtime, &file.source, &file.bytes, threads)?))
        })
    };
    let mut sessions: Vec<Box<dyn Run>> = vec![Box::new(first)];
    while sessions.len() < config.worker_count(Provider::Cpu) {
        let mut session = again().with_context(shown)?;
        check(&mut *session, &file.source).with_context(shown)?;
        sessions.push(session);
    }
    let threads = sessions.len();
    let runner =
        Runner::start(sessions, &again, metrics, changed).context("the system gives no thread for a re-ranker")?;
    let RerankerMetadata { name, version, prior, .. } = &metadata;
    tracing::info!(name, version, prior, threads, allocates = allocator.is_some(), "re-ranker is warm");
    Ok(Loaded { source: file.source.clone(), sha256: file.sha256.clone(), metadata, allocator, runner })
}

fn open(config: &Config, file: &ModelFile) -> Result<(Reranker, RerankerMetadata)> {
    let runtime = Runtime::load(config.onnxruntime.as_deref())?;
    let mut session = Reranker::from_bytes(&runtime, &file.source, &file.bytes, config.threads)?;
    check(&mut session, &file.source)?;
    let metadata = session.metadata().clone();
    Ok((session, metadata))
}

/// Runs one row and several, so that the first request finds memory ready, and compares the residuals.
fn check(session: &mut dyn Run, source: &str) -> Result<(), InferenceError> {
    let legal = Game::parse::<&str>("", &[]).map(|game| LegalMoves::of(game.position()));
    let wrong = |problem: String| InferenceError::Model { file: source.to_owned(), problem };
    let legal = legal.map_err(|error| wrong(error.to_string()))?;
    let logits = (0..legal.len()).map(|place| place as f32 / 4.0).collect::<Vec<_>>();
    let candidates = Candidates::of(legal.indices(), &logits);
    let row = Row {
        indices: legal.indices(),
        logits: &logits,
        pooled: &[],
        time_control: None,
        style: None,
        candidates: &candidates,
        scores: &[],
    };
    let (mut one, mut many) = (RerankBatch::default(), RerankBatch::default());
    one.push(&row);
    (0..CANDIDATES).for_each(|_| many.append(&one));
    let (alone, together) = (session.run(&one)?, session.run(&many)?);
    let apart = together.chunks(CANDIDATES).flat_map(|row| row.iter().zip(&alone)).map(|(a, b)| (a - b).abs());
    if together.iter().any(|residual| !residual.is_finite()) {
        return Err(wrong("answers with residuals that are no numbers".to_owned()));
    }
    let apart = apart.fold(0.0, f32::max);
    if apart > TOLERANCE {
        return Err(wrong(format!("answers differently in a batch, by {apart}")));
    }
    Ok(())
}

/// The allocator of a re-ranker's metadata, if there is one.
fn allocator(json: &str) -> Result<Option<Allocator>> {
    if json.is_empty() {
        return Ok(None);
    }
    let allocator: Allocator = serde_json::from_str(json).context("zeitnot.allocator")?;
    for option in &allocator.options {
        if option.depth == 0 || option.weights.len() != FEATURES.len() {
            bail!(
                "zeitnot.allocator: depth {} with {} weights, not {}",
                option.depth,
                option.weights.len(),
                FEATURES.len()
            );
        }
    }
    Ok(Some(allocator))
}
