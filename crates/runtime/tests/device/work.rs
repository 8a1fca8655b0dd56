//! Small operations on a shared device, and the windows that tests begin with.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use phonograph_graph::{
    Access, Arg, BufferId, DType, Expr, HostNode, KernelConfig, KernelNode, KernelRef,
    LibraryKernel, NodeKind, View,
};
use phonograph_runtime::capture::{CaptureError, LogicalStreamId};
use phonograph_runtime::cpu::kernels::{Param, Registry};
use phonograph_runtime::streams::{Backend, Buffer, Device, Graph, Operation, Stream};

use crate::traced::Shared;

pub const STREAMS: u32 = 4;
pub const LEN: u64 = 4;

/// Served by pooled stream 1; so are 5 and 9.
pub const OWNER: u64 = 1;
/// On the owner's slot.
pub const NEIGHBOUR: u64 = 5;

pub fn id(value: u64) -> LogicalStreamId {
    LogicalStreamId { value }
}

/// `to = from + by`, elementwise; `to` may be `from`.
pub fn plus(name: &str, from: &Buffer, to: &Buffer, by: f32) -> Operation {
    let one = from.key() == to.key();
    let view = |at| View::contiguous(BufferId(at), DType::F32, &[LEN]).unwrap();
    let kernel = KernelNode {
        kernel: KernelRef::Elementwise(Arc::new(
            Expr::build(|e| e.output(e.input(DType::F32) + e.f32(by))).unwrap(),
        )),
        config: KernelConfig::linear(1, 1, 0),
        args: [Arg::View(view(0), Access::Read), Arg::View(view(u32::from(!one)), Access::Write)]
            .into(),
        fusible: true,
    };
    let buffers = if one { vec![from.clone()] } else { vec![from.clone(), to.clone()] };
    Operation::new(name, NodeKind::Kernel(kernel), &buffers).unwrap()
}

/// Writes all of `buffer` and fails whenever it runs: it looks up a row that the table does not have.
pub fn failing<B: Backend>(stream: &Stream<B>, name: &str, buffer: &Buffer) -> Operation {
    let (table, rows) = (filled(stream, "table", 0.0), stream.alloc("rows", 4).unwrap());
    stream.write(&rows, &99i32.to_le_bytes()).unwrap();
    let view = |at, dtype, shape: &[u64]| View::contiguous(BufferId(at), dtype, shape).unwrap();
    let kernel = KernelNode {
        kernel: KernelRef::Library(LibraryKernel::Gather),
        config: KernelConfig::linear(1, 1, 0),
        args: [
            Arg::View(view(0, DType::F32, &[1, LEN]), Access::Read),
            Arg::View(view(1, DType::I32, &[1]), Access::Read),
            Arg::View(view(2, DType::F32, &[1, LEN]), Access::Write),
        ]
        .into(),
        fusible: false,
    };
    Operation::new(name, NodeKind::Kernel(kernel), &[table, rows, buffer.clone()]).unwrap()
}

/// Counts its runs in the trace's `ticks`. Touches nothing.
pub fn tick(name: &str) -> Operation {
    let host = HostNode { function: "tick".into(), effects: Default::default() };
    Operation::new(name, NodeKind::Host(Box::new(host)), &[]).unwrap()
}

/// The host functions of the tests.
pub fn registry(trace: &Shared) -> Registry {
    let ticks = trace.lock().unwrap().ticks.clone();
    let mut registry = Registry::new();
    registry.host("tick", &[], move |_| {
        ticks.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    registry.host("negate", &[Param::ReadWrite(DType::F32)], |block| {
        block.write::<f32>(0)?.iter_mut().for_each(|value| *value = -*value);
        Ok(())
    });
    registry
}

pub fn bytes(value: f32) -> Vec<u8> {
    [value; LEN as usize].map(f32::to_le_bytes).as_flattened().to_vec()
}

/// A buffer that holds `value`, the size that operations here take.
pub fn filled<B: Backend>(stream: &Stream<B>, name: &str, value: f32) -> Buffer {
    let buffer = stream.alloc(name, 4 * LEN).unwrap();
    stream.write(&buffer, &bytes(value)).unwrap();
    buffer
}

/// The value that all elements have.
#[track_caller]
pub fn value<B: Backend>(stream: &Stream<B>, buffer: &Buffer) -> f32 {
    let bytes = stream.read(buffer).unwrap();
    let values: Vec<f32> =
        bytes.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect();
    assert!(values.iter().all(|v| *v == values[0]), "{values:?}");
    values[0]
}

/// Captures `body` after running it once as a warm-up.
pub fn capture<B: Backend>(
    stream: &Stream<B>,
    body: impl Fn(&Stream<B>) -> Result<(), CaptureError>,
) -> Result<Graph, CaptureError> {
    let window = stream.prepare()?;
    body(stream)?;
    window.begin()?;
    body(stream)?;
    window.end("graph")
}

/// A window that records, with `x = 1`, `y = x + 1` in it.
pub fn recording<B: Backend>(device: &Device<B>) -> (Stream<B>, Buffer, Buffer) {
    let owner = device.stream_of(id(OWNER));
    let (x, y) = (filled(&owner, "x", 1.0), filled(&owner, "y", 0.0));
    let window = owner.prepare().unwrap();
    owner.submit(&plus("warm", &x, &y, 1.0)).unwrap();
    window.begin().unwrap();
    owner.submit(&plus("step", &x, &y, 1.0)).unwrap();
    std::mem::forget(window); // the tests say how it ends
    (owner, x, y)
}
