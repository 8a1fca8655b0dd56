//! What execution plans and their lowering do, behaviour by behaviour.

use phonograph_graph::{
    Access, Arg, ComputeGraph, Condition, ConditionalKind, DType, DeviceGraph, DeviceNode, Edge,
    EdgeData, EventId, Extent, GraphBuilder, GraphError, KernelConfig, MemcpyDir, MemcpyNode,
    NodeId, NodeKind, Pitched, Region, Scalar, Schedule, Step, StreamId, Target, View, check,
};
use phonograph_plan::{ExecutionPlan, MAX_DISSOLVED, PlanError, PlanStep, lower};

const S0: StreamId = StreamId(0);
const S1: StreamId = StreamId(1);
const S2: StreamId = StreamId(2);

fn launch() -> KernelConfig {
    KernelConfig::linear(4, 128, 0)
}

fn kernel(id: u32, stream: StreamId) -> PlanStep {
    PlanStep::kernel([NodeId(id)], format!("k{id}"), launch(), stream)
}

fn plan(graph: &ComputeGraph, streams: usize) -> ExecutionPlan {
    let plan = ExecutionPlan::build(graph, streams).unwrap();
    assert_eq!(check(graph, plan.schedule().unwrap()), []);
    plan
}

fn edges(graph: &DeviceGraph) -> Vec<(u32, u32)> {
    let mut edges: Vec<_> = graph.edges().iter().map(|e| (e.from.0, e.to.0)).collect();
    edges.sort_unstable();
    edges
}

/// Steps lower to a valid graph with these edges; nodes are numbered as the steps that are no events come.
fn lowers_to(steps: Vec<PlanStep>, nodes: usize, expected: &[(u32, u32)]) -> DeviceGraph {
    let graph = lower(&ExecutionPlan::from_steps(steps)).unwrap();
    graph.validate().unwrap();
    assert_eq!((graph.node_count(), edges(&graph)), (nodes, expected.to_vec()));
    graph
}

#[test]
fn c01_upload_kernel_download_plans_to_three_steps_and_lowers_to_a_dag_of_three_nodes() {
    let mut b = GraphBuilder::new();
    let up = b.add_memcpy("up", MemcpyDir::HostToDevice, 4096);
    let k = b.add_kernel("k", 4, 256, 64).finish();
    let down = b.add_memcpy("down", MemcpyDir::DeviceToHost, 1024);
    b.chain(&[up, k, down]);
    let graph = b.build().unwrap();
    let plan = plan(&graph, 1);
    assert_eq!(plan.steps.len(), 3);
    assert!(matches!(
        plan.steps[0],
        PlanStep::Memcpy { dir: MemcpyDir::HostToDevice, size_bytes: 4096, stream: S0, .. }
    ));
    let PlanStep::KernelLaunch { nodes, function_name, config, stream, .. } = &plan.steps[1] else {
        panic!("{}", plan.steps[1])
    };
    assert_eq!((&nodes[..], function_name.as_str(), *stream), (&[k][..], "k", S0));
    assert_eq!((config.grid, config.block, config.shared_mem_bytes), ((4, 1, 1), (256, 1, 1), 64));

    let device = lower(&plan).unwrap();
    assert_eq!((device.node_count(), device.dependency_count()), (3, 2));
    device.validate().unwrap();
    assert!(matches!(
        device.nodes(),
        [DeviceNode::Memcpy { .. }, DeviceNode::KernelLaunch { .. }, DeviceNode::Memcpy { .. }]
    ));
    assert_eq!(device.origins(NodeId(1)), &[k]);
}

#[test]
fn c02_a_memset_alone_is_one_memset_node() {
    let mut b = GraphBuilder::new();
    b.add_memset("zero", 256, 7);
    let plan = plan(&b.build().unwrap(), 1);
    assert!(matches!(plan.steps[..], [PlanStep::Memset { size_bytes: 256, value: 7, .. }]));
    let device = lower(&plan).unwrap();
    assert!(matches!(device.nodes(), [DeviceNode::Memset { fill }] if fill.value == 7));
    assert_eq!(device.dependency_count(), 0);
}

#[test]
fn c02_a_barrier_alone_is_one_empty_node() {
    let mut b = GraphBuilder::new();
    b.add_barrier("sync");
    let plan = plan(&b.build().unwrap(), 1);
    assert!(matches!(plan.steps[..], [PlanStep::Barrier { .. }]));
    assert_eq!(lower(&plan).unwrap().nodes(), [DeviceNode::Empty]);
    lowers_to(vec![PlanStep::barrier(S0)], 1, &[]);
}

