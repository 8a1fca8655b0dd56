//! Analyses and planners over GPU task graphs.
#![forbid(unsafe_code)]

pub mod analysis;
pub mod lanes;
