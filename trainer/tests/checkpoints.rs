//! PyTorch checkpoints through import: the same weights in every wrapping, and hostile files refused.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::{
    fs,
    path::{Path, PathBuf},
};

use common::pytorch::{self, Pickle, row_major};
use zeitnot_network::{NetworkConfig, Weights, maia3::BiasConfig, specs};
use zeitnot_trainer::{
    import::{self, Files, Import},
    model_file::About,
};
use zip::{CompressionMethod, ZipWriter};

/// A network of the `maia3/1` family in kilobytes.
fn tiny() -> NetworkConfig {
    NetworkConfig::Maia3(zeitnot_network::Maia3Config {
        width: 32,
        blocks: 1,
        heads: 2,
        feed_forward: 32,
        rating: 8,
        policy: 32,
        bias: BiasConfig { hidden: 16, generated: 8, per_square: 0 },
        per_square_bias: false,
    })
}

fn import(file: &Path, out: &Path) -> Result<(), String> {
    let files = Files { file: file.to_owned(), out: out.to_owned(), about: About::default(), int8: Default::default() };
    import::run(&Import::Maia3(files)).map_err(|error| format!("{error:#}"))
}

/// What the importer says of a checkpoint; it names the file, and writes nothing.
fn refused(folder: &Path, make: impl FnOnce(&Path)) -> String {
    let (file, out) = (folder.join("model.pt"), folder.join("model.onnx"));
    make(&file);
    let error = import(&file, &out).unwrap_err();
    assert!(error.starts_with(file.to_str().unwrap()), "{error}");
    assert!(!out.exists());
    error
}

/// Most memory this process ever had, in MiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

#[test]
fn tensors_are_found_in_every_wrapping() {
    let folder = tempfile::tempdir().unwrap();
    let specs = specs::of(&tiny());
    let weights = Weights::by_formula(&specs);
    for prefix in ["", "module.", "_orig_mod.module.", "model."] {
        let file = folder.path().join("tiny.pt");
        pytorch::save(&file, &specs, &weights, prefix);
        assert_eq!(Weights::read(&file).unwrap(), weights, "{prefix}");
    }
    let out = folder.path().join("tiny.onnx");
    import(&folder.path().join("tiny.pt"), &out).unwrap();
    assert!(out.exists());
}

#[test]
fn what_pytorch_saves_is_read_as_the_numbers_it_stands_for() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/torch-save.pt");
    let weights = Weights::read(&file).unwrap();
    let values = |name: &str, shape: &[i64]| {
        let spec = specs::Spec::new(name, shape, specs::Init::Zeros);
        weights.get(&spec).unwrap().values.clone()
    };
    assert_eq!(values("weight", &[2, 3]), [0.0, 0.25, 0.5, 0.75, 1.0, 1.25]);
    assert_eq!(values("bias", &[2]), [-1.0, 0.5]);
    assert_eq!(values("transposed", &[2, 3]), [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
    assert_eq!(values("row", &[3]), [6.0, 7.0, 8.0]);
    assert_eq!(values("half", &[2]), [1.5, -2.0]);
    assert_eq!(values("brain", &[1]), [3.0]);
    assert_eq!(values("double", &[1, 1]), [0.25]);
    assert_eq!(weights.shape("counter"), None);
    assert!(weights.shape("state.0.exp_avg").is_none() && weights.shape("0.exp_avg").is_none());
}

#[test]
fn code_is_never_run() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let command = format!("touch {}", mark.display());
    for (module, name) in [("os", "system"), ("posix", "system"), ("builtins", "eval"), ("torch", "load")] {
        let said = refused(folder.path(), |file| {
            let pickle = Pickle::new().global(module, name).raw(b"(").text(&command).raw(b"tR").end();
            pytorch::write(file, &pickle, []);
        });
        assert!(said.contains("not a PyTorch checkpoint") && said.contains(name), "{said}");
    }
    assert!(!mark.exists());
}

