//! The interpreter that runs a network on tch tensors.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use tch::{Device, Kind, Tensor};
use zeitnot_encoding::{OtterBatch, otter, situation::HISTORY};
use zeitnot_network::{
    Graph, Inputs, OtterConfig, Outputs, Weights,
    graph::{Convolution, EPSILON, Heads, Linear, MASKED},
    specs::{self, Init, Spec},
};

/// Weight of the newest batch in the running statistics of batch normalisation.
const MOMENTUM: f64 = 0.1;

/// A network's tensors on a device.
pub struct Network {
    /// Sizes and switches.
    pub config: OtterConfig,
    /// Where the tensors live.
    pub device: Device,
    tensors: BTreeMap<String, Tensor>,
}

impl Network {
    /// A network with random initial weights, which depend on `seed` alone.
    pub fn new(config: &OtterConfig, device: Device, seed: i64) -> Self {
        tch::manual_seed(seed);
        let tensors = specs::of(config)
            .into_iter()
            .map(|spec| {
                let tensor = initial(&spec).to_device(device).set_requires_grad(spec.learnt);
                (spec.name, tensor)
            })
            .collect();
        Network { config: config.clone(), device, tensors }
    }

    /// A network with given weights.
    ///
    /// # Errors
    ///
    /// When a tensor is missing or has another shape.
    pub fn with_weights(config: &OtterConfig, device: Device, weights: &Weights) -> Result<Self> {
        let mut tensors = BTreeMap::new();
        for spec in specs::of(config) {
            let values = &weights.get(&spec)?.values;
            let tensor = Tensor::from_slice(values).reshape(&spec.shape).to_device(device);
            tensors.insert(spec.name, tensor.set_requires_grad(spec.learnt));
        }
        Ok(Network { config: config.clone(), device, tensors })
    }

    /// All tensors by name.
    pub fn tensors(&self) -> &BTreeMap<String, Tensor> {
        &self.tensors
    }

    /// The tensors that gradients reach, by name.
    pub fn learnt(&self) -> impl Iterator<Item = (&String, &Tensor)> {
        self.tensors.iter().filter(|(_, tensor)| tensor.requires_grad())
    }

    /// Number of learnt values.
    pub fn parameters(&self) -> usize {
        self.learnt().map(|(_, tensor)| tensor.numel()).sum()
    }

    /// Runs a batch.
    ///
    /// # Errors
    ///
    /// When the network needs a tensor it does not have.
    pub fn forward(&self, batch: &OtterBatch, training: bool) -> Result<Outputs<Tensor>> {
        let mut graph = Eager { tensors: &self.tensors, device: self.device, training, problem: None };
        let outputs = zeitnot_network::otter::forward(&mut graph, &self.config, &self.inputs(batch));
        match graph.problem {
            Some(name) => Err(anyhow!("the network needs the tensor {name}, which it does not have")),
            None => Ok(outputs),
        }
    }

    fn inputs(&self, batch: &OtterBatch) -> Inputs<Tensor> {
        let rows = batch.rows() as i64;
        let planes = otter::PLANES as i64;
        let history = HISTORY as i64;
        Inputs {
            board: Tensor::from_slice(&batch.board).view([rows, planes, 8, 8]),
            history: Tensor::from_slice(&batch.history).view([rows, history]),
            history_mask: Tensor::from_slice(&batch.history_mask).view([rows, history]),
            mover_elo: Tensor::from_slice(&batch.mover_elo),
            opponent_elo: Tensor::from_slice(&batch.opponent_elo),
            time_control: Tensor::from_slice(&batch.time_control),
            clock: Tensor::from_slice(&batch.clock).view([rows, 2]),
        }
        .map(|tensor| tensor.to_device(self.device))
    }
}

fn initial(spec: &Spec) -> Tensor {
    let options = (Kind::Float, Device::Cpu);
    let shape = spec.shape.as_slice();
    match spec.init {
        Init::Zeros => Tensor::zeros(shape, options),
        Init::Ones => Tensor::ones(shape, options),
        Init::Normal(deviation) => Tensor::randn(shape, options) * deviation,
        Init::Uniform(bound) => Tensor::rand(shape, options) * (2.0 * bound) - bound,
    }
}

/// Runs operations at once.
struct Eager<'a> {
    tensors: &'a BTreeMap<String, Tensor>,
    device: Device,
    training: bool,
    /// The first tensor that was asked for and is not there.
    problem: Option<String>,
}

impl Eager<'_> {
    fn tensor(&mut self, name: &str, shape: &[i64]) -> Tensor {
        match self.tensors.get(name) {
            Some(tensor) => tensor.shallow_clone(),
            None => {
                self.problem.get_or_insert_with(|| name.to_owned());
                Tensor::zeros(shape, (Kind::Float, self.device))
            }
        }
    }

    fn split_heads(x: &Tensor, heads: Heads) -> Tensor {
        let (rows, tokens, _) = x.size3().unwrap_or_default();
        x.view([rows, tokens, heads.count, heads.width]).transpose(1, 2)
    }
}

