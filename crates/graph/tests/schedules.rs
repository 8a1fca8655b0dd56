//! Schedules that are wrong, one for each way to be: files in `data/schedules`, named after what goes wrong in them.
//!
//! A file has the `graph`, the number of `streams`, the `steps` (`run a b on 0` runs nodes as one launch, `record 1 on 0` and
//! `wait 1 on 0` are events), the `reuse` edges, the `offsets` of the buffers and the bytes of their `pool`, and the
//! `violations` that the checker must find.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use phonograph_graph::{
    ComputeGraph, EventId, MemoryPlan, NodeId, Schedule, Space, Step, StreamId, check, from_json,
};
use serde_json::{Value, json};

fn step(graph: &ComputeGraph, text: &str) -> Step {
    let words: Vec<&str> = text.split(' ').collect();
    let [what, names @ .., "on", stream] = &words[..] else { panic!("no step: {text}") };
    let stream = StreamId(stream.parse().unwrap());
    let event = || EventId(names[0].parse().unwrap());
    match *what {
        "run" => Step::Run { nodes: names.iter().map(|name| node(graph, name)).collect(), stream },
        "record" => Step::Record { event: event(), stream },
        "wait" => Step::Wait { event: event(), stream },
        _ => panic!("no step: {text}"),
    }
}

fn node(graph: &ComputeGraph, name: &str) -> NodeId {
    let at = graph.nodes().iter().position(|node| &*node.name == name);
    NodeId::from_index(at.unwrap_or_else(|| panic!("no node {name}")))
}

fn strings(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn check_file(file: &Path) {
    let name = file.display();
    let case: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let graph = json!({ "phonograph": 1, "graph": case["graph"] }).to_string();
    let graph = from_json(graph.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"));
    let pool = case["pool"].as_u64().map(|bytes| (Space::Device(0), bytes));
    let edges = case["reuse"].as_array().into_iter().flatten();
    let schedule = Schedule {
        streams: case["streams"].as_u64().unwrap() as u32,
        steps: strings(&case["steps"]).map(|text| step(&graph, text)).collect(),
        reuse: edges
            .map(|edge| [0, 1].map(|end| node(&graph, edge[end].as_str().unwrap())).into())
            .collect(),
        memory: MemoryPlan {
            offsets: case["offsets"].as_array().into_iter().flatten().map(Value::as_u64).collect(),
            pools: BTreeMap::from_iter(pool),
        },
        inner: BTreeMap::new(),
    };
    let found: Vec<String> = check(&graph, &schedule).iter().map(ToString::to_string).collect();
    let expected: Vec<&str> = strings(&case["violations"]).collect();
    assert_eq!(found, expected, "{name}");
}

#[test]
fn every_way_to_go_wrong_is_found() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/schedules");
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 7);
    files.iter().for_each(|file| check_file(file));
}
