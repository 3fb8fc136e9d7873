//! An ONNX Runtime session of a re-ranker.

use std::path::Path;

use ort::{session::Session as OrtSession, value::TensorRef};
use zeitnot_encoding::{
    batch::Element,
    rerank::{self, CANDIDATES, RerankBatch},
    vocabulary,
};

use crate::{InferenceError, Runtime, session::build};

/// A re-ranker ready to run. One thread owns it.
#[derive(Debug)]
pub struct Reranker {
    session: OrtSession,
    about: RerankerMetadata,
}

/// The `zeitnot.*` entries of a re-ranker's `metadata_props`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RerankerMetadata {
    /// Name of the re-ranker.
    pub name: String,
    /// Version of the re-ranker.
    pub version: String,
    /// Name of the model whose moves it re-ranks; another's may be re-ranked, but it was not trained on them.
    pub prior: String,
    /// What it was trained on.
    pub trained_on: String,
    /// Licence of the weights.
    pub license: String,
    /// The study or evaluation, as JSON; empty when there is none.
    pub metrics: String,
    /// The allocator of searches, as JSON; empty when there is none.
    pub allocator: String,
}

impl RerankerMetadata {
    /// As entries of an ONNX file.
    pub fn entries(&self) -> Vec<(String, String)> {
        let own = [
            ("encoding", rerank::NAME),
            ("vocabulary", vocabulary::FINGERPRINT),
            ("name", &self.name),
            ("version", &self.version),
            ("prior", &self.prior),
            ("trained_on", &self.trained_on),
            ("license", &self.license),
            ("metrics", &self.metrics),
            ("allocator", &self.allocator),
        ];
        own.map(|(key, value)| (format!("zeitnot.{key}"), value.to_owned())).to_vec()
    }
}

impl Reranker {
    /// Opens a re-ranker's file on the CPU, with so many threads inside one run.
    ///
    /// # Errors
    ///
    /// [`InferenceError::Read`] and [`InferenceError::Model`], naming the file.
    pub fn open(runtime: &Runtime, path: &Path, threads: usize) -> Result<Self, InferenceError> {
        let file = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|source| InferenceError::Read { file: file.clone(), source })?;
        Self::from_bytes(runtime, &file, &bytes, threads)
    }

    /// Opens a re-ranker in memory; `file` names it in errors.
    ///
    /// # Errors
    ///
    /// As [`Reranker::open`].
    pub fn from_bytes(runtime: &Runtime, file: &str, bytes: &[u8], threads: usize) -> Result<Self, InferenceError> {
        let refuse = |problem: String| InferenceError::Model { file: file.to_owned(), problem };
        let session = build(runtime, bytes, threads, false)
            .map_err(|error| refuse(format!("ONNX Runtime cannot read it: {error}")))?;
        let (found, about) = {
            let props = session.metadata()?;
            let value = |key: &str| props.custom(&format!("zeitnot.{key}")).unwrap_or_default();
            let about = RerankerMetadata {
                name: value("name"),
                version: value("version"),
                prior: value("prior"),
                trained_on: value("trained_on"),
                license: value("license"),
                metrics: value("metrics"),
                allocator: value("allocator"),
            };
            ([value("encoding"), value("vocabulary")], about)
        };
        let expected = [("encoding", rerank::NAME), ("vocabulary", vocabulary::FINGERPRINT)];
        for ((key, expected), found) in expected.into_iter().zip(found) {
            if found != expected {
                return Err(refuse(format!("zeitnot.{key} is `{found}`, a re-ranker's is {expected}")));
            }
        }
        if about.name.is_empty() {
            return Err(refuse("zeitnot.name is missing".to_owned()));
        }
        for input in rerank::INPUTS {
            if !session.inputs().iter().any(|own| own.name() == input.name) {
                return Err(refuse(format!("input `{}` is missing", input.name)));
            }
        }
        if !session.outputs().iter().any(|output| output.name() == "residual") {
            return Err(refuse("output `residual` is missing".to_owned()));
        }
        Ok(Reranker { session, about })
    }

    /// What the re-ranker says of itself.
    pub fn metadata(&self) -> &RerankerMetadata {
        &self.about
    }

    /// Runs a batch: residuals f32 `[B, 16]`, in the candidates' order; those of absent candidates mean nothing. A row
    /// whose residuals are not finite has no answer; that does not concern the others.
    ///
    /// # Errors
    ///
    /// [`InferenceError::Run`], [`InferenceError::Output`].
    pub fn run(&mut self, batch: &RerankBatch) -> Result<Vec<f32>, InferenceError> {
        let rows = batch.rows();
        let mut inputs = Vec::with_capacity(rerank::INPUTS.len());
        for input in rerank::INPUTS {
            let shape = std::iter::once(rows).chain(input.shape.iter().copied()).collect::<Vec<_>>();
            let value: ort::session::SessionInputValue<'_> = match input.element {
                Element::Integer => TensorRef::from_array_view((shape, batch.candidates()))?.into(),
                _ => TensorRef::from_array_view((shape, batch.floats(input.name)))?.into(),
            };
            inputs.push((input.name, value));
        }
        let outputs = self.session.run(inputs)?;
        let expected = rows * CANDIDATES;
        let problem = |found: usize| InferenceError::Output { output: "residual", found, expected };
        let (_, found) = outputs.get("residual").ok_or_else(|| problem(0))?.try_extract_tensor::<f32>()?;
        if found.len() == expected { Ok(found.to_vec()) } else { Err(problem(found.len())) }
    }
}
