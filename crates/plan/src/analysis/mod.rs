//! What a graph is like: levels, critical path, redundant edges, and a summary of them for reports.

pub(crate) mod bytes;
mod critical;
mod flow;
mod levels;
mod order;
mod outlast;
mod redundant;
pub(crate) mod segments;
mod summary;

pub use critical::{CriticalPath, critical_path};
pub use flow::{Conflict, conflicts, raced_buffers};
pub use levels::{Levels, levels};
pub(crate) use order::positions;
pub use order::{By, ordered};
pub use outlast::{Outlasts, Watch, outlasting};
pub use redundant::redundant_edges;
pub use summary::{RedundantEdge, Summary, summary};
