//! Recording streams into a graph.
#![forbid(unsafe_code)]

pub mod session;