#[test]
fn c02_a_barrier_between_steps_dissolves_into_edges() {
    let mut b = GraphBuilder::new();
    let before = [0, 1].map(|_| b.add_memset("before", 64, 0));
    let [first, second] = ["first", "second"].map(|name| b.add_barrier(name));
    let after = [0, 1, 2].map(|_| b.add_kernel("after", 1, 32, 0).finish());
    b.fan_in(&before, first).dep(first, second).fan_out(second, &after);
    let device = lower(&plan(&b.build().unwrap(), 4)).unwrap();
    assert_eq!((device.node_count(), device.dependency_count()), (5, 6));
    assert!(!device.nodes().contains(&DeviceNode::Empty));

    lowers_to(vec![kernel(0, S0), PlanStep::barrier(S0), kernel(1, S0)], 2, &[(0, 1)]);
    // Through an event, too.
    let steps = vec![
        kernel(0, S0),
        PlanStep::barrier(S0),
        PlanStep::event_record(0, S0),
        kernel(1, S0),
        PlanStep::event_wait(0, S1),
        kernel(2, S1),
    ];
    lowers_to(steps, 3, &[(0, 1), (0, 2)]);
}

#[test]
fn c02_a_barrier_stays_where_its_edges_would_cost_more_than_it_does() {
    let mut b = GraphBuilder::new();
    let side = |b: &mut GraphBuilder| -> Vec<NodeId> {
        (0..=MAX_DISSOLVED / 16).map(|_| b.add_kernel("k", 1, 32, 0).finish()).collect()
    };
    let before = side(&mut b);
    let barrier = b.add_barrier("all");
    let after = side(&mut b);
    b.fan_in(&before, barrier).fan_out(barrier, &after);
    let device = lower(&plan(&b.build().unwrap(), 4)).unwrap();
    assert_eq!(device.dependency_count(), before.len() + after.len());
    assert_eq!(device.nodes().iter().filter(|n| **n == DeviceNode::Empty).count(), 1);
}

#[test]
fn c03_steps_by_hand_are_lowered_by_stream_order_and_events() {
    let steps = vec![
        kernel(0, S0),
        PlanStep::event_record(0, S0),
        PlanStep::event_wait(0, S1),
        kernel(1, S1),
    ];
    let plan = ExecutionPlan::from_steps(steps.clone());
    assert_eq!((plan.num_streams, plan.event_count, plan.kernel_count_original), (2, 1, 2));
    lowers_to(steps, 2, &[(0, 1)]);
    lowers_to(vec![kernel(0, S0), kernel(1, S0), kernel(2, S1)], 3, &[(0, 1)]);
    // A wait that no work follows is passed on by the next record.
    let relayed = vec![
        kernel(0, S0),
        PlanStep::event_record(0, S0),
        PlanStep::event_wait(0, S1),
        PlanStep::event_record(1, S1),
        PlanStep::event_wait(1, S2),
        kernel(1, S2),
    ];
    lowers_to(relayed, 2, &[(0, 1)]);
    // An event recorded before any work is recorded all the same.
    let early = vec![PlanStep::event_record(0, S0), PlanStep::event_wait(0, S1), kernel(0, S1)];
    lowers_to(early, 1, &[]);
}

#[test]
fn c03_a_wait_that_no_earlier_step_records_is_an_error() {
    let late = vec![PlanStep::event_wait(3, S1), kernel(0, S1), PlanStep::event_record(3, S0)];
    assert!(matches!(
        lower(&ExecutionPlan::from_steps(late)),
        Err(PlanError::UnrecordedWait { event: EventId(3), stream: S1, .. })
    ));
}

#[test]
fn c03_a_recorded_again_event_means_its_latest_earlier_record() {
    let steps = vec![
        kernel(0, S0),
        PlanStep::event_record(0, S0),
        PlanStep::event_wait(0, S1),
        kernel(1, S1),
        kernel(2, S2),
        PlanStep::event_record(0, S2),
        PlanStep::event_wait(0, S1),
        kernel(3, S1),
    ];
    lowers_to(steps, 4, &[(0, 1), (1, 3), (2, 3)]);
}

