//! What sessions do, behaviour by behaviour.

use phonograph_capture::session::{
    CaptureEvent, CaptureStatus, ComputeGraph, MemcpyDir, NodeId, SessionError, StreamCapture,
    StreamId,
};
use phonograph_graph::{
    Access, Arg, Buffer, BufferRole, EdgeData, EdgeKind, GraphError, KernelConfig, KernelNode,
    KernelRef, NodeKind, Region, Scalar, Space,
};

const S0: StreamId = StreamId(0);
const S1: StreamId = StreamId(1);
const S2: StreamId = StreamId(2);

/// One line of a recording; work is named by a letter of its own.
#[derive(Clone, Copy)]
enum Op {
    Begin(u32),
    Work(u32, char),
    Record(u32, u32),
    Wait(u32, u32),
}
use Op::*;

/// The recording, ended on stream 0, has exactly these edges.
fn check(ops: &[Op], edges: &[(char, char)]) -> ComputeGraph {
    let mut session = StreamCapture::new();
    let mut names = Vec::new();
    for &op in ops {
        match op {
            Begin(s) => session.begin_capture(StreamId(s)).unwrap(),
            Work(s, name) => {
                let id = session.record_kernel(StreamId(s), &name.to_string(), 1, 32, 0).unwrap();
                assert_eq!(id.index(), names.len());
                names.push(name);
            }
            Record(s, e) => session.record_event(StreamId(s), CaptureEvent(e)).unwrap(),
            Wait(s, e) => session.wait_event(StreamId(s), CaptureEvent(e)).unwrap(),
        }
    }
    assert_eq!(session.node_count(), names.len());
    let graph = session.end_capture(S0).unwrap();
    assert_eq!(graph.node_count(), names.len());
    let mut found: Vec<(char, char)> =
        graph.edges().map(|e| (names[e.from.index()], names[e.to.index()])).collect();
    found.sort_unstable();
    let mut expected = edges.to_vec();
    expected.sort_unstable();
    assert_eq!(found, expected);
    graph
}

fn active(streams: &[StreamId]) -> StreamCapture {
    let mut session = StreamCapture::new();
    for &stream in streams {
        session.begin_capture(stream).unwrap();
    }
    session
}

#[test]
fn a01_a_stream_is_none_until_begun_and_begins_once() {
    let mut session = StreamCapture::new();
    assert_eq!(session.status(S0), CaptureStatus::None);
    assert!(!session.is_capturing());
    session.begin_capture(S0).unwrap();
    assert_eq!(session.status(S0), CaptureStatus::Active);
    assert!(session.is_capturing());
    assert_eq!(session.begin_capture(S0), Err(SessionError::AlreadyCapturing { stream: S0 }));
    assert_eq!(session.status(S0), CaptureStatus::Active);
    assert_eq!(session.status(S1), CaptureStatus::None);
}

#[test]
fn a02_calls_on_a_stream_that_is_not_active_fail_record_nothing_and_poison_nothing() {
    let mut session = active(&[S0, S2]);
    session.invalidate(S2).unwrap();
    let e = CaptureEvent(0);
    for (stream, error) in [
        (S1, SessionError::NotCapturing { stream: S1 }),
        (S2, SessionError::Invalidated { stream: S2 }),
    ] {
        let kind = NodeKind::Empty;
        let answers = [
            session.record_kernel(stream, "k", 1, 1, 0).map(drop),
            session.record_memcpy(stream, "c", MemcpyDir::DeviceToHost, 4).map(drop),
            session.record_memset(stream, "m", 4, 0).map(drop),
            session.record_host_callback(stream, "h").map(drop),
            session.record_launch(stream, "l", KernelConfig::linear(1, 1, 0), &[]).map(drop),
            session.record(stream, "n", kind.clone()).map(drop),
            session.record_with_edges(stream, "n", kind, EdgeData::PROGRAMMATIC).map(drop),
            session.record_event(stream, e),
            session.wait_event(stream, e),
            session.add_dependency(stream, NodeId(7)),
            session.invalidate(stream),
        ];
        for answer in answers {
            assert_eq!(answer, Err(error.clone()));
        }
    }
    assert_eq!(session.node_count(), 0);

    let mut session = active(&[S0, S2]);
    let a = session.record_kernel(S0, "a", 1, 1, 0).unwrap();
    session.record_event(S0, e).unwrap();
    session.record_kernel(S1, "b", 1, 1, 0).unwrap_err();
    session.record_event(S1, e).unwrap_err(); // the event stays as it was
    session.invalidate(S1).unwrap_err();
    assert_eq!(session.status(S1), CaptureStatus::None);
    session.wait_event(S2, e).unwrap();
    let c = session.record_kernel(S2, "c", 1, 1, 0).unwrap();
    let graph = session.end_capture(S0).unwrap();
    assert_eq!((graph.node_count(), graph.predecessors(c)), (2, &[a][..]));
}

