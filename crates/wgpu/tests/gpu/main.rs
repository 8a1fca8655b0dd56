//! Graphs on wgpu, compared with the CPU backend. Without an adapter each test says that it was skipped.

mod case;
mod memory;
mod nodes;
mod values;
