//! What `build` accepts and refuses, and that its order of edges does not matter.

use phonograph_graph::{
    Access, Arg, ComputeGraph, DType, Edge, EdgeData, Effects, Expr, GraphBuilder, GraphError,
    LibraryKernel, MemcpyDir, NodeId, Region, View,
};

fn refused(build: impl FnOnce(&mut GraphBuilder)) -> String {
    let mut builder = GraphBuilder::new();
    build(&mut builder);
    builder.build().unwrap_err().to_string()
}

#[test]
fn mistakes_name_what_they_are_about() {
    let cycle = refused(|b| {
        let [x, y, z] = ["x", "y", "z"].map(|n| b.add_barrier(n));
        b.add_barrier("apart");
        b.chain(&[x, y, z, x]);
    });
    assert!(cycle.starts_with("the dependencies form a cycle: "), "{cycle}");
    assert!(["n0 (x)", "n1 (y)", "n2 (z)"].iter().all(|n| cycle.contains(n)), "{cycle}");
    assert!(!cycle.contains("apart"), "{cycle}");
    let itself = refused(|b| {
        let x = b.add_barrier("x");
        b.dep(x, x);
    });
    assert_eq!(itself, "node n0 (x) depends on itself");
    let unknown = refused(|b| {
        let x = b.add_barrier("x");
        b.dep(x, NodeId(7));
    });
    assert_eq!(unknown, "edge n0 → n7: there is no node n7 (the graph has 1)");
    let beyond = refused(|b| {
        let buffer = b.alloc_buffer("small", 16);
        let region = Region { buffer, offset: 8, bytes: 9 };
        b.add_kernel("k", 1, 1, 0).arg(Arg::Region(region, Access::Read)).finish();
    });
    assert_eq!(beyond, "node n0 (k) touches bytes 8..17 of buffer b0 (small), which has 16");
    let weak = refused(|b| {
        let x = b.add_barrier("x");
        let k = b.add_kernel("k", 1, 1, 0).finish();
        b.add_edge(Edge { data: EdgeData::PROGRAMMATIC, ..Edge::full(x, k) });
    });
    assert!(weak.contains("is programmatic, which only a kernel can have with a kernel"), "{weak}");
    let shape = refused(|b| {
        let buffer = b.alloc_buffer("m", 4096);
        let view = |e: &[u64]| View::contiguous(buffer, DType::F32, e).unwrap();
        b.add_library(
            "product",
            LibraryKernel::MatMul,
            &[view(&[2, 3]), view(&[4, 5]), view(&[2, 5])],
        );
    });
    assert_eq!(shape, "node n0 (product): matmul operand 1 has shape [4, 5], not [3, 5]");
    let alias = refused(|b| {
        let buffer = b.alloc_buffer("x", 64);
        let all = View::contiguous(buffer, DType::F32, &[16]).unwrap();
        let [low, high] = [0, 4].map(|at| all.slice(0, at, 8).unwrap());
        let copy = Expr::build(|e| e.output(e.input(DType::F32))).unwrap();
        b.add_elementwise("shift", copy.into(), &[low], &[], &[high]);
    });
    assert!(alias.contains("operand 1 is written but overlaps operand 0"), "{alias}");
    let slot = refused(|b| {
        let buffer = b.slot_buffer("in", 64, Access::Read);
        b.add_kernel("k", 1, 1, 0).outputs([buffer]).finish();
    });
    assert!(slot.contains("was declared `read`"), "{slot}");
}

#[test]
fn edges_given_twice_count_once() {
    let mut b = GraphBuilder::new();
    let [x, y] = ["x", "y"].map(|n| b.add_kernel(n, 1, 1, 0).finish());
    b.dep(x, y).dep(x, y);
    assert_eq!(b.build().unwrap().edge_count(), 1);
    let mut b = GraphBuilder::new();
    let [x, y] = ["x", "y"].map(|n| b.add_kernel(n, 1, 1, 0).finish());
    let weak = Edge { data: EdgeData::LAUNCH_ORDER, ..Edge::full(x, y) };
    b.add_edge(weak).dep(x, y).add_edge(weak);
    let graph = b.build().unwrap();
    assert_eq!(graph.edges().collect::<Vec<_>>(), [weak, Edge::full(x, y)]);
}

