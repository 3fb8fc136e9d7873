//! Names, shapes and initial values of a network's tensors, learnt by running its definition on nothing.

use crate::{
    Graph, NetworkConfig,
    graph::{Convolution, Heads, Linear, Scores},
};

/// Initial values of a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All 0.
    Zeros,
    /// All 1.
    Ones,
    /// Normal with this standard deviation.
    Normal(f64),
    /// Uniform between minus and plus this bound.
    Uniform(f64),
}

/// A tensor of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Name, as in a safetensors file.
    pub name: String,
    /// Shape.
    pub shape: Vec<i64>,
    /// Initial values.
    pub init: Init,
    /// False for running statistics, which no gradient reaches.
    pub learnt: bool,
}

impl Spec {
    /// A learnt tensor.
    pub fn new(name: &str, shape: &[i64], init: Init) -> Self {
        Spec { name: name.to_owned(), shape: shape.to_vec(), init, learnt: true }
    }

    /// The same as a running statistic.
    pub fn running(self) -> Self {
        Spec { learnt: false, ..self }
    }

    /// Number of values.
    pub fn size(&self) -> usize {
        self.shape.iter().product::<i64>().unsigned_abs() as usize
    }
}

/// The tensors of a network, sorted by name.
pub fn of(config: &NetworkConfig) -> Vec<Spec> {
    record(|recorder| config.forward(recorder))
}

/// The tensors that a forward pass asks for, sorted by name.
pub fn record<T>(forward: impl FnOnce(&mut Recorder) -> T) -> Vec<Spec> {
    let mut recorder = Recorder::default();
    forward(&mut recorder);
    recorder.specs.sort_by(|a, b| a.name.cmp(&b.name));
    recorder.specs.dedup_by(|a, b| a.name == b.name);
    recorder.specs
}

/// Remembers which tensors are asked for.
#[derive(Debug, Default)]
pub struct Recorder {
    specs: Vec<Spec>,
}

impl Graph for Recorder {
    type Value = ();

    fn input(&mut self, _: &'static str) {}

    fn weight(&mut self, spec: Spec) {
        self.specs.push(spec);
    }

    fn linear(&mut self, _: &(), layer: &Linear) {
        let (weight, bias) = layer.specs();
        self.specs.push(weight);
        self.specs.extend(bias);
    }

    fn convolution(&mut self, _: &(), layer: &Convolution) {
        self.specs.push(layer.kernel());
        self.specs.extend(layer.statistics());
    }

    fn layer_norm(&mut self, _: &(), name: &str, size: i64) {
        self.specs.push(Spec::new(&format!("{name}.weight"), &[size], Init::Ones));
        self.specs.push(Spec::new(&format!("{name}.bias"), &[size], Init::Zeros));
    }

    fn rms_norm(&mut self, _: &(), name: &str, size: i64) {
        self.specs.push(Spec::new(&format!("{name}.weight"), &[size], Init::Ones));
    }

    fn alias(&mut self, _: &()) {}
    fn constant(&mut self, _: &[i64], _: &[f32]) {}
    fn integers(&mut self, _: &[i64], _: &[i64]) {}
    fn take(&mut self, _: &(), _: &()) {}
    fn select(&mut self, _: &(), _: i64, _: &[i64]) {}
    fn relu(&mut self, _: &()) {}
    fn gelu(&mut self, _: &()) {}
    fn sigmoid(&mut self, _: &()) {}
    fn tanh(&mut self, _: &()) {}
    fn affine(&mut self, _: &(), _: f32, _: f32) {}
    fn add(&mut self, _: &(), _: &()) {}
    fn multiply(&mut self, _: &(), _: &()) {}
    fn divide(&mut self, _: &(), _: &()) {}
    fn to_float(&mut self, _: &()) {}
    fn attention(&mut self, _: [&(); 3], _: Heads, _: Scores<'_, ()>) {}
    fn exact(&mut self, _: &()) {}
    fn outer(&mut self, _: &(), _: &()) {}
    fn reshape(&mut self, _: &(), _: &[i64]) {}
    fn transpose(&mut self, _: &(), _: &[i64]) {}
    fn concat(&mut self, _: &[()], _: i64) {}
    fn slice(&mut self, _: &(), _: i64, _: i64, _: i64) {}
    fn mean(&mut self, _: &(), _: i64) {}
    fn sum(&mut self, _: &(), _: i64) {}
    fn max(&mut self, _: &(), _: i64) {}
    fn dropout(&mut self, _: &(), _: f64) {}
    fn dropout_channels(&mut self, _: &(), _: f64) {}
}