#[test]
fn sizes_that_the_file_does_not_bear_out_are_refused_in_bounded_memory() {
    let folder = tempfile::tempdir().unwrap();
    let one = |shape: &'static [i64], strides: &'static [i64], stored: i64| {
        move |file: &Path| {
            let mut pickle = Pickle::new();
            pickle.raw(b"}(").text("a").tensor("FloatStorage", "0", stored, shape, strides);
            pytorch::write(file, &pickle.raw(b"u").end(), [&[0_u8; 4][..]]);
        }
    };
    let before = peak();
    let said = refused(folder.path(), one(&[1 << 40], &[1], 1 << 40));
    assert!(said.contains("not a PyTorch checkpoint"), "{said}");
    let said = refused(folder.path(), one(&[i64::MAX, i64::MAX], &[0, 0], 1));
    assert!(said.contains("not a PyTorch checkpoint"), "{said}");
    let said = refused(folder.path(), one(&[-1], &[1], 1));
    assert!(said.contains("not a PyTorch checkpoint"), "{said}");
    let said = refused(folder.path(), one(&[1000, 1000, 1000], &[0, 0, 0], 1));
    assert!(said.contains("its tensors are 4000000000 bytes, more than 1073741824"), "{said}");

    let said = refused(folder.path(), |file| {
        let mut zip = ZipWriter::new(fs::File::create(file).unwrap());
        let bomb = vec![b'}'; 64 << 20];
        pytorch::entry(&mut zip, "archive/data.pkl", CompressionMethod::Deflated, &bomb);
        zip.finish().unwrap();
        assert!(fs::metadata(file).unwrap().len() < 1 << 20);
    });
    assert!(said.contains("archive/data.pkl is 67108864 bytes, more than 4194304"), "{said}");

    // What the pickle copies grows by the power of its length.
    let said = refused(folder.path(), |file| {
        let mut pickle = Pickle::new();
        pickle.raw(b"]q\x00");
        for depth in 0..40_u8 {
            pickle.raw(&[b']', b'q', depth + 1, b'(', b'h', depth, b'h', depth, b'h', depth, b'e']);
        }
        pytorch::write(file, &pickle.end(), []);
    });
    assert!(said.contains("not a PyTorch checkpoint"), "{said}");
    let said = refused(folder.path(), |file| pytorch::write(file, &Pickle::new().raw(&[b']'; 4 << 20][2..]).end(), []));
    assert!(said.contains("more than 4194304"), "{said}");
    let said = refused(folder.path(), |file| pytorch::write(file, &Pickle::new().raw(&[b']'; 1 << 20]).end(), []));
    assert!(said.contains("not a PyTorch checkpoint") || said.contains("missing"), "{said}");
    let grown = peak() - before;
    assert!(grown < 768, "{grown} MiB");
}

#[test]
fn what_fits_no_network_is_refused_by_the_tensors_name() {
    let folder = tempfile::tempdir().unwrap();
    let specs = specs::of(&tiny());
    let weights = Weights::by_formula(&specs);
    let changed = |name: &'static str, shape: &'static [i64]| {
        let (specs, weights) = (&specs, &weights);
        move |file: &Path| {
            let (mut specs, mut weights) = (specs.clone(), weights.clone());
            let spec = specs.iter_mut().find(|spec| spec.name == name).unwrap();
            spec.shape = shape.to_vec();
            let values = vec![0.5; shape.iter().product::<i64>() as usize];
            weights.insert(name, zeitnot_network::weights::Tensor { shape: shape.to_vec(), values });
            pytorch::save(file, &specs, &weights, "");
        }
    };
    let said = refused(folder.path(), changed("fc_value.weight", &[4, 32]));
    assert!(said.contains("fc_value.weight has shape [4, 32], the network needs [3, 32]"), "{said}");
    let said = refused(folder.path(), changed("token_projection.weight", &[7]));
    assert!(said.contains("tensor token_projection.weight has shape [7], not two axes"), "{said}");
    let said = refused(folder.path(), |file| {
        let some = specs.iter().filter(|spec| spec.name != "proj_sq_from.weight").cloned().collect::<Vec<_>>();
        pytorch::save(file, &some, &weights, "");
    });
    assert!(said.contains("tensor proj_sq_from.weight is missing"), "{said}");
}

#[test]
fn files_that_are_something_else_or_cut_off_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let other = "neither a safetensors file nor a PyTorch checkpoint as torch.save writes since 1.6";
    for bytes in [&b""[..], b"\x80\x02}q\x00.", b"hello", &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0]] {
        let said = refused(folder.path(), |file| fs::write(file, bytes).unwrap());
        assert!(said.contains(other), "{said}");
    }
    let said = refused(folder.path(), |file| fs::write(file, b"PK\x03\x04 and no more").unwrap());
    assert!(said.contains("not a PyTorch checkpoint"), "{said}");

    let whole = folder.path().join("whole.pt");
    let specs = specs::of(&tiny());
    pytorch::save(&whole, &specs, &Weights::by_formula(&specs), "");
    let bytes = fs::read(whole).unwrap();
    for part in 0..32 {
        let cut = bytes.len() * part / 32;
        refused(folder.path(), |file| fs::write(file, &bytes[..cut]).unwrap());
    }
    // A storage that is not what was saved.
    let start = bytes.windows(4).position(|window| window == 0.5_f32.to_le_bytes()).unwrap_or(bytes.len() / 2);
    let mut damaged = bytes.clone();
    damaged[start] ^= 0x55;
    let said = refused(folder.path(), |file| fs::write(file, &damaged).unwrap());
    assert!(said.contains("not a PyTorch checkpoint"), "{said}");
    let gone: PathBuf = folder.path().join("gone.pt");
    assert!(import(&gone, &folder.path().join("a.onnx")).unwrap_err().contains("gone.pt"));
    assert_eq!(row_major(&[2, 3, 4]), [12, 4, 1]);
}
