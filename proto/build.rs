//! Compiles the .proto files, without protoc, and keeps their descriptor set for reflection.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=zeitnot");
    let files = [
        "zeitnot/v1/position.proto",
        "zeitnot/v1/prediction.proto",
        "zeitnot/v1/model.proto",
        "zeitnot/v1/rerank.proto",
        "zeitnot/engine/v1/engine.proto",
    ];
    let descriptors = protox::compile(files, ["."])?;
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
