//! Several devices: a context each, copies and kernels that reach from one to another, and what is refused.

use phonograph_cuda::{
    AdoptError, Bindings, CaptureMode, Cuda, Device, DeviceError, Driver, InstantiateError,
    Refused, SetError, Stream,
};
use phonograph_graph::{
    Buffer, BufferId, BufferRole, Condition, ConditionalKind, DType, Extent, GraphBuilder,
    MemcpyDir, MemsetNode, NodeKind, Pitched, Region, Schedule, Space, Target, View,
};

use crate::case::{Case, add_one, check, expect, turn, view};

/// The first two devices, or the reason why there are none in the output.
fn two() -> Option<Cuda> {
    turn();
    let count = match Driver::load() {
        Ok(driver) => driver.devices(),
        Err(error) => {
            eprintln!("skipped: {error}");
            return None;
        }
    };
    if count < 2 {
        eprintln!("skipped: this machine has {count} device");
        return None;
    }
    match Cuda::on(&[0, 1]) {
        Ok(cuda) => Some(cuda),
        Err(error @ DeviceError::Lacks { .. }) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A buffer of f32 on a device.
fn declare(
    b: &mut GraphBuilder,
    name: &str,
    device: u32,
    elements: u64,
    role: BufferRole,
) -> BufferId {
    let (bytes, space) = (4 * elements, Space::Device(device));
    b.declare(Buffer { name: name.into(), bytes, align: 256, role, space })
}

fn all(b: &GraphBuilder, buffer: BufferId) -> Region {
    Region { buffer, offset: 0, bytes: b.buffer(buffer).bytes }
}

#[test]
fn two_devices_work_on_one_graph() {
    let Some(mut cuda) = two() else { return };
    let mut b = GraphBuilder::new();
    let x = declare(&mut b, "x", 0, 1000, BufferRole::External);
    let far = declare(&mut b, "far", 1, 1000, BufferRole::Internal);
    let kept = declare(&mut b, "kept", 1, 1000, BufferRole::External);
    let [xv, fv, kv] = [x, far, kept].map(|buffer| view(buffer, &[1000]));
    let (whole, there) = (all(&b, x), all(&b, far));
    let first = b.add_region_copy("there", whole, there);
    b.add_elementwise("plus", add_one(), &[fv], &[], &[fv]);
    b.add_elementwise("read a peer", add_one(), &[xv], &[], &[kv]);
    let dst = Pitched::linear(Target::Buffer(kept), 100);
    let (value, element_size, extent) = (7, 1, Extent::linear(64));
    b.add_fill("fill", MemsetNode { dst, value, element_size, extent });
    b.add_region_copy("back", there, whole);
    let graph = b.build().unwrap();
    let NodeKind::Memcpy(copy) = &graph.node(first).kind else { panic!("a copy") };
    assert_eq!(copy.dir, MemcpyDir::PeerToPeer { src_device: 0, dst_device: 1 });
    check(&mut cuda, &Case::new(graph));
}

#[test]
fn rows_and_bound_memory_move_between_devices() {
    let Some(mut cuda) = two() else { return };
    let mut b = GraphBuilder::new();
    let x = declare(&mut b, "x", 0, 64, BufferRole::External);
    let y = declare(&mut b, "y", 1, 64, BufferRole::External);
    let end = |buffer, offset, pitch| {
        let target = Target::Buffer(buffer);
        Pitched { target, offset, pitch, slice_rows: 0 }
    };
    let extent = Extent { width: 12, height: 3, depth: 1 };
    let dir = MemcpyDir::PeerToPeer { src_device: 0, dst_device: 1 };
    let (src, dst) = (end(x, 4, 16), end(y, 8, 24));
    b.add_copy("rows", phonograph_graph::MemcpyNode { dir, src, dst, extent });
    check(&mut cuda, &Case::new(b.build().unwrap()));

    // A slot on the other device, bound anew between replays.
    let mut b = GraphBuilder::new();
    let x = declare(&mut b, "x", 0, 64, BufferRole::External);
    let role = BufferRole::Slot(phonograph_graph::Access::Write);
    let out = declare(&mut b, "out", 1, 64, role);
    let (from, to) = (all(&b, x), all(&b, out));
    b.add_region_copy("out", from, to);
    let graph = b.build().unwrap();
    let mut exec =
        cuda.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new()).unwrap();
    let x = exec.memory(x).unwrap().clone();
    for round in 0..3u32 {
        let memory = cuda.alloc_on(1, 256).unwrap();
        cuda.write(&x, &[round; 64]).unwrap();
        exec.bind(out, &memory).unwrap();
        cuda.replay(&mut exec).unwrap();
        assert_eq!(cuda.read::<u32>(&memory).unwrap(), [round; 64]);
    }
    let elsewhere = cuda.alloc_on(0, 256).unwrap();
    assert_eq!(exec.bind(out, &elsewhere), Err(SetError::OtherDevice));
}

#[test]
fn each_device_has_a_context_and_streams_of_its_own() {
    let Some(cuda) = two() else { return };
    let [first, second] = [&cuda.devices()[0], &cuda.devices()[1]];
    assert_eq!((first.ordinal(), second.ordinal()), (0, 1));
    assert_ne!(first.context(), second.context());
    let current = || {
        let mut context = std::ptr::null_mut();
        // SAFETY: the driver is loaded.
        expect(unsafe { cudarc::driver::sys::cuCtxGetCurrent(&mut context) });
        context
    };
    let before = current();
    for (place, device) in cuda.devices().iter().enumerate() {
        let memory = cuda.alloc_on(place as u32, 64).unwrap();
        assert!(memory.device().is(device));
        let stream = Stream::new(device).unwrap();
        assert!(stream.device().is(device));
        stream.synchronize().unwrap();
        device.synchronize().unwrap();
        assert_eq!(current(), before, "what was current is put back");
    }
    assert!(cuda.alloc_on(2, 64).is_err());
}

#[test]
fn a_graph_runs_on_the_second_device_alone_and_on_both_in_the_other_order() {
    if two().is_none() {
        return;
    }
    for ordinals in [&[1][..], &[1, 0]] {
        let mut cuda = Cuda::on(ordinals).unwrap();
        assert_eq!(cuda.devices()[0].ordinal(), 1);
        let mut b = GraphBuilder::new();
        let last = ordinals.len() as u32 - 1;
        let x = declare(&mut b, "x", 0, 100, BufferRole::External);
        let y = declare(&mut b, "y", last, 100, BufferRole::External);
        b.add_elementwise("plus", add_one(), &[view(x, &[100])], &[], &[view(y, &[100])]);
        check(&mut cuda, &Case::new(b.build().unwrap()));
    }
}

#[test]
fn what_is_on_another_device_than_declared_is_refused() {
    let Some(mut cuda) = two() else { return };
    let mut b = GraphBuilder::new();
    let x = declare(&mut b, "x", 0, 16, BufferRole::External);
    b.add_elementwise("plus", add_one(), &[view(x, &[16])], &[], &[view(x, &[16])]);
    let graph = b.build().unwrap();
    let schedule = Schedule::sequential(&graph);
    let far = cuda.alloc_on(1, 64).unwrap();
    let refused = cuda.instantiate(&graph, &schedule, &Bindings::new().memory(x, &far));
    let refused = refused.map(drop).unwrap_err();
    assert!(matches!(refused, InstantiateError::Refused(Refused::Binding { .. })), "{refused}");

    // The body of a conditional runs on one device.
    let mut b = GraphBuilder::new();
    let flag = b.external_buffer("flag", 4);
    let kept = declare(&mut b, "kept", 1, 16, BufferRole::External);
    let mut body = GraphBuilder::new();
    let inside = body.outer_view(&b, view(kept, &[16]));
    body.add_elementwise("plus", add_one(), &[inside], &[], &[inside]);
    let value = Condition::Value(View::contiguous(flag, DType::I32, &[]).unwrap());
    let bodies = vec![body.build().unwrap()];
    b.add_conditional("if", ConditionalKind::If, value, bodies);
    let graph = b.build().unwrap();
    let refused =
        cuda.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new()).map(drop);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.ends_with("cannot hold work of another device"), "{refused}");

    // Memory of a device that was not opened.
    let (only, mut other) = (Cuda::on(&[0]).unwrap(), Cuda::on(&[1]).unwrap());
    let others = other.alloc(64).unwrap();
    let address = others.address();
    // SAFETY: it is refused.
    let refused = unsafe { only.adopt(address, 64) }.map(drop);
    assert_eq!(refused, Err(AdoptError::OtherDevice { address, ordinal: 1 }));
    // SAFETY: nothing works on it but this.
    let adopted = unsafe { cuda.adopt(address, 64) }.unwrap();
    assert_eq!(adopted.device().ordinal(), 1);
    cuda.write(&adopted, &[5u32; 16]).unwrap();
    assert_eq!(other.read::<u32>(&others).unwrap(), [5; 16]);
    let twice = Cuda::on(&[1, 1]).map(drop);
    assert_eq!(twice, Err(DeviceError::Twice { ordinal: 1 }));
}

