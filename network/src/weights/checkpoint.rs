//! PyTorch checkpoints.

use std::{collections::BTreeMap, fs::File, io::BufReader, path::Path};

use pytorch_reader::{PytorchReader, Tensor as Lazy};
use zip::ZipArchive;

use super::{Float, LARGEST, Tensor, Weights};

/// Largest pickle, in bytes. It names the tensors, it does not hold them; the objects it makes can need a hundred times
/// its size.
const LARGEST_PICKLE: u64 = 4 << 20;
/// Where training scripts keep the model's tensors among others, most telling first.
const PLACES: [&str; 3] = ["model_state_dict.", "state_dict.", "model."];
/// What wrappers of modules put before the names of all tensors.
const WRAPPERS: [&str; 3] = ["module.", "_orig_mod.", "model."];

/// Reads the floating-point tensors of a zip file as `torch.save` writes it.
pub(super) fn read(path: &Path) -> Result<Weights, String> {
    let refused = |error: &dyn std::fmt::Display| format!("not a PyTorch checkpoint: {error}");
    check_pickles(path).map_err(|error| refused(&error))?;
    let tensors = PytorchReader::new(path).map_err(|error| refused(&error))?.into_tensors();
    let tensors = model(tensors.into_iter().collect());
    let tensors = tensors.into_iter().filter_map(|(name, tensor)| {
        let float = Float::of_pytorch(tensor.dtype())?;
        Some((name, tensor, float))
    });
    let tensors = tensors.collect::<Vec<_>>();
    // A few bytes can stand for many numbers, stored once or compressed.
    let size = tensors.iter().fold(0_u64, |sum, (_, tensor, _)| sum.saturating_add(tensor.byte_len() as u64));
    if size > LARGEST {
        return Err(format!("its tensors are {size} bytes, more than {LARGEST}"));
    }
    let mut weights = Weights::default();
    for (name, tensor, float) in tensors {
        let bytes = tensor.read().map_err(|error| refused(&error))?;
        let shape = tensor.shape().iter().map(|&size| size as i64).collect();
        weights.insert(&name, Tensor { shape, values: float.values(&bytes) });
    }
    Ok(weights)
}

/// Refuses a file whose pickle is too large, before it is decompressed.
fn check_pickles(path: &Path) -> Result<(), String> {
    let shown = |error: zip::result::ZipError| error.to_string();
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(shown)?;
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index).map_err(shown)?;
        let name = entry.name().map_err(shown)?;
        if name.ends_with(".pkl") && entry.size() > LARGEST_PICKLE {
            return Err(format!("{name} is {} bytes, more than {LARGEST_PICKLE}", entry.size()));
        }
    }
    Ok(())
}

/// The model's tensors by the names it gives them.
fn model(mut tensors: BTreeMap<String, Lazy>) -> BTreeMap<String, Lazy> {
    if let Some(place) = PLACES.iter().find(|place| tensors.keys().any(|name| name.starts_with(**place))) {
        tensors = within(tensors, place);
    }
    while let Some(wrapper) = WRAPPERS.iter().find(|wrapper| tensors.keys().all(|name| name.starts_with(**wrapper))) {
        if tensors.is_empty() {
            break;
        }
        tensors = within(tensors, wrapper);
    }
    tensors
}

/// The tensors whose names start with a prefix, without it.
fn within(tensors: BTreeMap<String, Lazy>, prefix: &str) -> BTreeMap<String, Lazy> {
    tensors.into_iter().filter_map(|(name, tensor)| Some((name.strip_prefix(prefix)?.to_owned(), tensor))).collect()
}
