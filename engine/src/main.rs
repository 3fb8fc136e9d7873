//! The engine sidecar.
fn main() {}
