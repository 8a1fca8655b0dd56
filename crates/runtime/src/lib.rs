//! Backends that replay a scheduled graph.

pub mod cpu;
