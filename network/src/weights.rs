//! Trained tensors by name.

mod checkpoint;
mod float;

use std::{collections::BTreeMap, fs::File, io::Read, path::Path};

use safetensors::SafeTensors;
use thiserror::Error;

use self::float::Float;
use crate::specs::Spec;

/// Most bytes of tensors: three times what the largest published network needs.
const LARGEST: u64 = 1 << 30;

/// A tensor's values.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Shape.
    pub shape: Vec<i64>,
    /// Values in row-major order.
    pub values: Vec<f32>,
}

/// The tensors of a trained network.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weights {
    tensors: BTreeMap<String, Tensor>,
}

/// Why weights cannot be read or do not fit.
#[derive(Debug, Error)]
pub enum WeightsError {
    /// The file cannot be read.
    #[error("{file}: {source}")]
    Read {
        /// Path of the file.
        file: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file is neither a safetensors file nor a PyTorch checkpoint, or one that is not read.
    #[error("{file}: {reason}")]
    Format {
        /// Path of the file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A tensor the network needs is not there.
    #[error("tensor {0} is missing")]
    Missing(String),
    /// A tensor has another shape than the network needs.
    #[error("tensor {name} has shape {found:?}, the network needs {expected:?}")]
    Shape {
        /// Name of the tensor.
        name: String,
        /// Its shape.
        found: Vec<i64>,
        /// The shape the network needs.
        expected: Vec<i64>,
    },
}

impl Weights {
    /// Reads the floating-point tensors of a safetensors file or a PyTorch checkpoint; others, such as counters, are
    /// left out.
    ///
    /// A checkpoint is a zip file as `torch.save` writes since PyTorch 1.6. It is data to this reader: nothing in it is
    /// called, and what asks for code is refused. Its tensors have their names in the model's `state_dict`, wherever
    /// that lies.
    ///
    /// # Errors
    ///
    /// [`WeightsError::Read`] and [`WeightsError::Format`], with the file's path.
    pub fn read(path: &Path) -> Result<Self, WeightsError> {
        let file = path.display().to_string();
        let read = |source| WeightsError::Read { file: file.clone(), source };
        let mut start = Vec::new();
        File::open(path).and_then(|file| file.take(9).read_to_end(&mut start)).map_err(read)?;
        let parsed = match start.as_slice() {
            start if start.starts_with(b"PK") => checkpoint::read(path),
            // The length of a header, far from using its last bytes, and the header.
            [_, _, _, _, 0, 0, 0, 0, b'{'] => {
                let mut bytes = Vec::new();
                File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes)).map_err(read)?;
                match bytes.len() as u64 > LARGEST {
                    true => Err(format!("more than {LARGEST} bytes")),
                    false => Self::parse(&bytes).map_err(|error| format!("not a safetensors file: {error}")),
                }
            }
            _ => Err("neither a safetensors file nor a PyTorch checkpoint as torch.save writes since 1.6".to_owned()),
        };
        parsed.map_err(|reason| WeightsError::Format { file, reason })
    }

    /// Reads the floating-point tensors of a safetensors file in memory.
    ///
    /// # Errors
    ///
    /// What is wrong with the format.
    pub fn parse(bytes: &[u8]) -> Result<Self, safetensors::SafeTensorError> {
        let file = SafeTensors::deserialize(bytes)?;
        let mut weights = Weights::default();
        for (name, view) in file.iter() {
            if let Some(float) = Float::of_safetensors(view.dtype()) {
                let shape = view.shape().iter().map(|&size| size as i64).collect();
                weights.insert(name, Tensor { shape, values: float.values(view.data()) });
            }
        }
        Ok(weights)
    }

    /// Adds a tensor.
    pub fn insert(&mut self, name: &str, tensor: Tensor) {
        self.tensors.insert(name.to_owned(), tensor);
    }

    /// The shape of a tensor, if it is there.
    pub fn shape(&self, name: &str) -> Option<&[i64]> {
        self.tensors.get(name).map(|tensor| tensor.shape.as_slice())
    }

    /// The values of a tensor, checked against the shape a network needs.
    ///
    /// # Errors
    ///
    /// [`WeightsError::Missing`] and [`WeightsError::Shape`], with the tensor's name.
    pub fn get(&self, spec: &Spec) -> Result<&Tensor, WeightsError> {
        let tensor = self.tensors.get(&spec.name).ok_or_else(|| WeightsError::Missing(spec.name.clone()))?;
        if tensor.shape != spec.shape {
            let (found, expected) = (tensor.shape.clone(), spec.shape.clone());
            return Err(WeightsError::Shape { name: spec.name.clone(), found, expected });
        }
        Ok(tensor)
    }

    /// Weights by the closed formula of the golden data, for tests of interpreters and importers.
    ///
    /// For the j-th tensor in name order and flat index i, s = sin(0.7310585 i + 1.6180339 j): running variances are
    /// 1 + 0.2 |s|, running means 0.1 s, matrices s sqrt(2 / fan-in), scales 1 + 0.1 s, everything else 0.02 s.
    pub fn by_formula(specs: &[Spec]) -> Self {
        let mut weights = Weights::default();
        for (j, spec) in specs.iter().enumerate() {
            let fan_in = spec.shape.iter().skip(1).product::<i64>() as f64;
            let matrix = spec.shape.len() >= 2 && !spec.name.contains("position_embedding");
            let value = |i: usize| {
                let s = (0.731_058_5 * i as f64 + 1.618_033_9 * j as f64).sin();
                let value = match spec.name.as_str() {
                    name if name.ends_with("running_var") => 1.0 + 0.2 * s.abs(),
                    name if name.ends_with("running_mean") => 0.1 * s,
                    _ if matrix => s * (2.0 / fan_in).sqrt(),
                    name if name.ends_with("weight") => 1.0 + 0.1 * s,
                    _ => 0.02 * s,
                };
                value as f32
            };
            let mut values = (0..spec.size()).map(value).collect::<Vec<_>>();
            if spec.name == "history_encoder.embedding.weight" {
                let width = spec.shape.last().map_or(0, |&width| width as usize);
                values.iter_mut().take(width).for_each(|value| *value = 0.0);
            }
            weights.insert(&spec.name, Tensor { shape: spec.shape.clone(), values });
        }
        weights
    }
}
