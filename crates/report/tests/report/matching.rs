//! What traces of a profiler say of graphs.

use std::io::Read;

use flate2::read::GzDecoder;
use phonograph_graph::{
    ComputeGraph, Condition, ConditionalKind, GraphBuilder, MemcpyDir, NodeId, from_dot,
};
use phonograph_report::compare::NodeAt;
use phonograph_report::matching::{Matching, find};
use phonograph_report::picture::{GroupIx, NodeIx};
use phonograph_report::profile::{Profile, read};

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut out).expect("test data");
    out
}

/// A graph that PyTorch captured on three streams, and a trace of three replays of it.
fn multistream() -> (ComputeGraph, Profile) {
    let dot = include_bytes!("../../../graph/tests/data/multistream_3x4.dot.gz");
    let trace = include_bytes!("../data/kineto_multistream.json.gz");
    (from_dot(&gunzip(dot)).expect("a graph"), read(&gunzip(trace)).expect("a trace"))
}

#[test]
fn a_recorded_trace_gives_costs_to_every_node() {
    let (graph, profile) = multistream();
    assert_eq!(profile.events.len(), 3 * 53);
    let found = find(&graph, &profile);
    assert_eq!((found.replays.len(), found.other_events), (3, 0));
    assert_eq!((found.unmatched_nodes.len(), found.unmatched_events.len()), (0, 0));
    // Nodes 0 and 1 are the first two events of each replay: the median of 4064, 3553 and 3553 ns, and so on.
    assert_eq!(found.costs[..2], [Some(3_553), Some(3_072)]);
    assert!(found.costs.iter().all(|cost| cost.is_some_and(|ns| (1_000..9_000).contains(&ns))));
    for replay in &found.replays {
        // Each of the three branches ran on one stream, in its order.
        let stream = |node: NodeId| {
            let of = |(place, id): &(usize, Option<NodeAt>)| {
                (*id == Some((GroupIx(0), NodeIx(node.0)))).then(|| profile.events[*place].stream)
            };
            replay.events.iter().find_map(of).expect("all are matched")
        };
        let mut kept = 0;
        for edge in graph.edges() {
            let chain =
                graph.successors(edge.from).len() == 1 && graph.predecessors(edge.to).len() == 1;
            if chain {
                assert_eq!(stream(edge.from), stream(edge.to), "{edge:?}");
                kept += 1;
            }
        }
        assert!(kept >= 45, "{kept}");
        let timeline = replay.timeline(&profile, "replay");
        let spans: Vec<usize> = timeline.lanes.iter().map(|lane| lane.spans.len()).collect();
        assert_eq!(spans, [21, 16, 16]);
    }
}

/// `name@stream` by start, one microsecond each; all of one launch.
fn trace(events: &str) -> Profile {
    let events = events.split_whitespace().enumerate().map(|(i, event)| {
        let (name, stream) = event.split_once('@').expect("a stream");
        let (cat, name) = match name {
            "set" => ("gpu_memset", "Memset (Device)"),
            "up" => ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)"),
            name => ("kernel", name),
        };
        format!(
            r#"{{"ph": "X", "cat": "{cat}", "name": "{name}", "ts": {i}, "dur": 0.{i}, "tid": {stream},
                "args": {{"correlation": 9}}}}"#
        )
    });
    let events: Vec<String> = events.collect();
    read(format!("[{}]", events.join(",")).as_bytes()).expect("a trace")
}

/// Nodes by name (`up`, `set`, `-` for an empty node) and edges.
fn graph(names: &str, edges: &[(u32, u32)]) -> ComputeGraph {
    let mut b = GraphBuilder::new();
    for name in names.split_whitespace() {
        match name {
            "up" => b.add_memcpy("up", MemcpyDir::HostToDevice, 64),
            "set" => b.add_memset("set", 64, 0),
            "-" => b.add_barrier("point"),
            name => b.add_kernel(name, 1, 32, 0).finish(),
        };
    }
    for &(from, to) in edges {
        b.dep(NodeId(from), NodeId(to));
    }
    b.build().expect("a graph")
}

/// The node of each event, behind its group and a colon if it is an inner one, `.` for none; then the nodes that were not
/// found.
fn shown(found: &Matching) -> String {
    let one = |node: Option<NodeAt>| match node {
        None => ".".into(),
        Some((GroupIx(0), node)) => node.to_string(),
        Some((group, node)) => format!("{group}:{node}"),
    };
    let events: Vec<String> =
        found.replays.iter().flat_map(|r| &r.events).map(|&(_, node)| one(node)).collect();
    let missing: Vec<String> = found.unmatched_nodes.iter().map(|n| n.0.to_string()).collect();
    format!("{}; {}", events.join(" "), missing.join(" "))
}