#[test]
fn c03_relays_without_work_and_wide_joins_stay_linear() {
    let mut steps = vec![kernel(0, S0)];
    for round in 0..1000 {
        let (from, to) = if round % 2 == 0 { (S0, S1) } else { (S1, S0) };
        steps.push(PlanStep::event_record(0, from));
        steps.push(PlanStep::event_wait(0, to));
    }
    for i in 1..=50_000 {
        steps.push(kernel(i, StreamId(i + 9)));
        steps.push(PlanStep::event_record(i, StreamId(i + 9)));
        steps.push(PlanStep::event_wait(i, S2));
    }
    steps.push(kernel(50_001, S2));
    let graph = lower(&ExecutionPlan::from_steps(steps)).unwrap();
    assert_eq!(graph.dependency_count(), 50_000);
}

#[test]
fn c04_a_cycle_an_unknown_id_and_an_edge_to_itself_are_errors_from_build() {
    let build = |edges: &[(u32, u32)]| {
        let mut b = GraphBuilder::new();
        for name in ["m0", "m1", "m2"] {
            b.add_memset(name, 4, 0);
        }
        for &(from, to) in edges {
            b.dep(NodeId(from), NodeId(to));
        }
        b.build().unwrap_err()
    };
    let GraphError::Cycle(path) = build(&[(0, 1), (1, 2), (2, 0)]) else { panic!() };
    assert_eq!(path.0.len(), 3);
    assert!(build(&[(0, 9)]).to_string().contains("n9"));
    assert!(build(&[(1, 1)]).to_string().contains("m1"));
}

#[test]
fn c05_figures_are_computed_from_the_plan() {
    // Two chains of in-place work that join; buffers of one chain share, across chains they do not.
    let mut b = GraphBuilder::new();
    let ends: Vec<NodeId> = ["left", "right"]
        .into_iter()
        .map(|side| {
            let buffers = [0, 1, 2].map(|_| b.alloc_buffer(side, 1024));
            b.add_kernel("open", 1, 64, 0).outputs([buffers[0]]).finish();
            b.add_kernel("mid", 1, 64, 0).inputs([buffers[0]]).outputs([buffers[1]]).finish();
            b.add_kernel("end", 1, 64, 0).inputs([buffers[1]]).outputs([buffers[2]]).finish()
        })
        .collect();
    let join = b.add_kernel("join", 1, 64, 0).finish();
    b.fan_in(&ends, join);
    let graph = b.build().unwrap();
    let two = plan(&graph, 2);
    assert_eq!((two.num_streams, two.event_count), (2, 1));
    assert_eq!((two.kernel_count_original, two.kernel_count_fused), (7, 7));
    assert_eq!(two.pool_bytes, 4 * 1024);
    let one = plan(&graph, 1);
    assert_eq!((one.num_streams, one.event_count, one.steps.len()), (1, 0, 7));
    assert_eq!(one.pool_bytes, two.pool_bytes); // memory follows the graph's order, not the streams'

    let by_hand = ExecutionPlan::from_steps(vec![
        PlanStep::kernel(vec![NodeId(0), NodeId(1), NodeId(2)], "fused", launch(), S2),
        PlanStep::event_record(7, S2),
        PlanStep::event_record(7, S2),
        PlanStep::event_wait(7, S0),
        PlanStep::memset(16, 0, S0),
    ]);
    assert_eq!((by_hand.kernel_count_original, by_hand.kernel_count_fused), (3, 1));
    assert_eq!((by_hand.num_streams, by_hand.event_count, by_hand.pool_bytes), (2, 1, 0));
}

#[test]
fn c05_an_empty_graph_has_an_empty_plan_and_no_streams_is_an_error() {
    let graph = GraphBuilder::new().build().unwrap();
    let empty = plan(&graph, 4);
    assert_eq!((empty.steps.len(), empty.num_streams, empty.pool_bytes), (0, 0, 0));
    assert_eq!(lower(&empty).unwrap().node_count(), 0);
    assert_eq!(ExecutionPlan::build(&graph, 0), Err(PlanError::NoStreams));
}

#[test]
fn c06_without_inference_only_explicit_edges_order() {
    for (infer, dependencies) in [(true, 1), (false, 0)] {
        let mut b = GraphBuilder::new().with_auto_infer_edges(infer);
        let x = b.alloc_buffer("x", 64);
        b.add_kernel("write", 1, 32, 0).outputs([x]).finish();
        b.add_kernel("read", 1, 32, 0).inputs([x]).finish();
        let device = lower(&plan(&b.build().unwrap(), 2)).unwrap();
        assert_eq!(device.dependency_count(), dependencies);
    }
}

