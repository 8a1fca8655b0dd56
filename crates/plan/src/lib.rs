//! Analyses and planners over GPU task graphs: which stream runs what, which events order streams, where buffers lie, what can be
//! fused or left out, and how long all of it would take.
//!
//! ```
//! use phonograph_plan::{ExecutionPlan, generate};
//!
//! let graph = generate::generate(generate::Kind::Transformer, 200, 1)?;
//! let plan = ExecutionPlan::build(&graph, 4)?; // at most four streams
//! let schedule = plan.schedule().expect("a plan of a graph has one");
//! assert_eq!(phonograph_graph::check(&graph, schedule), []); // proved, not believed
//!
//! let own: u64 = graph.buffers().iter().map(|buffer| buffer.bytes).sum();
//! assert!(schedule.pool_bytes() < own); // buffers that are never in use at once share memory
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`streams`] and [`memory`] have the planners and their options, [`passes`] the rewritings, [`analysis`] and [`simulate`] the
//! figures. Backends take the graph and its schedule: `phonograph_runtime::cpu`, `phonograph_cuda`, `phonograph_wgpu`.
#![forbid(unsafe_code)]

pub mod analysis;
pub mod cost;
mod error;
pub mod fusion;
pub mod generate;
pub mod lanes;
mod lower;
pub mod matching;
pub mod memory;
pub mod passes;
mod plan;
mod precedence;
pub mod random;
pub mod recover;
pub mod simulate;
mod step;
pub mod streams;

pub use error::PlanError;
pub use lower::{MAX_DISSOLVED, lower};
pub use plan::ExecutionPlan;
pub use step::PlanStep;
