//! Compiles the minimal schemas of ONNX files and of Leela Chess Zero's weights.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let schemas = protox::compile(["proto/onnx.proto", "proto/lc0.proto"], ["proto"])?;
    prost_build::Config::new().compile_fds(schemas)?;
    Ok(())
}