#[test]
fn c07_every_kind_is_lowered_as_the_real_thing_with_its_operands() {
    let mut b = GraphBuilder::new();
    let x = b.external_buffer("x", 1024);
    let y = b.alloc_buffer("y", 1024);
    let host = b.host_buffer("h", 1024);
    let slot = b.slot("scale", 1.0f32);
    let whole = |buffer| Region { buffer, offset: 0, bytes: 1024 };
    let args = [
        Arg::Region(whole(x), Access::Read),
        Arg::Region(whole(y), Access::Write),
        Arg::Slot(slot),
        Arg::Scalar(Scalar::U32(9)),
    ];
    let config = KernelConfig::new((2, 3, 4), (8, 8, 2), 32);
    let mut launch = b.add_kernel("k", 1, 1, 0).config(config);
    for arg in args {
        launch = launch.arg(arg);
    }
    launch.finish();
    b.add_region_copy("up", whole(host), whole(x));
    let peer = MemcpyNode {
        dir: MemcpyDir::PeerToPeer { src_device: 0, dst_device: 1 },
        src: Pitched { target: Target::Address(0xdead_0000), offset: 8, pitch: 64, slice_rows: 4 },
        dst: Pitched::linear(Target::Buffer(x), 0),
        extent: Extent { width: 8, height: 2, depth: 1 },
    };
    let pitched = MemcpyNode { dst: Pitched { pitch: 16, ..peer.dst }, ..peer };
    b.add_copy("peer", pitched);
    b.add_memset("fill", 64, 3);
    b.add_host("log", "log", &[(whole(y), Access::Read)]);
    b.add_event_record("rec", EventId(4));
    b.add_event_wait("wait", EventId(5));
    b.add("alloc", NodeKind::Alloc(y));
    b.add("free", NodeKind::Free(y));
    let flag = View::contiguous(x, DType::I32, &[1]).unwrap();
    let body = |b: &GraphBuilder| {
        let mut inner = GraphBuilder::new();
        let x = inner.outer_buffer(b, x);
        let t = inner.alloc_buffer("t", 512);
        let first = inner.add_kernel("in", 1, 32, 0).inputs([x]).outputs([t]).finish();
        let second = inner.add_kernel("out", 1, 32, 0).inputs([t]).outputs([x]).finish();
        assert!(first < second);
        inner.build().unwrap()
    };
    let (child, then, other) = (body(&b), body(&b), body(&b));
    b.add_child("child", child);
    b.add_conditional("if", ConditionalKind::If, Condition::Value(flag), vec![then, other]);
    let graph = b.build().unwrap();
    let plan = plan(&graph, 3);
    let device = lower(&plan).unwrap();
    assert_eq!(device.node_count(), graph.node_count());
    assert!(!device.nodes().contains(&DeviceNode::Empty));

    let lowered = |name: &str| {
        let id = graph.node_ids().find(|&id| &*graph.node(id).name == name).unwrap();
        let ids = (0..device.node_count()).map(NodeId::from_index);
        let at = ids.filter(|&n| device.origins(n) == [id]).map(|n| n.index()).next().unwrap();
        &device.nodes()[at]
    };
    let DeviceNode::KernelLaunch { function_name, config: launched, kernels } = lowered("k") else {
        panic!()
    };
    assert_eq!((function_name.as_str(), *launched), ("k", config));
    assert_eq!(&*kernels[0].args, &args[..]);
    let DeviceNode::Memcpy { copy } = lowered("up") else { panic!() };
    assert_eq!((copy.dir, copy.src.target), (MemcpyDir::HostToDevice, Target::Buffer(host)));
    assert_eq!(lowered("peer"), &DeviceNode::Memcpy { copy: pitched });
    assert!(matches!(lowered("fill"), DeviceNode::Memset { fill } if fill.extent.bytes() == 64));
    assert!(matches!(lowered("log"), DeviceNode::HostCallback { host }
        if &*host.function == "log" && host.effects.len() == 1));
    assert_eq!(lowered("rec"), &DeviceNode::EventRecord { event_id: EventId(4) });
    assert_eq!(lowered("wait"), &DeviceNode::EventWait { event_id: EventId(5) });
    assert_eq!(lowered("alloc"), &DeviceNode::Alloc { buffer: y });
    assert_eq!(lowered("free"), &DeviceNode::Free { buffer: y });
    let DeviceNode::ChildGraph { graph: inner } = lowered("child") else { panic!() };
    assert_eq!((inner.node_count(), edges(inner)), (2, vec![(0, 1)]));
    assert_eq!(inner.buffers().len(), 2);
    assert_eq!(inner.memory().unwrap().pool_bytes(), 512);
    let DeviceNode::Conditional { kind, condition, bodies } = lowered("if") else { panic!() };
    assert_eq!((*kind, *condition), (ConditionalKind::If, Condition::Value(flag)));
    assert_eq!(bodies.len(), 2);
    assert_eq!(plan.pool_bytes, 1024 + 3 * 512);
    assert_eq!((device.buffers(), device.slots().len()), (graph.buffers(), 1));
}

