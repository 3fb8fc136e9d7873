//! An ONNX Runtime session and its runs.

use std::{path::Path, str::FromStr};

use ort::{
    ep,
    session::{Session as OrtSession, SessionInputValue, SessionOutputs, builder::GraphOptimizationLevel},
    value::TensorRef,
};
use zeitnot_encoding::{
    Batch, Encoding,
    batch::{Input, Values},
    encodings,
    targets::AUXILIARY,
    think_time, vocabulary,
};

use crate::{Answer, InferenceError, Metadata, Runtime};

/// Outputs a model may have, with the values of a row; the first it must have.
const OUTPUTS: [(&str, usize); 5] = [
    ("policy", vocabulary::SIZE),
    ("value", 1),
    ("wdl", 3),
    ("think_time", think_time::BINS.len()),
    ("aux", AUXILIARY),
];

/// The optional output with the pooled hidden state, of whatever width.
const POOLED: &str = "pooled";

/// Where a session may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// CUDA when it works, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// CUDA, or an error.
    Cuda,
}

/// Where a session runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// ONNX Runtime's CPU provider.
    Cpu,
    /// ONNX Runtime's CUDA provider.
    Cuda,
}

/// How to open a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    /// Where it may run.
    pub device: Device,
    /// Threads inside one run.
    pub threads: usize,
}

/// A model ready to run. One thread owns it.
#[derive(Debug)]
pub struct Session {
    session: OrtSession,
    metadata: Metadata,
    encoding: &'static dyn Encoding,
    provider: Provider,
}

impl Session {
    /// Opens a model file.
    ///
    /// # Errors
    ///
    /// [`InferenceError`] when the file cannot be read, is no model this build can serve, or CUDA is asked for and
    /// does not work.
    pub fn open(runtime: &Runtime, path: &Path, options: SessionOptions) -> Result<Self, InferenceError> {
        let file = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|source| InferenceError::Read { file: file.clone(), source })?;
        Self::from_bytes(runtime, &file, &bytes, options)
    }

    /// Opens a model in memory; `file` names it in errors.
    ///
    /// # Errors
    ///
    /// As [`Session::open`].
    pub fn from_bytes(
        runtime: &Runtime,
        file: &str,
        bytes: &[u8],
        options: SessionOptions,
    ) -> Result<Self, InferenceError> {
        let refuse = |problem: String| InferenceError::Model { file: file.to_owned(), problem };
        let (session, provider) = match options.device {
            Device::Cpu => (build(runtime, bytes, options.threads, false), Provider::Cpu),
            Device::Cuda => {
                let session = build(runtime, bytes, options.threads, true);
                (Ok(session.map_err(|error| InferenceError::Cuda(error.to_string()))?), Provider::Cuda)
            }
            Device::Auto => match build(runtime, bytes, options.threads, true) {
                Ok(session) => (Ok(session), Provider::Cuda),
                Err(error) => {
                    tracing::info!(%error, "CUDA cannot be used, falling back to the CPU");
                    (build(runtime, bytes, options.threads, false), Provider::Cpu)
                }
            },
        };
        let session = session.map_err(|error| refuse(format!("ONNX Runtime cannot read it: {error}")))?;
        let metadata = {
            let props = session.metadata()?;
            Metadata::read(|key| props.custom(key))
        };
        let encoding = match (metadata.problem(), encodings::find(&metadata.encoding)) {
            (None, Some(encoding)) => encoding,
            (problem, _) => return Err(refuse(problem.unwrap_or_default())),
        };
        if let Some(name) = missing_input(&session, encoding) {
            return Err(refuse(format!("input `{name}` is missing")));
        }
        let has = |name: &str| session.outputs().iter().any(|output| output.name() == name);
        if !has("policy") || !(has("value") || has("wdl")) {
            return Err(refuse("needs an output `policy` and one of `value` and `wdl`".to_owned()));
        }
        Ok(Session { session, metadata, encoding, provider })
    }

    /// What the model says of itself.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// How its situations are encoded.
    pub fn encoding(&self) -> &'static dyn Encoding {
        self.encoding
    }

    /// Where the session runs.
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// Runs a batch.
    ///
    /// # Errors
    ///
    /// [`InferenceError::Run`], [`InferenceError::Output`], [`InferenceError::Encoding`].
    pub fn run(&mut self, batch: &Batch) -> Result<Answer, InferenceError> {
        let rows = batch.rows();
        let outputs = self.session.run(self.inputs(batch)?)?;
        let [policy, value, wdl, think_time, auxiliary] =
            OUTPUTS.map(|(name, size)| values(&outputs, name, rows * size));
        let pooled = pooled(&outputs, rows)?;
        Ok(Answer { policy: policy?, value: value?, wdl: wdl?, think_time: think_time?, auxiliary: auxiliary?, pooled })
    }

    /// Runs a batch and gives the values of some f32 outputs, whatever their shape; those it does not have are empty.
    ///
    /// # Errors
    ///
    /// [`InferenceError::Run`], [`InferenceError::Encoding`].
    pub fn tensors(&mut self, batch: &Batch, names: &[String]) -> Result<Vec<Vec<f32>>, InferenceError> {
        let outputs = self.session.run(self.inputs(batch)?)?;
        let mut tensors = Vec::new();
        for name in names {
            let tensor = outputs.get(name).map(|value| value.try_extract_tensor::<f32>()).transpose()?;
            tensors.push(tensor.map(|(_, values)| values.to_vec()).unwrap_or_default());
        }
        Ok(tensors)
    }

    fn inputs<'a>(&self, batch: &'a Batch) -> Result<Vec<(&'static str, SessionInputValue<'a>)>, InferenceError> {
        if batch.encoding().name() != self.encoding.name() {
            let (found, expected) = (batch.encoding().name(), self.encoding.name());
            return Err(InferenceError::Encoding { found, expected });
        }
        let inputs = batch.tensors().map(|(input, values)| Ok((input.name, tensor(batch.rows(), input, values)?)));
        Ok(inputs.collect::<ort::Result<_>>()?)
    }
}

