//! Where buffers lie: what is shared, what must not be, and that large graphs are planned in time.

use phonograph_graph::{
    Access, Arg, Buffer, BufferId, BufferRole, ComputeGraph, ConditionalKind, DType, GraphBuilder,
    NodeId, NodeKind, Region, Schedule, Space, Step, StreamId, View, check,
};
use phonograph_plan::PlanError;
use phonograph_plan::memory::{Bound, BoundKind, MemoryOptions, MemoryReport, Price, plan};
use phonograph_plan::streams::{PlanOptions, schedule};

/// Kernels as (reads, writes) on buffers of 256 bytes, in program order; the size of the pool.
fn pool(buffers: usize, kernels: &[(&[u32], &[u32])]) -> u64 {
    let mut b = GraphBuilder::new();
    for i in 0..buffers {
        b.alloc_buffer(&format!("b{i}"), 256);
    }
    for (reads, writes) in kernels {
        let ids = |ids: &[u32]| ids.iter().map(|&id| BufferId(id)).collect::<Vec<_>>();
        b.add_kernel("k", 1, 32, 0).inputs(ids(reads)).outputs(ids(writes)).finish();
    }
    checked(&b.build().unwrap()).pool_bytes()
}

fn checked(graph: &ComputeGraph) -> Schedule {
    let schedule = schedule(graph, &PlanOptions::at_most(4)).unwrap();
    assert_eq!(check(graph, &schedule), []);
    schedule
}

#[test]
fn buffers_of_a_chain_take_turns() {
    let chain: [(&[u32], &[u32]); 5] =
        [(&[], &[0]), (&[0], &[1]), (&[1], &[2]), (&[2], &[3]), (&[3], &[4])];
    assert_eq!(pool(5, &chain), 2 * 256);
}

#[test]
fn buffers_of_parallel_branches_do_not_share() {
    assert_eq!(pool(4, &[(&[], &[0]), (&[0], &[1]), (&[], &[2]), (&[2], &[3])]), 4 * 256);
}

#[test]
fn what_is_read_before_it_is_written_keeps_its_bytes() {
    // Buffer 0 carries a value from replay to replay, or is garbage: no business of the planner's.
    assert_eq!(pool(3, &[(&[0], &[1]), (&[1], &[2]), (&[2], &[0])]), 3 * 256);
    // Written in halves, read whole: every byte read was written.
    let mut b = GraphBuilder::new();
    let [x, y, z] = ["x", "y", "z"].map(|name| b.alloc_buffer(name, 512));
    let half = |offset| Arg::Region(Region { buffer: x, offset, bytes: 256 }, Access::Write);
    b.add_kernel("low", 1, 32, 0).arg(half(0)).finish();
    b.add_kernel("high", 1, 32, 0).arg(half(256)).finish();
    b.add_kernel("both", 1, 32, 0).inputs([x]).outputs([y]).finish();
    b.add_kernel("end", 1, 32, 0).inputs([y]).outputs([z]).finish();
    assert_eq!(checked(&b.build().unwrap()).pool_bytes(), 2 * 512);
}

#[test]
fn buffers_of_the_users_and_of_graphs_around_are_not_placed() {
    let mut b = GraphBuilder::new();
    let x = b.external_buffer("x", 256);
    let s = b.slot_buffer("s", 256, Access::Read);
    let t = b.alloc_buffer("t", 256);
    b.add_kernel("k", 1, 32, 0).inputs([x, s]).outputs([t]).finish();
    let mut inner = GraphBuilder::new();
    let outer = inner.outer_buffer(&b, t);
    let own = inner.alloc_buffer("own", 768);
    inner.add_kernel("k", 1, 32, 0).inputs([outer]).outputs([own]).finish();
    let child = b.add_child("child", inner.build().unwrap());
    let schedule = checked(&b.build().unwrap());
    assert_eq!(schedule.memory.offsets, [None, None, Some(0)]);
    assert_eq!(schedule.inner[&child][0].memory.offsets, [None, Some(0)]);
    assert_eq!(schedule.pool_bytes(), 256 + 768);
}

