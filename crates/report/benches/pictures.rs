//! How long drawings and pages of large graphs take, the least of five; prints the table of BENCHMARKS.md.

use std::time::{Duration, Instant};

use phonograph_report::html::{Page, Section, html};
use phonograph_report::picture::{Edge, Group, Node, NodeClass, NodeIx, Picture};
use phonograph_report::svg;

fn picture(nodes: usize, edges: impl IntoIterator<Item = (usize, usize)>) -> Picture {
    let mut group = Group::new("main");
    group.nodes = (0..nodes)
        .map(|n| Node::new(NodeClass::Kernel, format!("node_{n}")).line("64 blocks of 256"))
        .collect();
    let edge = |(from, to)| Edge::new(NodeIx(from as u32), NodeIx(to as u32));
    group.edges = edges.into_iter().map(edge).collect();
    Picture { title: "graph".into(), groups: vec![group] }
}

/// Each node depends on the one above and the one to the left, and with `far` on the one that many rows above.
fn wavefront(rows: usize, columns: usize, far: Option<usize>) -> Picture {
    let mut edges = Vec::new();
    for n in 0..rows * columns {
        let (row, column) = (n / columns, n % columns);
        edges.extend((row > 0).then(|| (n - columns, n)));
        edges.extend((column > 0).then(|| (n - 1, n)));
        let far = far.filter(|&far| row >= far).map(|far| (n - far * columns, n));
        edges.extend(far);
    }
    picture(rows * columns, edges)
}

/// Each node depends on up to three of the `span` before it.
fn random(nodes: usize, span: usize) -> Picture {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut draw = |below: usize| {
        // Xorshift: any fixed sequence will do.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let mut edges = Vec::new();
    for n in 1..nodes {
        for _ in 0..draw(4) {
            edges.push((n - 1 - draw(span.min(n)), n));
        }
    }
    edges.sort_unstable();
    edges.dedup();
    picture(nodes, edges)
}

fn least(mut run: impl FnMut() -> usize) -> (Duration, usize) {
    let mut best = (Duration::MAX, 0);
    for _ in 0..5 {
        let start = Instant::now();
        let bytes = run();
        best = best.min((start.elapsed(), bytes));
    }
    best
}

fn main() {
    println!("| graph | nodes | edges | SVG | page |\n| --- | --- | --- | --- | --- |");
    for (name, picture) in [
        ("random, edges up to 20 back", random(250, 20)),
        ("wavefront 50 × 100", wavefront(50, 100, None)),
        ("wavefront 100 × 100", wavefront(100, 100, None)),
        ("the same with edges 10 rows back", wavefront(100, 100, Some(10))),
        ("random, edges up to 200 back", random(10_000, 200)),
        ("random, edges from anywhere", random(10_000, 10_000)),
        ("random, collapsed", random(100_000, 200)),
    ] {
        let group = &picture.groups[0];
        let (nodes, edges) = (group.nodes.len(), group.edges.len());
        let drawn = least(|| svg(&picture).expect("no cycle").len());
        let page = Page {
            title: name.into(),
            summary: Vec::new(),
            sections: vec![Section::Graph(picture.clone())],
        };
        let paged = least(|| html(&page).expect("no cycle").len());
        let [drawn, paged] = [drawn, paged].map(|(time, bytes)| {
            format!("{:.3} s, {:.1} MB", time.as_secs_f64(), bytes as f64 / 1e6)
        });
        println!("| {name} | {nodes} | {edges} | {drawn} | {paged} |");
    }
}
