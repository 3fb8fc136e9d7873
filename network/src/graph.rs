//! The operations a network is made of.

use crate::specs::{Init, Spec};

/// Interprets a network: on tensors, as a file, or to learn its shapes.
///
/// Shapes are those of a batch of B rows; operations that could act on a batch of any size do.
pub trait Graph {
    /// What flows between operations.
    type Value;

    /// An input of the encoding, by its name.
    fn input(&mut self, name: &'static str) -> Self::Value;
    /// A tensor of the network, learnt or kept as a running statistic.
    fn weight(&mut self, spec: Spec) -> Self::Value;
    /// A fixed f32 tensor.
    fn constant(&mut self, shape: &[i64], values: &[f32]) -> Self::Value;
    /// A fixed i64 tensor.
    fn integers(&mut self, shape: &[i64], values: &[i64]) -> Self::Value;

    /// Another handle of the same value.
    fn alias(&mut self, x: &Self::Value) -> Self::Value;

    /// `x W^T + b` over the last axis; `W` is `[output, input]`.
    fn linear(&mut self, x: &Self::Value, layer: &Linear) -> Self::Value;
    /// 3x3 convolution with padding 1 and no bias, then batch normalisation: `[B, input, 8, 8]` to `[B, output, 8, 8]`.
    fn convolution(&mut self, x: &Self::Value, layer: &Convolution) -> Self::Value;
    /// Layer normalisation over the last axis, epsilon 1e-5. Tensors `{name}.weight` and `{name}.bias`.
    fn layer_norm(&mut self, x: &Self::Value, name: &str, size: i64) -> Self::Value;
    /// Division by the root of the mean square over the last axis, epsilon [`RMS_EPSILON`]. Tensor `{name}.weight`.
    fn rms_norm(&mut self, x: &Self::Value, name: &str, size: i64) -> Self::Value;
    /// Rows of `table` along its first axis.
    fn take(&mut self, table: &Self::Value, ids: &Self::Value) -> Self::Value;
    /// Fixed positions along an axis.
    fn select(&mut self, x: &Self::Value, axis: i64, positions: &[i64]) -> Self::Value;

    /// Rectified linear unit.
    fn relu(&mut self, x: &Self::Value) -> Self::Value;
    /// Exact Gaussian error linear unit.
    fn gelu(&mut self, x: &Self::Value) -> Self::Value;
    /// Logistic function.
    fn sigmoid(&mut self, x: &Self::Value) -> Self::Value;
    /// Hyperbolic tangent.
    fn tanh(&mut self, x: &Self::Value) -> Self::Value;
    /// `x * scale + shift`.
    fn affine(&mut self, x: &Self::Value, scale: f32, shift: f32) -> Self::Value;
    /// Elementwise sum, broadcast.
    fn add(&mut self, a: &Self::Value, b: &Self::Value) -> Self::Value;
    /// Elementwise product, broadcast.
    fn multiply(&mut self, a: &Self::Value, b: &Self::Value) -> Self::Value;
    /// Elementwise quotient, broadcast.
    fn divide(&mut self, a: &Self::Value, b: &Self::Value) -> Self::Value;
    /// Booleans to 0.0 and 1.0.
    fn to_float(&mut self, x: &Self::Value) -> Self::Value;

    /// Softmax attention per head: `q` `[B, T, D]`, `k` and `v` `[B, S, D]`, scaled by 1/sqrt of the head's width. Gives
    /// `[B, T, D]`.
    fn attention(&mut self, qkv: [&Self::Value; 3], heads: Heads, scores: Scores<'_, Self::Value>) -> Self::Value;
    /// `a b^T` per row of the batch: `[B, T, D]`, `[B, S, D]` to `[B, T, S]`.
    fn outer(&mut self, a: &Self::Value, b: &Self::Value) -> Self::Value;

    /// The same values in full precision, for layers that end in logits.
    fn exact(&mut self, x: &Self::Value) -> Self::Value;
    /// Same values in another shape; 0 keeps an axis, -1 takes what is left.
    fn reshape(&mut self, x: &Self::Value, shape: &[i64]) -> Self::Value;
    /// Axes in another order.
    fn transpose(&mut self, x: &Self::Value, order: &[i64]) -> Self::Value;
    /// Joined along an axis.
    fn concat(&mut self, parts: &[Self::Value], axis: i64) -> Self::Value;
    /// A stretch of an axis.
    fn slice(&mut self, x: &Self::Value, axis: i64, start: i64, length: i64) -> Self::Value;
    /// Mean over an axis, which disappears.
    fn mean(&mut self, x: &Self::Value, axis: i64) -> Self::Value;
    /// Sum over an axis, which disappears.
    fn sum(&mut self, x: &Self::Value, axis: i64) -> Self::Value;
    /// Largest value over an axis, which stays with size 1.
    fn max(&mut self, x: &Self::Value, axis: i64) -> Self::Value;

    /// Zeroes single values while training.
    fn dropout(&mut self, x: &Self::Value, probability: f64) -> Self::Value;
    /// Zeroes whole channels of `[B, C, 8, 8]` while training.
    fn dropout_channels(&mut self, x: &Self::Value, probability: f64) -> Self::Value;
}

/// What becomes of attention's scores before the softmax.
#[derive(Clone, Copy, Debug)]
pub enum Scores<'a, V> {
    /// Nothing.
    Plain,
    /// They are -1e9 where this `[B, 1, 1, S]` is 0, so that where it is 0 throughout, all weigh the same.
    Masked(&'a V),
    /// This `[B, heads, T, S]` is added.
    Biased(&'a V),
}

/// Attention heads.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// How many.
    pub count: i64,
    /// Width of each.
    pub width: i64,
}

impl Heads {
    /// Width of all heads side by side.
    pub fn total(self) -> i64 {
        self.count * self.width
    }

    /// What scores are multiplied by.
    pub fn scale(self) -> f32 {
        1.0 / (self.width as f32).sqrt()
    }
}

/// A linear layer.
#[derive(Clone, Debug)]
pub struct Linear {
    /// Name of the `[output, input]` tensor.
    pub weight: String,
    /// Name of the `[output]` tensor.
    pub bias: Option<String>,
    /// Width before.
    pub input: i64,
    /// Width after.
    pub output: i64,
}

impl Linear {
    /// Tensors `{name}.weight` and `{name}.bias`.
    pub fn new(name: &str, input: i64, output: i64) -> Self {
        Linear { weight: format!("{name}.weight"), bias: Some(format!("{name}.bias")), input, output }
    }

    /// Tensor `{name}.weight` alone.
    pub fn without_bias(name: &str, input: i64, output: i64) -> Self {
        Linear { bias: None, ..Linear::new(name, input, output) }
    }

    /// The tensors, with uniform initial values in ±1/sqrt(input).
    pub fn specs(&self) -> (Spec, Option<Spec>) {
        let init = Init::Uniform(1.0 / (self.input as f64).sqrt());
        let weight = Spec::new(&self.weight, &[self.output, self.input], init);
        (weight, self.bias.as_ref().map(|bias| Spec::new(bias, &[self.output], init)))
    }
}

/// A 3x3 convolution followed by batch normalisation.
#[derive(Clone, Debug)]
pub struct Convolution {
    /// Tensor `{convolution}.weight`, `[output, input, 3, 3]`.
    pub convolution: String,
    /// Tensors `{norm}.weight`, `.bias`, `.running_mean` and `.running_var`, each `[output]`.
    pub norm: String,
    /// Channels before.
    pub input: i64,
    /// Channels after.
    pub output: i64,
}

/// Score of what must not be attended to.
pub const MASKED: f32 = -1e9;

/// Epsilon of layer and batch normalisation.
pub const EPSILON: f64 = 1e-5;

/// Epsilon of normalisation by the root mean square.
pub const RMS_EPSILON: f64 = f32::EPSILON as f64;

impl Convolution {
    /// The convolution's tensor.
    pub fn kernel(&self) -> Spec {
        let init = Init::Uniform((6.0 / (9.0 * self.input as f64)).sqrt());
        Spec::new(&format!("{}.weight", self.convolution), &[self.output, self.input, 3, 3], init)
    }

    /// Scale, shift, running mean and running variance.
    pub fn statistics(&self) -> [Spec; 4] {
        let spec = |part: &str, init| Spec::new(&format!("{}.{part}", self.norm), &[self.output], init);
        [
            spec("weight", Init::Ones),
            spec("bias", Init::Zeros),
            spec("running_mean", Init::Zeros).running(),
            spec("running_var", Init::Ones).running(),
        ]
    }
}

/// Outputs of a network; those it does not have are absent.
#[derive(Clone, Debug)]
pub struct Outputs<V> {
    /// f32 `[B, 4208]` logits.
    pub policy: V,
    /// f32 `[B]`, in [-1, 1] for the mover.
    pub value: Option<V>,
    /// f32 `[B, 3]` logits: the mover wins, draws, loses.
    pub wdl: Option<V>,
    /// f32 `[B, 24]` logits of the think time's bins.
    pub think_time: Option<V>,
    /// f32 `[B, 141]` logits.
    pub auxiliary: Option<V>,
    /// f32 `[B, P]`: the pooled hidden state, which re-rankers are shown.
    pub pooled: Option<V>,
    /// f32 `[B]`: Maia-3's last head, whose unit is not published; written for comparisons, served to nobody.
    pub ponder: Option<V>,
}
