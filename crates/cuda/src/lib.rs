//! The CUDA backend: graphs built in the driver node by node, and replayed.

mod bindings;
mod cache;
mod cuda;
mod device;
mod error;
mod exec;
mod graph;
mod loader;
mod lower;
mod memory;
mod module;
mod nvrtc;
mod stream;
mod symbols;

pub use bindings::{Bindings, InstantiateError};
pub use cache::KernelCache;
pub use cuda::{CompileError, Cuda};
pub use device::{Device, DeviceError};
pub use error::{DriverError, Version};
pub use exec::{Exec, ReplayError, SetNodeError};
pub use loader::{Driver, LoadError, OLDEST_DRIVER, TESTED_DRIVER, find_library};
pub use memory::{Memory, MemoryError};
pub use module::{Function, Module, ModuleError};
pub use nvrtc::{Nvrtc, NvrtcError, Program};
pub use phonograph_runtime::cpu::{NodeFault, NodePath, SetError};
pub use stream::{Event, Stream};
