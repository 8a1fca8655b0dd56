//! JSON: everything survives, whatever is wrong has a place.

mod common;

use arbtest::arbitrary::Unstructured;
use phonograph_graph::{
    ComputeGraph, GraphBuilder, JsonError, NodeKind, Scalar, from_json, to_json,
};

#[test]
fn random_graphs_survive() {
    arbtest::arbtest(|u| {
        let graph = common::graph(u)?;
        let text = to_json(&graph);
        let back = from_json(text.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(back, graph, "{text}");
        assert_eq!(to_json(&back), text);
        Ok(())
    })
    .budget_ms(1000);
}

#[test]
fn the_generator_makes_every_kind() {
    let mut seen = std::collections::BTreeSet::new();
    let mut count = |graph: &ComputeGraph| {
        for node in graph.nodes() {
            seen.insert(node.kind.name());
        }
    };
    let mut bytes = vec![0u8; 1 << 14];
    let mut state = 1u64;
    for _ in 0..200 {
        for byte in &mut bytes {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *byte = (state >> 56) as u8;
        }
        count(&common::graph(&mut Unstructured::new(&bytes)).unwrap());
    }
    assert_eq!(seen.len(), 11, "{seen:?}");
}

#[test]
fn values_that_are_no_numbers_survive() {
    let mut b = GraphBuilder::new();
    for (index, value) in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0].into_iter().enumerate()
    {
        b.slot(&index.to_string(), value);
    }
    let back = from_json(to_json(&b.build().unwrap()).as_bytes()).unwrap();
    let values: Vec<f32> = back
        .slots()
        .iter()
        .map(|slot| match slot.default {
            Scalar::F32(value) => value,
            other => panic!("{other}"),
        })
        .collect();
    assert!(values[0].is_nan());
    assert_eq!(values[1..3], [f32::INFINITY, f32::NEG_INFINITY]);
    assert!(values[3] == 0.0 && values[3].is_sign_negative());
}

/// A file of one graph with these members.
fn file(members: &str) -> String {
    format!("{{\"phonograph\": 1, \"graph\": {{{members}}}}}")
}

fn kernel(members: &str) -> String {
    let buffers = r#""buffers": [{"name": "x", "bytes": 64}, {"name": "y", "bytes": 64}]"#;
    let slots = r#""slots": [{"name": "s", "default": "f32 1"}]"#;
    file(&format!(
        "{buffers}, {slots}, \"nodes\": [{{\"name\": \"k\", \"kernel\": {{{members}}}}}]"
    ))
}

