//! A device that many threads share: logical streams folded onto pooled ones, memory in pools, captures that hurt nobody.
//!
//! [`Device`] is the front; what it asks of a driver is [`Backend`], with two modes on the CPU: [`SoftwareCpu`], where the
//! runtime keeps the graph while it is recorded, and [`DriverCpu`], where a driver with rules of its own does.

mod backend;
mod cpu;
mod device;
mod op;
mod server;
mod window;

pub use backend::{Backend, BackendError, GraphKind, Placed, PooledStreamId, Step};
pub use cpu::{CpuRecording, DriverCpu, SoftwareCpu};
pub use device::{
    CaptureWindow, Device, DeviceReport, Graph, Retained, Stream, Synced, TrimReport,
};
pub use op::{Buffer, BufferKey, GraphKey, Operation};
