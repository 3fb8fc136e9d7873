//! A weights file of Leela Chess Zero, after decompression.
#![no_main]

use libfuzzer_sys::fuzz_target;
use zeitnot_network::lc0::reader;

fuzz_target!(|bytes: &[u8]| {
    let _ = reader::decode(bytes); // Refused or read, never a panic.
});
