//! Any sequence of calls and any text: an answer or an error, never a panic, and a state that hangs together.

use arbtest::arbitrary::{self, Unstructured};
use phonograph_capture::check::{Source, check};
use phonograph_capture::model::{ConvertError, Effect, FinishedGraph, Model, NodeKind, Status};
use phonograph_graph::{GraphError, from_json, to_dot, to_json};
use phonograph_trace::{
    Build, Call, ConditionalKind, CuResult, EventId, Flags, Function, GraphId, MemoryId, Mode,
    Names, NodeId, Port, Script, Stream, StreamId, StreamKind, ThreadId,
};

const STREAMS: u32 = 4;
const EVENTS: u32 = 3;

/// Functions that change captures, and so are drawn more often than the rest.
const BUSY: &[Function] = &[
    Function::StreamBeginCapture,
    Function::StreamBeginCaptureToGraph,
    Function::StreamEndCapture,
    Function::LaunchKernel,
    Function::LaunchKernel,
    Function::EventRecord,
    Function::EventRecord,
    Function::StreamWaitEvent,
    Function::StreamWaitEvent,
    Function::MemAllocAsync,
    Function::MemFreeAsync,
    Function::StreamUpdateCaptureDependencies,
    Function::StreamDestroy,
    Function::StreamCreate,
    Function::EventDestroy,
    Function::EventCreate,
    Function::GraphLaunch,
    Function::GraphDestroy,
    Function::GraphInstantiate,
    Function::GraphAddKernelNode,
    Function::GraphAddMemAllocNode,
    Function::GraphAddMemFreeNode,
    Function::GraphAddChildGraphNode,
    Function::GraphAddNode,
    Function::GraphAddDependencies,
    Function::GraphGetEdges,
];

fn any_stream(u: &mut Unstructured<'_>) -> arbitrary::Result<Stream> {
    Ok(match u.int_in_range(0..=9)? {
        0 => Stream::Legacy,
        1 => Stream::PerThread,
        // One past the last: it does not exist.
        _ => Stream::Created(StreamId(u.int_in_range(0..=STREAMS)?)),
    })
}

fn any_graph(u: &mut Unstructured<'_>) -> arbitrary::Result<GraphId> {
    Ok(GraphId(u.int_in_range(0..=4)?))
}

fn any_build(u: &mut Unstructured<'_>) -> arbitrary::Result<Build> {
    let node = |u: &mut Unstructured<'_>| Ok(NodeId(u.int_in_range(0..=2)?));
    let kinds = [ConditionalKind::If, ConditionalKind::While, ConditionalKind::Switch];
    let ports = [Port::Full, Port::Programmatic, Port::LaunchOrder];
    Ok(Build {
        node: Some(node(u)?),
        inner: (0..u.int_in_range(0..=2)?).map(|_| any_graph(u)).collect::<Result<_, _>>()?,
        conditional: if u.ratio(7, 8)? { Some(*u.choose(&kinds)?) } else { None },
        edge: Some((node(u)?, node(u)?, *u.choose(&ports)?)),
    })
}

/// A graph is represented and read back from JSON, or there is a reason why not.
fn convert(graph: &FinishedGraph, calls: &[Call], names: &Names) {
    assert!(graph.edges().all(|edge| edge.from.index().max(edge.to.index()) < graph.nodes.len()));
    assert!(!graph.added.is_empty() || graph.edges().all(|edge| edge.from < edge.to), "{graph:?}");
    match graph.graph(calls, names) {
        Ok(made) => {
            let edges = made.edges().count();
            assert_eq!((made.node_count(), edges), (graph.nodes.len(), graph.edges().count()));
            assert_eq!(from_json(to_json(&made).as_bytes()).unwrap(), made);
            assert!(!to_dot(&made).is_empty());
        }
        Err(ConvertError::Unsupported { kind, .. }) => assert_eq!(kind, NodeKind::BatchMemOp),
        // Only edges that were added by hand can lead in a circle.
        Err(ConvertError::Graph(GraphError::Cycle(_))) => assert!(!graph.added.is_empty()),
        Err(ConvertError::Graph(GraphError::Inner { .. })) => assert!(!graph.inner.is_empty()),
        Err(error) => panic!("{error}: {graph:?}"),
    }
}

