//! Recording streams into a graph.

pub mod check;
pub mod conformance;
mod deps;
pub mod model;
pub mod update;

pub use deps::DependencySet;
