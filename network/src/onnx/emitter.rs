//! The interpreter that writes nodes.

use std::collections::HashSet;

use super::{
    Element,
    schema::{AttributeProto, NodeProto, TensorProto},
};
use crate::{
    Graph, Weights, WeightsError,
    graph::{Convolution, EPSILON, Heads, Linear, MASKED, RMS_EPSILON, Scores},
    specs::{Init, Spec},
};

/// Collects nodes and initializers. A value is the name of a node's output.
pub(super) struct Emitter<'a> {
    weights: &'a Weights,
    nodes: Vec<NodeProto>,
    initializers: Vec<TensorProto>,
    named: HashSet<String>,
    /// The first thing that went wrong; reported at the end, since operations give values.
    problem: Option<WeightsError>,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(weights: &'a Weights) -> Self {
        Emitter { weights, nodes: Vec::new(), initializers: Vec::new(), named: HashSet::new(), problem: None }
    }

    pub(super) fn output(&mut self, value: &str, name: &str) {
        let node = NodeProto {
            input: vec![value.to_owned()],
            output: vec![name.to_owned()],
            name: format!("output_{name}"),
            op_type: "Identity".to_owned(),
            attribute: Vec::new(),
        };
        self.nodes.push(node);
    }

    pub(super) fn finish(self) -> Result<(Vec<NodeProto>, Vec<TensorProto>), WeightsError> {
        match self.problem {
            Some(problem) => Err(problem),
            None => Ok((self.nodes, self.initializers)),
        }
    }

    fn node(&mut self, op: &str, input: &[&str], attribute: Vec<AttributeProto>) -> String {
        let name = format!("{op}_{}", self.nodes.len());
        self.nodes.push(NodeProto {
            input: input.iter().map(|&name| name.to_owned()).collect(),
            output: vec![name.clone()],
            name: name.clone(),
            op_type: op.to_owned(),
            attribute,
        });
        name
    }

    /// The values of a tensor, zeros when there is a problem with it.
    fn values(&mut self, spec: &Spec) -> Vec<f32> {
        match self.weights.get(spec) {
            Ok(tensor) => tensor.values.clone(),
            Err(problem) => {
                self.problem.get_or_insert(problem);
                vec![0.0; spec.size()]
            }
        }
    }

    fn initializer(&mut self, name: &str, shape: &[i64], element: Element, raw_data: Vec<u8>) -> String {
        if self.named.insert(name.to_owned()) {
            let (dims, data_type) = (shape.to_vec(), element as i32);
            self.initializers.push(TensorProto { dims, data_type, name: name.to_owned(), raw_data });
        }
        name.to_owned()
    }

    fn floats(&mut self, name: &str, shape: &[i64], values: &[f32]) -> String {
        self.initializer(name, shape, Element::Float, values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    /// An i64 initializer, shared by all that need the same values.
    fn indices(&mut self, shape: &[i64], values: &[i64]) -> String {
        let raw = values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
        let found = self
            .initializers
            .iter()
            .find(|tensor| tensor.data_type == Element::Int64 as i32 && tensor.dims == shape && tensor.raw_data == raw);
        match found {
            Some(tensor) => tensor.name.clone(),
            None => {
                let name = format!("integers_{}", self.initializers.len());
                self.initializer(&name, shape, Element::Int64, raw)
            }
        }
    }

    fn scalar(&mut self, value: f32) -> String {
        self.floats(&format!("scalar_{value}"), &[], &[value])
    }

    fn reduce(&mut self, op: &str, x: &str, axis: i64, keep: bool) -> String {
        let axes = self.indices(&[1], &[axis]);
        self.node(op, &[x, &axes], vec![int("keepdims", i64::from(keep))])
    }

    /// `[B, T, D]` to `[B, heads, T, D / heads]`, or its last two axes swapped.
    fn split_heads(&mut self, x: &str, heads: Heads, swapped: bool) -> String {
        let split = self.reshape(&x.to_owned(), &[0, 0, heads.count, heads.width]);
        self.transpose(&split, if swapped { &[0, 2, 3, 1] } else { &[0, 2, 1, 3] })
    }
}

impl Graph for Emitter<'_> {
    type Value = String;

    fn input(&mut self, name: &'static str) -> String {
        name.to_owned()
    }

    fn weight(&mut self, spec: Spec) -> String {
        let values = self.values(&spec);
        self.floats(&spec.name, &spec.shape, &values)
    }

    fn constant(&mut self, shape: &[i64], values: &[f32]) -> String {
        let name = format!("constant_{}", self.initializers.len());
        self.floats(&name, shape, values)
    }

    fn integers(&mut self, shape: &[i64], values: &[i64]) -> String {
        self.indices(shape, values)
    }

    fn alias(&mut self, x: &String) -> String {
        x.clone()
    }

    fn linear(&mut self, x: &String, layer: &Linear) -> String {
        let (weight, bias) = layer.specs();
        let values = self.values(&weight);
        let transposed = transpose(&values, layer.input as usize);
        let name = self.floats(&format!("{}.transposed", weight.name), &[layer.input, layer.output], &transposed);
        let product = self.node("MatMul", &[x, &name], vec![]);
        match bias {
            Some(bias) => {
                let bias = self.weight(bias);
                self.node("Add", &[&product, &bias], vec![])
            }
            None => product,
        }
    }

    fn convolution(&mut self, x: &String, layer: &Convolution) -> String {
        let kernel = layer.kernel();
        let mut values = self.values(&kernel);
        let [scale, shift, mean, variance] = layer.statistics().map(|spec| self.values(&spec));
        let factors = scale.iter().zip(&variance).map(|(s, v)| s / (v + EPSILON as f32).sqrt()).collect::<Vec<_>>();
        let channel = 9 * layer.input as usize;
        for (channel, factor) in values.chunks_mut(channel).zip(&factors) {
            channel.iter_mut().for_each(|value| *value *= factor);
        }
        let bias = shift.iter().zip(&mean).zip(&factors).map(|((s, m), f)| s - m * f).collect::<Vec<_>>();
        let weight = self.floats(&format!("{}.folded", kernel.name), &kernel.shape, &values);
        let bias = self.floats(&format!("{}.folded_bias", kernel.name), &[layer.output], &bias);
        self.node("Conv", &[x, &weight, &bias], vec![ints("kernel_shape", &[3, 3]), ints("pads", &[1, 1, 1, 1])])
    }

    fn layer_norm(&mut self, x: &String, name: &str, size: i64) -> String {
        let scale = self.weight(Spec::new(&format!("{name}.weight"), &[size], Init::Ones));
        let shift = self.weight(Spec::new(&format!("{name}.bias"), &[size], Init::Zeros));
        let attributes = vec![int("axis", -1), float("epsilon", EPSILON as f32)];
        self.node("LayerNormalization", &[x, &scale, &shift], attributes)
    }

    fn rms_norm(&mut self, x: &String, name: &str, size: i64) -> String {
        let scale = self.weight(Spec::new(&format!("{name}.weight"), &[size], Init::Ones));
        // The pattern that ONNX Runtime fuses into one kernel.
        let two = self.scalar(2.0);
        let square = self.node("Pow", &[x, &two], vec![]);
        let mean = self.reduce("ReduceMean", &square, -1, true);
        let epsilon = self.scalar(RMS_EPSILON as f32);
        let shifted = self.node("Add", &[&mean, &epsilon], vec![]);
        let root = self.node("Sqrt", &[&shifted], vec![]);
        let divided = self.node("Div", &[x, &root], vec![]);
        self.node("Mul", &[&divided, &scale], vec![])
    }

    fn take(&mut self, table: &String, ids: &String) -> String {
        self.node("Gather", &[table, ids], vec![int("axis", 0)])
    }

    fn select(&mut self, x: &String, axis: i64, positions: &[i64]) -> String {
        let positions = self.indices(&[positions.len() as i64], positions);
        self.node("Gather", &[x, &positions], vec![int("axis", axis)])
    }

    fn relu(&mut self, x: &String) -> String {
        self.node("Relu", &[x], vec![])
    }

    fn gelu(&mut self, x: &String) -> String {
        self.node("Gelu", &[x], vec![])
    }

    fn sigmoid(&mut self, x: &String) -> String {
        self.node("Sigmoid", &[x], vec![])
    }

    fn tanh(&mut self, x: &String) -> String {
        self.node("Tanh", &[x], vec![])
    }

    fn affine(&mut self, x: &String, scale: f32, shift: f32) -> String {
        let mut x = x.clone();
        if scale != 1.0 {
            let scale = self.scalar(scale);
            x = self.node("Mul", &[&x, &scale], vec![]);
        }
        if shift != 0.0 {
            let shift = self.scalar(shift);
            x = self.node("Add", &[&x, &shift], vec![]);
        }
        x
    }

    fn add(&mut self, a: &String, b: &String) -> String {
        self.node("Add", &[a, b], vec![])
    }

    fn multiply(&mut self, a: &String, b: &String) -> String {
        self.node("Mul", &[a, b], vec![])
    }

    fn divide(&mut self, a: &String, b: &String) -> String {
        self.node("Div", &[a, b], vec![])
    }

    fn to_float(&mut self, x: &String) -> String {
        self.node("Cast", &[x], vec![int("to", Element::Float as i64)])
    }

    fn attention(&mut self, qkv: [&String; 3], heads: Heads, scores: Scores<'_, String>) -> String {
        let [q, k, v] = qkv;
        let q = self.split_heads(q, heads, false);
        let k = self.split_heads(k, heads, true);
        let v = self.split_heads(v, heads, false);
        let q = self.affine(&q, heads.scale(), 0.0);
        let products = self.node("MatMul", &[&q, &k], vec![]);
        let scores = match scores {
            Scores::Plain => products,
            Scores::Biased(bias) => self.add(&products, bias),
            Scores::Masked(mask) => {
                let counts = self.node("Cast", &[mask], vec![int("to", Element::Bool as i64)]);
                let nothing = self.scalar(MASKED);
                self.node("Where", &[&counts, &products, &nothing], vec![])
            }
        };
        let shares = self.node("Softmax", &[&scores], vec![int("axis", -1)]);
        let out = self.node("MatMul", &[&shares, &v], vec![]);
        let out = self.transpose(&out, &[0, 2, 1, 3]);
        self.reshape(&out, &[0, 0, heads.total()])
    }

    fn exact(&mut self, x: &String) -> String {
        x.clone()
    }

    fn outer(&mut self, a: &String, b: &String) -> String {
        let b = self.transpose(b, &[0, 2, 1]);
        self.node("MatMul", &[a, &b], vec![])
    }

    fn reshape(&mut self, x: &String, shape: &[i64]) -> String {
        let shape = self.indices(&[shape.len() as i64], shape);
        self.node("Reshape", &[x, &shape], vec![])
    }

    fn transpose(&mut self, x: &String, order: &[i64]) -> String {
        self.node("Transpose", &[x], vec![ints("perm", order)])
    }

    fn concat(&mut self, parts: &[String], axis: i64) -> String {
        let parts = parts.iter().map(String::as_str).collect::<Vec<_>>();
        self.node("Concat", &parts, vec![int("axis", axis)])
    }

    fn slice(&mut self, x: &String, axis: i64, start: i64, length: i64) -> String {
        let [starts, ends, axes] = [start, start + length, axis].map(|value| self.indices(&[1], &[value]));
        self.node("Slice", &[x, &starts, &ends, &axes], vec![])
    }

    fn mean(&mut self, x: &String, axis: i64) -> String {
        self.reduce("ReduceMean", x, axis, false)
    }

    fn sum(&mut self, x: &String, axis: i64) -> String {
        self.reduce("ReduceSum", x, axis, false)
    }

    fn max(&mut self, x: &String, axis: i64) -> String {
        self.reduce("ReduceMax", x, axis, true)
    }

    fn dropout(&mut self, x: &String, _: f64) -> String {
        x.clone()
    }

    fn dropout_channels(&mut self, x: &String, _: f64) -> String {
        x.clone()
    }
}

/// `[rows, columns]` to `[columns, rows]`.
fn transpose(values: &[f32], columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|column| values.iter().skip(column).step_by(columns).copied()).collect()
}

pub(super) fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.to_owned(), i, r#type: 2, ..AttributeProto::default() }
}

fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto { name: name.to_owned(), f, r#type: 1, ..AttributeProto::default() }
}

fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto { name: name.to_owned(), ints: values.to_vec(), r#type: 7, ..AttributeProto::default() }
}