#[test]
fn a03_operations_of_one_stream_form_a_chain_of_exactly_two_edges_for_three() {
    check(&[Begin(0), Work(0, 'a'), Work(0, 'b'), Work(0, 'c')], &[('a', 'b'), ('b', 'c')]);
    // Waiting for one's own event adds nothing to the order there is.
    let own = [Begin(0), Work(0, 'a'), Record(0, 0), Work(0, 'b'), Wait(0, 0), Work(0, 'c')];
    check(&own, &[('a', 'b'), ('b', 'c')]);
}

#[test]
fn a04_events_order_work_after_a_wait_behind_work_before_the_record() {
    let graph = check(
        &[
            Begin(0),
            Begin(1),
            Work(0, 'a'),
            Record(0, 0),
            Wait(1, 0),
            Work(1, 'b'),
            Work(1, 'c'),
            Work(0, 'd'),
            Record(1, 1),
            Wait(0, 1),
            Work(0, 'e'),
        ],
        &[('a', 'b'), ('b', 'c'), ('a', 'd'), ('c', 'e'), ('d', 'e')],
    );
    assert!(graph.is_reachable(NodeId(0), NodeId(4)));
    assert!(!graph.is_reachable(NodeId(1), NodeId(3)));
    // An event stands for what came before its record, not for what comes after.
    check(&[Begin(0), Begin(1), Record(0, 0), Work(0, 'a'), Wait(1, 0), Work(1, 'b')], &[]);
}

#[test]
fn a05_waits_for_events_that_stand_for_nothing_are_accepted_and_add_no_edge() {
    check(&[Begin(0), Work(0, 'a'), Wait(0, 9), Work(0, 'b')], &[('a', 'b')]);
    check(&[Begin(0), Begin(1), Record(1, 0), Wait(0, 0), Work(0, 'a')], &[]);
    assert!(check(&[Begin(0)], &[]).is_empty());
    assert!(check(&[Begin(0), Begin(1), Record(1, 0), Wait(0, 0)], &[]).is_empty());
}

#[test]
fn a06_a_wait_gates_only_later_work_and_binds_to_a_first_operation() {
    check(
        &[Begin(0), Begin(1), Work(1, 'x'), Work(0, 'a'), Record(0, 0), Wait(1, 0), Work(1, 'y')],
        &[('x', 'y'), ('a', 'y')],
    );
    check(
        &[Begin(0), Begin(1), Work(0, 'a'), Record(0, 0), Wait(1, 0), Work(1, 'b'), Work(1, 'c')],
        &[('a', 'b'), ('b', 'c')],
    );
}

