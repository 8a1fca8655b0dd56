//! What a graph is like: levels, critical path, redundant edges, and a summary of them for reports.

mod critical;
mod levels;
mod order;
mod redundant;
mod summary;

pub use critical::{CriticalPath, critical_path};
pub use levels::{Levels, levels};
pub use order::{By, ordered};
pub use redundant::redundant_edges;
pub use summary::{RedundantEdge, Summary, summary};
