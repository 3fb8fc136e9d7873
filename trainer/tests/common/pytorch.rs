//! Writes checkpoints as `torch.save` does, and such as it never would.
#![allow(dead_code)]

use std::{
    fs::File,
    io::{Seek, Write},
    path::Path,
};

use zeitnot_network::{Weights, specs::Spec};
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

/// A pickle of protocol 2 in the making.
pub(crate) struct Pickle(Vec<u8>);

impl Pickle {
    pub(crate) fn new() -> Self {
        Pickle(vec![0x80, 2])
    }

    /// Appends opcodes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend(bytes);
        self
    }

    /// A name that unpickling imports.
    pub(crate) fn global(&mut self, module: &str, name: &str) -> &mut Self {
        self.raw(format!("c{module}\n{name}\n").as_bytes())
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.raw(b"X").raw(&(text.len() as u32).to_le_bytes()).raw(text.as_bytes())
    }

    pub(crate) fn int(&mut self, value: i64) -> &mut Self {
        self.raw(b"\x8a\x08").raw(&value.to_le_bytes())
    }

    pub(crate) fn ints(&mut self, values: &[i64]) -> &mut Self {
        self.raw(b"(");
        values.iter().for_each(|&value| {
            self.int(value);
        });
        self.raw(b"t")
    }

    /// A tensor over a storage of `stored` numbers of a kind.
    pub(crate) fn tensor(&mut self, kind: &str, key: &str, stored: i64, shape: &[i64], strides: &[i64]) -> &mut Self {
        self.global("torch._utils", "_rebuild_tensor_v2").raw(b"((").text("storage").global("torch", kind).text(key);
        self.text("cpu").int(stored).raw(b"tQ").int(0).ints(shape).ints(strides).raw(b"\x89");
        self.global("collections", "OrderedDict").raw(b")RtR")
    }

    /// The pickle's bytes.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        self.raw(b".");
        std::mem::take(&mut self.0)
    }
}

/// Strides of a tensor in row-major order.
pub(crate) fn row_major(shape: &[i64]) -> Vec<i64> {
    (0..shape.len()).map(|axis| shape[axis + 1..].iter().product()).collect()
}

/// Writes a network's tensors where a training script keeps them: among other things, with `prefix` before each name.
pub(crate) fn save(path: &Path, specs: &[Spec], weights: &Weights, prefix: &str) {
    let mut pickle = Pickle::new();
    pickle.raw(b"}(").text("epoch").int(3).text("model_state_dict").global("collections", "OrderedDict").raw(b")R(");
    let mut storages = Vec::new();
    for (key, spec) in specs.iter().enumerate() {
        let tensor = weights.get(spec).unwrap();
        pickle.text(&format!("{prefix}{}", spec.name));
        let size = tensor.values.len() as i64;
        pickle.tensor("FloatStorage", &key.to_string(), size, &tensor.shape, &row_major(&tensor.shape));
        storages.push(tensor.values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>());
    }
    // A counter, as batch normalisation keeps one.
    pickle.text(&format!("{prefix}counter")).tensor("LongStorage", &specs.len().to_string(), 1, &[], &[]);
    storages.push(7_i64.to_le_bytes().to_vec());
    let pickle = pickle.raw(b"uu").end();
    write(path, &pickle, storages.iter().map(Vec::as_slice));
}

/// Writes a pickle and storages as a checkpoint.
pub(crate) fn write<'a>(path: &Path, pickle: &[u8], storages: impl IntoIterator<Item = &'a [u8]>) {
    let mut zip = ZipWriter::new(File::create(path).unwrap());
    entry(&mut zip, "archive/data.pkl", CompressionMethod::Stored, pickle);
    entry(&mut zip, "archive/byteorder", CompressionMethod::Stored, b"little");
    for (key, storage) in storages.into_iter().enumerate() {
        entry(&mut zip, &format!("archive/data/{key}"), CompressionMethod::Stored, storage);
    }
    entry(&mut zip, "archive/version", CompressionMethod::Stored, b"3\n");
    zip.finish().unwrap();
}

/// Adds an entry to a zip file.
pub(crate) fn entry<W: Write + Seek>(zip: &mut ZipWriter<W>, name: &str, method: CompressionMethod, bytes: &[u8]) {
    zip.start_file(name, SimpleFileOptions::default().compression_method(method)).unwrap();
    zip.write_all(bytes).unwrap();
}
