//! Every recorded dump of the CUDA driver, and what it must give.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Read;
use std::path::Path;

use phonograph_graph::{
    BufferRole, ComputeGraph, Condition, MemcpyDir, NodeKind, Space, Target, from_dot, to_dot,
};

fn read(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    if path.extension().is_none_or(|e| e != "gz") {
        return bytes;
    }
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
    plain
}

fn data(file: &str) -> ComputeGraph {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(file);
    from_dot(&read(&path)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// `11 nodes, 11 edges: kernel 1, …; graphs inside: 2 and 1 nodes`.
fn summary(graph: &ComputeGraph) -> String {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    graph.nodes().iter().for_each(|node| *kinds.entry(node.kind.name()).or_default() += 1);
    let kinds: Vec<String> = kinds.iter().map(|(kind, n)| format!("{kind} {n}")).collect();
    let inner: Vec<String> = graph
        .nodes()
        .iter()
        .flat_map(|node| node.kind.inner_graphs())
        .map(|graph| format!("{}+{}", graph.node_count(), graph.edge_count()))
        .collect();
    let mut text = format!(
        "{} {}+{}: {}",
        graph.name(),
        graph.node_count(),
        graph.edge_count(),
        kinds.join(", ")
    );
    if !inner.is_empty() {
        write!(text, "; inside {}", inner.join(", ")).unwrap();
    }
    text
}

#[test]
fn print_all() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    for file in files {
        match from_dot(&read(&file)) {
            Ok(g) => {
                println!("{}: {}", file.display(), summary(&g));
                let text = to_dot(&g);
                let back = from_dot(text.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{text}"));
                println!("  {}", summary(&back));
                if g.node_count() < 20 {
                    println!("{:#?}", g.nodes());
                    println!("{text}");
                }
            }
            Err(e) => println!("{}: {e}", file.display()),
        }
    }
}
