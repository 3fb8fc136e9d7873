//! Compiles the minimal ONNX schema.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/onnx.proto");
    prost_build::Config::new().compile_fds(protox::compile(["proto/onnx.proto"], ["proto"])?)?;
    Ok(())
}
