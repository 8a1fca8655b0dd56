//! Lazy operations, futures and captured graphs, on the CPU.

mod audits;
mod caches;
mod capture;
mod combinators;
mod common;
mod failures;
mod futures;
mod lifetimes;
mod modules;
mod scopes;
mod tensors;
