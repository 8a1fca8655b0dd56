//! A device that many threads share: logical streams folded onto pooled ones, memory in pools, captures that hurt nobody.
//!
//! [`Device`] is the front; what it asks of a driver is [`Backend`], with two modes on the CPU: [`SoftwareCpu`], where the
//! runtime keeps the graph while it is recorded, and [`DriverCpu`], where a driver with rules of its own does.
//!
//! In: [`Operation`]s on [`Buffer`]s, submitted to logical streams. They run at once, in an order in which no two conflict, or
//! become nodes of a [`Graph`], on branches of their own if the window has several streams ([`Stream::prepare_with`]), with
//! scalars left open for each replay ([`Slot`]). Submitting one that has been submitted before costs its buffers.
//!
//! ```
//! use phonograph_graph::{BufferId, Extent, MemcpyDir, MemcpyNode, NodeKind, Pitched, Target};
//! use phonograph_runtime::cpu::{Cpu, kernels::Registry};
//! use phonograph_runtime::streams::{Device, Operation, SoftwareCpu};
//!
//! let device = Device::new(SoftwareCpu::new(Cpu::new(1)?, Registry::new()), 4)?;
//! let stream = device.stream(); // the calling thread's own
//! let (from, to) = (stream.alloc("from", 4)?, stream.alloc("to", 4)?);
//! stream.write(&from, b"warm")?;
//! let end = |buffer| Pitched::linear(Target::Buffer(BufferId(buffer)), 0);
//! let dir = MemcpyDir::DeviceToDevice;
//! let copy = MemcpyNode { dir, src: end(0), dst: end(1), extent: Extent::linear(4) };
//! let copy = Operation::new("copy", NodeKind::Memcpy(Box::new(copy)), &[from.clone(), to.clone()])?;
//!
//! let window = stream.prepare()?;
//! stream.submit(&copy)?; // warm-up: runs
//! window.begin()?;
//! stream.submit(&copy)?; // recorded
//! let graph = window.end("copy four bytes")?;
//!
//! stream.write(&from, b"live")?;
//! assert_eq!(stream.read(&to)?, b"warm");
//! stream.launch(&graph)?;
//! assert_eq!(stream.read(&to)?, b"live");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod adopt;
mod backend;
mod caught;
mod cpu;
mod device;
mod handle;
mod launches;
mod op;
mod order;
mod prepared;
mod queue;
mod raw;
mod recorded;
mod report;
mod server;
mod sharing;
mod taint;
mod template;
mod window;

pub use adopt::{Adopt, Adopted, BoundPage};
pub use backend::{
    Backend, BackendError, Failed, GraphKind, Issued, Operand, Placed, PooledStreamId, Step,
    Ticket, Wait, Waiting,
};
pub use cpu::{CpuExec, CpuOperation, CpuRecording, DriverCpu, SharedCpu, SoftwareCpu};
pub use device::{CaptureWindow, Device, Graph, GraphGroup, MAX_STREAMS, Stream, Synced};
pub use handle::{Buffer, BufferKey, GraphKey, Slot, SlotKey};
pub use op::{Operation, external, remap};
pub use recorded::recorded_schedule;
pub use report::{DeviceReport, Retained, RetainedBuffer, TrimReport};
pub use template::TemplateKey;
