//! What cannot run is an error before anything runs, or of the replay that it is found in.

use phonograph_cuda::Bindings;
use phonograph_graph::{
    Access, Buffer, BufferRole, Condition, ConditionalKind, DType, GraphBuilder, MemcpyDir,
    NodeKind, Region, Schedule, Space, View,
};
use phonograph_runtime::cpu::kernels::Param;

use crate::case::{add_one, cuda, view};
use crate::samples::{ROW_NUMBERS, numbered_rows};

#[test]
fn a_row_that_does_not_exist_is_an_error_of_the_replay() {
    let Some(mut cuda) = cuda() else { return };
    let (graph, rows) = numbered_rows();
    let mut exec =
        cuda.instantiate(&graph, &Schedule::sequential(&graph), &Bindings::new()).unwrap();
    let rows = exec.memory(rows).unwrap().clone();
    for (numbers, error) in ROW_NUMBERS {
        cuda.write(&rows, &numbers).unwrap();
        let said = cuda.replay(&mut exec).err().map_or(String::new(), |e| e.to_string());
        assert!(said.ends_with(error), "{said}");
        assert_eq!(said.is_empty(), error.is_empty(), "{said}");
    }
}

#[test]
fn what_cannot_run_is_refused_before_anything_runs() {
    let Some(mut cuda) = cuda() else { return };
    let mut check = |b: GraphBuilder, bindings: &Bindings, expected: &str| {
        let graph = b.build().unwrap();
        let error = cuda.instantiate(&graph, &Schedule::sequential(&graph), bindings);
        let error = error.map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    };
    let none = Bindings::new();
    let mut b = GraphBuilder::new();
    b.add_kernel("nobody", 1, 1, 0).finish();
    check(b, &none, "node n0 (nobody): no kernel is bound as `nobody`");

    let mut b = GraphBuilder::new();
    let mut body = GraphBuilder::new();
    body.add_host_callback("f");
    let flag = b.external_buffer("flag", 4);
    let value = View::contiguous(flag, DType::I32, &[]).unwrap();
    b.add_conditional(
        "if",
        ConditionalKind::If,
        Condition::Value(value),
        vec![body.build().unwrap()],
    );
    check(
        b,
        &none,
        "node n0 (if) → n0 (f) cannot run on CUDA: the body of a conditional cannot hold a node of kind host",
    );

    let mut b = GraphBuilder::new();
    let mut child = GraphBuilder::new();
    let t = child.alloc_buffer("t", 4);
    child.add("alloc", NodeKind::Alloc(t));
    b.add_child("child", child.build().unwrap());
    check(
        b,
        &none,
        "node n0 (child) → n0 (alloc) cannot run on CUDA: a graph inside a node cannot hold",
    );

    let mut b = GraphBuilder::new();
    b.add_memcpy("untold", MemcpyDir::HostToDevice, 64);
    check(
        b,
        &none,
        "node n0 (untold) cannot run on CUDA: the source of the copy names no declared buffer",
    );

    let mut b = GraphBuilder::new();
    let far = b.declare(Buffer {
        name: "far".into(),
        bytes: 64,
        align: 256,
        role: BufferRole::External,
        space: Space::Device(9),
    });
    b.add_elementwise("plus", add_one(), &[view(far, &[16])], &[], &[view(far, &[16])]);
    check(b, &none, "b0 (far) is declared on device 9; 1 are open");

    let mut b = GraphBuilder::new();
    let x = b.external_buffer("x", 64);
    b.add_host("f", "f", &[(Region { buffer: x, offset: 0, bytes: 64 }, Access::Read)]);
    let mut registry = phonograph_runtime::cpu::kernels::Registry::new();
    registry.host("f", &[Param::Read(DType::F32)], |_| Ok(()));
    check(
        b,
        &Bindings::new().hosts(&registry),
        "node n0 (f) cannot run on CUDA: its function is given b0 (x), which is in device memory",
    );
}
