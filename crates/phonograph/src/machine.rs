//! The runtime's device as this crate sees it, whatever backend it is on.
//!
//! Buffers, slots and graphs of the runtime name no backend, so a trait object is all that tensors and operations need; with
//! an enum, every method would be written once for each backend, and a parameter would be on every operation that there is.
//! One call goes through one table of functions, beside a lock. A backend has to be [`Adopt`], and nothing else.

use std::any::Any;

use crate::graph::Scalar;
use crate::runtime::capture::{CaptureError, LogicalStreamId};
use crate::runtime::pool::Place;
use crate::runtime::streams::{
    Adopt, Adopted, Buffer, Device, DeviceReport, Graph, Operation, Slot, Synced, Waiting,
};

type Done<T = ()> = Result<T, CaptureError>;

/// See the runtime's [`Device`] and [`Stream`](crate::runtime::streams::Stream), whose methods these are; `on` is the logical
/// stream.
pub(crate) trait Machine: Any + Send + Sync {
    fn streams(&self) -> u32;
    fn host_reaches_device(&self) -> bool;
    fn report(&self) -> DeviceReport;
    fn alloc(&self, on: LogicalStreamId, name: &str, bytes: u64, place: Place) -> Done<Buffer>;
    fn write(&self, on: LogicalStreamId, buffer: &Buffer, bytes: &[u8]) -> Done;
    fn read(&self, on: LogicalStreamId, buffer: &Buffer) -> Done<Vec<u8>>;
    fn submit(&self, on: LogicalStreamId, op: &Operation) -> Done;
    fn adopt(&self, on: LogicalStreamId, adopted: &Adopted<'_>) -> Done<Graph>;
    fn launch(&self, on: LogicalStreamId, graph: &Graph, values: &[(Slot, Scalar)]) -> Done;
    fn advance(&self, on: LogicalStreamId) -> bool;
    fn sync(&self, on: LogicalStreamId, waiting: Waiting) -> Done<Synced>;
}

impl<B: Adopt> Machine for Device<B> {
    fn streams(&self) -> u32 {
        self.max_streams()
    }

    fn host_reaches_device(&self) -> bool {
        B::HOST_REACHES_DEVICE
    }

    fn report(&self) -> DeviceReport {
        Device::report(self)
    }

    fn alloc(&self, on: LogicalStreamId, name: &str, bytes: u64, place: Place) -> Done<Buffer> {
        match place {
            Place::Device => self.stream_of(on).alloc(name, bytes),
            Place::Host => self.stream_of(on).alloc_host(name, bytes),
        }
    }

    fn write(&self, on: LogicalStreamId, buffer: &Buffer, bytes: &[u8]) -> Done {
        self.stream_of(on).write(buffer, bytes)
    }

    fn read(&self, on: LogicalStreamId, buffer: &Buffer) -> Done<Vec<u8>> {
        self.stream_of(on).read(buffer)
    }

    fn submit(&self, on: LogicalStreamId, op: &Operation) -> Done {
        self.stream_of(on).submit(op)
    }

    fn adopt(&self, on: LogicalStreamId, adopted: &Adopted<'_>) -> Done<Graph> {
        self.stream_of(on).adopt(adopted)
    }

    fn launch(&self, on: LogicalStreamId, graph: &Graph, values: &[(Slot, Scalar)]) -> Done {
        self.stream_of(on).launch_with(graph, values)
    }

    fn advance(&self, on: LogicalStreamId) -> bool {
        self.stream_of(on).advance()
    }

    fn sync(&self, on: LogicalStreamId, waiting: Waiting) -> Done<Synced> {
        self.stream_of(on).sync_while(waiting)
    }
}
