//! The wgpu backend: graphs replayed on any GPU that Vulkan, Metal or Direct3D 12 reaches.
//!
//! [`Wgpu`] mirrors the CPU backend's device: [`Wgpu::instantiate`] takes a graph, a schedule that its checker passes,
//! and [`Bindings`]; [`Wgpu::replay`] runs the [`Exec`] that comes of it, as the example at [`Wgpu`] shows. Expressions and library kernels become WGSL
//! ([`phonograph_kernels::wgsl`], which says how exact they are); kernels by name are the user's WGSL ([`Shader`]).
//! [`WgpuBackend`] puts one behind a device that many callers share.
//!
//! # A software graph
//!
//! No driver keeps the graph: pipelines, bind groups and launch parameters are resolved when it is instantiated, and a
//! replay encodes one command buffer from that frozen list. It looks nothing up and allocates nothing; what wgpu allocates
//! for a command buffer is wgpu's. There is one queue, and dispatches that touch a buffer that one of them writes run
//! one after another, so streams of a schedule are an order here, not parallelism.
//!
//! # What differs from the CPU backend
//!
//! - f64 and i64 are refused; the types that are there round as the device does.
//! - Host callbacks and external events are refused.
//! - A buffer declared in host memory is a buffer of the device like any other: [`Wgpu::read`] brings its bytes.
//! - There is one device; a graph that names a second one is refused.
//! - A row number out of range does not stop the other nodes; it is reported when the replay has ended.
//! - A conditional is decided on the host: the replay up to there is submitted and waited for, its value read back, and the
//!   rest encoded after that. Each decision costs such a round trip.
#![forbid(unsafe_code)]

mod adapter;
mod backend;
mod bindings;
mod error;
mod exec;
mod gpu;
mod lower;
mod memory;
mod params;
mod pipelines;
mod shader;
mod wait;
mod wgpu_device;

pub use adapter::{Adapter, adapters};
pub use backend::{WgpuBackend, WgpuExec, WgpuOperation, WgpuRecording};
pub use bindings::{Bindings, InstantiateError};
pub use error::{GpuError, MemoryError, OpenError};
pub use exec::{BindError, Exec, ReplayError, Stage};
pub use memory::Memory;
pub use phonograph_runtime::cpu::{NodeFault, SetError};
pub use phonograph_runtime::refused::{NodePath, Refused};
pub use shader::{Shader, ShaderError};
pub use wgpu_device::Wgpu;
