//! Copies, fills and registered functions.

use phonograph_graph::{
    Access, Arg, DType, Extent, GraphBuilder, MemcpyDir, MemcpyNode, MemsetNode, Pitched, Region,
    Target, View,
};

use super::super::{Block, FnKernel, Param, PrepareError};
use super::*;

fn any_end(u: &mut Unstructured, target: Target, extent: Extent) -> Result<Pitched> {
    let gap = |u: &mut Unstructured| if u.arbitrary()? { Ok(0) } else { u.int_in_range(0..=5) };
    let pitch = if extent.height > 1 || extent.depth > 1 {
        extent.width + 4 * gap(u)?
    } else {
        u.int_in_range(0..=9)?
    };
    Ok(Pitched { target, offset: 4 * gap(u)?, pitch, slice_rows: extent.height + gap(u)? })
}

fn any_extent(u: &mut Unstructured) -> Result<Extent> {
    Ok(Extent {
        width: 4 * u.int_in_range(0..=30)?,
        height: u.int_in_range(1..=5)?,
        depth: u.int_in_range(1..=4)?,
    })
}

fn check_against_reference(graph: &ComputeGraph, node: NodeId, before: Vec<Vec<u8>>) {
    let mut expected = Machine::new(graph, functions());
    expected.buffers = before;
    let actual = run_in_every_order(graph, node, &expected.buffers);
    expected.run(graph);
    assert!(actual.buffers == expected.buffers);
}

#[test]
fn copies_and_fills_of_any_shape() {
    arbtest::arbtest(|u| {
        let extent = any_extent(u)?;
        let mut b = GraphBuilder::new();
        let (from, to) = (b.external_buffer("", 8192), b.external_buffer("", 8192));
        let before = vec![any_bytes(u, DType::U8, 8192)?, any_bytes(u, DType::U8, 8192)?];
        let dst = any_end(u, Target::Buffer(to), extent)?;
        let node = if u.arbitrary()? {
            let src = any_end(u, Target::Buffer(from), extent)?;
            b.add_copy("", MemcpyNode { dir: MemcpyDir::DeviceToDevice, src, dst, extent })
        } else {
            let element_size = *u.choose(&[1, 2, 4])?;
            b.add_fill("", MemsetNode { dst, value: u.arbitrary()?, element_size, extent })
        };
        check_against_reference(&b.build().unwrap(), node, before);
        Ok(())
    })
    .budget_ms(1000);
}

#[test]
#[cfg_attr(miri, ignore = "too many elements to interpret")]
fn long_copies_and_fills_have_several_tiles() {
    let bytes = 1_000_004;
    for pitch in [0, 12] {
        let extent = if pitch == 0 {
            Extent::linear(bytes)
        } else {
            Extent { width: 8, height: 90_000, depth: 1 }
        };
        let end = |buffer, offset| Pitched {
            target: Target::Buffer(buffer),
            offset,
            pitch,
            slice_rows: 0,
        };
        let mut b = GraphBuilder::new();
        let (from, to) = (b.external_buffer("", 1_200_000), b.external_buffer("", 1_200_000));
        let before = vec![(0..1_200_000u32).map(|i| (i / 7) as u8).collect(), vec![0; 1_200_000]];
        let dir = MemcpyDir::DeviceToDevice;
        let node = b.add_copy("", MemcpyNode { dir, src: end(from, 4), dst: end(to, 8), extent });
        check_against_reference(&b.build().unwrap(), node, before.clone());
        let mut b = GraphBuilder::new();
        let (_, to) = (b.external_buffer("", 1_200_000), b.external_buffer("", 1_200_000));
        let node = b.add_fill(
            "",
            MemsetNode { dst: end(to, 4), value: 0x0102_0304, element_size: 4, extent },
        );
        let graph = b.build().unwrap();
        assert!(Prepared::new(&graph, node, &Registry::new()).unwrap().unwrap().tiles() > 1);
        check_against_reference(&graph, node, before);
    }
}

#[test]
fn rows_of_no_bytes_are_not_walked_however_many() {
    for (height, pitch) in [(u64::MAX, 0), (u64::MAX, 1), (1 << 40, 1), (1, 1)] {
        let extent = Extent { width: 0, height, depth: 1 << 40 };
        let mut b = GraphBuilder::new();
        let (from, to) = (b.external_buffer("", 8), b.external_buffer("", 8));
        let end = |buffer| Pitched {
            target: Target::Buffer(buffer),
            offset: 8,
            pitch,
            slice_rows: height,
        };
        let dir = MemcpyDir::DeviceToDevice;
        let copy = b.add_copy("", MemcpyNode { dir, src: end(from), dst: end(to), extent });
        let fill = b.add_fill("", MemsetNode { dst: end(to), value: 1, element_size: 1, extent });
        let graph = b.build().unwrap();
        for node in [copy, fill] {
            let after = run_in_every_order(&graph, node, &[vec![5; 8], vec![7; 8]]);
            assert_eq!(after.buffers, [[5; 8], [7; 8]]);
        }
    }
}

