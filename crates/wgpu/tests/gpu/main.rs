//! Graphs on wgpu, compared with the CPU backend. Without an adapter each test says that it was skipped.

mod case;
#[path = "../../../runtime/tests/graphs/every_node.rs"]
mod every_node;
mod failures;
mod limits;
mod memory;
mod nodes;
#[path = "../../../runtime/tests/graphs/operations.rs"]
mod operations;
#[path = "../../../runtime/tests/graphs/samples.rs"]
mod samples;
#[path = "../../../runtime/tests/graphs/case.rs"]
mod shared_case;
mod values;
