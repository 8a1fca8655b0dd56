//! DOT: what is written can be read, whatever is wrong has a place.

mod common;

use arbtest::arbitrary::Unstructured;
use phonograph_graph::{
    ComputeGraph, DotError, Edge, KernelRef, NodeKind, Pitched, Target, from_dot, to_dot,
};

/// What survives DOT, as text to compare.
fn essence(graph: &ComputeGraph) -> String {
    let mut all = format!("graph {:?}\n", graph.name());
    let end = |end: &Pitched| {
        let target = match end.target {
            Target::Buffer(_) | Target::Unspecified => None,
            Target::Address(address) => Some(address),
        };
        (target, end.offset, end.pitch, end.slice_rows)
    };
    for node in graph.nodes() {
        let detail = match &node.kind {
            NodeKind::Kernel(kernel) => {
                let config = kernel.config;
                let known = config.is_known().then_some(config);
                format!("{:?} {known:?}", kernel.kernel.name())
            }
            NodeKind::Memcpy(copy) => {
                format!("{} {:?} {:?} {:?}", copy.dir, end(&copy.src), end(&copy.dst), copy.extent)
            }
            NodeKind::Memset(set) => {
                let size = set.element_size;
                format!("{} {size} {:?} {:?}", set.value, end(&set.dst), set.extent)
            }
            NodeKind::Host(host) => format!("{:?}", host.function),
            NodeKind::EventRecord(event) | NodeKind::EventWait(event) => event.to_string(),
            NodeKind::Alloc(buffer) => graph.buffer(*buffer).bytes.to_string(),
            NodeKind::Conditional(conditional) => format!("{:?}", conditional.kind),
            NodeKind::Empty | NodeKind::Free(_) | NodeKind::Child(_) => String::new(),
        };
        all += &format!("{} {:?} {:?} {detail}\n", node.kind.name(), node.name, node.stream);
        for inner in node.kind.inner_graphs() {
            all += &essence(inner);
        }
    }
    let edges: Vec<Edge> = graph.edges().collect();
    all += &format!("{edges:?}\nend\n");
    all
}

