//! An ONNX Runtime session and its runs.

use std::{path::Path, str::FromStr};

use ort::{
    ep,
    session::{Session as OrtSession, SessionOutputs, builder::GraphOptimizationLevel},
    value::TensorRef,
};
use zeitnot_encoding::{
    OtterBatch,
    otter::{AUXILIARY, PLANES},
    situation::HISTORY,
    vocabulary,
};

use crate::{InferenceError, Metadata, Runtime};

const INPUTS: [&str; 7] = ["board", "history", "history_mask", "mover_elo", "opponent_elo", "time_control", "clock"];
const OUTPUTS: [&str; 3] = ["policy", "value", "aux"];

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
    provider: Provider,
}

/// Outputs of a batch of B rows, in row-major order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// f32 `[B, 4208]` logits.
    pub policy: Vec<f32>,
    /// f32 `[B]`: expected result for the mover, in [-1, 1].
    pub value: Vec<f32>,
    /// f32 `[B, 141]` logits.
    pub auxiliary: Vec<f32>,
}

impl Answer {
    /// Policy logits and value of a row.
    pub fn row(&self, row: usize) -> Option<(&[f32], f32)> {
        let policy = self.policy.get(row * vocabulary::SIZE..(row + 1) * vocabulary::SIZE)?;
        Some((policy, self.value.get(row).copied()?))
    }
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
        if let Some(problem) = metadata.problem() {
            return Err(refuse(problem));
        }
        for name in INPUTS {
            if !session.inputs().iter().any(|input| input.name() == name) {
                return Err(refuse(format!("input `{name}` is missing")));
            }
        }
        for name in OUTPUTS {
            if !session.outputs().iter().any(|output| output.name() == name) {
                return Err(refuse(format!("output `{name}` is missing")));
            }
        }
        Ok(Session { session, metadata, provider })
    }

    /// What the model says of itself.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Where the session runs.
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// Runs a batch.
    ///
    /// # Errors
    ///
    /// [`InferenceError::Run`] and [`InferenceError::Output`].
    pub fn run(&mut self, batch: &OtterBatch) -> Result<Answer, InferenceError> {
        let rows = batch.rows();
        let inputs = ort::inputs! {
            "board" => TensorRef::from_array_view(([rows, PLANES, 8, 8], batch.board.as_slice()))?,
            "history" => TensorRef::from_array_view(([rows, HISTORY], batch.history.as_slice()))?,
            "history_mask" => TensorRef::from_array_view(([rows, HISTORY], batch.history_mask.as_slice()))?,
            "mover_elo" => TensorRef::from_array_view(([rows], batch.mover_elo.as_slice()))?,
            "opponent_elo" => TensorRef::from_array_view(([rows], batch.opponent_elo.as_slice()))?,
            "time_control" => TensorRef::from_array_view(([rows], batch.time_control.as_slice()))?,
            "clock" => TensorRef::from_array_view(([rows, 2], batch.clock.as_slice()))?,
        };
        let outputs = self.session.run(inputs)?;
        Ok(Answer {
            policy: values(&outputs, "policy", rows * vocabulary::SIZE)?,
            value: values(&outputs, "value", rows)?,
            auxiliary: values(&outputs, "aux", rows * AUXILIARY)?,
        })
    }
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

fn build(runtime: &Runtime, bytes: &[u8], threads: usize, cuda: bool) -> ort::Result<OrtSession> {
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

fn values(outputs: &SessionOutputs<'_>, output: &'static str, expected: usize) -> Result<Vec<f32>, InferenceError> {
    let (_, found) = outputs.get(output).map(|value| value.try_extract_tensor::<f32>()).transpose()?.unzip();
    let found = found.unwrap_or_default();
    if found.len() == expected {
        Ok(found.to_vec())
    } else {
        Err(InferenceError::Output { output, found: found.len(), expected })
    }
}