#[test]
fn c08_independent_branches_stay_parallel_and_events_cost_no_node() {
    let mut b = GraphBuilder::new();
    let fork = b.add_kernel("fork", 1, 32, 0).finish();
    let branches: Vec<NodeId> = (0..8).map(|_| b.add_kernel("branch", 1, 32, 0).finish()).collect();
    let join = b.add_kernel("join", 1, 32, 0).finish();
    b.fan_out(fork, &branches).fan_in(&branches, join);
    let graph = b.build().unwrap();
    // One stream serialises the steps; the device graph is as parallel as the graph.
    for streams in [1, 3, 16] {
        let plan = plan(&graph, streams);
        assert_eq!(plan.num_streams, streams.min(8));
        let device = lower(&plan).unwrap();
        assert_eq!((device.node_count(), device.dependency_count()), (10, 16));
        assert_eq!(device.incoming(NodeId(9)).len(), 8);
    }
}

#[test]
fn c08_edges_keep_their_data_and_reuse_edges_are_lowered() {
    let mut b = GraphBuilder::new();
    let [x, y, z] = ["x", "y", "z"].map(|n| b.add_kernel(n, 1, 32, 0).finish());
    b.add_edge(Edge { from: x, to: y, data: EdgeData::PROGRAMMATIC });
    let graph = b.build().unwrap();
    let steps = [x, y, z].map(|n| Step::run(n, S0)).to_vec();
    let schedule = Schedule { streams: 1, steps, reuse: vec![(y, z)], ..Schedule::default() };
    let plan = ExecutionPlan::with_schedule(&graph, schedule).unwrap();
    let device = lower(&plan).unwrap();
    assert_eq!(
        device.edges(),
        [Edge { from: x, to: y, data: EdgeData::PROGRAMMATIC }, Edge::full(y, z)]
    );
}

#[test]
fn c08_a_fused_launch_is_one_node_with_the_edges_of_all() {
    let mut b = GraphBuilder::new();
    let n: Vec<NodeId> =
        (0..5).map(|i| b.add_kernel(&format!("k{i}"), 1, 32, 0).fusible(true).finish()).collect();
    b.dep(n[0], n[1]).dep(n[1], n[2]).dep(n[3], n[2]).dep(n[1], n[4]).dep(n[2], n[4]);
    b.add_edge(Edge { from: n[0], to: n[2], data: EdgeData::PROGRAMMATIC });
    let graph = b.build().unwrap();
    let fused = Step::Run { nodes: smallvec::smallvec![n[1], n[2]], stream: S0 };
    let steps = vec![Step::run(n[0], S0), Step::run(n[3], S0), fused, Step::run(n[4], S0)];
    let plan =
        ExecutionPlan::with_schedule(&graph, Schedule { streams: 1, steps, ..Schedule::default() })
            .unwrap();
    assert_eq!((plan.kernel_count_original, plan.kernel_count_fused), (5, 4));
    let device = lower(&plan).unwrap();
    assert_eq!(edges(&device), [(0, 2), (1, 2), (2, 3)]);
    assert_eq!(device.origins(NodeId(2)), &n[1..3]);
    let DeviceNode::KernelLaunch { function_name, kernels, .. } = &device.nodes()[2] else {
        panic!()
    };
    assert_eq!((function_name.as_str(), kernels.len()), ("k1+k2", 2));
}