#[test]
fn a07_end_needs_a_capturing_stream_and_hands_over_the_graph_with_the_ids_returned() {
    let error = StreamCapture::new().end_capture(S0).unwrap_err();
    assert_eq!(error, SessionError::NotCapturing { stream: S0 });
    let error = active(&[S0]).end_capture(S1).unwrap_err();
    assert_eq!(error, SessionError::NotCapturing { stream: S1 });

    let mut session = active(&[S0, S1]);
    let a = session.record_kernel(S0, "a", 1, 1, 0).unwrap();
    let b = session.record_memset(S1, "b", 16, 0).unwrap();
    // Any active stream may end, joined or not, and the graph holds the others' work.
    let graph = session.end_capture(S1).unwrap();
    assert_eq!((graph.node_count(), graph.edge_count()), (2, 0));
    assert_eq!((&*graph.node(a).name, &*graph.node(b).name), ("a", "b"));
}

#[test]
fn a08_invalidate_stops_the_stream_and_poisons_the_session() {
    let mut session = active(&[S0, S1]);
    session.invalidate(S1).unwrap();
    assert_eq!(session.status(S1), CaptureStatus::Invalidated);
    assert_eq!(session.status(S0), CaptureStatus::Active);
    assert!(session.is_capturing());
    session.record_kernel(S1, "k", 1, 1, 0).unwrap_err();
    session.record_kernel(S0, "k", 1, 1, 0).unwrap();
    assert_eq!(
        session.end_capture(S0).unwrap_err(),
        SessionError::Poisoned { stream: S0, culprit: S1 }
    );

    let mut session = active(&[S0]);
    session.invalidate(S0).unwrap();
    assert!(!session.is_capturing());
    assert_eq!(session.end_capture(S0).unwrap_err(), SessionError::Invalidated { stream: S0 });

    let mut session = active(&[S0]);
    session.invalidate(S0).unwrap();
    session.begin_capture(S0).unwrap();
    assert_eq!(session.status(S0), CaptureStatus::Active);
    session.record_kernel(S0, "k", 1, 1, 0).unwrap();
    assert_eq!(
        session.end_capture(S0).unwrap_err(),
        SessionError::Poisoned { stream: S0, culprit: S0 }
    );
}

#[test]
fn a09_display_and_errors_are_distinct_and_name_the_stream() {
    let shown = [CaptureStatus::None, CaptureStatus::Active, CaptureStatus::Invalidated];
    assert_eq!(shown.map(|s| s.to_string()), ["none", "active", "invalidated"]);
    assert_eq!(CaptureEvent(3).to_string(), "E3");

    let stream = StreamId(7);
    let graph =
        || GraphError::UnknownNode { from: NodeId(9), to: NodeId(0), missing: NodeId(9), count: 0 };
    let errors = [
        SessionError::AlreadyCapturing { stream },
        SessionError::NotCapturing { stream },
        SessionError::Invalidated { stream },
        SessionError::Poisoned { stream, culprit: S1 },
        SessionError::Dependency { stream, source: graph() },
        SessionError::Graph { stream, source: graph() },
    ];
    let mut messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert!(messages.iter().all(|message| message.contains("s7")), "{messages:?}");
    messages.sort();
    messages.dedup();
    assert_eq!(messages.len(), errors.len());
}

#[test]
fn a10_beginning_another_stream_joins_it_to_the_same_graph() {
    check(&[Begin(0), Work(0, 'a'), Begin(1), Work(1, 'b')], &[]);
}

#[test]
fn a11_nodes_keep_what_was_recorded_and_captured_kernels_are_not_fusible() {
    let mut session = active(&[S0, S1]);
    let k = session.record_kernel(S1, "gemm", 7, 256, 48).unwrap();
    let peer = MemcpyDir::PeerToPeer { src_device: 1, dst_device: 2 };
    let c = session.record_memcpy(S0, "copy", peer, 4096).unwrap();
    let m = session.record_memset(S0, "fill", 64, 0xab).unwrap();
    let h = session.record_host_callback(S0, "log").unwrap();
    let graph = session.end_capture(S0).unwrap();

    let kernel = graph.node(k).kernel().unwrap();
    assert_eq!((&*graph.node(k).name, graph.node(k).stream), ("gemm", Some(S1)));
    assert_eq!(kernel.config, KernelConfig::linear(7, 256, 48));
    assert!(!kernel.fusible);
    let NodeKind::Memcpy(copy) = &graph.node(c).kind else { panic!("{:?}", graph.node(c)) };
    assert_eq!((copy.dir, copy.extent.bytes()), (peer, 4096));
    let NodeKind::Memset(fill) = &graph.node(m).kind else { panic!("{:?}", graph.node(m)) };
    assert_eq!((fill.value, fill.extent.bytes()), (0xab, 64));
    let NodeKind::Host(host) = &graph.node(h).kind else { panic!("{:?}", graph.node(h)) };
    assert_eq!(&*host.function, "log");
}

