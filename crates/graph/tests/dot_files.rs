//! Every recorded dump of the CUDA driver, and what it must give.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use phonograph_graph::{
    BufferRole, ComputeGraph, Condition, ConditionalKind, Dim3, EventId, Extent, KernelConfig,
    MemcpyDir, MemcpyNode, MemsetNode, NodeKind, Pitched, Space, Target, from_dot, from_json,
    to_dot, to_json,
};

fn read(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    if path.extension().is_none_or(|e| e != "gz") {
        return bytes;
    }
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
    plain
}

fn graph(path: &Path) -> ComputeGraph {
    from_dot(&read(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn data(file: &str) -> ComputeGraph {
    graph(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(file))
}

/// The dumps of others, which lie beside the checkout where there are any.
fn public(file: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("../shared/graphs/public").join(file);
    if !path.exists() {
        println!("skipped: {} is not here", path.display());
        return None;
    }
    Some(path)
}

/// `name nodes+edges: kinds; inside: nodes+edges of each graph inside`.
fn summary(graph: &ComputeGraph) -> String {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    graph.nodes().iter().for_each(|node| *kinds.entry(node.kind.name()).or_default() += 1);
    let kinds: Vec<String> = kinds.iter().map(|(kind, n)| format!("{kind} {n}")).collect();
    let inner = graph.nodes().iter().flat_map(|node| node.kind.inner_graphs());
    let inner: Vec<String> =
        inner.map(|graph| format!("{}+{}", graph.node_count(), graph.edge_count())).collect();
    let (name, nodes, edges) = (graph.name(), graph.node_count(), graph.edge_count());
    let mut all = format!("{name} {nodes}+{edges}: {}", kinds.join(" "));
    if !inner.is_empty() {
        all += &format!("; inside: {}", inner.join(" "));
    }
    all
}

#[test]
fn every_dump_gives_its_nodes_and_edges() {
    let every = "graph_1 11+11: child_graph 1 conditional 1 empty 1 event_record 1 event_wait 1 host 1 \
                 kernel 1 mem_alloc 1 mem_free 1 memcpy 1 memset 1; inside: 2+1 1+0";
    let copies =
        "graph_1 18+1: conditional 3 kernel 4 memcpy 8 memset 3; inside: 0+0 0+0 0+0 0+0 0+0 0+0";
    let check = |graph: ComputeGraph, expected: &str| {
        assert_eq!(summary(&graph), expected);
        // What was read can be written and read again, both ways.
        let back =
            from_dot(to_dot(&graph).as_bytes()).unwrap_or_else(|e| panic!("{expected}: {e}"));
        assert_eq!(summary(&back), expected);
        assert_eq!(from_json(to_json(&graph).as_bytes()).as_ref(), Ok(&graph), "{expected}");
    };
    for (file, expected) in [
        ("every_node_plain.dot", every),
        ("every_node_kernel_params.dot", every),
        ("every_node_kernel_attributes.dot", every),
        ("every_node_handles.dot", every),
        ("every_node_verbose.dot", every),
        ("every_node_all.dot", every),
        ("conditionals_copies_plain.dot", copies),
        ("conditionals_copies_verbose.dot", copies),
        ("conditionals_copies_all.dot", copies),
        ("programmatic_edge.dot", "graph_5 2+1: kernel 2"),
        ("multistream_3x4.dot.gz", "graph_10 53+55: kernel 53"),
        ("gpt2_4layer_prefill16.dot.gz", "graph_7 114+113: kernel 114"),
        ("resnet18_infer_b1.dot.gz", "graph_1 109+108: kernel 102 memset 7"),
    ] {
        check(data(file), expected);
    }
    for (file, expected) in [
        (
            "cuda_flags0_nested_child_graphs_mlx.dot",
            "graph_130 12+11: child_graph 1 kernel 11; inside: 1+0",
        ),
        ("cuda_verbose_2kernels.dot", "graph_1 2+1: kernel 2"),
    ] {
        if let Some(path) = public(file) {
            check(graph(&path), expected);
        }
    }
}

/// Name, grid, block and shared bytes of a kernel.
type Launch<'a> = (&'a str, Dim3, Dim3, u32);

#[test]
fn launches_are_read_where_they_are_told() {
    let check = |file: &str, node: usize, expected: Launch| {
        let graph = data(file);
        let node = &graph.nodes()[node];
        let config = node.kernel().unwrap_or_else(|| panic!("{file}: a kernel")).config;
        let shared = config.shared_mem_bytes;
        assert_eq!((&*node.name, config.grid, config.block, shared), expected, "{file}");
        assert_eq!(node.kernel().unwrap().kernel.name(), expected.0);
    };
    let none = (0, 0, 0);
    check("every_node_plain.dot", 0, ("addone", none, none, 0));
    check("every_node_handles.dot", 0, ("addone", none, none, 0));
    check("every_node_kernel_attributes.dot", 0, ("addone", none, none, 0));
    let addone = ("addone", (2, 1, 1), (128, 1, 1), 0);
    check("every_node_kernel_params.dot", 0, addone);
    check("every_node_verbose.dot", 0, addone);
    check("every_node_all.dot", 0, addone);
    check(
        "multistream_3x4.dot.gz",
        0,
        (
            "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
            (8, 8, 4),
            (64, 1, 1),
            6528,
        ),
    );
    check(
        "resnet18_infer_b1.dot.gz",
        0,
        (
            "_Z23implicit_convolve_sgemmIffLi1024ELi5ELi5ELi3ELi3ELi3ELi1ELb0ELb0ELb1EEviiiPKT_iPT0_S2_18kernel_conv_paramsyiffiPKS3_S7_bbii",
            (392, 2, 1),
            (8, 8, 1),
            0,
        ),
    );
    for file in ["conditionals_copies_verbose.dot", "conditionals_copies_all.dot"] {
        let config = data(file).nodes()[0].kernel().unwrap().config;
        let mut expected = KernelConfig::new((4, 2, 1), (8, 8, 1), 16);
        (expected.cooperative, expected.priority) = (true, -3);
        assert_eq!(config, expected, "{file}");
    }
    assert!(!data("conditionals_copies_plain.dot").nodes()[0].kernel().unwrap().config.is_known());
}

const NOWHERE: Pitched = Pitched::linear(Target::Unspecified, 0);

#[test]
fn fills_keep_their_value_and_extent() {
    let check = |file: &str, node: usize, expected: MemsetNode| match &data(file).nodes()[node].kind
    {
        NodeKind::Memset(set) => assert_eq!(**set, expected, "{file} {node}"),
        other => panic!("{file}: {other:?}"),
    };
    let untold =
        MemsetNode { dst: NOWHERE, value: 7, element_size: 0, extent: Extent::linear(256) };
    check("every_node_plain.dot", 1, untold);
    check("every_node_handles.dot", 1, untold);
    let dst = Pitched::linear(Target::Address(0x7F87_93E0_0000), 0);
    let told = MemsetNode { dst, element_size: 4, ..untold };
    check("every_node_verbose.dot", 1, told);
    check("every_node_all.dot", 1, told);
    let pitched =
        Pitched { target: Target::Address(0x7FCA_F3E0_0000), offset: 0, pitch: 256, slice_rows: 0 };
    let extent = Extent { width: 64, height: 3, depth: 1 };
    let rows = MemsetNode { dst: pitched, value: 9, element_size: 2, extent };
    check("conditionals_copies_verbose.dot", 13, rows);
    let untold =
        MemsetNode { dst: NOWHERE, value: 9, element_size: 0, extent: Extent::linear(192) };
    check("conditionals_copies_plain.dot", 13, untold);
}

#[test]
fn copies_keep_both_ends() {
    let check = |file: &str, node: usize, name: &str, expected: MemcpyNode| {
        let graph = data(file);
        let node = &graph.nodes()[node];
        match &node.kind {
            NodeKind::Memcpy(copy) => assert_eq!(**copy, expected, "{file} {name}"),
            other => panic!("{file}: {other:?}"),
        }
        assert_eq!(&*node.name, name, "{file}");
    };
    let at = |address, offset, pitch, slice_rows| {
        let target = if address == 0 { Target::Unspecified } else { Target::Address(address) };
        Pitched { target, offset, pitch, slice_rows }
    };
    let copy = |dir, src, dst, [width, height, depth]: [u64; 3]| MemcpyNode {
        dir,
        src,
        dst,
        extent: Extent { width, height, depth },
    };
    use MemcpyDir::{DeviceToDevice, DeviceToHost, HostToDevice, HostToHost};
    let linear = |address| at(address, 0, 0, 0);
    let plain = copy(DeviceToHost, NOWHERE, NOWHERE, [256, 1, 1]);
    check("every_node_plain.dot", 2, "", plain);
    check("every_node_kernel_attributes.dot", 2, "", plain);
    let (src, dst) = (linear(0x7F87_93E0_0000), linear(0x7F87_9880_0000));
    for file in ["every_node_verbose.dot", "every_node_all.dot"] {
        check(file, 2, "DEVICE to HOST PINNED", copy(DeviceToHost, src, dst, [256, 1, 1]));
    }
    let (host, pinned, managed) = (0x0A53_0070, 0x7FCA_F880_0000, 0x7FCA_D800_0000);
    let (device, half) = (0x7FCA_F3E0_0000, 0x7FCA_F3E0_8000);
    for (verbose, file) in
        [(true, "conditionals_copies_verbose.dot"), (false, "conditionals_copies_all.dot")]
    {
        let line = [64, 1, 1];
        let upload = copy(HostToDevice, linear(host), linear(device), line);
        check(file, 5, "HOST PAGEABLE to DEVICE", upload);
        check(
            file,
            6,
            "DEVICE to DEVICE",
            copy(DeviceToDevice, linear(device), linear(half), line),
        );
        let staged = copy(HostToHost, linear(pinned), linear(host), line);
        check(file, 7, "HOST PINNED to HOST PAGEABLE", staged);
        // 8 bytes into the second row of 128.
        let rows = copy(DeviceToHost, at(device, 136, 128, 4), at(pinned, 0, 64, 4), [64, 3, 1]);
        check(file, 8, "DEVICE to HOST PINNED", rows);
        let (src, dst) = (at(device, 0, 128, 4), at(half, 0, 128, 4));
        check(file, 9, "DEVICE to DEVICE", copy(DeviceToDevice, src, dst, [64, 3, 2]));
        let moved = copy(DeviceToDevice, linear(managed), linear(device), line);
        check(file, 10, "MANAGED to DEVICE", moved);
        check(file, 11, "MANAGED to DEVICE", moved);
        // The runtime's rows count elements of the array, whose size they do not tell.
        let width = if verbose { 64 } else { 0 };
        let array = copy(DeviceToDevice, at(device, 0, 64, 0), linear(0), [width, 4, 1]);
        check(file, 12, "DEVICE to DEVICE", array);
    }
    let untold = |dir, bytes| copy(dir, NOWHERE, NOWHERE, [bytes, 1, 1]);
    for (node, name, dir, bytes) in [
        (5, "", HostToDevice, 64),
        (7, "", HostToHost, 64),
        (9, "", DeviceToDevice, 384),
        (10, "DtoU", DeviceToDevice, 64),
        (11, "UtoU", DeviceToDevice, 64),
        (12, "DtoA", DeviceToDevice, 256),
    ] {
        check("conditionals_copies_plain.dot", node, name, untold(dir, bytes));
    }
}

#[test]
fn host_calls_events_and_allocations_are_told_apart() {
    for (file, told) in [
        ("every_node_plain.dot", false),
        ("every_node_handles.dot", false),
        ("every_node_verbose.dot", true),
        ("every_node_all.dot", true),
    ] {
        let graph = data(file);
        let kinds: Vec<&NodeKind> = graph.nodes().iter().map(|node| &node.kind).collect();
        let function = if told { "0x000055821ECE97B0" } else { "" };
        assert!(matches!(kinds[3], NodeKind::Host(h) if &*h.function == function), "{file}");
        // One event recorded and waited for where its handle is told, else an id for each node.
        let waited = if told { EventId(0) } else { EventId(1) };
        assert_eq!(kinds[5], &NodeKind::EventRecord(EventId(0)), "{file}");
        assert_eq!(kinds[6], &NodeKind::EventWait(waited), "{file}");
        let (NodeKind::Alloc(allocated), NodeKind::Free(freed)) = (kinds[7], kinds[8]) else {
            panic!("{file}: {:?}", kinds[7])
        };
        assert_eq!(allocated == freed, told, "{file}");
        let buffer = graph.buffer(*allocated);
        let expected = if told { (4096, Space::Device(0)) } else { (0, Space::Unknown) };
        assert_eq!(
            (buffer.bytes, buffer.space, buffer.role),
            (expected.0, expected.1, BufferRole::Internal)
        );
        let NodeKind::Conditional(conditional) = kinds[10] else { panic!("{file}") };
        let handle = Condition::Handle(u64::from(told));
        assert_eq!((conditional.kind, conditional.condition), (ConditionalKind::If, handle));
    }
    let event = |file: &str, node: usize| data(file).nodes()[node].kind.clone();
    assert_eq!(event("every_node_kernel_attributes.dot", 6), NodeKind::EventWait(EventId(0)));
}

#[test]
fn conditionals_have_their_bodies_in_order() {
    for file in ["conditionals_copies_plain.dot", "conditionals_copies_verbose.dot"] {
        let graph = data(file);
        let found: Vec<(ConditionalKind, Vec<&str>)> = graph
            .nodes()
            .iter()
            .filter_map(|node| match &node.kind {
                NodeKind::Conditional(c) => {
                    Some((c.kind, c.bodies.iter().map(ComputeGraph::name).collect()))
                }
                _ => None,
            })
            .collect();
        let expected = [
            (ConditionalKind::If, vec!["graph_2", "graph_3"]),
            (ConditionalKind::While, vec!["graph_4"]),
            (ConditionalKind::Switch, vec!["graph_5", "graph_6", "graph_7"]),
        ];
        assert_eq!(found, expected, "{file}");
    }
}

#[test]
fn nested_children_are_found() {
    let Some(path) = public("cuda_flags0_nested_child_graphs_mlx.dot") else { return };
    let graph = graph(&path);
    let child = &graph.nodes()[4].kind.inner_graphs()[0];
    let grandchild = &child.nodes()[0].kind.inner_graphs()[0];
    assert_eq!((child.name(), grandchild.name()), ("graph_131", "graph_132"));
    assert!(grandchild.nodes()[0].name.starts_with("cudnn_generated_fort_native_sdpa"));
}