#[test]
fn c09_conflicting_regions_become_dependencies_in_program_order() {
    let mut b = GraphBuilder::new();
    let x = b.external_buffer("x", 128);
    let half = |offset| Region { buffer: x, offset, bytes: 64 };
    let node = |b: &mut GraphBuilder, name: &str, region, access| {
        b.add_kernel(name, 1, 32, 0).arg(Arg::Region(region, access)).finish()
    };
    node(&mut b, "write low", half(0), Access::Write);
    node(&mut b, "write high", half(64), Access::Write);
    node(&mut b, "read low", half(0), Access::Read);
    node(&mut b, "write low again", half(0), Access::Write);
    node(&mut b, "and again", half(0), Access::Write);
    let device = lower(&plan(&b.build().unwrap(), 4)).unwrap();
    let by_origin = |id: NodeId| device.origins(id)[0].0;
    let mut found: Vec<(u32, u32)> =
        device.edges().iter().map(|e| (by_origin(e.from), by_origin(e.to))).collect();
    found.sort_unstable();
    assert_eq!(found, [(0, 2), (2, 3), (3, 4)]); // RAW, WAR, WAW
}

#[test]
fn c10_plans_that_contradict_themselves_or_their_graph_are_errors() {
    let mut b = GraphBuilder::new();
    let [x, y] = ["x", "y"].map(|n| b.add_memset(n, 4, 0));
    b.dep(x, y);
    let graph = b.build().unwrap();
    let with = |steps: Vec<Step>| {
        let schedule = Schedule { streams: 1, steps, ..Schedule::default() };
        ExecutionPlan::with_schedule(&graph, schedule).unwrap_err().to_string()
    };
    let run = |node| Step::run(node, S0);
    assert_eq!(with(vec![run(x)]), "no step runs n1");
    assert_eq!(with(vec![run(x), run(x), run(y)]), "n0 runs twice, in step 0 and step 1");
    assert_eq!(with(vec![run(y), run(x)]), "step 0 runs n1 before n0, on which it depends");
    let stray = run(NodeId(5));
    assert!(with(vec![run(x), run(y), stray]).contains("step 2 runs n5"));
    let both = Step::Run { nodes: smallvec::smallvec![x, y], stream: S0 };
    assert!(with(vec![both]).contains("fuses 2 nodes"));

    let mut dropped = plan(&graph, 1);
    dropped.steps.pop();
    assert_eq!(lower(&dropped), Err(PlanError::Missing { node: y }));
    let mut resized = plan(&graph, 1);
    let PlanStep::Memset { size_bytes, .. } = &mut resized.steps[0] else { panic!() };
    *size_bytes = 8;
    assert!(matches!(lower(&resized), Err(PlanError::SizeMismatch { size_bytes: 8, .. })));

    let mut hollow = kernel(0, S0);
    let PlanStep::KernelLaunch { kernels, .. } = &mut hollow else { panic!() };
    kernels.clear();
    let hollow = ExecutionPlan::from_steps(vec![hollow]);
    assert!(matches!(lower(&hollow), Err(PlanError::NotOneLaunch { .. })));

    let mut deep = ExecutionPlan::from_steps(vec![]);
    for _ in 0..40 {
        let plan = Box::new(deep);
        deep =
            ExecutionPlan::from_steps(vec![PlanStep::ChildGraph { node: None, plan, stream: S0 }]);
    }
    assert!(lower(&deep).unwrap_err().to_string().ends_with("plans nest deeper than 16"));
}

#[test]
fn buffers_beyond_all_addresses_are_an_error() {
    let mut b = GraphBuilder::new();
    for _ in 0..200 {
        b.alloc_buffer("huge", 1 << 56);
    }
    let graph = b.build().unwrap();
    assert!(matches!(ExecutionPlan::build(&graph, 1), Err(PlanError::TooLarge { .. })));
}

#[test]
fn a_plan_prints_its_figures_and_steps() {
    let mut b = GraphBuilder::new();
    let x = b.alloc_buffer("x", 256);
    b.add_kernel("produce", 8, 128, 0).outputs([x]).finish();
    let mut inner = GraphBuilder::new();
    let x = inner.outer_buffer(&b, x);
    inner.add_kernel("consume", 1, 32, 0).inputs([x]).finish();
    b.add_child("child", inner.build().unwrap());
    let shown = plan(&b.build().unwrap(), 2).to_string();
    insta::assert_snapshot!(shown, @r"
    2 steps on 1 stream, 0 events, 1 kernel in 1 launch, 256 B of memory
      s0: kernel produce, 8 blocks of 128 (n0)
      s0: child graph (n1)
        1 step on 1 stream, 0 events, 1 kernel in 1 launch, 0 B of memory
          s0: kernel consume, 1 blocks of 32 (n0)
    ");
}
