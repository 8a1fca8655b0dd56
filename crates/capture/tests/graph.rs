//! Captured scripts as graphs.

use phonograph_capture::check::check;
use phonograph_capture::model::ConvertError;
use phonograph_graph::{ComputeGraph, Edge, EdgeData, from_json, to_dot, to_json};
use phonograph_trace::Script;

fn captured(text: &str) -> Vec<Result<ComputeGraph, ConvertError>> {
    let script = Script::parse(text).unwrap();
    let report = check(&script).unwrap();
    let graphs = report.graphs.iter();
    graphs.map(|graph| graph.graph(&script.calls, &script.names)).collect()
}

fn one(text: &str) -> ComputeGraph {
    let mut graphs = captured(text);
    assert_eq!(graphs.len(), 1, "{text}");
    let graph = graphs.remove(0).unwrap();
    assert_eq!(from_json(to_json(&graph).as_bytes()).unwrap(), graph, "JSON gives it back");
    graph
}

#[test]
fn every_kind_of_node_says_what_the_script_says() {
    let graph = one("stream main side nonblocking
event fork join outside
memory a b c 4096
memory h 1024
malloc_async main pool
begin main global
memcpy main htod_pageable reads h writes a
malloc_async main scratch
kernel main gemm reads a b writes c scratch
kernel main unnamed_effects
record fork main
wait side fork
memset side writes b
memcpy side dtod reads unsized writes a
memcpy side dtoh_pinned
host side log reads c
host side
record_ext outside side
wait_ext side outside
record join side
wait main join
kernel main update reads c writes c
free_async main scratch
end main as step
");
    insta::assert_snapshot!(to_json(&graph));
}

#[test]
fn edges_are_those_captured_with_their_data() {
    let graph = one("stream s nonblocking
begin s relaxed
kernel s a writes x
kernel_programmatic s b reads x
memset s writes x
kernel_programmatic s c reads x
end s
");
    let edge = |from: u32, to: u32, data| Edge { from: from.into(), to: to.into(), data };
    let expected = [
        edge(0, 1, EdgeData::PROGRAMMATIC),
        edge(1, 2, EdgeData::FULL),
        // Between a memset and a kernel there is no other order than a full one.
        edge(2, 3, EdgeData::FULL),
    ];
    assert!(graph.edges().eq(expected), "{:?}", graph.edges().collect::<Vec<_>>());
}

#[test]
fn conflicting_work_on_streams_that_nothing_orders_stays_unordered() {
    let graph = one("stream a b nonblocking
event fork join
begin a global
record fork a
wait b fork
kernel a first writes x
kernel b second writes x
record join b
wait a join
end a
");
    assert_eq!((graph.node_count(), graph.edge_count()), (2, 0));
}

#[test]
fn memory_allocated_twice_in_a_graph_is_two_buffers() {
    let graph = one("stream s nonblocking
begin s global
malloc_async s m
kernel s f writes m
free_async s m
malloc_async s m
kernel s g writes m
free_async s m
end s
");
    let buffers: Vec<u32> = [1u32, 4].map(|node| graph.operands(node.into())[0].0.buffer.0).into();
    assert_eq!((buffers, graph.buffers().len()), (vec![0, 1], 2));
}

#[test]
fn a_graph_that_is_captured_into_twice_holds_both_captures() {
    let graphs = captured(
        "stream s nonblocking
graph g
begin_into s global g
kernel s a writes x
end s
begin_into s global g
kernel s b reads x
end s
",
    );
    let shapes: Vec<_> = graphs
        .into_iter()
        .map(|graph| graph.unwrap())
        .map(|graph| (graph.name().to_owned(), graph.node_count(), graph.edge_count()))
        .collect();
    assert_eq!(shapes, [("g".to_owned(), 1, 0), ("g".to_owned(), 2, 0)]);
}

#[test]
fn what_has_no_node_of_its_kind_is_refused_by_name() {
    let graphs = captured("stream s nonblocking\nbegin s global\ncuStreamWriteValue32 s\nend s\n");
    let error = graphs.into_iter().next().unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "call 1 (cuStreamWriteValue32) became a batch_mem_op node, which cannot be represented"
    );
}

#[test]
fn a_graph_without_its_own_calls_is_refused() {
    let script = Script::parse("stream s\nbegin s global\nkernel s\nend s\n").unwrap();
    let report = check(&script).unwrap();
    let error = report.graphs[0].graph(&script.calls[..1], &script.names).unwrap_err();
    assert_eq!(error, ConvertError::OtherCalls(report.graphs[0].nodes[0].call));
    assert!(!to_dot(&report.graphs[0].graph(&script.calls, &script.names).unwrap()).is_empty());
}