#[test]
fn a_copy_onto_itself_is_refused_and_one_beside_itself_is_not() {
    let check = |src_offset, dst_offset, refused: bool| {
        let mut b = GraphBuilder::new();
        let matrix = b.external_buffer("", 1000);
        let end =
            |offset| Pitched { target: Target::Buffer(matrix), offset, pitch: 100, slice_rows: 0 };
        let extent = Extent { width: 40, height: 9, depth: 1 };
        let (src, dst) = (end(src_offset), end(dst_offset));
        let node = b.add_copy("", MemcpyNode { dir: MemcpyDir::DeviceToDevice, src, dst, extent });
        let graph = b.build().unwrap();
        let prepared = Prepared::new(&graph, node, &Registry::new());
        let overlap = PrepareError::Overlap { first: 0, second: 1 };
        assert_eq!(prepared.err(), refused.then_some(overlap), "{src_offset} to {dst_offset}");
    };
    check(0, 40, false);
    check(40, 0, false);
    check(0, 39, true);
    check(0, 100, true);
    check(80, 20, false); // rows that cross the pitch
    check(80, 19, true);
}

/// A node of the registered kernel `f` on two buffers of `n` f32, four blocks of 256 threads.
fn function_node(n: u64, args: &[Arg]) -> (ComputeGraph, NodeId) {
    let mut b = GraphBuilder::new();
    b.external_buffer("x", n as usize * 4);
    b.external_buffer("y", n as usize * 4);
    b.slot("a", 3.0f32);
    let mut kernel = b.add_kernel("f", 4, 256, 0);
    for &arg in args {
        kernel = kernel.arg(arg);
    }
    let node = kernel.finish();
    (b.build().unwrap(), node)
}

fn f32_view(buffer: u32, n: u64, access: Access) -> Arg {
    Arg::View(View::contiguous(BufferId(buffer), DType::F32, &[n]).unwrap(), access)
}

#[test]
fn blocks_of_a_registered_kernel_have_disjoint_parts() {
    let params = [Param::Read(DType::F32), Param::ReadWrite(DType::F32), Param::Scalar(DType::F32)];
    let mut registry = Registry::new();
    let axpy = |block: &Block<'_>| {
        let (x, y, a) =
            (block.read_part::<f32>(0)?, block.write::<f32>(1)?, block.scalar::<f32>(2)?);
        assert_eq!(block.range(1)?.len(), y.len());
        assert_eq!((block.grid(), block.threads()), ((4, 1, 1), (256, 1, 1)));
        for (y, x) in y.iter_mut().zip(x) {
            *y += a * x;
        }
        Ok(())
    };
    registry.register("f", FnKernel::blocks(&params, axpy));
    // Covered by the launch, to the last element and not, and not covered.
    let sizes: &[u64] = if cfg!(miri) { &[300, 1, 0] } else { &[1024, 1000, 300, 1, 5000, 0] };
    for &n in sizes {
        let slot = Arg::Slot(phonograph_graph::SlotId(0));
        let args = [f32_view(0, n, Access::Read), f32_view(1, n, Access::ReadWrite), slot];
        let (graph, node) = function_node(n, &args);
        for order in ORDERS {
            let mut machine = Machine::new(&graph, functions());
            let floats = |f: &dyn Fn(u64) -> f32| {
                (0..n).flat_map(|i| f(i).to_le_bytes()).collect::<Vec<u8>>()
            };
            machine.buffers = vec![floats(&|i| i as f32), floats(&|i| 1.0 + i as f32)];
            run_node(&graph, node, &registry, &mut machine, order).unwrap();
            assert!(
                machine.buffers[1] == floats(&|i| 1.0 + 4.0 * i as f32),
                "{n} elements, {order:?}"
            );
        }
    }
}