impl Graph for Eager<'_> {
    type Value = Tensor;

    fn weight(&mut self, spec: Spec) -> Tensor {
        self.tensor(&spec.name, &spec.shape)
    }

    fn constant(&mut self, shape: &[i64], values: &[f32]) -> Tensor {
        Tensor::from_slice(values).reshape(shape).to_device(self.device)
    }

    fn integers(&mut self, shape: &[i64], values: &[i64]) -> Tensor {
        Tensor::from_slice(values).reshape(shape).to_device(self.device)
    }

    fn alias(&mut self, x: &Tensor) -> Tensor {
        x.shallow_clone()
    }

    fn linear(&mut self, x: &Tensor, layer: &Linear) -> Tensor {
        let (weight, bias) = layer.specs();
        let weight = self.weight(weight);
        let bias = bias.map(|bias| self.weight(bias));
        x.linear(&weight, bias.as_ref())
    }

    fn convolution(&mut self, x: &Tensor, layer: &Convolution) -> Tensor {
        let kernel = self.weight(layer.kernel());
        let [scale, shift, mean, variance] = layer.statistics().map(|spec| self.weight(spec));
        let x = x.conv2d(&kernel, None::<&Tensor>, [1, 1], [1, 1], [1, 1], 1);
        x.batch_norm(Some(&scale), Some(&shift), Some(&mean), Some(&variance), self.training, MOMENTUM, EPSILON, true)
    }

    fn layer_norm(&mut self, x: &Tensor, name: &str, size: i64) -> Tensor {
        let weight = self.tensor(&format!("{name}.weight"), &[size]);
        let bias = self.tensor(&format!("{name}.bias"), &[size]);
        x.layer_norm([size], Some(&weight), Some(&bias), EPSILON, true)
    }

    fn take(&mut self, table: &Tensor, ids: &Tensor) -> Tensor {
        let mut shape = ids.size();
        shape.extend(table.size().iter().skip(1));
        table.index_select(0, &ids.reshape([-1])).reshape(shape)
    }

    fn select(&mut self, x: &Tensor, axis: i64, positions: &[i64]) -> Tensor {
        x.index_select(axis, &Tensor::from_slice(positions).to_device(self.device))
    }

    fn relu(&mut self, x: &Tensor) -> Tensor {
        x.relu()
    }

    fn gelu(&mut self, x: &Tensor) -> Tensor {
        x.gelu("none")
    }

    fn tanh(&mut self, x: &Tensor) -> Tensor {
        x.tanh()
    }

    fn affine(&mut self, x: &Tensor, scale: f32, shift: f32) -> Tensor {
        x * f64::from(scale) + f64::from(shift)
    }

    fn add(&mut self, a: &Tensor, b: &Tensor) -> Tensor {
        a + b
    }

    fn multiply(&mut self, a: &Tensor, b: &Tensor) -> Tensor {
        a * b
    }

    fn divide(&mut self, a: &Tensor, b: &Tensor) -> Tensor {
        a / b
    }

    fn to_float(&mut self, x: &Tensor) -> Tensor {
        x.to_kind(Kind::Float)
    }

    fn attention(&mut self, qkv: [&Tensor; 3], heads: Heads, mask: Option<&Tensor>) -> Tensor {
        let [q, k, v] = qkv.map(|x| Self::split_heads(x, heads));
        let mut scores = (q * f64::from(heads.scale())).matmul(&k.transpose(-2, -1));
        if let Some(mask) = mask {
            // In half precision there is no -1e9.
            scores = scores.to_kind(Kind::Float).masked_fill(&mask.eq(0.0), f64::from(MASKED));
        }
        let out = scores.softmax(-1, None::<Kind>).to_kind(v.kind()).matmul(&v).transpose(1, 2);
        let (rows, tokens, _, _) = out.size4().unwrap_or_default();
        out.reshape([rows, tokens, heads.total()])
    }

    fn outer(&mut self, a: &Tensor, b: &Tensor) -> Tensor {
        a.matmul(&b.transpose(1, 2))
    }

    fn reshape(&mut self, x: &Tensor, shape: &[i64]) -> Tensor {
        let kept = shape.iter().zip(x.size().into_iter().chain(std::iter::repeat(0)));
        x.reshape(kept.map(|(&size, old)| if size == 0 { old } else { size }).collect::<Vec<_>>())
    }

    fn transpose(&mut self, x: &Tensor, order: &[i64]) -> Tensor {
        x.permute(order)
    }

    fn concat(&mut self, parts: &[Tensor], axis: i64) -> Tensor {
        Tensor::cat(parts, axis)
    }

    fn slice(&mut self, x: &Tensor, axis: i64, start: i64, length: i64) -> Tensor {
        x.narrow(axis, start, length)
    }

    fn mean(&mut self, x: &Tensor, axis: i64) -> Tensor {
        x.mean_dim([axis].as_slice(), false, None::<Kind>)
    }

    fn sum(&mut self, x: &Tensor, axis: i64) -> Tensor {
        x.sum_dim_intlist([axis].as_slice(), false, None::<Kind>)
    }

    fn max(&mut self, x: &Tensor, axis: i64) -> Tensor {
        x.amax([axis].as_slice(), true)
    }

    fn dropout(&mut self, x: &Tensor, probability: f64) -> Tensor {
        if self.training && probability > 0.0 { x.dropout(probability, true) } else { x.shallow_clone() }
    }

    fn dropout_channels(&mut self, x: &Tensor, probability: f64) -> Tensor {
        if self.training && probability > 0.0 { x.feature_dropout(probability, true) } else { x.shallow_clone() }
    }
}
