//! The checker against schedules written by hand: right ones pass, each kind of mistake is named.

use phonograph_graph::{
    Access, Arg, BufferId, ComputeGraph, Edge, EdgeData, EventId, GraphBuilder, MemoryPlan, NodeId,
    Region, Schedule, Space, Step, StreamId, Violation, check, races,
};
use smallvec::smallvec;

fn run(node: u32, stream: u32) -> Step {
    Step::run(NodeId(node), StreamId(stream))
}

fn record(event: u32, stream: u32) -> Step {
    Step::Record { event: EventId(event), stream: StreamId(stream) }
}

fn wait(event: u32, stream: u32) -> Step {
    Step::Wait { event: EventId(event), stream: StreamId(stream) }
}

fn steps(streams: u32, steps: Vec<Step>) -> Schedule {
    Schedule { streams, steps, ..Schedule::default() }
}

/// a → b → d, a → c → d.
fn diamond() -> ComputeGraph {
    let mut b = GraphBuilder::new();
    let nodes: Vec<_> =
        ["a", "b", "c", "d"].map(|n| b.add_kernel(n, 1, 32, 0).fusible(true).finish()).into();
    b.fan_out(nodes[0], &nodes[1..3]).fan_in(&nodes[1..3], nodes[3]);
    b.build().unwrap()
}

fn said(graph: &ComputeGraph, schedule: &Schedule) -> Vec<String> {
    check(graph, schedule).iter().map(Violation::to_string).collect()
}

#[test]
fn streams_and_events_order_edges() {
    let graph = diamond();
    let right = vec![
        run(0, 0),
        record(0, 0),
        wait(0, 1),
        run(1, 0),
        run(2, 1),
        record(1, 1),
        wait(1, 0),
        run(3, 0),
    ];
    assert_eq!(said(&graph, &steps(2, right.clone())), [""; 0]);
    let cases: [(&[usize], &str); 4] = [
        (&[2], "nothing makes n2 wait for n0, although the graph has the edge"),
        (&[6], "nothing makes n3 wait for n2, although the graph has the edge"),
        (&[1], "step 1 waits for e0, which no earlier step records"),
        (&[4], "n2 is never run"),
    ];
    for (dropped, expected) in cases {
        let mut broken = right.clone();
        dropped.iter().for_each(|&at| drop(broken.remove(at)));
        assert!(said(&graph, &steps(2, broken)).contains(&expected.to_owned()), "{expected}");
    }
}

#[test]
fn what_an_event_stands_for_is_transitive() {
    // a on 0, b on 1 after a, c on 2 after b: c is after a as well.
    let mut b = GraphBuilder::new();
    let [x, y, z] = ["x", "y", "z"].map(|n| b.add_barrier(n));
    b.dep(x, y).dep(y, z).dep(x, z);
    let graph = b.build().unwrap();
    let through =
        vec![run(0, 0), record(0, 0), wait(0, 1), run(1, 1), record(1, 1), wait(1, 2), run(2, 2)];
    assert_eq!(said(&graph, &steps(3, through)), [""; 0]);
    // A record stands for what was issued before it only.
    let early = vec![record(0, 0), run(0, 0), wait(0, 1), run(1, 1), run(2, 1)];
    assert!(check(&graph, &steps(2, early)).contains(&Violation::UnorderedEdge { from: x, to: y }));
}

#[test]
fn groups_must_be_convex_and_fusible() {
    let graph = diamond();
    let group = |nodes: &[u32]| Step::Run {
        nodes: nodes.iter().map(|&n| NodeId(n)).collect(),
        stream: StreamId(0),
    };
    assert_eq!(said(&graph, &steps(1, vec![group(&[0, 1, 2, 3])])), [""; 0]);
    let split = said(&graph, &steps(1, vec![group(&[0, 1, 3]), run(2, 0)]));
    assert!(
        split
            .iter()
            .any(|v| v.contains("not convex: a path leaves the group and comes back through n2"))
    );
    let mut b = GraphBuilder::new();
    b.add_kernel("fixed", 1, 1, 0).finish();
    b.add_kernel("other", 1, 1, 0).fusible(true).finish();
    let fixed = b.build().unwrap();
    assert!(
        said(&fixed, &steps(1, vec![group(&[0, 1])]))
            .contains(&"step 0 fuses n0, which is not marked fusible".into())
    );
}

/// Two chains: write x, read x; write y, read y; edges between the chains as given.
fn two_lifetimes(edges: &[Edge]) -> ComputeGraph {
    let mut b = GraphBuilder::new();
    let [x, y] = ["x", "y"].map(|n| b.alloc_buffer(n, 1024));
    for buffer in [x, y] {
        let whole = Region { buffer, offset: 0, bytes: 1024 };
        b.add_kernel("write", 1, 1, 0).arg(Arg::Region(whole, Access::Write)).finish();
        b.add_kernel("read", 1, 1, 0).arg(Arg::Region(whole, Access::Read)).finish();
    }
    for &edge in edges {
        b.add_edge(edge);
    }
    b.build().unwrap()
}

fn sharing(offsets: [u64; 2]) -> Schedule {
    let memory =
        MemoryPlan { offsets: offsets.map(Some).into(), pools: [(Space::Device(0), 2048)].into() };
    Schedule { memory, ..steps(1, vec![run(0, 0), run(1, 0), run(2, 0), run(3, 0)]) }
}

