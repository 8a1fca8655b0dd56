//! Record GPU work once, replay it many times.
//!
//! Phonograph captures, checks, plans and replays task graphs. This crate is what programs use; it gathers the
//! parts, which can also be used alone:
//!
//! - [`graph`]: the representation, [`GraphBuilder`](graph::GraphBuilder), JSON and DOT, schedules and their checker;
//! - [`capture`]: recording streams into a graph, and the model of the driver's stream capture;
//! - [`trace`]: driver calls as data;
//! - [`plan`]: analyses and planners;
//! - [`kernels`]: operations composed of several nodes (softmax, losses, optimisers);
//! - [`runtime`]: backends; [`runtime::cpu`] replays with real data on the CPU;
//! - `cuda`, with the feature of that name: the CUDA backend, which builds graphs in the driver;
//! - `wgpu`, with the feature of that name: the wgpu backend, software graphs on any GPU;
//! - [`report`]: pictures, timelines and pages.
#![forbid(unsafe_code)]

pub use phonograph_capture as capture;
#[cfg(feature = "cuda")]
pub use phonograph_cuda as cuda;
pub use phonograph_graph as graph;
pub use phonograph_kernels as kernels;
pub use phonograph_plan as plan;
pub use phonograph_report as report;
pub use phonograph_runtime as runtime;
pub use phonograph_trace as trace;
#[cfg(feature = "wgpu")]
pub use phonograph_wgpu as wgpu;

#[cfg(feature = "cuda")]
pub mod recover;

/// The example of the README, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
