//! What a graph is like: levels, timing, critical path, dominators, order, width, lifetimes, redundant edges, and a summary of
//! them for reports.
//!
//! A topological order comes with every graph
//! ([`ComputeGraph::topological_order`](phonograph_graph::ComputeGraph::topological_order)).
//! Everything here is near-linear in nodes and edges unless it takes a budget, and then it says what it left out.

pub(crate) mod bytes;
mod critical;
mod dominators;
mod flow;
mod index;
mod levels;
mod lifetimes;
mod order;
mod outlast;
mod redundant;
pub(crate) mod segments;
mod summary;
mod timing;
mod width;

pub use critical::{CriticalPath, critical_path};
pub use dominators::{Dominators, dominators, post_dominators};
pub use flow::{Conflict, conflicts, raced_buffers};
pub use index::{Budget, BudgetExceeded, ReachIndex};
pub use levels::{Levels, levels};
pub use lifetimes::{Lifetime, lifetimes};
pub(crate) use order::positions;
pub use order::{By, ordered};
pub use outlast::{Outlasts, Watch, outlasting};
pub use redundant::redundant_edges;
pub use summary::{RedundantEdge, Summary, summary};
pub use timing::{Timing, timing};
pub use width::{Width, width};
