//! Analyses and planners over GPU task graphs.
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
