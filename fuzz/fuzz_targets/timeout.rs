//! The `grpc-timeout` header.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use zeitnot_server::deadline;

fuzz_target!(|text: &[u8]| {
    if let Ok(text) = std::str::from_utf8(text) {
        let _ = deadline::parse(text);
    }
    if let Ok(value) = AsciiMetadataValue::try_from(text) {
        let mut metadata = MetadataMap::new();
        metadata.insert("grpc-timeout", value);
        let _ = deadline::of(&metadata, Duration::from_secs(10));
    }
});