fn any_call(u: &mut Unstructured<'_>) -> arbitrary::Result<Call> {
    let function = if u.ratio(4, 5)? { *u.choose(BUSY)? } else { *u.choose(Function::ALL)? };
    let some = |u: &mut Unstructured<'_>| u.ratio(19, 20);
    let flags = Flags {
        external: u.ratio(1, 8)?,
        programmatic: u.ratio(1, 8)?,
        no_bytes: u.ratio(1, 16)?,
        pageable: u.arbitrary()?,
        add: u.arbitrary()?,
        edge_data: u.arbitrary()?,
        auto_free: u.arbitrary()?,
    };
    Ok(Call {
        thread: ThreadId(u.int_in_range(0..=2)?),
        stream: if some(u)? { Some(any_stream(u)?) } else { None },
        from: if some(u)? { Some(any_stream(u)?) } else { None },
        event: if some(u)? { Some(EventId(u.int_in_range(0..=EVENTS)?)) } else { None },
        memory: if some(u)? { Some(MemoryId(u.int_in_range(0..=2)?)) } else { None },
        graph: if u.arbitrary()? { Some(any_graph(u)?) } else { None },
        build: if u.ratio(3, 4)? { Some(Box::new(any_build(u)?)) } else { None },
        mode: if some(u)? {
            Some(*u.choose(&[Mode::Global, Mode::ThreadLocal, Mode::Relaxed])?)
        } else {
            None
        },
        flags,
        ..Call::new(function)
    })
}

#[test]
fn any_sequence_of_calls_is_answered() {
    arbtest::arbtest(|u| {
        let kinds = [
            StreamKind::Blocking,
            StreamKind::NonBlocking,
            StreamKind::NonBlocking,
            StreamKind::Blocking,
        ];
        let mut model = Model::new(&kinds, EVENTS as usize);
        let mut calls = Vec::new();
        while !u.is_empty() {
            let call = any_call(u)?;
            let before = model.calls();
            let Ok(outcome) = model.apply(&call) else {
                assert_eq!(model.calls(), before, "a call without an answer is not counted");
                continue;
            };
            calls.push(call);
            assert_eq!(outcome.result.is_success(), outcome.refusal.is_none(), "{outcome:?}");
            let refusal = outcome.refusal.iter();
            assert!(
                refusal.flat_map(|r| &r.causes).all(|cause| cause.call.0 < before),
                "causes come before: {outcome:?}"
            );
            if let Effect::Ended(graph) = &outcome.effect {
                convert(graph, &calls, &Names::new());
            }
            for stream in 0..STREAMS {
                if let Status::Active { dependencies, nodes, .. } =
                    model.status(StreamId(stream)).unwrap()
                {
                    assert!(dependencies.iter().all(|id| id.index() < nodes.len()));
                }
            }
            // At most one capture a stream or thread's default stream, and one closed one an event; a graph for each, a name or memory.
            assert!(model.remembered() <= 40, "memory grows: {}", model.remembered());
        }
        for graph in (0..=4).filter_map(|name| model.graph(GraphId(name))) {
            convert(&graph, &calls, &Names::new());
        }
        Ok(())
    });
}

#[test]
fn any_script_is_checked_or_refused() {
    let lines = [
        "begin a global",
        "begin b relaxed",
        "@t begin c thread_local",
        "begin_into a global",
        "end a",
        "end b as g",
        "@t end c",
        "kernel a k reads x",
        "kernel b writes x",
        "kernel legacy reads x",
        "kernel ptds",
        "record e a",
        "record f b",
        "record e c",
        "wait a f",
        "wait b e",
        "wait c f",
        "wait legacy e",
        "record_ext e a",
        "wait_ext b f",
        "sync a",
        "query legacy",
        "@t ctxsync",
        "alloc x",
        "@t alloc",
        "free x",
        "malloc_async a m",
        "free_async b m",
        "launch a",
        "setdeps a b",
        "adddeps b c",
        "mode relaxed",
        "@t mode thread_local",
        "destroy_stream c",
        "create_stream c",
        "destroy_event f",
        "create_event f",
        "esync e",
        "memcpy a htod_pageable",
        "cuStreamGetId b",
        "kernel a -> STREAM_CAPTURE_INVALIDATED",
        "end a -> SUCCESS",
        "cuStreamSynchronize",
        "memcpy_sync writes x",
        "kernel_programmatic a k reads x",
        "begin_into b relaxed g",
        "memset a writes sized",
        "memcpy b dtod reads sized writes sized",
        "memcpy a dtoh_pinned reads x writes sized",
        "host a log reads x",
        "cuStreamWaitValue32 a",
        "cuMemcpyBatchAsync a",
        "cuMemPrefetchBatchAsync b",
        "cuEventElapsedTime e",
        "cuStreamGetPriority legacy",
        "cuStreamCopyAttributes a legacy",
        "begin legacy relaxed",
        "begin ptds relaxed",
        "end ptds",
        "end legacy",
        "setdeps legacy a",
        "free_async c m",
        "begin_into a relaxed body",
        "add_conditional g if body as c",
        "add_conditional body while inner as d",
        "add_kernel g k writes x as n",
        "add_kernel g l reads x as m",
        "add_memset body writes sized",
        "add_memcpy g reads x writes y",
        "add_host body f",
        "add_empty g as o",
        "add_alloc g m2",
        "add_free g m2",
        "add_free body m",
        "add_child g g",
        "add_child body h",
        "add_edge g n m programmatic",
        "add_edge g m n",
        "add_edge g n o",
        "edges g",
        "edges_data g",
        "instantiate g",
        "graph_destroy g",
        "graph_destroy body",
    ];
    arbtest::arbtest(|u| {
        let mut text = String::from(
            "stream a b nonblocking device 1\nstream c\nevent e f\nthread t\ngraph g h\nmemory sized 64\n",
        );
        while !u.is_empty() {
            let line = u.choose(&lines)?;
            // A script with a mistake is refused as a whole, so most lines are only taken where they make none.
            if u.ratio(1, 64)? || Script::parse(&format!("{text}{line}\n")).is_ok() {
                text.push_str(line);
                text.push('\n');
            }
        }
        let Ok(script) = Script::parse(&text) else {
            return Ok(());
        };
        if let Ok(report) = check(&script) {
            assert!(
                report
                    .render(Some(Source { name: "s", text: &text }), true)
                    .ends_with("captured\n")
            );
            assert_eq!(report.errors() + report.warnings(), report.findings.len());
            for graph in report.graphs.iter().chain(&report.built) {
                convert(graph, &script.calls, &script.names);
            }
            assert!(report.findings.windows(2).all(|pair| pair[0].at.call <= pair[1].at.call));
        }
        Ok(())
    });
}