#[test]
fn a11_a_dependency_that_cannot_be_added_invalidates_and_poisons() {
    let mut session = active(&[S0, S1]);
    session.record_kernel(S0, "a", 1, 1, 0).unwrap();
    let error = session.add_dependency(S0, NodeId(5)).unwrap_err();
    assert!(
        matches!(error, SessionError::Dependency { stream, source: GraphError::UnknownNode { missing, .. } }
            if stream == S0 && missing == NodeId(5)),
        "{error}"
    );
    assert_eq!(session.status(S0), CaptureStatus::Invalidated);
    assert!(matches!(session.end_capture(S1), Err(SessionError::Poisoned { .. })));

    let mut session = active(&[S0]);
    session.record_memset(S0, "fill", 16, 0).unwrap();
    let kernel = KernelNode {
        kernel: KernelRef::Named("late".into()),
        config: KernelConfig::linear(1, 1, 0),
        args: Box::default(),
        fusible: false,
    };
    let weak = session
        .record_with_edges(S0, "late", NodeKind::Kernel(kernel), EdgeData::PROGRAMMATIC)
        .unwrap_err();
    let SessionError::Dependency { source: GraphError::WeakEdge { from, to }, .. } = weak else {
        panic!("{weak}")
    };
    assert_eq!((from.id, &*to.name), (NodeId(0), "late"));
    assert_eq!(session.node_count(), 1);
    assert_eq!(session.status(S0), CaptureStatus::Invalidated);
}

#[test]
fn a12_waits_without_work_are_kept_and_relayed_events_still_order() {
    // A wait, then a record with no work between, on a stream that never has any.
    check(
        &[
            Begin(0),
            Begin(1),
            Begin(2),
            Work(0, 'a'),
            Record(0, 0),
            Wait(1, 0),
            Record(1, 1),
            Wait(2, 1),
            Work(2, 'b'),
        ],
        &[('a', 'b')],
    );
    // On a stream that has work, the relayed event stands for both.
    check(
        &[
            Begin(0),
            Begin(1),
            Begin(2),
            Work(0, 'a'),
            Work(1, 'x'),
            Record(0, 0),
            Wait(1, 0),
            Record(1, 1),
            Wait(2, 1),
            Work(2, 'b'),
        ],
        &[('a', 'b'), ('x', 'b')],
    );
}

#[test]
fn a13_recording_an_event_again_overwrites_it_also_on_an_empty_stream() {
    check(
        &[
            Begin(0),
            Begin(1),
            Work(0, 'a'),
            Record(0, 0),
            Work(0, 'b'),
            Record(0, 0),
            Wait(1, 0),
            Work(1, 'c'),
        ],
        &[('a', 'b'), ('b', 'c')],
    );
    check(
        &[
            Begin(0),
            Begin(1),
            Begin(2),
            Work(0, 'a'),
            Record(0, 0),
            Record(2, 0),
            Wait(1, 0),
            Work(1, 'b'),
        ],
        &[],
    );
}

