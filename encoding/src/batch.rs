//! Encoded situations as named tensors, a row each.

use crate::{Encoding, Situation};

/// An input of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// Name in the model file.
    pub name: &'static str,
    /// Type of its values.
    pub element: Element,
    /// Shape of one row; the tensor has the batch axis before it.
    pub shape: &'static [usize],
}

/// Type of an input's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// f32.
    Float,
    /// i64.
    Integer,
    /// bool.
    Boolean,
}

/// The values of one input, in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// f32.
    Float(Vec<f32>),
    /// i64.
    Integer(Vec<i64>),
    /// bool.
    Boolean(Vec<bool>),
}

/// A batch of encoded situations.
#[derive(Clone, Debug)]
pub struct Batch {
    encoding: &'static dyn Encoding,
    rows: usize,
    values: Vec<Values>,
}

/// The row that is being encoded; it starts as zeros.
#[derive(Debug)]
pub struct Row<'a> {
    batch: &'a mut Batch,
}

impl Input {
    /// Values in one row.
    pub fn size(&self) -> usize {
        self.shape.iter().product()
    }
}

impl Values {
    fn new(input: &Input, rows: usize) -> Self {
        let capacity = rows * input.size();
        match input.element {
            Element::Float => Values::Float(Vec::with_capacity(capacity)),
            Element::Integer => Values::Integer(Vec::with_capacity(capacity)),
            Element::Boolean => Values::Boolean(Vec::with_capacity(capacity)),
        }
    }

    fn resize(&mut self, length: usize) {
        match self {
            Values::Float(values) => values.resize(length, 0.0),
            Values::Integer(values) => values.resize(length, 0),
            Values::Boolean(values) => values.resize(length, false),
        }
    }

    fn write_bytes(&self, bytes: &mut Vec<u8>) {
        match self {
            Values::Float(values) => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            Values::Integer(values) => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            Values::Boolean(values) => bytes.extend(values.iter().map(|&value| u8::from(value))),
        }
    }

    fn append(&mut self, other: &Values) {
        match (self, other) {
            (Values::Float(values), Values::Float(more)) => values.extend_from_slice(more),
            (Values::Integer(values), Values::Integer(more)) => values.extend_from_slice(more),
            (Values::Boolean(values), Values::Boolean(more)) => values.extend_from_slice(more),
            _ => {}
        }
    }
}

impl Batch {
    /// An empty batch with room for `rows`.
    pub fn new(encoding: &'static dyn Encoding, rows: usize) -> Self {
        let values = encoding.inputs().iter().map(|input| Values::new(input, rows)).collect();
        Batch { encoding, rows: 0, values }
    }

    /// A batch of these situations.
    pub fn of<'a>(encoding: &'static dyn Encoding, situations: impl IntoIterator<Item = &'a Situation>) -> Self {
        let mut batch = Batch::new(encoding, 1);
        situations.into_iter().for_each(|situation| batch.push(situation));
        batch
    }

    /// How the situations were encoded.
    pub fn encoding(&self) -> &'static dyn Encoding {
        self.encoding
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The inputs with their values.
    pub fn tensors(&self) -> impl Iterator<Item = (&'static Input, &Values)> {
        self.encoding.inputs().iter().zip(&self.values)
    }

    /// Appends one situation.
    pub fn push(&mut self, situation: &Situation) {
        self.pad(self.rows + 1);
        let encoding = self.encoding;
        encoding.encode(situation, &mut Row { batch: self });
    }

    /// Appends all rows of another batch; false, and nothing changes, when it is of another encoding.
    #[must_use]
    pub fn append(&mut self, other: &Batch) -> bool {
        let same = self.encoding.name() == other.encoding.name();
        if same {
            self.values.iter_mut().zip(&other.values).for_each(|(values, more)| values.append(more));
            self.rows += other.rows;
        }
        same
    }

    /// Fills up to `rows` rows with zeros, which a network may compute but nobody reads.
    pub fn pad(&mut self, rows: usize) {
        self.rows = rows.max(self.rows);
        for (input, values) in self.encoding.inputs().iter().zip(&mut self.values) {
            values.resize(self.rows * input.size());
        }
    }

    /// Appends all values, little-endian, one input after the other in the encoding's order.
    pub fn write_bytes(&self, bytes: &mut Vec<u8>) {
        self.values.iter().for_each(|values| values.write_bytes(bytes));
    }

    /// Removes all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.rows = 0;
        self.values.iter_mut().for_each(|values| values.resize(0));
    }

    /// The f32 values of an input; none when there is no such input.
    pub fn floats(&self, name: &str) -> &[f32] {
        match self.values_of(name) {
            Some(Values::Float(values)) => values,
            _ => &[],
        }
    }

    /// The i64 values of an input; none when there is no such input.
    pub fn integers(&self, name: &str) -> &[i64] {
        match self.values_of(name) {
            Some(Values::Integer(values)) => values,
            _ => &[],
        }
    }

    /// The bool values of an input; none when there is no such input.
    pub fn booleans(&self, name: &str) -> &[bool] {
        match self.values_of(name) {
            Some(Values::Boolean(values)) => values,
            _ => &[],
        }
    }

    fn values_of(&self, name: &str) -> Option<&Values> {
        self.tensors().find(|(input, _)| input.name == name).map(|(_, values)| values)
    }
}