#[test]
fn each_space_has_its_pool_and_alignment_is_kept() {
    let mut b = GraphBuilder::new();
    let spaces = [Space::Device(0), Space::Device(1), Space::Host { pageable: false }];
    let mut declare = |bytes, align, space| {
        b.declare(Buffer { name: "t".into(), bytes, align, role: BufferRole::Internal, space })
    };
    let buffers: Vec<BufferId> = spaces
        .iter()
        .flat_map(|&space| [declare(100, 4, space), declare(10, 4096, space)])
        .collect();
    b.add_kernel("k", 1, 32, 0).outputs(buffers).finish();
    // The one that must lie at a multiple of 4096 first.
    let memory = checked(&b.build().unwrap()).memory;
    assert_eq!(memory.pools.keys().copied().collect::<Vec<_>>(), spaces);
    assert!(memory.pools.values().all(|&bytes| bytes == 112));
}

#[test]
fn a_buffer_that_no_node_names_costs_nothing_beside_others() {
    assert_eq!(pool(2, &[(&[], &[0])]), 256);
    assert_eq!(pool(1, &[]), 256);
    let empty = plan(&GraphBuilder::new().build().unwrap(), &MemoryOptions::default()).unwrap();
    let empty = empty.memory;
    assert_eq!((empty.offsets.len(), empty.pool_bytes()), (0, 0));
}

#[test]
fn memory_allocated_by_a_node_is_shared_only_if_a_node_frees_it() {
    for (free, places) in [(true, 1), (false, 2)] {
        let mut b = GraphBuilder::new();
        let [x, y] = ["x", "y"].map(|name| b.alloc_buffer(name, 256));
        let alloc = b.add("alloc", NodeKind::Alloc(x));
        let k = b.add_kernel("k", 1, 32, 0).outputs([x]).finish();
        let last = if free { b.add("free", NodeKind::Free(x)) } else { k };
        let next = b.add_kernel("next", 1, 32, 0).outputs([y]).finish();
        b.dep(alloc, k).dep(last, next);
        assert_eq!(checked(&b.build().unwrap()).pool_bytes(), places * 256);
    }
}

#[test]
fn what_a_body_may_leave_unwritten_is_not_shared() {
    let mut b = GraphBuilder::new();
    let flag = b.external_buffer("flag", 4);
    let [x, y, z] = ["x", "y", "z"].map(|name| b.alloc_buffer(name, 256));
    let mut body = GraphBuilder::new();
    let outer = body.outer_buffer(&b, x);
    body.add_kernel("maybe", 1, 32, 0).outputs([outer]).finish();
    let condition =
        phonograph_graph::Condition::Value(View::contiguous(flag, DType::I32, &[1]).unwrap());
    b.add_conditional("if", ConditionalKind::If, condition, vec![body.build().unwrap()]);
    b.add_kernel("use", 1, 32, 0).inputs([x]).outputs([y]).finish();
    b.add_kernel("end", 1, 32, 0).inputs([y]).outputs([z]).finish();
    assert_eq!(checked(&b.build().unwrap()).pool_bytes(), 3 * 256);
}

#[test]
fn a_hundred_thousand_buffers_are_placed_in_time_and_mostly_shared() {
    // 50 chains; every node also reads what its right neighbour made one step ago.
    const WIDTH: usize = 50;
    let mut b = GraphBuilder::new();
    let mut made: Vec<BufferId> = Vec::new();
    for i in 0..100_000 {
        let out = b.alloc_buffer("t", 256 * (1 + i % 7));
        let inputs = i.checked_sub(WIDTH).map(|own| [own, own / WIDTH * WIDTH + (own + 1) % WIDTH]);
        let inputs = inputs.into_iter().flatten().map(|at| made[at]);
        b.add_kernel("k", 1, 32, 0).inputs(inputs).outputs([out]).finish();
        made.push(out);
    }
    let graph = b.build().unwrap();
    let total: u64 = graph.buffers().iter().map(|buffer| buffer.bytes).sum();
    let schedule = checked(&graph);
    assert!(schedule.pool_bytes() * 50 < total, "{} of {total}", schedule.pool_bytes());
}

