//! From eager to captured to cached, in three pages.
//!
//! 1. [`eager`]: operations, tensors, kernels; executing and awaiting them.
//! 2. [`captured`]: the same calls as a graph; what is baked, what stays open, what the compiler refuses.
//! 3. [`cached`]: graphs for inputs of many shapes, and how to notice that one has gone stale.
//!
//! The running example is a small filter: it smooths a signal and keeps how much that has changed.

#[doc = include_str!("eager.md")]
pub mod eager {}

#[doc = include_str!("captured.md")]
pub mod captured {}

#[doc = include_str!("cached.md")]
pub mod cached {}