#[test]
fn bytes_are_shared_only_along_the_guaranteed_order() {
    let (x, y) = (BufferId(0), BufferId(1));
    let shared = |graph: &ComputeGraph, schedule: &Schedule| {
        check(graph, schedule).iter().any(
            |v| matches!(v, Violation::Shared { first, second, .. } if [*first, *second] == [x, y]),
        )
    };
    // One stream runs them one after another, but streams are not part of the guaranteed order.
    assert!(shared(&two_lifetimes(&[]), &sharing([0, 0])));
    assert_eq!(said(&two_lifetimes(&[]), &sharing([0, 1024])), [""; 0]);
    assert!(shared(&two_lifetimes(&[]), &sharing([0, 512])));
    let ordered = two_lifetimes(&[Edge::full(NodeId(1), NodeId(2))]);
    assert_eq!(said(&ordered, &sharing([0, 0])), [""; 0]);
    // An edge from the writer of x is too early: its reader is still to come.
    assert!(shared(&two_lifetimes(&[Edge::full(NodeId(0), NodeId(2))]), &sharing([0, 0])));
    // A weak edge lets the consumer start early.
    let weak = Edge { data: EdgeData::PROGRAMMATIC, ..Edge::full(NodeId(1), NodeId(2)) };
    assert!(shared(&two_lifetimes(&[weak]), &sharing([0, 0])));
    // A reuse edge is part of the order, and streams must then keep it.
    let reuse = Schedule { reuse: vec![(NodeId(1), NodeId(2))], ..sharing([0, 0]) };
    assert_eq!(said(&two_lifetimes(&[]), &reuse), [""; 0]);
    let apart = vec![run(0, 0), run(1, 0), run(2, 1), run(3, 1)];
    let loose = Schedule { streams: 2, steps: apart, ..reuse.clone() };
    assert_eq!(
        check(&two_lifetimes(&[]), &loose),
        [Violation::UnorderedReuse { from: NodeId(1), to: NodeId(2) }]
    );
    let backwards = Schedule { reuse: vec![(NodeId(3), NodeId(0))], ..sharing([0, 1024]) };
    assert!(matches!(check(&ordered, &backwards)[..], [_, Violation::ReuseCycle { .. }]));
}

#[test]
fn places_are_checked() {
    let graph = two_lifetimes(&[]);
    let mut schedule = sharing([0, 1024]);
    schedule.memory.offsets = vec![Some(8), None, Some(0)];
    let found = check(&graph, &schedule);
    assert!(found.contains(&Violation::Misaligned { buffer: BufferId(0), offset: 8, align: 256 }));
    assert!(found.contains(&Violation::NoPlace { buffer: BufferId(1) }));
    assert!(found.contains(&Violation::UnknownBuffer { buffer: BufferId(2) }));
    let small =
        MemoryPlan { pools: [(Space::Device(0), 2047)].into(), ..sharing([0, 1024]).memory };
    let small = Schedule { memory: small, ..sharing([0, 1024]) };
    assert_eq!(said(&graph, &small), ["b1 ends at 2048, past its pool in Device(0) of 2047 bytes"]);
}

#[test]
fn hostile_schedules_are_only_reported() {
    let graph = diamond();
    let schedule = Schedule {
        streams: u32::MAX,
        steps: vec![
            Step::Run { nodes: smallvec![], stream: StreamId(9) },
            run(77, 0),
            run(0, 0),
            run(0, 0),
        ],
        reuse: vec![(NodeId(5), NodeId(0)), (NodeId(1), NodeId(1))],
        inner: [(NodeId(0), vec![Schedule::default()])].into(),
        ..Schedule::default()
    };
    assert!(check(&graph, &schedule).len() > 5);
}

#[test]
fn a_join_of_a_hundred_thousand_writers_is_checked_in_time() {
    const WRITERS: u64 = 100_000;
    let mut b = GraphBuilder::new();
    let x = b.external_buffer("x", 4 * WRITERS as usize);
    let part = |offset, bytes| Region { buffer: x, offset, bytes };
    for at in 0..WRITERS {
        b.add_kernel("write", 1, 32, 0).arg(Arg::Region(part(4 * at, 4), Access::Write)).finish();
    }
    let join = b.add_kernel("read", 1, 32, 0);
    let join = join.arg(Arg::Region(part(0, 4 * WRITERS), Access::Read)).finish();
    let graph = b.build().unwrap();
    assert_eq!(graph.predecessors(join).len() as u64, WRITERS);
    assert_eq!(check(&graph, &Schedule::sequential(&graph)), []);
    // Without the edge of one writer, that one is found.
    let mut b = GraphBuilder::new().with_auto_infer_edges(false);
    let y = b.external_buffer("y", 4 * WRITERS as usize);
    let whole = |access, offset, bytes| Arg::Region(Region { buffer: y, offset, bytes }, access);
    let writers: Vec<NodeId> = (0..WRITERS)
        .map(|at| b.add_kernel("write", 1, 32, 0).arg(whole(Access::Write, 4 * at, 4)).finish())
        .collect();
    let join = b.add_kernel("read", 1, 32, 0).arg(whole(Access::Read, 0, 4 * WRITERS)).finish();
    b.fan_in(&writers[1..], join);
    let graph = b.build().unwrap();
    let [race] = &races(&graph)[..] else { panic!("one race") };
    assert_eq!((race.first, race.second), (writers[0], join));
}