#[test]
fn arguments_that_do_not_fit_are_refused_before_anything_runs() {
    let params = [Param::Read(DType::F32), Param::Write(DType::F32)];
    let check = |args: &[Arg], expected: &str| {
        let mut registry = Registry::new();
        registry.register("f", FnKernel::whole(&params, |_| Ok(())));
        let (graph, node) = function_node(64, args);
        let error = Prepared::new(&graph, node, &registry).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    let (x, y) = (f32_view(0, 64, Access::Read), f32_view(1, 64, Access::Write));
    let region = |buffer, offset, bytes, access| {
        Arg::Region(Region { buffer: BufferId(buffer), offset, bytes }, access)
    };
    check(&[x], "takes 2 arguments, not 1");
    check(
        &[x, f32_view(0, 64, Access::Write)],
        "operands 0 and 1 share bytes and one of them is written",
    );
    check(
        &[x, region(0, 252, 4, Access::Write)],
        "operands 0 and 1 share bytes and one of them is written",
    );
    check(&[x, f32_view(1, 64, Access::Read)], "argument 1 is for read, not for write");
    let ints = Arg::View(View::contiguous(BufferId(0), DType::I32, &[64]).unwrap(), Access::Read);
    check(
        &[ints, y],
        "argument 0 is a view of type i32 for read, where the function takes contiguous elements of type f32",
    );
    check(
        &[region(0, 2, 8, Access::Read), y],
        "argument 0 is bytes 2..10, which are no whole elements of type f32",
    );
    check(
        &[Arg::Scalar(Scalar::F32(1.0)), y],
        "argument 0 is a scalar of type f32, where the function takes a read of type f32",
    );
    let (graph, node) = function_node(64, &[x, y]);
    let unregistered = Prepared::new(&graph, node, &Registry::new()).unwrap_err();
    assert_eq!(
        unregistered.to_string(),
        "no kernel is registered as `f`; register it before the graph is instantiated"
    );
}

#[test]
fn what_a_function_may_not_ask_for_is_an_error() {
    let check = |ask: fn(&Block<'_>) -> std::result::Result<(), KernelError>, expected: &str| {
        let params = [Param::Read(DType::F32), Param::Write(DType::F32)];
        let mut registry = Registry::new();
        registry.register("f", FnKernel::blocks(&params, ask));
        let (graph, node) =
            function_node(64, &[f32_view(0, 64, Access::Read), f32_view(1, 64, Access::Write)]);
        let mut machine = Machine::new(&graph, functions());
        let error = run_node(&graph, node, &registry, &mut machine, Order::AtOnce).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    struct Spiteful;
    impl Drop for Spiteful {
        fn drop(&mut self) {
            panic!("a payload that panics when it goes");
        }
    }
    check(|_| std::panic::panic_any(Spiteful), "the function panicked: a value that is not text");
    check(
        |b| b.read::<f32>(1).map(drop),
        "argument 1: cannot be asked for so: it is a write argument",
    );
    check(
        |b| b.write::<f32>(0).map(drop),
        "argument 0: cannot be asked for so: it is a read argument",
    );
    check(|b| b.read::<i32>(0).map(drop), "argument 0: is of type f32");
    check(
        |b| b.scalar::<f32>(0).map(drop),
        "argument 0: cannot be asked for so: it is a read argument",
    );
    check(|b| b.read::<f32>(7).map(drop), "argument 7: there are only 2");
    check(
        |b| b.write::<f32>(1).and_then(|_| b.write::<f32>(1)).map(drop),
        "argument 1: this block already holds it",
    );
    check(|_| Err(KernelError::Failed("no luck".into())), "no luck");
    check(|_| panic!("no {}", "luck"), "the function panicked: no luck");
}

#[test]
fn host_functions_reach_the_regions_that_their_node_names() {
    let mut b = GraphBuilder::new();
    let (x, y) = (b.host_buffer("x", 8), b.host_buffer("y", 8));
    let whole = |buffer| Region { buffer, offset: 0, bytes: 8 };
    let node =
        b.add_host("swap", "swap", &[(whole(x), Access::ReadWrite), (whole(y), Access::ReadWrite)]);
    let graph = b.build().unwrap();
    let mut registry = Registry::new();
    let both = [Param::ReadWrite(DType::I32); 2];
    registry.host("swap", &both, |host| {
        host.write::<i32>(0)?.swap_with_slice(host.write::<i32>(1)?);
        Ok(())
    });
    let mut machine = Machine::new(&graph, functions());
    machine.buffers = vec![vec![1; 8], vec![2; 8]];
    run_node(&graph, node, &registry, &mut machine, Order::OneByOne).unwrap();
    assert_eq!(machine.buffers, [vec![2; 8], vec![1; 8]]);
}
