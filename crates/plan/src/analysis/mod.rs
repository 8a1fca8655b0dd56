//! What a graph is made of: levels, critical path, width, redundant edges. Analyses look and change nothing.

mod levels;
mod reduction;
mod summary;

pub use levels::{CriticalPath, Levels, critical_path};
pub use reduction::redundant_edges;
pub use summary::{GraphSummary, Summary};
