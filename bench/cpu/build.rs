//! Builds the C++ side. `run` in this folder fetches what it needs and says where it lies.

use std::path::PathBuf;

fn folder(variable: &str) -> PathBuf {
    println!("cargo::rerun-if-env-changed={variable}");
    match std::env::var_os(variable) {
        Some(folder) => folder.into(),
        None => panic!("{variable} is not set: bench/cpu/run fetches the peers and sets it"),
    }
}

fn main() {
    let taskflow = folder("PHONOGRAPH_TASKFLOW");
    let tbb = folder("PHONOGRAPH_TBB");
    println!("cargo::rerun-if-changed=src/peers.cpp");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(3)
        .define("NDEBUG", None)
        .flag("-isystem")
        .flag(taskflow)
        .flag("-isystem")
        .flag(tbb.join("include"))
        .file("src/peers.cpp")
        .compile("peers");
    let libraries = tbb.join("lib");
    println!("cargo::rustc-link-search=native={}", libraries.display());
    println!("cargo::rustc-link-lib=dylib=tbb");
    println!("cargo::rustc-link-arg=-Wl,-rpath,{}", libraries.display());
}