#[test]
fn mistakes_are_named() {
    let two = r#""nodes": [{"name": "a", "empty": {}}, {"name": "b", "empty": {}}]"#;
    let nested = (0..20).fold(r#"{"nodes": []}"#.to_owned(), |inner, _| {
        format!("{{\"nodes\": [{{\"child_graph\": {inner}}}]}}")
    });
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let cases: Vec<(&str, String)> = vec![
        ("empty file", String::new()),
        ("cut", r#"{"phonograph": 1, "graph": {"nodes": ["#.into()),
        ("not an object", "[]".into()),
        ("no version", r#"{"graph": {"nodes": []}}"#.into()),
        ("newer version", r#"{"phonograph": 2, "graph": {"lanes": []}}"#.into()),
        ("newer version, last", r#"{"tables": {}, "phonograph": 7}"#.into()),
        ("unknown member", r#"{"phonograph": 1, "graph": {"nodes": []}, "plan": {}}"#.into()),
        ("unknown member of a graph", file(r#""nodes": [], "lanes": []"#)),
        ("unknown kind", file(r#""nodes": [{"kernle": {}}]"#)),
        ("no kind", file(r#""nodes": [{"name": "a"}]"#)),
        ("two kinds", file(r#""nodes": [{"empty": {}, "mem_free": 0}]"#)),
        ("a name twice", file(r#""nodes": [{"name": "a", "name": "b", "empty": {}}]"#)),
        ("a negative size", file(r#""buffers": [{"bytes": -1}], "nodes": []"#)),
        ("a wrong role", file(r#""buffers": [{"bytes": 1, "role": "mine"}], "nodes": []"#)),
        ("a wrong alignment", file(r#""buffers": [{"bytes": 1, "align": 3}], "nodes": []"#)),
        (
            "an outer buffer outermost",
            file(r#""buffers": [{"bytes": 1, "role": {"outer": 0}}], "nodes": []"#),
        ),
        ("a wrong scalar", kernel(r#""args": ["f32 one"]"#)),
        ("no such slot", kernel(r#""args": [{"slot": "t"}]"#)),
        ("no such buffer", kernel(r#""args": [{"slot": 0}, {"buffer": 7, "access": "read"}]"#)),
        ("no access", kernel(r#""args": [{"buffer": "x"}]"#)),
        ("slot and buffer", kernel(r#""args": [{"buffer": "x", "slot": 0}]"#)),
        (
            "out of bounds",
            kernel(
                r#""args": ["u8 1", {"buffer": "y", "access": "read", "offset": 60, "bytes": 8}]"#,
            ),
        ),
        (
            "begins past its end",
            kernel(r#""args": [{"buffer": "y", "access": "read", "offset": 65}]"#),
        ),
        (
            "type without shape",
            kernel(r#""args": [{"buffer": "y", "access": "read", "dtype": "f32"}]"#),
        ),
        (
            "shape without type",
            kernel(r#""args": [{"buffer": "y", "access": "read", "shape": [1]}]"#),
        ),
        (
            "too many axes",
            kernel(
                r#""args": [{"buffer": "y", "access": "read", "dtype": "f32", "shape": [1,1,1,1,1,1,1]}]"#,
            ),
        ),
        ("grid without block", kernel(r#""grid": 4"#)),
        ("a grid of four", kernel(r#""grid": [1, 2, 3, 4], "block": 1"#)),
        ("a grid of nothing", kernel(r#""grid": 0, "block": 1"#)),
        ("two kernels", kernel(r#""function": "f", "library": "matmul""#)),
        ("no such library kernel", kernel(r#""library": "softmax""#)),
        ("a reduction without axis", kernel(r#""library": "argmax""#)),
        (
            "a wrong operand",
            kernel(
                r#""library": "matmul", "args": [
            {"buffer": "x", "access": "read", "dtype": "f32", "shape": [2, 3]},
            {"buffer": "x", "access": "read", "dtype": "f32", "shape": [4, 3]},
            {"buffer": "y", "access": "write", "dtype": "f32", "shape": [2, 3]}]"#,
            ),
        ),
        (
            "a wrong operation",
            kernel(r#""elementwise": {"ops": ["plus v0 v1"], "outputs": ["f32 v0"]}"#),
        ),
        ("a later value", kernel(r#""elementwise": {"ops": ["neg v0"], "outputs": ["f32 v0"]}"#)),
        ("an edge to nowhere", file(&format!("{two}, \"edges\": [[0, 1], [0, 2]]"))),
        ("an edge to no such name", file(&format!("{two}, \"edges\": [[\"a\", \"c\"]]"))),
        ("an edge to itself", file(&format!("{two}, \"edges\": [[0, 1], [1, 1]]"))),
        ("an edge of one", file(&format!("{two}, \"edges\": [[0]]"))),
        ("a cycle", file(&format!("{two}, \"edges\": [[0, 1], [1, 0]]"))),
        (
            "a weak edge",
            file(&format!(
                "{two}, \"edges\": [{{\"from\": 0, \"to\": 1, \"kind\": \"programmatic\", \"from_port\": 1}}]"
            )),
        ),
        (
            "a weak edge without port",
            file(&format!(
                "{two}, \"edges\": [{{\"from\": 0, \"to\": 1, \"kind\": \"programmatic\"}}]"
            )),
        ),
        (
            "names that are not unique",
            file(
                r#""nodes": [{"name": "a", "empty": {}}, {"name": "a", "empty": {}}], "edges": [["a", 1]]"#,
            ),
        ),
        (
            "a body that is missing",
            file(r#""nodes": [{"conditional": {"kind": "while", "handle": 1, "bodies": []}}]"#),
        ),
        (
            "a condition that is not there",
            file(r#""nodes": [{"conditional": {"kind": "while", "bodies": []}}]"#),
        ),
        (
            "a wrong condition",
            file(
                r#""buffers": [{"bytes": 1}], "nodes": [{"conditional": {"kind": "if", "condition": {"buffer": 0, "dtype": "i32", "shape": []}, "bodies": [{"nodes": [{"kernel": {}}]}]}}]"#,
            ),
        ),
        ("inside a child", file(r#""nodes": [{"child_graph": {"nodes": [{"mem_free": 3}]}}]"#)),
        (
            "an external buffer inside",
            file(
                r#""nodes": [{"child_graph": {"buffers": [{"bytes": 1, "role": "external"}], "nodes": []}}]"#,
            ),
        ),
        ("nested too deep", format!("{{\"phonograph\": 1, \"graph\": {nested}}}")),
        ("brackets", deep),
        (
            "not UTF-8",
            "{\"phonograph\": 1, \"graph\": {\"name\": \"\u{fffd}\", \"nodes\": []}}".into(),
        ),
    ];
    let mut all = String::new();
    for (what, text) in cases {
        let mut bytes = text.into_bytes();
        if what == "not UTF-8" {
            let at = bytes.iter().position(|&b| b == 0xef).unwrap();
            bytes[at] = 0xff;
        }
        let error = from_json(&bytes).err().unwrap_or_else(|| panic!("{what} was accepted"));
        all += &format!("{what}: {error}\n");
    }
    insta::assert_snapshot!(all);
}

/// Any error has a place: a line, or the path to a value.
fn has_place(error: &JsonError) -> bool {
    match error {
        JsonError::TooLarge { .. } | JsonError::Version { .. } => true,
        JsonError::Syntax { line, .. } => *line > 0,
        JsonError::Value { path, .. } | JsonError::Graph { path, .. } => path.starts_with("graph"),
    }
}

#[test]
fn damaged_files_are_refused_with_a_place() {
    arbtest::arbtest(|u| {
        let text = to_json(&common::graph(u)?);
        let mut bytes = text.into_bytes();
        match u.int_in_range(0..=2)? {
            0 => bytes.truncate(u.int_in_range(0..=bytes.len() - 1)?),
            1 => {
                for _ in 0..u.int_in_range(1..=4)? {
                    let at = u.choose_index(bytes.len())?;
                    bytes[at] = *u.choose(b"{}[],:\"0123456789-eEtfn\\ \xffabvs")?;
                }
            }
            _ => bytes = u.arbitrary()?,
        }
        match from_json(&bytes) {
            // A damaged number or name may still be a valid one.
            Ok(graph) => assert_eq!(from_json(to_json(&graph).as_bytes()).as_ref(), Ok(&graph)),
            Err(error) => assert!(has_place(&error) || bytes.is_empty(), "{error}"),
        }
        Ok(())
    })
    .budget_ms(1000);
}

#[test]
fn edges_left_out_are_inferred() {
    let text = file(
        r#""buffers": [{"name": "x", "bytes": 64}],
        "nodes": [
            {"name": "f", "kernel": {"args": [{"buffer": "x", "access": "write"}]}},
            {"name": "g", "kernel": {"args": [{"buffer": "x", "access": "read"}]}}
        ]"#,
    );
    let graph = from_json(text.as_bytes()).unwrap();
    assert_eq!(graph.edge_count(), 1);
    let none = from_json(text.replace("\"nodes\"", "\"edges\": [], \"nodes\"").as_bytes()).unwrap();
    assert_eq!(none.edge_count(), 0);
    // Inference can cost the square of the operands: large files must say.
    let operand = r#"{"buffer": "x", "access": "read"},"#.repeat(4096);
    let large = text.replace("{\"args\": [", &format!("{{\"args\": [{operand}"));
    let error = from_json(large.as_bytes()).unwrap_err().to_string();
    assert_eq!(error, "graph: `edges` must be given in a file of more than 4096 operands");
}

#[test]
fn a_file_holds_what_the_graph_does() {
    let text = include_str!("data/every_node.json");
    let graph = from_json(text.as_bytes()).unwrap();
    let kinds: std::collections::BTreeSet<&str> =
        graph.nodes().iter().map(|node| node.kind.name()).collect();
    assert_eq!(kinds.len(), 11, "{kinds:?}");
    assert!(
        graph
            .nodes()
            .iter()
            .any(|n| matches!(&n.kind, NodeKind::Conditional(c) if c.bodies.len() == 2))
    );
    insta::assert_snapshot!(to_json(&graph));
}

/// A million nodes, as many edges, two operands each: the size that must stay a matter of seconds.
#[test]
#[ignore = "takes seconds; run with --release -- --ignored --nocapture"]
fn a_million_nodes() {
    let graph = common::chain(1_000_000);
    let start = std::time::Instant::now();
    let text = to_json(&graph);
    println!("wrote {} MB in {:?}", text.len() >> 20, start.elapsed());
    let start = std::time::Instant::now();
    let back = from_json(text.as_bytes()).unwrap();
    println!("read in {:?}", start.elapsed());
    assert_eq!(back, graph);
}