/// Forks `width` streams `rounds` times and joins them in reverse order, then ends.
fn fork_join(width: u32, rounds: u32, joined: bool) -> (Model, Vec<Call>) {
    let kinds = vec![StreamKind::NonBlocking; width as usize + 1];
    let main = Stream::Created(StreamId(0));
    let event = |call: Call, id| Call { event: Some(EventId(id)), ..call };
    let mut calls =
        vec![Call { mode: Some(Mode::Global), ..Call::on(Function::StreamBeginCapture, main) }];
    for _ in 0..rounds {
        calls.push(event(Call::on(Function::EventRecord, main), 0));
        for side in 1..=width {
            let stream = Stream::Created(StreamId(side));
            calls.push(event(Call::on(Function::StreamWaitEvent, stream), 0));
            calls.push(Call::on(Function::LaunchKernel, stream));
            calls.push(event(Call::on(Function::EventRecord, stream), side));
        }
        if joined {
            calls.extend(
                (1..=width)
                    .rev()
                    .map(|side| event(Call::on(Function::StreamWaitEvent, main), side)),
            );
            calls.push(Call::on(Function::LaunchKernel, main));
        }
    }
    calls.push(Call::on(Function::StreamEndCapture, main));
    (Model::new(&kinds, width as usize + 1), calls)
}

#[test]
fn a_hundred_thousand_streams_fork_and_join() {
    let (mut model, calls) = fork_join(100_000, 1, true);
    let last = calls.iter().map(|call| model.apply(call).unwrap()).last().unwrap();
    let Effect::Ended(graph) = last.effect else { panic!("{:?}", last.result) };
    assert_eq!((graph.nodes.len(), graph.edges().count()), (100_001, 100_000));
}

#[test]
fn a_hundred_thousand_unjoined_streams_are_reported_briefly() {
    let (_, calls) = fork_join(100_000, 1, false);
    let mut names = phonograph_trace::Names::new();
    for i in 0..=100_000 {
        names.declare_stream(&format!("s{i}"), StreamKind::NonBlocking).unwrap();
        names.declare_event(&format!("e{i}")).unwrap();
    }
    let report = check(&Script { names, calls }).unwrap();
    assert_eq!(report.findings.len(), 1);
    let text = report.render(None, false);
    assert!(
        text.contains("STREAM_CAPTURE_UNJOINED") && text.contains("and 99995 more")
            || text.contains("nor for 99995 more"),
        "{text}"
    );
    assert!(text.lines().count() < 60, "{text}");
}

#[test]
fn memory_follows_what_is_alive() {
    // Captures come and go; events keep pointing at closed ones, one each.
    let mut model = Model::new(&[StreamKind::NonBlocking], 2);
    let main = Stream::Created(StreamId(0));
    for round in 0..10_000u32 {
        let event = Some(EventId(round % 2));
        for call in [
            Call { mode: Some(Mode::Global), ..Call::on(Function::StreamBeginCapture, main) },
            Call { memory: Some(MemoryId(0)), ..Call::on(Function::MemAllocAsync, main) },
            Call { event, ..Call::on(Function::EventRecord, main) },
            Call::on(Function::StreamEndCapture, main),
        ] {
            assert_eq!(model.apply(&call).unwrap().result, CuResult::SUCCESS);
        }
        assert!(model.remembered() <= 3, "round {round}: {}", model.remembered());
    }
}
