//! A Predict request as bytes from the network.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message;
use zeitnot_encoding::OtterBatch;
use zeitnot_proto::v1::PredictRequest;
use zeitnot_server::{error::ServiceError, wire};

fuzz_target!(|bytes: &[u8]| {
    let Ok(request) = PredictRequest::decode(bytes) else { return };
    match wire::query(request, 64) {
        Ok(query) => {
            let mut batch = OtterBatch::with_capacity(1);
            batch.push(&query.situation);
            assert!(batch.board.iter().chain(&batch.clock).all(|value| value.is_finite()));
        }
        Err(error) => {
            assert!(matches!(&error, ServiceError::Invalid(wrong) if !wrong.is_empty()));
            let _ = tonic::Status::from(error);
        }
    }
});
