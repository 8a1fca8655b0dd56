//! Analyses and planners over GPU task graphs.

pub mod lanes;
