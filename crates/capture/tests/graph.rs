//! Captured scripts as graphs.

use phonograph_capture::check::check;
use phonograph_capture::model::{ConvertError, Effect, FinishedGraph, Model};
use phonograph_graph::{
    ComputeGraph, Edge, EdgeData, GraphError, NodeKind, from_dot, from_json, to_dot, to_json,
};
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

/// The script of a case ends with one graph of these nodes, by name, and these edges.
fn case(name: &str, nodes: &[&str], edges: &[(u32, u32)]) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let text = std::fs::read_to_string(folder.join(name).with_extension("txt")).unwrap();
    let script = Script::parse(&text).unwrap();
    let graphs = check(&script).unwrap().graphs;
    let [finished] = &graphs[..] else { panic!("{name}: {} graphs", graphs.len()) };
    let graph = finished.graph(&script.calls, &script.names).unwrap();
    let names: Vec<&str> = graph.nodes().iter().map(|node| &*node.name).collect();
    let found: Vec<(u32, u32)> = graph.edges().map(|e| (e.from.0, e.to.0)).collect();
    assert_eq!((&names[..], &found[..]), (nodes, edges), "{name}");
}

#[test]
fn cases_that_the_driver_accepts_end_with_the_graphs_that_it_makes() {
    // Two nodes, not three, and no order by the work that is left out.
    case("05_legacy_work_is_left_out", &["produce", "consume"], &[(0, 1)]);
    case("06_thread_local_allows_it", &[""], &[]);
    // One root, and no edge to what the stream did before.
    case("11_work_before_the_capture", &[""], &[]);
    // No edge to itself, and no fork but the one that there is.
    case("13_a_stream_waits_for_itself", &["", ""], &[(0, 1)]);
    case("35_the_capture_is_on_another_device", &[], &[]);
    case("35_the_capture_sees_no_work", &[], &[]);
}

/// The graphs that a script built by hand.
fn built(text: &str) -> Vec<Result<ComputeGraph, ConvertError>> {
    let script = Script::parse(text).unwrap();
    let report = check(&script).unwrap();
    report.built.iter().map(|graph| graph.graph(&script.calls, &script.names)).collect()
}

#[test]
fn graphs_built_by_hand_hold_child_graphs_and_bodies() {
    let graphs = built(
        "stream s nonblocking
graph inner outer
memory x 64
add_kernel inner twice reads x writes x as k
add_empty inner as e
add_edge inner k e
add_child outer inner as child
add_kernel inner later
add_conditional outer switch zero one as choose
begin_into s relaxed one
kernel s body_kernel writes x
memcpy s dtod reads x writes y
end s
add_alloc outer scratch
add_kernel outer last writes scratch as last
add_free outer scratch
add_edge outer child choose
add_edge outer choose last
",
    );
    assert_eq!(graphs.len(), 2);
    let outer = graphs.into_iter().map(Result::unwrap).find(|g| g.name() == "outer").unwrap();
    assert_eq!(from_json(to_json(&outer).as_bytes()).unwrap(), outer);
    insta::assert_snapshot!(to_json(&outer));
}

#[test]
fn case_37_edge_data_survives_json_dot_and_planning() {
    let graph = built(
        "graph h
add_kernel h a as a
add_kernel h b as b
add_kernel h c as c
add_edge h a b programmatic
add_edge h b c launch_order
",
    )
    .remove(0)
    .unwrap();
    let edge = |from: u32, to: u32, data| Edge { from: from.into(), to: to.into(), data };
    let edges = [edge(0, 1, EdgeData::PROGRAMMATIC), edge(1, 2, EdgeData::LAUNCH_ORDER)];
    for graph in [
        from_json(to_json(&graph).as_bytes()).unwrap(),
        from_dot(to_dot(&graph).as_bytes()).unwrap(),
        graph,
    ] {
        assert!(graph.edges().eq(edges), "{:?}", graph.edges().collect::<Vec<_>>());
    }
}

#[test]
fn case_22_what_is_handed_out_is_a_copy() {
    let script = Script::parse(
        "stream s\ngraph g\nbegin_into s global g\nkernel s a writes x\nend s\nbegin_into s global g\nkernel s b\nend s\n",
    )
    .unwrap();
    let mut model = Model::new(script.names.stream_kinds(), script.names.event_count());
    let mut graphs: Vec<Box<FinishedGraph>> = Vec::new();
    for call in &script.calls {
        if let Effect::Ended(mut graph) = model.apply(call).unwrap().effect {
            graphs.push(graph.clone());
            // Editing what was handed out reaches neither the model nor a later answer.
            graph.nodes.clear();
        }
    }
    assert_eq!(graphs.iter().map(|graph| graph.nodes.len()).collect::<Vec<_>>(), [1, 2]);
    // The parameters of a node of a graph are copied out, edited, and the graph is as it was.
    let graph = graphs[1].graph(&script.calls, &script.names).unwrap();
    let before = to_json(&graph);
    let NodeKind::Kernel(mut kernel) = graph.node(0u32.into()).kind.clone() else {
        panic!("{before}")
    };
    kernel.args = Box::new([]);
    kernel.config.grid = (7, 1, 1);
    assert_eq!(to_json(&graph), before);
    assert_ne!(graph.node(0u32.into()).kind, NodeKind::Kernel(kernel));
}

#[test]
fn a_circle_of_edges_is_named() {
    let graph =
        built("graph g\nadd_empty g as a\nadd_empty g as b\nadd_edge g a b\nadd_edge g b a\n");
    assert!(matches!(graph[..], [Err(ConvertError::Graph(GraphError::Cycle(_)))]), "{graph:?}");
}

#[test]
fn graphs_that_hold_copies_of_themselves_are_bounded() {
    // Each line doubles what is inside: more levels than can be nested are refused as they are made.
    let text = format!("graph g\nadd_empty g\n{}", "add_child g g\n".repeat(100));
    let error = check(&Script::parse(&text).unwrap()).unwrap_err();
    assert!(error.to_string().contains("deep"), "{error}");
    // Few levels, but thousands of copies on each.
    let mut text = String::from("graph g0 g1 g2 g3\nadd_empty g0\n");
    for level in 1..4 {
        text += &format!("add_child g{level} g{}\n", level - 1).repeat(2000);
    }
    text += "instantiate g3\n";
    let error = built(&text).pop().unwrap().unwrap_err();
    assert!(error.to_string().contains("of inner graphs"), "{error}");
}
