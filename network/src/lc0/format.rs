//! What a weights file says of its network, and which of that is read.

use zeitnot_encoding::lc0::Policy;

use super::reader::{Lc0Error, schema::Net};

/// The kind of a network.
pub(super) struct Kind {
    /// Whether its blocks squeeze and excite.
    pub gated: bool,
    /// In which order it scores moves.
    pub policy: Policy,
    /// Whether it tells win, draw and loss apart.
    pub wdl: bool,
}

/// Names of the formats by their numbers, as the format's own schema has them.
const ENCODINGS: &[(i32, &str)] = &[(0, "unknown"), (1, "LINEAR16"), (2, "FLOAT16"), (3, "BFLOAT16"), (4, "FLOAT32")];
const INPUTS: &[(i32, &str)] = &[
    (0, "unknown"),
    (2, "112 planes with a castling plane"),
    (3, "112 planes with canonicalization"),
    (4, "112 planes with canonicalization and hectoplies"),
    (5, "112 planes with canonicalization, version 2"),
    (132, "112 planes with canonicalization, hectoplies and armageddon"),
    (133, "112 planes with canonicalization, version 2 and armageddon"),
];
const STRUCTURES: &[(i32, &str)] = &[
    (0, "unknown"),
    (5, "ONNX"),
    (6, "attention body"),
    (7, "attention body with several heads"),
    (134, "an older attention body with several heads"),
];
const POLICIES: &[(i32, &str)] = &[(0, "unknown"), (3, "attention")];
const VALUES: &[(i32, &str)] = &[(0, "unknown"), (3, "parameters")];
const ACTIVATIONS: &[(i32, &str)] = &[(1, "Mish")];

fn unsupported<T>(part: &str, number: i32, names: &[(i32, &str)]) -> Result<T, Lc0Error> {
    let name = names.iter().find(|(known, _)| *known == number).map_or("newer than this reader", |(_, name)| name);
    Err(Lc0Error::Unsupported(format!("{part} {number} ({name})")))
}

/// Refuses a layer or a file whose values are not 16-bit numbers between two bounds.
pub(super) fn linear16(part: &str, encoding: i32) -> Result<(), Lc0Error> {
    if encoding == 1 { Ok(()) } else { unsupported(part, encoding, ENCODINGS) }
}

/// The kind of a network; what is not read is refused by name.
pub(super) fn kind(net: &Net) -> Result<Kind, Lc0Error> {
    let format = net.format.unwrap_or_default();
    if net.onnx_model.is_some() {
        return Err(Lc0Error::Unsupported("an ONNX model in place of weights".to_owned()));
    }
    linear16("weights encoding", format.weights_encoding())?;
    // Files older than the field are of the first kind there was.
    let structure = format.network_format.map_or(1, |network| network.network());
    let network = format.network_format.unwrap_or_default();
    if !(1..=4).contains(&structure) {
        return unsupported("network structure", structure, STRUCTURES);
    }
    // Nor do files of the first two structures tell their heads, and the earliest not their input.
    let older = structure <= 2;
    match network.input() {
        1 => {}
        0 if older => {}
        other => return unsupported("input format", other, INPUTS),
    }
    if network.default_activation() != 0 {
        return unsupported("activation", network.default_activation(), ACTIVATIONS);
    }
    let policy = match network.policy() {
        _ if older => Policy::Moves,
        1 => Policy::Moves,
        2 => Policy::Planes,
        other => return unsupported("policy format", other, POLICIES),
    };
    let wdl = match network.value() {
        _ if older => false,
        1 => false,
        2 => true,
        other => return unsupported("value format", other, VALUES),
    };
    Ok(Kind { gated: matches!(structure, 2 | 4), policy, wdl })
}
