//! Calls of the host: each runs at once, and is recorded. Left out where the device cannot make them.

use std::sync::atomic::Ordering;

use phonograph_graph::{
    Access, BufferId, Extent, HostNode, MemcpyDir, MemcpyNode, NodeKind, Pitched, Region, Target,
};
use phonograph_runtime::pool::Place;
use phonograph_runtime::streams::{Backend, Buffer, Device, Operation, Stream};

use crate::modes::in_every_mode;
use crate::traced::Shared;
use crate::work::{LEN, OWNER, bytes, capture, filled, id, plus, tick, value};

in_every_mode!(
    a_host_function_is_called_once_in_each_replay,
    a_host_function_works_on_host_memory_between_copies,
);

fn a_host_function_is_called_once_in_each_replay<B: Backend>(device: Device<B>, trace: Shared) {
    let stream = device.stream_of(id(OWNER));
    let x = filled(&stream, "x", 1.0);
    let op = tick("tick");
    let graph = capture(&stream, |s| {
        s.submit(&plus("x", &x, &x, 1.0))?;
        s.submit(&op)
    })
    .unwrap();
    let ticks = || trace.lock().unwrap().ticks.load(Ordering::Relaxed);
    assert_eq!(ticks(), 1, "the warm-up");
    for launches in 1..=3 {
        stream.launch(&graph).unwrap();
        stream.sync().map(|synced| assert!(synced.is_done())).unwrap();
        assert_eq!(ticks(), 1 + launches);
    }
}

fn a_host_function_works_on_host_memory_between_copies<B: Backend>(device: Device<B>, _: Shared) {
    let stream = device.stream_of(id(OWNER));
    let [x, y] = ["x", "y"].map(|name| filled(&stream, name, 3.0));
    let copy = |dir, from: &Buffer, to: &Buffer| {
        let end = |buffer| Pitched::linear(Target::Buffer(BufferId(buffer)), 0);
        let extent = Extent::linear(4 * LEN);
        let copy = MemcpyNode { dir, src: end(0), dst: end(1), extent };
        let kind = NodeKind::Memcpy(Box::new(copy));
        Operation::new("copy", kind, &[from.clone(), to.clone()]).unwrap()
    };
    let body = |s: &Stream<B>| {
        let staged = s.alloc_host("staged", 4 * LEN)?;
        assert_eq!(staged.place(), Place::Host);
        let whole = Region { buffer: BufferId(0), offset: 0, bytes: 4 * LEN };
        let effects = [(whole, Access::ReadWrite)].into_iter().collect();
        let host = NodeKind::Host(Box::new(HostNode { function: "negate".into(), effects }));
        s.submit(&copy(MemcpyDir::DeviceToHost, &x, &staged))?;
        s.submit(&Operation::new("negate", host, std::slice::from_ref(&staged))?)?;
        s.submit(&copy(MemcpyDir::HostToDevice, &staged, &y))
    };
    let graph = capture(&stream, body).unwrap();
    assert_eq!(value(&stream, &y), -3.0);
    for new in [5.0, -7.0] {
        stream.write(&x, &bytes(new)).unwrap();
        stream.launch(&graph).unwrap();
        assert_eq!(value(&stream, &y), -new);
    }
    // Read and written from outside as any other.
    let staged = stream.alloc_host("staged", 4 * LEN).unwrap();
    stream.write(&staged, &bytes(8.0)).unwrap();
    assert_eq!(value(&stream, &staged), 8.0);
}
