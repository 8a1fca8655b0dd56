//! Where buffers lie: what is shared, what must not be, and that large graphs are planned in time.

use phonograph_graph::{
    Access, Arg, Buffer, BufferId, BufferRole, ComputeGraph, ConditionalKind, DType, GraphBuilder,
    NodeKind, Region, Schedule, Space, View, check,
};
use phonograph_plan::memory::plan;
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
    let memory = checked(&b.build().unwrap()).memory;
    assert_eq!(memory.pools.keys().copied().collect::<Vec<_>>(), spaces);
    assert!(memory.pools.values().all(|&bytes| bytes == 4106));
}

#[test]
fn a_buffer_that_no_node_names_costs_nothing_beside_others() {
    assert_eq!(pool(2, &[(&[], &[0])]), 256);
    assert_eq!(pool(1, &[]), 256);
    let empty = plan(&GraphBuilder::new().build().unwrap()).unwrap();
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