#[test]
fn a14_operations_carry_launches_in_three_dimensions_arguments_and_regions() {
    let mut session = active(&[S0]).with_auto_infer_edges(false);
    let x = session.declare(Buffer {
        name: "x".into(),
        bytes: 1024,
        align: 256,
        role: BufferRole::External,
        space: Space::Device(0),
    });
    let steps = session.slot("steps", 3u32);
    let config = KernelConfig::new((4, 3, 2), (8, 4, 2), 128);
    let half = Region { buffer: x, offset: 512, bytes: 512 };
    let args =
        [Arg::Region(half, Access::ReadWrite), Arg::Scalar(Scalar::F32(0.5)), Arg::Slot(steps)];
    let a = session.record_launch(S0, "stencil", config, &args).unwrap();
    let fused = KernelNode {
        kernel: KernelRef::Named("tail".into()),
        config,
        args: Box::new([Arg::Region(half, Access::Read)]),
        fusible: true,
    };
    let b = session
        .record_with_edges(S0, "tail", NodeKind::Kernel(fused), EdgeData::PROGRAMMATIC)
        .unwrap();
    let graph = session.end_capture(S0).unwrap();
    let kernel = graph.node(a).kernel().unwrap();
    assert_eq!((kernel.config, &*kernel.args), (config, &args[..]));
    assert!(graph.node(b).kernel().unwrap().fusible);
    let edge = graph.incoming(b).next().unwrap();
    assert_eq!((edge.from, edge.data.kind), (a, EdgeKind::Programmatic));
}

#[test]
fn a14_regions_order_across_streams_only_when_asked() {
    for (infer, edges) in [(false, 0), (true, 1)] {
        let mut session = active(&[S0, S1]).with_auto_infer_edges(infer);
        let x = session.declare(Buffer {
            name: "x".into(),
            bytes: 64,
            align: 64,
            role: BufferRole::External,
            space: Space::Device(0),
        });
        let whole = Region { buffer: x, offset: 0, bytes: 64 };
        let config = KernelConfig::linear(1, 64, 0);
        session.record_launch(S0, "write", config, &[Arg::Region(whole, Access::Write)]).unwrap();
        session.record_launch(S1, "read", config, &[Arg::Region(whole, Access::Read)]).unwrap();
        assert_eq!(session.end_capture(S0).unwrap().edge_count(), edges);
    }
}

#[test]
fn an_invalid_node_is_named_by_the_end_of_the_session() {
    let mut session = active(&[S0]);
    session.record_kernel(S0, "no blocks", 0, 32, 0).unwrap();
    let error = session.end_capture(S0).unwrap_err();
    assert!(matches!(error, SessionError::Graph { .. }));
    assert!(error.to_string().contains("no blocks"), "{error}");
}

#[test]
fn a_hundred_thousand_operations_on_as_many_streams_record_in_linear_time() {
    let mut session = StreamCapture::new();
    let event = CaptureEvent(0);
    for i in 0..100_000 {
        let stream = StreamId(i);
        session.begin_capture(stream).unwrap();
        session.wait_event(stream, event).unwrap();
        session.record_kernel(stream, "k", 1, 1, 0).unwrap();
        session.record_event(stream, event).unwrap();
    }
    let graph = session.end_capture(S0).unwrap();
    assert_eq!((graph.node_count(), graph.edge_count()), (100_000, 99_999));
}

#[test]
fn a_join_of_a_hundred_thousand_streams_records_in_linear_time() {
    let mut session = active(&[S0]);
    session.record_kernel(S0, "fork", 1, 1, 0).unwrap();
    session.record_event(S0, CaptureEvent(0)).unwrap();
    for i in 1..=100_000 {
        let stream = StreamId(i);
        session.begin_capture(stream).unwrap();
        session.wait_event(stream, CaptureEvent(0)).unwrap();
        session.record_kernel(stream, "k", 1, 1, 0).unwrap();
        session.record_event(stream, CaptureEvent(i)).unwrap();
        session.wait_event(S0, CaptureEvent(i)).unwrap();
    }
    let join = session.record_kernel(S0, "join", 1, 1, 0).unwrap();
    let graph = session.end_capture(S0).unwrap();
    // The fork is a predecessor too: a set is kept as it is, reducing it is a pass.
    assert_eq!(graph.predecessors(join).len(), 100_001);
}
