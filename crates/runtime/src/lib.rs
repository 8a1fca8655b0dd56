//! Backends that replay a scheduled graph, and the lifecycle of captures on a device that many callers share.

pub mod capture;
pub mod cpu;
mod panics;
pub mod pool;
pub mod refused;
pub mod streams;
