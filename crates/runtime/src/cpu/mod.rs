//! The CPU backend: host memory, Rust kernels, worker threads.

pub mod kernels;