/// The first input of the encoding that the model lacks.
fn missing_input(session: &OrtSession, encoding: &dyn Encoding) -> Option<&'static str> {
    let there = |input: &&Input| session.inputs().iter().any(|found| found.name() == input.name);
    encoding.inputs().iter().find(|input| !there(input)).map(|input| input.name)
}

fn tensor<'a>(rows: usize, input: &Input, values: &'a Values) -> ort::Result<SessionInputValue<'a>> {
    let shape = std::iter::once(rows).chain(input.shape.iter().copied()).collect::<Vec<_>>();
    Ok(match values {
        Values::Float(values) => TensorRef::from_array_view((shape, values.as_slice()))?.into(),
        Values::Integer(values) => TensorRef::from_array_view((shape, values.as_slice()))?.into(),
        Values::Boolean(values) => TensorRef::from_array_view((shape, values.as_slice()))?.into(),
    })
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Device::Auto),
            "cpu" => Ok(Device::Cpu),
            "cuda" => Ok(Device::Cuda),
            other => Err(format!("`{other}` is not one of auto, cpu, cuda")),
        }
    }
}

impl Provider {
    /// Name in answers and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Provider::Cpu => "cpu",
            Provider::Cuda => "cuda",
        }
    }
}

pub(crate) fn build(runtime: &Runtime, bytes: &[u8], threads: usize, cuda: bool) -> ort::Result<OrtSession> {
    let mut builder = OrtSession::builder(runtime.environment())?
        .with_optimization_level(GraphOptimizationLevel::All)?
        .with_intra_threads(threads.max(1))?
        .with_inter_threads(1)?
        .with_intra_op_spinning(false)?;
    if cuda {
        builder = builder.with_execution_providers([ep::CUDA::default().build().error_on_failure()])?;
    }
    builder.commit_from_memory(bytes)
}

/// The pooled hidden state, which every row has the same number of values of; none when the model does not give it.
fn pooled(outputs: &SessionOutputs<'_>, rows: usize) -> Result<Vec<f32>, InferenceError> {
    let Some(value) = outputs.get(POOLED) else { return Ok(Vec::new()) };
    let (_, found) = value.try_extract_tensor::<f32>()?;
    match found.len().is_multiple_of(rows.max(1)) {
        true => Ok(found.to_vec()),
        false => Err(InferenceError::Output { output: POOLED, found: found.len(), expected: rows }),
    }
}

/// The values of an output; none when the model does not have it.
fn values(outputs: &SessionOutputs<'_>, output: &'static str, expected: usize) -> Result<Vec<f32>, InferenceError> {
    let Some(value) = outputs.get(output) else { return Ok(Vec::new()) };
    let (_, found) = value.try_extract_tensor::<f32>()?;
    if found.len() == expected {
        Ok(found.to_vec())
    } else {
        Err(InferenceError::Output { output, found: found.len(), expected })
    }
}