#[test]
fn explicit_edges_only_when_inference_is_off() {
    let build = |infer| {
        let mut b = GraphBuilder::new().with_auto_infer_edges(infer);
        let x = b.alloc_buffer("x", 64);
        b.add_kernel("write", 1, 1, 0).outputs([x]).finish();
        b.add_kernel("read", 1, 1, 0).inputs([x]).finish();
        b.build().unwrap().edge_count()
    };
    assert_eq!((build(true), build(false)), (1, 0));
}

#[test]
fn a_child_orders_by_what_its_nodes_touch() {
    let mut b = GraphBuilder::new();
    let x = b.alloc_buffer("x", 64);
    let write = b.add_kernel("write", 1, 1, 0).outputs([x]).finish();
    let mut inner = GraphBuilder::new();
    let inside = inner.outer_buffer(&b, x);
    assert_eq!(inside, inner.outer_buffer(&b, x));
    inner.add_kernel("read", 1, 1, 0).inputs([inside]).finish();
    let child = b.add_child("child", inner.build().unwrap());
    let graph = b.build().unwrap();
    assert!(graph.is_reachable(write, child));
    let read = (Region { buffer: x, offset: 0, bytes: 64 }, Access::Read);
    assert_eq!(graph.effects(child), Effects::Known([read].into_iter().collect()));
}

#[test]
fn what_is_not_declared_is_unknown() {
    let mut b = GraphBuilder::new();
    let nodes = [
        b.add_kernel("k", 1, 1, 0).finish(),
        b.add_memcpy("c", MemcpyDir::HostToDevice, 64),
        b.add_memset("m", 64, 0),
        b.add_host_callback("h"),
    ];
    let graph = b.build().unwrap();
    for node in nodes {
        assert_eq!(graph.effects(node), Effects::Unknown);
    }
}

/// A million nodes with two edges each, in program order and shuffled: the same graph.
#[test]
fn edge_order_does_not_matter() {
    fn build(nodes: u32, shuffled: bool) -> ComputeGraph {
        let mut b = GraphBuilder::new();
        for _ in 0..nodes {
            b.add_kernel("k", 1, 32, 0).finish();
        }
        let mut edges: Vec<Edge> = (2..nodes)
            .flat_map(|n| {
                [Edge::full(NodeId(n / 2), NodeId(n)), Edge::full(NodeId(n - 1), NodeId(n))]
            })
            .collect();
        if shuffled {
            // A fixed permutation by multiplication with a number prime to the length.
            let length = edges.len() as u64;
            let factor = (0x9E37_79B1..).find(|f| gcd(*f, length) == 1).unwrap();
            edges = (0..length).map(|i| edges[(i * factor % length) as usize]).collect();
        }
        for edge in edges {
            b.add_edge(edge);
        }
        b.build().unwrap()
    }
    fn gcd(a: u64, b: u64) -> u64 {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    let (ordered, shuffled) = (build(100_000, false), build(100_000, true));
    let sorted = |graph: &ComputeGraph| {
        let mut edges: Vec<Edge> = graph.edges().collect();
        edges.sort_unstable();
        edges
    };
    assert_eq!(sorted(&ordered), sorted(&shuffled));
    assert_eq!(ordered.topological_order(), shuffled.topological_order());
}

#[test]
fn cycles_are_found_in_deep_graphs() {
    let mut b = GraphBuilder::new();
    let nodes: Vec<_> = (0..200_000).map(|_| b.add_barrier("n")).collect();
    b.chain(&nodes).dep(nodes[150_000], nodes[50_000]);
    let Err(GraphError::Cycle(path)) = b.build() else { panic!("a cycle must be found") };
    assert_eq!(path.0.len(), 100_001);
}