#[test]
fn a_captured_copy_between_devices_is_read_copied_and_launched() {
    let Some(mut cuda) = two() else { return };
    let stream = Stream::new(&cuda.devices()[0]).unwrap();
    let (near, far) = (cuda.alloc_on(0, 256).unwrap(), cuda.alloc_on(1, 256).unwrap());
    let captured = stream.capture(CaptureMode::Relaxed, |raw| {
        // SAFETY: both are memory of that size, which lives until the end.
        expect(unsafe {
            cudarc::driver::sys::cuMemcpyAsync(far.address(), near.address(), 256, raw)
        });
        Ok::<_, String>(())
    });
    let (captured, ()) = captured.unwrap();
    let NodeKind::Memcpy(copy) = &captured.graph().nodes()[0].kind else { panic!("a copy") };
    assert_eq!((copy.dir, copy.extent.bytes()), (MemcpyDir::DeviceToDevice, 256));
    let graph = captured.graph().clone();
    let mut exec = captured.rebuild(&graph).unwrap().instantiate().unwrap();
    for round in 0..3u32 {
        cuda.write(&near, &[round; 64]).unwrap();
        // SAFETY: both live, and nothing else works on them.
        unsafe { exec.launch(&stream) }.unwrap();
        stream.synchronize().unwrap();
        assert_eq!(cuda.read::<u32>(&far).unwrap(), [round; 64]);
    }
}

#[test]
fn devices_say_whether_they_reach_each_other() {
    let Some(cuda) = two() else { return };
    for device in cuda.devices() {
        let other = Device::open(1 - device.ordinal()).unwrap();
        device.share_memory_with(&other).unwrap();
    }
}
