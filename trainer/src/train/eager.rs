//! The interpreter that runs a network on tch tensors.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use tch::{Device, Kind, Tensor, autocast};
use zeitnot_encoding::{
    Batch,
    batch::{Input, Values},
};
use zeitnot_network::{
    Graph, NetworkConfig, Outputs, Weights,
    graph::{Convolution, EPSILON, Heads, Linear, MASKED, RMS_EPSILON, Scores},
    specs::{self, Init, Spec},
};

/// Weight of the newest batch in the running statistics of batch normalisation.
const MOMENTUM: f64 = 0.1;

/// A network's tensors on a device, and how they are run.
pub struct Parameters {
    /// Where the tensors live.
    pub device: Device,
    /// Whether convolutions and products run in half precision: f16 by autocast on CUDA, bf16 on a CPU.
    pub half: bool,
    specs: Vec<Spec>,
    tensors: BTreeMap<String, Tensor>,
}

impl Parameters {
    /// Random initial values, which depend on `seed` alone.
    pub fn new(specs: Vec<Spec>, device: Device, seed: i64) -> Self {
        let named = |spec: &Spec| {
            // By name, so that networks that differ in some tensors start alike in the others.
            tch::manual_seed(seed ^ fingerprint(&spec.name));
            let tensor = initial(spec).to_device(device).set_requires_grad(spec.learnt);
            (spec.name.clone(), tensor)
        };
        let tensors = specs.iter().map(named).collect();
        Parameters { device, half: false, specs, tensors }
    }

    /// Given values.
    ///
    /// # Errors
    ///
    /// When a tensor is missing or has another shape.
    pub fn with_weights(specs: Vec<Spec>, device: Device, weights: &Weights) -> Result<Self> {
        let mut tensors = BTreeMap::new();
        for spec in &specs {
            let values = &weights.get(spec)?.values;
            let tensor = Tensor::from_slice(values).reshape(&spec.shape).to_device(device);
            tensors.insert(spec.name.clone(), tensor.set_requires_grad(spec.learnt));
        }
        Ok(Parameters { device, half: false, specs, tensors })
    }

