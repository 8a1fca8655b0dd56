//! Rewritings: one for each way to be wrong, and some that look so; files in `data/rewrites`, named after what happens in them.
//!
//! A file has the `buffers` of both graphs, the graphs `before` and `after`, the `image` of the nodes (a number, or null for
//! those that are gone), and the `violations` that the checker must find.

use std::fs;
use std::path::Path;

use phonograph_graph::{ComputeGraph, Image, NodeId, check_rewrite, from_json};
use serde_json::{Value, json};

fn check(file: &Path) {
    let name = file.display();
    let case: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let graph = |which: &str| -> ComputeGraph {
        let mut graph = case[which].clone();
        graph["buffers"] = case["buffers"].clone();
        let file = json!({ "phonograph": 1, "graph": graph }).to_string();
        from_json(file.as_bytes()).unwrap_or_else(|error| panic!("{name}: {which}: {error}"))
    };
    let (before, after) = (graph("before"), graph("after"));
    let node = |image: &Value| image.as_u64().map(|image| NodeId(image as u32));
    let nodes = case["image"].as_array().unwrap().iter().map(node).collect();
    let image = Image { nodes, ..Image::default() };
    let found: Vec<String> =
        check_rewrite(&before, &after, &image).iter().map(ToString::to_string).collect();
    let expected: Vec<&str> =
        case["violations"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(found, expected, "{name}");
    // Nothing is wrong with leaving a graph as it is.
    let same = Image::identity(before.node_count());
    assert_eq!(check_rewrite(&before, &before, &same), [], "{name}");
}

#[test]
fn every_way_to_go_wrong_is_found() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rewrites");
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 10);
    files.iter().for_each(|file| check(file));
}
