//! Capturing streams into a graph: [`session`], idealised, and [`model`], which answers as the CUDA driver does and
//! says why. [`check`], [`conformance`] and [`update`] are built on the model.
#![forbid(unsafe_code)]

pub mod check;
pub mod conformance;
mod deps;
pub mod model;
pub mod session;
pub mod update;

pub use deps::DependencySet;
