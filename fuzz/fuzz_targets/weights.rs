//! Published weights, a safetensors file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use zeitnot_network::Weights;

fuzz_target!(|bytes: &[u8]| {
    let _ = Weights::parse(bytes);
});