    /// Names, shapes and initial values.
    pub fn specs(&self) -> &[Spec] {
        &self.specs
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
    pub fn count(&self) -> usize {
        self.learnt().map(|(_, tensor)| tensor.numel()).sum()
    }

    /// Runs a forward pass over named inputs, given with the tensors' shapes.
    ///
    /// # Errors
    ///
    /// When the pass needs a tensor or an input that is not there.
    pub fn run<T>(
        &self,
        inputs: impl Iterator<Item = (&'static str, Tensor)>,
        training: bool,
        forward: impl FnOnce(&mut Eager<'_>) -> T,
    ) -> Result<T> {
        let kind = self.kind();
        let prepare = |(name, tensor): (&'static str, Tensor)| {
            let tensor = if tensor.kind() == Kind::Float { tensor.to_kind(kind) } else { tensor };
            (name, tensor.to_device(self.device))
        };
        let inputs = inputs.map(prepare).collect();
        let mut graph = Eager { inputs, tensors: &self.tensors, device: self.device, kind, training, problem: None };
        let outputs = autocast(self.half && self.device.is_cuda(), || forward(&mut graph));
        match graph.problem {
            Some(name) => Err(anyhow!("the network needs {name}, which is not there")),
            None => Ok(outputs),
        }
    }

    /// Kind of the values between operations.
    fn kind(&self) -> Kind {
        if self.half && !self.device.is_cuda() { Kind::BFloat16 } else { Kind::Float }
    }
}

/// A served network on a device.
pub struct Network {
    /// Sizes and switches.
    pub config: NetworkConfig,
    /// Its tensors.
    pub parameters: Parameters,
}

impl Network {
    /// A network with random initial weights, which depend on `seed` alone.
    pub fn new(config: &NetworkConfig, device: Device, seed: i64) -> Self {
        Network { config: config.clone(), parameters: Parameters::new(specs::of(config), device, seed) }
    }

    /// A network with given weights.
    ///
    /// # Errors
    ///
    /// When a tensor is missing or has another shape.
    pub fn with_weights(config: &NetworkConfig, device: Device, weights: &Weights) -> Result<Self> {
        let parameters = Parameters::with_weights(specs::of(config), device, weights)?;
        Ok(Network { config: config.clone(), parameters })
    }

    /// Runs a batch.
    ///
    /// # Errors
    ///
    /// When the network needs a tensor it does not have.
    pub fn forward(&self, batch: &Batch, training: bool) -> Result<Outputs<Tensor>> {
        let inputs = batch.tensors().map(|(input, values)| (input.name, tensor(batch.rows(), input, values)));
        self.parameters.run(inputs, training, |graph| self.config.forward(graph))
    }
}

/// The values of an input as `[B, ..]`.
fn tensor(rows: usize, input: &Input, values: &Values) -> Tensor {
    let flat = match values {
        Values::Float(values) => Tensor::from_slice(values),
        Values::Integer(values) => Tensor::from_slice(values),
        Values::Boolean(values) => Tensor::from_slice(values),
    };
    flat.view(shape(rows, input).as_slice())
}

/// The shape of an input with the batch axis before it.
pub fn shape(rows: usize, input: &Input) -> Vec<i64> {
    std::iter::once(rows).chain(input.shape.iter().copied()).map(|size| size as i64).collect()
}

/// FNV-1a of a name.
fn fingerprint(name: &str) -> i64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, mix).cast_signed()
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
pub struct Eager<'a> {
    inputs: BTreeMap<&'static str, Tensor>,
    tensors: &'a BTreeMap<String, Tensor>,
    device: Device,
    /// Kind of the values between operations.
    kind: Kind,
    training: bool,
    /// The first tensor or input that was asked for and is not there.
    problem: Option<String>,
}

impl Eager<'_> {
    /// A tensor as it is kept, in f32: statistics, scales and shifts of normalisation.
    fn tensor(&mut self, name: &str, shape: &[i64]) -> Tensor {
        match self.tensors.get(name) {
            Some(tensor) => tensor.shallow_clone(),
            None => {
                self.problem.get_or_insert_with(|| format!("the tensor {name}"));
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

    fn input(&mut self, name: &'static str) -> Tensor {
        match self.inputs.get(name) {
            Some(tensor) => tensor.shallow_clone(),
            None => {
                self.problem.get_or_insert_with(|| format!("the input {name}"));
                Tensor::zeros([1], (self.kind, self.device))
            }
        }
    }

    fn weight(&mut self, spec: Spec) -> Tensor {
        self.tensor(&spec.name, &spec.shape).to_kind(self.kind)
    }

    fn constant(&mut self, shape: &[i64], values: &[f32]) -> Tensor {
        Tensor::from_slice(values).reshape(shape).to_kind(self.kind).to_device(self.device)
    }

    fn integers(&mut self, shape: &[i64], values: &[i64]) -> Tensor {
        Tensor::from_slice(values).reshape(shape).to_device(self.device)
    }

    fn alias(&mut self, x: &Tensor) -> Tensor {
        x.shallow_clone()
    }

    fn linear(&mut self, x: &Tensor, layer: &Linear) -> Tensor {
        let (weight, bias) = layer.specs();
        // Of the input's kind, which is f32 where exactness was asked for.
        let mut like_input = |spec: Spec| self.tensor(&spec.name, &spec.shape).to_kind(x.kind());
        let weight = like_input(weight);
        let bias = bias.map(like_input);
        x.linear(&weight, bias.as_ref())
    }

    fn convolution(&mut self, x: &Tensor, layer: &Convolution) -> Tensor {
        let kernel = self.weight(layer.kernel());
        let [scale, shift, mean, variance] = layer.statistics().map(|spec| self.tensor(&spec.name, &spec.shape));
        let x = x.conv2d(&kernel, None::<&Tensor>, [1, 1], [1, 1], [1, 1], 1);
        x.batch_norm(Some(&scale), Some(&shift), Some(&mean), Some(&variance), self.training, MOMENTUM, EPSILON, true)
    }

    fn layer_norm(&mut self, x: &Tensor, name: &str, size: i64) -> Tensor {
        let weight = self.tensor(&format!("{name}.weight"), &[size]);
        let bias = self.tensor(&format!("{name}.bias"), &[size]);
        x.layer_norm([size], Some(&weight), Some(&bias), EPSILON, true)
    }

    fn rms_norm(&mut self, x: &Tensor, name: &str, size: i64) -> Tensor {
        let weight = self.tensor(&format!("{name}.weight"), &[size]);
        let exact = x.to_kind(Kind::Float);
        let square = exact.square().mean_dim([-1].as_slice(), true, None::<Kind>);
        (exact * (square + RMS_EPSILON).rsqrt() * weight).to_kind(x.kind())
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

    fn sigmoid(&mut self, x: &Tensor) -> Tensor {
        x.sigmoid()
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
        x.to_kind(self.kind)
    }

    fn attention(&mut self, qkv: [&Tensor; 3], heads: Heads, scores: Scores<'_, Tensor>) -> Tensor {
        let [q, k, v] = qkv.map(|x| Self::split_heads(x, heads));
        let products = (q * f64::from(heads.scale())).matmul(&k.transpose(-2, -1));
        let scores = match scores {
            Scores::Plain => products,
            Scores::Biased(bias) => products + bias,
            // In half precision there is no -1e9.
            Scores::Masked(mask) => products.to_kind(Kind::Float).masked_fill(&mask.eq(0.0), f64::from(MASKED)),
        };
        let out = scores.softmax(-1, None::<Kind>).to_kind(v.kind()).matmul(&v).transpose(1, 2);
        let (rows, tokens, _, _) = out.size4().unwrap_or_default();
        out.reshape([rows, tokens, heads.total()])
    }

    fn exact(&mut self, x: &Tensor) -> Tensor {
        // bf16 keeps two digits. Under autocast on CUDA the operation after this one chooses for itself.
        x.to_kind(Kind::Float)
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
