//! What the tests of a shared device have in common: both modes of the CPU behind a trace, and small operations.

use std::sync::Arc;

use phonograph_graph::{
    Access, Arg, BufferId, DType, Expr, HostNode, KernelConfig, KernelNode, KernelRef, NodeKind,
    View,
};
use phonograph_runtime::capture::LogicalStreamId;
use phonograph_runtime::cpu::Cpu;
use phonograph_runtime::cpu::kernels::{KernelError, Registry};
use phonograph_runtime::streams::{
    Backend, Buffer, Device, DriverCpu, Operation, SoftwareCpu, Stream,
};

pub use crate::traced::{Shared, Traced};

pub const STREAMS: u32 = 4;
pub const LEN: u64 = 4;

pub fn id(value: u64) -> LogicalStreamId {
    LogicalStreamId { value }
}

fn registry() -> Registry {
    let mut registry = Registry::new();
    registry.host("fail", &[], |_| Err(KernelError::Failed("as asked".into())));
    registry
}

pub fn software() -> (Device<Traced<SoftwareCpu>>, Shared) {
    let (backend, trace) = Traced::new(SoftwareCpu::new(Cpu::new(1).unwrap(), registry()));
    (Device::new(backend, STREAMS).unwrap(), trace)
}

pub fn driver() -> (Device<Traced<DriverCpu>>, Shared) {
    let (backend, trace) = Traced::new(DriverCpu::new(Cpu::new(1).unwrap(), registry()));
    (Device::new(backend, STREAMS).unwrap(), trace)
}

/// A test in both modes: `fn name<B: Backend>(device: Device<B>, trace: Shared)`.
macro_rules! in_both_modes {
    ($($name:ident),* $(,)?) => {
        mod software {
            $(#[test] fn $name() { let (device, trace) = $crate::common::software(); super::$name(device, trace) })*
        }
        mod driver {
            $(#[test] fn $name() { let (device, trace) = $crate::common::driver(); super::$name(device, trace) })*
        }
    };
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

/// Fails whenever it runs; says that it reads and writes `buffer`.
pub fn failing(name: &str, buffer: &Buffer) -> Operation {
    let whole = phonograph_graph::Region { buffer: BufferId(0), offset: 0, bytes: buffer.bytes() };
    let effects = [(whole, Access::ReadWrite)].into_iter().collect();
    let host = HostNode { function: "fail".into(), effects };
    Operation::new(name, NodeKind::Host(Box::new(host)), std::slice::from_ref(buffer)).unwrap()
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