/// `branches` chains side by side, each of `length` kernels that write buffers of the given sizes in turn.
fn branches(branches: usize, length: usize, bytes: &[usize]) -> ComputeGraph {
    let mut b = GraphBuilder::new();
    for _ in 0..branches {
        let mut last = None;
        for step in 0..length {
            let out = b.alloc_buffer("t", bytes[step % bytes.len()]);
            b.add_kernel("k", 1, 32, 0).inputs(last).outputs([out]).finish();
            last = Some(out);
        }
    }
    b.build().unwrap()
}

#[test]
fn a_report_tells_how_far_the_plan_is_from_any() {
    let check = |graph: &ComputeGraph, bytes, bound, complete| {
        let report = plan(graph, &MemoryOptions::default()).unwrap();
        assert_eq!(report.memory.pool_bytes(), bytes);
        let kind = BoundKind::Antichain;
        assert_eq!((report.lower_bound, report.complete), (Bound { bytes: bound, kind }, complete));
        assert_eq!((report.reuse, report.price), (vec![], None));
    };
    check(&GraphBuilder::new().build().unwrap(), 0, 0, true);
    check(&branches(3, 4, &[256]), 6 * 256, 6 * 256, true);
    // One after another, but each new buffer is larger than any before: what is needed is the last two.
    check(&branches(1, 6, &[256, 512, 768, 1024, 1280, 1536]), 1536 + 1280, 1536 + 1280, true);
}

#[test]
fn without_steps_the_bound_is_that_of_levels() {
    let graph = branches(1, 5, &[768, 256, 512]);
    let report = plan(&graph, &MemoryOptions { steps: 0, ..Default::default() }).unwrap();
    assert!(report.lower_bound.bytes <= report.memory.pool_bytes());
    assert_eq!(report.lower_bound.bytes, 512 + 768);
}

/// One stream that runs the nodes in an order of the graph's edges and the reuse edges.
fn in_order(graph: &ComputeGraph, report: &MemoryReport) -> Schedule {
    let before = |node: NodeId| {
        let added = report.reuse.iter().filter(move |(_, to)| *to == node).map(|&(from, _)| from);
        graph.predecessors(node).iter().copied().chain(added)
    };
    let mut order: Vec<NodeId> = Vec::new();
    let mut ran = vec![false; graph.node_count()];
    while order.len() < graph.node_count() {
        let ready = |node: &NodeId| !ran[node.index()] && before(*node).all(|n| ran[n.index()]);
        let node = graph.node_ids().find(ready).expect("reuse edges close no cycle");
        ran[node.index()] = true;
        order.push(node);
    }
    Schedule {
        steps: order.into_iter().map(|node| Step::run(node, StreamId(0))).collect(),
        reuse: report.reuse.clone(),
        memory: report.memory.clone(),
        ..Schedule::sequential(graph)
    }
}

#[test]
fn a_limit_on_bytes_is_met_by_ordering_and_priced() {
    // Four branches of three kernels: 8 buffers at once, or 2 if one branch runs after another.
    let graph = branches(4, 3, &[256]);
    let check = |bytes: u64, edges: usize, after: u64| {
        let options = MemoryOptions { bytes: Some(bytes), ..Default::default() };
        let report = plan(&graph, &options).unwrap();
        assert!(report.memory.pool_bytes() <= bytes);
        assert_eq!(check_schedule(&graph, &report), []);
        assert_eq!(report.reuse.len(), edges, "{:?}", report.reuse);
        let price = Price { before: 3, after, bytes_before: 8 * 256 };
        assert_eq!(report.price, (edges > 0).then_some(price));
    };
    check(8 * 256, 0, 3);
    check(6 * 256, 2, 6);
    check(4 * 256, 4, 6);
    check(2 * 256, 6, 12);
    let options = MemoryOptions { bytes: Some(511), ..Default::default() };
    let error = PlanError::MemoryLimit { limit: 511, reached: 512, lower_bound: 512 };
    assert_eq!(plan(&graph, &options), Err(error));
}

fn check_schedule(graph: &ComputeGraph, report: &MemoryReport) -> Vec<phonograph_graph::Violation> {
    check(graph, &in_order(graph, report))
}