#[test]
fn random_graphs_survive_as_far_as_dot_goes() {
    arbtest::arbtest(|u| {
        let graph = common::graph(u)?;
        let text = to_dot(&graph);
        let back = from_dot(text.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(essence(&back), essence(&graph), "{text}");
        assert_eq!(to_dot(&graph), text);
        Ok(())
    })
    .budget_ms(1000);
}

#[test]
fn a_picture_of_every_kind() {
    let text = include_str!("data/every_node.json");
    let graph = phonograph_graph::from_json(text.as_bytes()).unwrap();
    insta::assert_snapshot!(to_dot(&graph));
}

fn node(name: &str, label: &str) -> String {
    format!("\"{name}\"[shape=\"record\" label=\"{label}\"];\n")
}

fn cluster(number: u32, statements: &str) -> String {
    format!("subgraph cluster_{number} {{\nlabel=\"graph_{number}\";\n{statements}}}\n")
}

fn file(clusters: &[String]) -> String {
    format!("digraph dot {{\n{}}}\n", clusters.concat())
}

#[test]
fn mistakes_are_named_with_their_place() {
    let empty = "\"a\"[label=\"0\nEMPTY\n\"];\n";
    let other = "\"b\"[label=\"1\nEMPTY\n\"];\n";
    let child = |name: &str, of: u32| format!("\"{name}\"[label=\"0\ngraph_{of}\n\"];\n");
    let one = |label: &str| file(&[cluster(1, &node("a", label))]);
    let wide = "subgraph cluster_1 {}\nsubgraph cluster_7 {}\n".to_owned();
    let deep: Vec<String> = (0..20).map(|n| cluster(n, &child(&format!("n{n}"), n + 1))).collect();
    let deep = file(&[deep.concat(), cluster(20, "")]);
    let cases: Vec<(&str, String)> = vec![
        ("empty file", String::new()),
        ("no graph", "hello".into()),
        ("undirected", "graph { a -- b }".into()),
        ("no brace", "digraph dot\n".into()),
        ("cut in a string", format!("digraph dot {{\n{}", &node("a", "{KERNEL")[..30])),
        ("cut in a cluster", "digraph dot {\n subgraph cluster_1 {\n".into()),
        ("cut in attributes", "digraph dot {\n \"a\"[label=\"x\" ".into()),
        ("cut after a file", "digraph dot {\n".into()),
        ("a brace too many", format!("{}}}", file(&[]))),
        ("text after the graph", format!("{}digraph {{}}", file(&[]))),
        ("no value", "digraph { a [label=] }".into()),
        ("no equals sign", "digraph { a [label \"x\"] }".into()),
        ("a label of HTML", "digraph { a [label=<<b>x</b>>] }".into()),
        ("an edge to nothing", "digraph { a -> ; }".into()),
        ("an edge to a group", "digraph { a -> {b} }".into()),
        ("a port", "digraph { a:p -> b }".into()),
        ("an undirected edge", "digraph { a -- b }".into()),
        ("a stray letter", "digraph { \u{1} }".into()),
        ("a comment without end", "digraph { /* ".into()),
        ("no label", file(&[cluster(1, "\"a\";\n")])),
        ("no kind", one("0")),
        ("an unknown kind", one("0\nTELEPORT\n")),
        ("a kind that cannot be", one("0\nEXT_SEMAS_SIGNAL\n")),
        ("an unknown record", one("{TELEPORT | {ID | 0}}")),
        ("an open record", one("{KERNEL | {ID | 0 | f}")),
        ("a record too deep", one(&"{".repeat(40))),
        ("a kernel without name", one("{KERNEL | {cooperative | 0}}")),
        ("half a launch", one("{KERNEL | {ID | 0 | f\\<\\<\\<1,2\\>\\>\\>}}")),
        ("a launch of words", one("{KERNEL | {ID | 0 | f\\<\\<\\<a,b,c\\>\\>\\>}}")),
        ("a launch of nothing", one("{KERNEL | {ID | 0 | f\\<\\<\\<0,1,0\\>\\>\\>}}")),
        ("a launch too large", one("{KERNEL | {ID | 0 | f\\<\\<\\<4294967296,1,0\\>\\>\\>}}")),
        ("a fill without value", one("0\nMEMSET\n")),
        ("a fill without columns", one("{MEMSET | {{ID} | {0}}}")),
        (
            "a fill of thirds",
            one(
                "{MEMSET | {{dptr | pitch | value | elementSize | width | height} | {0x10 | 0 | 1 | 3 | 4 | 1}}}",
            ),
        ),
        ("a copy to the moon", one("0\nMEMCPY\n(DtoM00N,4)")),
        ("a copy without bytes", one("0\nMEMCPY\n(DtoH)")),
        ("a copy without ends", one("{MEMCPY | {{ID} | {0}}}")),
        ("a copy without extent", one("{MEMCPY | {kind | DtoH}}")),
        ("an unknown conditional", one("{CONDITIONAL | {Conditional Type | MAYBE}}")),
        ("a conditional without type", one("{CONDITIONAL | {True | graph_1}}")),
        ("a loop without body", one("{CONDITIONAL | {Conditional Type | WHILE}}")),
        ("bodies out of order", one("{CONDITIONAL | {Conditional Type | SWITCH} | {1 | graph_2}}")),
        ("an undefined node", file(&[cluster(1, &format!("{empty}\"a\" -> \"b\";\n"))])),
        ("a node twice", file(&[cluster(1, &format!("{empty}{empty}"))])),
        (
            "an edge between graphs",
            file(&[cluster(1, empty), cluster(2, &format!("{other}\"a\" -> \"b\";\n"))]),
        ),
        ("an undefined cluster", file(&[cluster(1, &child("a", 9))])),
        ("a cluster twice", file(&[cluster(1, empty), cluster(1, other)])),
        ("a cluster in itself", file(&[cluster(1, &child("a", 1))])),
        (
            "clusters in each other",
            file(&[cluster(1, empty), cluster(2, &child("c", 3)), cluster(3, &child("d", 2))]),
        ),
        (
            "a cluster of two nodes",
            file(&[cluster(1, &format!("{}{}", child("a", 2), child("b", 2))), cluster(2, "")]),
        ),
        ("several graphs", format!("digraph {{\n{wide}}}")),
        ("nested too deep", deep),
        ("a cycle", file(&[cluster(1, &format!("{empty}{other}\"a\" -> \"b\" -> \"a\";\n"))])),
        ("an edge to itself", file(&[cluster(1, &format!("{empty}\"a\" -> \"a\";\n"))])),
        (
            "a weak edge",
            file(&[cluster(
                1,
                &format!("{empty}{other}\"a\" -> \"b\" [edge_kind=programmatic from_port=1];\n"),
            )]),
        ),
        (
            "a port too large",
            file(&[cluster(1, &format!("{empty}{other}\"a\" -> \"b\" [from_port=256];\n"))]),
        ),
        ("braces", "digraph ".to_owned() + &"{".repeat(100_000)),
        ("not UTF-8", "digraph { \"?\" }".into()),
    ];
    let mut all = String::new();
    for (what, text) in cases {
        let mut bytes = text.into_bytes();
        if what == "not UTF-8" {
            bytes[11] = 0xff;
        }
        let error = from_dot(&bytes).err().unwrap_or_else(|| panic!("{what} was accepted"));
        assert!(error.place().is_some(), "{what}: {error}");
        all += &format!("{what}: {error}\n");
    }
    insta::assert_snapshot!(all);
}

#[test]
fn the_rest_of_the_language_is_understood() {
    let text = "/* a */ strict DiGraph \"x\" + \"y\" { // b
# c
node [shape=box]; edge [color=red], rankdir=LR
{ rank=same a [label=\"0\\nEMPTY\\l\"] }
subgraph s { \"b\" [ \"label\" = \"1\\nEMPTY\", style=solid; style=bold ] [color=blue] }
a -> b -> -1.5 [weight=2];
-1.5 [label=\"2\
\\nEM\" + \"PTY\"]
}";
    // A bare comma is no statement.
    assert!(from_dot(text.as_bytes()).is_err());
    let graph = from_dot(text.replace(", rankdir", "; rankdir").as_bytes()).unwrap();
    assert_eq!((graph.name(), graph.node_count(), graph.edge_count()), ("xy", 3, 2));
}

#[test]
fn an_address_that_is_given_out_again_is_another_buffer() {
    let alloc = |name: &str, bytes: u64| {
        node(name, &format!("{{MEM_ALLOC | {{{{bytesize | dptr}} | {{{bytes} | 0x10}}}}}}"))
    };
    let free = |name: &str| node(name, "{MEM_FREE | {{dptr} | {0x10}}}");
    // In the file the second pair comes first.
    let nodes = [free("f2"), alloc("a2", 20), free("f1"), alloc("a1", 10), free("f3")].concat();
    let edges = "a1 -> f1 -> a2 -> f2; f3 -> a1;\n";
    let graph = from_dot(file(&[cluster(1, &(nodes + edges))]).as_bytes()).unwrap();
    let bytes: Vec<u64> = graph
        .nodes()
        .iter()
        .map(|node| match node.kind {
            NodeKind::Alloc(buffer) | NodeKind::Free(buffer) => graph.buffer(buffer).bytes,
            _ => panic!(),
        })
        .collect();
    // What is freed before any allocation comes from elsewhere.
    assert_eq!(bytes, [20, 20, 10, 10, 0]);
}

#[test]
fn events_are_numbered_as_they_appear() {
    let event = |name: &str, kind: &str, handle: &str| {
        format!("\"{name}\"[label=\"0\n{kind}\nevent: {handle}\n\"];\n")
    };
    let outer = [
        event("a", "EVENT_WAIT", "0xB"),
        event("b", "EVENT_RECORD", "0xA"),
        "\"c\"[label=\"2\ngraph_2\n\"];\n".to_owned(),
    ];
    let inner = [event("d", "EVENT_RECORD", "0xC"), event("e", "EVENT_WAIT", "0xB")];
    let text = file(&[cluster(1, &outer.concat()), cluster(2, &inner.concat())]);
    let graph = from_dot(text.as_bytes()).unwrap();
    let ids = |graph: &ComputeGraph| -> Vec<u32> {
        let events = graph.nodes().iter().filter_map(|node| match node.kind {
            NodeKind::EventRecord(event) | NodeKind::EventWait(event) => Some(event.0),
            _ => None,
        });
        events.collect()
    };
    assert_eq!(ids(&graph), [0, 1]);
    assert_eq!(ids(&graph.nodes()[2].kind.inner_graphs()[0]), [2, 0]);
}

#[test]
fn damaged_files_are_refused_with_a_place() {
    let dumps = [
        include_bytes!("data/every_node_all.dot").as_slice(),
        include_bytes!("data/every_node_plain.dot").as_slice(),
        include_bytes!("data/conditionals_copies_verbose.dot").as_slice(),
        include_bytes!("data/conditionals_copies_all.dot").as_slice(),
    ];
    arbtest::arbtest(|u: &mut Unstructured| {
        let mut bytes = match u.int_in_range(0..=4)? {
            0 => to_dot(&common::graph(u)?).into_bytes(),
            n => dumps[n - 1].to_vec(),
        };
        match u.int_in_range(0..=3)? {
            0 => bytes.truncate(u.int_in_range(0..=bytes.len() - 1)?),
            1 => {
                for _ in 0..u.int_in_range(1..=4)? {
                    let at = u.choose_index(bytes.len())?;
                    bytes[at] = *u.choose(b"{}[]<>|\\\",;:=->0123456789 \n\xffaEx")?;
                }
            }
            2 => {
                let (a, b) = (u.choose_index(bytes.len())?, u.choose_index(bytes.len())?);
                bytes.drain(a.min(b)..a.max(b));
            }
            _ => bytes = u.arbitrary()?,
        }
        match from_dot(&bytes) {
            Ok(graph) => {
                let back = from_dot(to_dot(&graph).as_bytes());
                let back = back.unwrap_or_else(|e| panic!("{e}\n{}", to_dot(&graph)));
                assert_eq!(essence(&back), essence(&graph));
            }
            Err(error) => {
                assert!(error.place().is_some(), "{error}");
                assert!(!matches!(error, DotError::TooLarge { .. }));
            }
        }
        Ok(())
    })
    .budget_ms(1500);
}

/// A million kernels as verbose as ours get: the size that must stay a matter of seconds.
#[test]
#[ignore = "takes seconds; run with --release -- --ignored --nocapture"]
fn a_million_nodes() {
    let graph = common::chain(1_000_000);
    let start = std::time::Instant::now();
    let text = to_dot(&graph);
    println!("wrote {} MB in {:?}", text.len() >> 20, start.elapsed());
    let start = std::time::Instant::now();
    let back = from_dot(text.as_bytes()).unwrap();
    println!("read in {:?}", start.elapsed());
    assert_eq!(back.node_count(), graph.node_count());
    assert!(
        matches!(&back.nodes()[0].kind, NodeKind::Kernel(k) if matches!(k.kernel, KernelRef::Named(_)))
    );
}
