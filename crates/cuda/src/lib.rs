//! The CUDA backend: graphs built in the driver node by node, and replayed.

mod cache;
mod device;
mod error;
mod loader;
mod memory;
mod module;
mod nvrtc;
mod stream;
mod symbols;

pub use cache::KernelCache;
pub use device::{Device, DeviceError};
pub use error::{DriverError, Version};
pub use loader::{Driver, LoadError, OLDEST_DRIVER, TESTED_DRIVER};
pub use memory::{Memory, MemoryError};
pub use module::{Function, Module, ModuleError};
pub use nvrtc::{Nvrtc, NvrtcError, Program};
pub use stream::{Event, Stream};