#[test]
fn events_become_nodes_by_order_and_name() {
    type Case<'a> = (&'a str, &'a str, &'a [(u32, u32)], &'a str, &'a str);
    let fork: &[(u32, u32)] = &[(0, 1), (0, 2), (1, 3), (2, 4)];
    let cases: &[Case] = &[
        ("a chain", "a b c", &[(0, 1), (1, 2)], "a@1 b@1 c@1", "0 1 2; "),
        (
            "copies, fills and points",
            "up - set k",
            &[(0, 1), (1, 2), (2, 3)],
            "up@1 set@1 k@1",
            "0 2 3; ",
        ),
        ("branches keep their streams", "a k k k k", fork, "a@1 k@1 k@2 k@2 k@1", "0 1 2 4 3; "),
        ("a node is missing", "a b c", &[(0, 1), (1, 2)], "a@1 c@1", "0 2; 1"),
        ("an event is foreign", "a b", &[(0, 1)], "a@1 x@1 b@1", "0 . 1; "),
        ("more events than nodes", "a b", &[(0, 1)], "a@1 b@1 b@1", "0 1 .; "),
        ("parameters and namespaces", "f", &[], "f(int)@1 g@1", "0 .; "),
        ("the only one of that name", "n::f<int>", &[], "n::f<long>@1 g@1", "0 .; "),
        ("one of two of that name", "f<int> f<char>", &[], "f<long>@1 f<char>@1", ". 1; 0"),
        ("nothing is alike", "a b", &[], "x@1 y@1", "; 0 1"),
    ];
    for (name, nodes, edges, events, want) in cases {
        let found = find(&graph(nodes, edges), &trace(events));
        assert_eq!(shown(&found), *want, "{name}");
    }
}

#[test]
fn a_child_graph_costs_what_its_nodes_cost() {
    let mut b = GraphBuilder::new();
    let first = b.add_kernel("a", 1, 32, 0).finish();
    let child = b.add_child("inner", graph("k l", &[(0, 1)]));
    let last = b.add_kernel("z", 1, 32, 0).finish();
    b.chain(&[first, child, last]);
    let found = find(&b.build().expect("a graph"), &trace("a@1 k@1 l@1 z@1"));
    assert_eq!(shown(&found), "0 1:0 1:1 2; ");
    assert_eq!(found.costs, [Some(0), Some(300), Some(300)]);
    let inner = [((GroupIx(1), NodeIx(0)), 100), ((GroupIx(1), NodeIx(1)), 200)];
    assert_eq!(found.inner, inner.into());
}

/// Kernels by name, one after the other; `if(…)`, `while(…)` and `child(…)` hold graphs.
fn nested(text: &str) -> ComputeGraph {
    let mut open: Vec<(&str, GraphBuilder, Option<NodeId>)> = vec![("", GraphBuilder::new(), None)];
    let spaced = text.replace(')', " ) ").replace('(', "( ");
    for token in spaced.split_whitespace() {
        if token.ends_with('(') {
            open.push((token, GraphBuilder::new(), None));
            continue;
        }
        let inner = (token == ")").then(|| open.pop().expect("an open bracket"));
        let (_, builder, last) = open.last_mut().expect("a graph");
        let node = match inner {
            None => builder.add_kernel(token, 1, 32, 0).finish(),
            Some((kind, inner, _)) => {
                let inner = inner.build().expect("a graph");
                match kind {
                    "child(" => builder.add_child("inner", inner),
                    kind => {
                        let kind = match kind {
                            "if(" => ConditionalKind::If,
                            _ => ConditionalKind::While,
                        };
                        builder.add_conditional("choice", kind, Condition::Handle(7), vec![inner])
                    }
                }
            }
        };
        if let Some(before) = last.replace(node) {
            builder.dep(before, node);
        }
    }
    open.pop().expect("a graph").1.build().expect("a graph")
}

#[test]
fn bodies_run_as_often_as_events_say() {
    for (name, nodes, events, want) in [
        ("a branch taken", "a if(k l) z", "a@1 k@1 l@1 z@1", "0 1:0 1:1 2; "),
        ("a branch not taken", "a if(k l) z", "a@1 z@1", "0 2; "),
        (
            "three rounds",
            "a while(k l) z",
            "a@1 k@1 l@1 k@1 l@1 k@1 l@1 z@1",
            "0 1:0 1:1 1:0 1:1 1:0 1:1 2; ",
        ),
        ("no round", "a while(k) z", "a@1 z@1", "0 2; "),
        ("the same kernel after the loop", "while(k) k", "k@1 k@1 k@1", "1:0 1:0 1; "),
        ("the same kernel before the loop", "k while(k) z", "k@1 k@1 k@1 z@1", "0 1:0 1:0 2; "),
        (
            "a branch in a loop",
            "while(a if(k) b) z",
            "a@1 b@1 a@1 k@1 b@1 z@1",
            "1:0 1:2 1:0 2:0 1:2 1; ",
        ),
        ("a child in a loop", "while(child(k l)) z", "k@1 l@1 k@1 l@1 z@1", "2:0 2:1 2:0 2:1 1; "),
        (
            "two loops with a kernel between",
            "while(k) m while(k)",
            "k@1 k@1 m@1 k@1",
            "1:0 1:0 1 2:0; ",
        ),
        ("after what follows a loop it is over", "while(k) m n", "k@1 m@1 k@1 n@1", "1:0 1 . 2; "),
        ("a node outside is missing", "a if(k) z", "a@1 k@1", "0 1:0; 2"),
    ] {
        let found = find(&nested(nodes), &trace(events));
        assert_eq!(shown(&found), want, "{name}");
    }
    // Rounds of 100 and 200 ns: the body's node has their median, the loop their sum.
    let found = find(&nested("a while(k) z"), &trace("a@1 k@1 k@1 z@1"));
    assert_eq!(found.costs, [Some(0), Some(300), Some(300)]);
    assert_eq!(found.inner, [((GroupIx(1), NodeIx(0)), 200)].into());
}
