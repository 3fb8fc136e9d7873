//! Writes libtorch's folder into the binary, so that it runs without `LD_LIBRARY_PATH`.

fn main() {
    if let Ok(folder) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
