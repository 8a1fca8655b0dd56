//! Record GPU work once, replay it many times.
//!
//! Operations are written down lazily ([`DeviceOp`]); `.sync()` and `.await` execute them, [`CapturedGraph`] captures them
//! for replays that cost one call. What was captured is a graph as plain data, which is checked, planned and drawn.
//!
//! The [`tutorial`] begins here: three pages from the first operation to graphs for many shapes. Everything runs on the CPU;
//! the features `cuda` and `wgpu` bring GPUs, where `Device::cuda` and `Device::wgpu` take the place of [`Device::cpu`].
//!
//! ```
//! use phonograph::prelude::*;
//!
//! kernel! {
//!     /// y ← y + gain x²
//!     fn add_square(gain: slot f32, x: &[f32], y: &mut [f32]) |_e| { y = y + gain * x * x; }
//! }
//!
//! let device = Device::cpu(2)?;
//! let stream = device.stream(0);
//! let mut x = api::ones::<f32>([1024]).sync_on(&stream)?;
//! let mut y = api::zeros::<f32>([1024]).sync_on(&stream)?;
//!
//! let gain = Slot::new("gain", 1.0f32);
//! let graph = CapturedGraph::scope(&stream, |s| {
//!     s.record(add_square(&gain, &x, &mut y)).map(drop)
//! })?;
//!
//! graph.launch().with(&gain, 10.0).sync_on(&stream)?;
//! graph.update(api::store(vec![3.0; 1024], &mut x))?; // what the next launch finds
//! graph.launch().with(&gain, 2.0).sync_on(&stream)?;
//! assert_eq!(y.to_vec()?, [10.0 + 18.0; 1024]);
//! # Ok::<(), Error>(())
//! ```
//!
//! What this is built on can also be used alone:
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

pub use phonograph_capture as capture;
#[cfg(feature = "cuda-api")]
pub use phonograph_cuda as cuda;
pub use phonograph_graph as graph;
pub use phonograph_kernels as kernels;
pub use phonograph_plan as plan;
pub use phonograph_report as report;
pub use phonograph_runtime as runtime;
pub use phonograph_trace as trace;
#[cfg(feature = "wgpu")]
pub use phonograph_wgpu as wgpu;

#[cfg(feature = "cuda-api")]
pub mod interop;
#[cfg(feature = "cuda-api")]
pub mod recover;

pub mod api;
pub mod audit;
pub mod cache;
mod captured;
mod completion;
mod compose;
mod conditional;
mod context;
mod device;
mod eager;
mod error;
mod future;
mod host;
mod issue;
#[doc(hidden)]
pub mod kernel;
mod launch;
mod lock;
mod machine;
mod module;
pub mod op;
mod operand;
mod policy;
pub mod prelude;
mod recorder;
mod scope;
mod slot;
mod tensor;
pub mod tutorial;

pub use captured::CapturedGraph;
pub use compose::{Compose, compose};
pub use conditional::{Conditional, repeat_while, when};
pub use context::ExecutionContext;
pub use device::{Device, Stream};
pub use error::{Error, Result};
pub use future::DeviceFuture;
pub use host::{HOST_ARGS, Host, HostArgs, host};
pub use issue::Issue;
pub use launch::GraphLaunch;
pub use module::{Backward, Module, Parameter, Parameterized};
pub use op::{DeviceOp, GraphNode};
pub use operand::{Operand, OperandMut, Operands};
pub use policy::{Entered, Policy};
pub use recorder::OpRecorder;
pub use runtime::capture::CaptureStatus;
pub use runtime::cpu::kernels::Element;
pub use scope::Scope;
pub use slot::{IntoSlot, ScalarArg, Slot};
pub use tensor::{Tensor, TensorView, TensorViewMut, Window};

/// The example of the README, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