impl PartialEq for Batch {
    fn eq(&self, other: &Self) -> bool {
        self.encoding.name() == other.encoding.name() && self.values == other.values
    }
}

impl Row<'_> {
    /// The row of the `input`-th input, which holds f32.
    pub fn floats(&mut self, input: usize) -> &mut [f32] {
        let start = self.start(input);
        match self.batch.values.get_mut(input) {
            Some(Values::Float(values)) => values.get_mut(start..).unwrap_or_default(),
            _ => &mut [],
        }
    }

    /// The row of the `input`-th input, which holds i64.
    pub fn integers(&mut self, input: usize) -> &mut [i64] {
        let start = self.start(input);
        match self.batch.values.get_mut(input) {
            Some(Values::Integer(values)) => values.get_mut(start..).unwrap_or_default(),
            _ => &mut [],
        }
    }

    /// The row of the `input`-th input, which holds bool.
    pub fn booleans(&mut self, input: usize) -> &mut [bool] {
        let start = self.start(input);
        match self.batch.values.get_mut(input) {
            Some(Values::Boolean(values)) => values.get_mut(start..).unwrap_or_default(),
            _ => &mut [],
        }
    }

    fn start(&self, input: usize) -> usize {
        let size = self.batch.encoding.inputs().get(input).map_or(0, Input::size);
        self.batch.rows.saturating_sub(1) * size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lc0, Otter, Zeitnot};

    #[test]
    fn rows_are_appended_padded_and_cleared_together() {
        let mut batch = Batch::of(&Otter, [&Situation::default()]);
        let more = Batch::of(&Otter, &vec![Situation::default(); 2]);
        assert!(batch.append(&more));
        assert_eq!((batch.rows(), batch.integers("mover_elo").len(), batch.booleans("history_mask").len()), (3, 3, 60));
        assert_eq!(batch, Batch::of(&Otter, &vec![Situation::default(); 3]));
        batch.pad(5);
        assert_eq!((batch.rows(), batch.floats("clock").len()), (5, 10));
        assert_eq!(batch.integers("mover_elo")[3..], [0, 0]);
        batch.pad(2);
        assert_eq!(batch.rows(), 5, "padding never cuts");
        batch.clear();
        assert_eq!(batch, Batch::new(&Otter, 0));
    }

    #[test]
    fn another_encoding_is_not_appended() {
        let mut batch = Batch::of(&Zeitnot, [&Situation::default()]);
        let before = batch.clone();
        assert!(!batch.append(&Batch::of(&Lc0, [&Situation::default()])));
        assert_eq!(batch, before);
        assert!(batch.floats("planes").is_empty() && batch.floats("moves").is_empty());
    }
}
