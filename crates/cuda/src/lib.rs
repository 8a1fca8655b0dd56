//! The CUDA backend: graphs built in the driver node by node, and replayed.
//!
//! [`Cuda`] mirrors the CPU backend's device: [`Cuda::instantiate`] takes a graph, a schedule that its checker passes,
//! and [`Bindings`]; [`Cuda::replay`] runs the [`Exec`] that comes of it, as the example at [`Cuda`] shows. Expressions and library kernels become CUDA C
//! ([`phonograph_kernels::cuda`], which says how exact they are), compiled by NVRTC and kept on disk; kernels by name are
//! the user's, from PTX, cubin or CUDA C. Under this lie thin owned handles ([`Device`], [`Stream`], [`Event`], [`Module`],
//! [`Memory`]), each of which gives its raw handle away for other users of the driver.
//!
//! [`CudaBackend`] puts the first device behind the runtime's shared [`Device`](phonograph_runtime::streams::Device): eager
//! work on pooled streams, and windows that are captures of the driver's.
//!
//! # What it needs
//!
//! To build: nothing. To run: a driver for CUDA [`OLDEST_DRIVER`] or newer, and NVRTC for generated kernels. Both are
//! opened at run time ([`Driver`], [`Nvrtc`]); what is missing is a typed error, never a panic. Large matrix products go to
//! cuBLAS where it loads ([`Cublas`]), which [`Exec::products`] reports. The bindings of `cudarc` are used, for one CUDA
//! version and one way of loading, which the features of this crate only forward.
//!
//! # What differs from the CPU backend
//!
//! - Buffers in pageable host memory are refused; host functions get page-locked buffers only, and no pointer slots.
//! - Allocation nodes really allocate, on the device, in the outermost graph.
//! - An event that was never recorded does not hold up who waits for it, as the driver has it.
//! - A node that fails (a row number out of range, a host function's error) does not stop the others.
//! - A body of a conditional cannot hold host calls, events or allocations.
//! - Launches that touch the same memory follow one another; others may overlap on different streams.
//! - A driver that is newer than the bindings may answer with an error code that they do not know.

mod adopted;
mod backend;
mod bindings;
mod block;
mod cache;
mod captures;
mod cublas;
mod cuda;
mod device;
mod error;
mod exec;
mod foreign;
mod front;
mod graph;
mod host_call;
mod launch;
mod loader;
mod lower;
mod made;
mod memory;
mod module;
mod nvrtc;
mod order;
mod pool;
mod profile;
pub mod record;
mod slots;
mod spares;
mod spin;
mod stream;
mod stream_capture;
#[cfg(test)]
mod stub;
mod symbols;
mod transfer;

pub use adopted::{AdoptError, Identity, StaleMemory};
pub use backend::{CudaBackend, CudaExec, CudaOperation, CudaRecording, RawGraph};
pub use bindings::{Bindings, InstantiateError};
pub use cublas::{Cublas, CublasError};
pub use cuda::{CompileError, Cuda};
/// The bindings that raw handles are of.
pub use cudarc;
pub use device::{Device, DeviceError};
pub use error::{DriverError, Version};
pub use exec::{Exec, ReplayError, SetNodeError};
pub use foreign::{
    Arranged, Arrangement, Block, CaptureError, CaptureMode, Captured, Diagnosis, Diversion,
    EditError, Edited, Ends, ForeignExec, ImportError, Imported, Last, LaunchError, Parameter,
    ReadOnly, Saved, Unjoined, Watch, WatchError,
};
pub use loader::{Driver, Feature, LoadError, OLDEST_DRIVER, TESTED_DRIVER, find_library};
pub use lower::ProductBy;
pub use memory::{Memory, MemoryError, StillUsed};
pub use module::{Function, Module, ModuleError};
pub use nvrtc::{Nvrtc, NvrtcError, Program};
pub use phonograph_runtime::cpu::{NodeFault, NodePath, SetError};
pub use phonograph_runtime::refused::Refused;
pub use pool::{Pool, PoolError};
pub use profile::{Method, Profile, ProfileError, Profiler};
pub use spin::Spin;
pub use stream::{Event, Stream};
