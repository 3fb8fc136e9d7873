//! A Predict request as bytes from the network.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message;
use zeitnot_encoding::{Batch, batch::Values, encodings};
use zeitnot_proto::v1::PredictRequest;
use zeitnot_server::{error::ServiceError, wire};

fuzz_target!(|bytes: &[u8]| {
    let Ok(request) = PredictRequest::decode(bytes) else { return };
    match wire::query(request, 64) {
        Ok(query) => {
            for encoding in encodings::ALL {
                let batch = Batch::of(encoding, [&query.situation]);
                for (_, values) in batch.tensors() {
                    if let Values::Float(values) = values {
                        assert!(values.iter().all(|value| value.is_finite()));
                    }
                }
            }
        }
        Err(error) => {
            assert!(matches!(&error, ServiceError::Invalid(wrong) if !wrong.is_empty()));
            let _ = tonic::Status::from(error);
        }
    }
});
