//! Every pass on random graphs: proved by the checker, and by a small interpreter that knows neither of them.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;
use common::Kind;
use phonograph_graph::{
    Arg, BufferId, BufferRole, ComputeGraph, ConditionalKind, Edge, EdgeData, Image, KernelRef,
    MemcpyNode, MemsetNode, NodeId, NodeKind, Pitched, Rebuild, Target, check_rewrite, lost_order,
    races,
};
use phonograph_plan::passes::{Pass, PassReport, Rewritten};

/// What each byte of each buffer holds: a name for its value.
type Memory = Vec<Vec<u64>>;

fn named(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// Runs a graph in some topological order that `u` chooses. What a node writes depends on its name and all that it reads.
fn run(u: &mut Unstructured, graph: &ComputeGraph, memory: &mut Memory) -> Result<()> {
    let mut missing: Vec<usize> =
        graph.node_ids().map(|node| graph.predecessors(node).len()).collect();
    let mut ready: Vec<NodeId> = graph.node_ids().filter(|n| missing[n.index()] == 0).collect();
    while !ready.is_empty() {
        let node = ready.swap_remove(u.choose_index(ready.len())?);
        run_node(u, graph, node, memory)?;
        for next in graph.successors(node) {
            missing[next.index()] -= 1;
            if missing[next.index()] == 0 {
                ready.push(*next);
            }
        }
    }
    Ok(())
}

fn run_node(
    u: &mut Unstructured,
    graph: &ComputeGraph,
    node: NodeId,
    memory: &mut Memory,
) -> Result<()> {
    let own = graph.node(node);
    match &own.kind {
        NodeKind::Empty => {}
        NodeKind::Memset(fill) => run_fill(fill, memory),
        NodeKind::Memcpy(copy) if known(copy.src) && known(copy.dst) => run_copy(copy, memory),
        NodeKind::Child(inner) => run_inner(u, inner, &own.name, memory)?,
        NodeKind::Conditional(conditional) => {
            let phonograph_graph::Condition::Value(view) = conditional.condition else {
                return Ok(());
            };
            let value = memory[view.buffer.index()][view.offset as usize];
            match conditional.kind {
                ConditionalKind::While => {
                    for _ in 0..value % 3 {
                        run_inner(u, &conditional.bodies[0], &own.name, memory)?;
                    }
                }
                _ => {
                    let body = (value % 2) as usize;
                    if let Some(body) = conditional.bodies.get(body) {
                        run_inner(u, body, &own.name, memory)?;
                    }
                }
            }
        }
        _ => {
            let operands = graph.operands(node);
            let mut seen: Vec<u64> = Vec::new();
            for (region, _) in operands.iter().filter(|(_, access)| access.reads()) {
                let bytes = region.offset as usize..region.end() as usize;
                seen.extend(&memory[region.buffer.index()][bytes]);
            }
            for (at, (region, _)) in operands.iter().enumerate().filter(|(_, o)| o.1.writes()) {
                for byte in 0..region.bytes {
                    let value = named((&own.name, at, byte, &seen));
                    memory[region.buffer.index()][(region.offset + byte) as usize] = value;
                }
            }
        }
    }
    Ok(())
}

fn known(end: Pitched) -> bool {
    matches!(end.target, Target::Buffer(_))
}

fn bytes(end: Pitched, extent: phonograph_graph::Extent) -> impl Iterator<Item = (usize, usize)> {
    let buffer = match end.target {
        Target::Buffer(buffer) => buffer.index(),
        _ => unreachable!("only ends with a buffer are asked"),
    };
    (0..extent.depth).flat_map(move |z| {
        (0..extent.height).flat_map(move |y| {
            let row = end.offset + (z * end.slice_rows + y) * end.pitch;
            (0..extent.width).map(move |x| (buffer, (row + x) as usize))
        })
    })
}

fn run_fill(fill: &MemsetNode, memory: &mut Memory) {
    let pattern = fill.value.to_le_bytes();
    for (at, (buffer, byte)) in bytes(fill.dst, fill.extent).enumerate() {
        let at = at as u64 % fill.extent.width % u64::from(fill.element_size);
        memory[buffer][byte] = u64::from(pattern[at as usize]);
    }
}

fn run_copy(copy: &MemcpyNode, memory: &mut Memory) {
    let from: Vec<u64> =
        bytes(copy.src, copy.extent).map(|(buffer, byte)| memory[buffer][byte]).collect();
    for ((buffer, byte), value) in bytes(copy.dst, copy.extent).zip(from) {
        memory[buffer][byte] = value;
    }
}

/// Memory of an inner graph's own holds anything at first, but the same anything whatever passes did.
fn run_inner(
    u: &mut Unstructured,
    graph: &ComputeGraph,
    name: &str,
    around: &mut Memory,
) -> Result<()> {
    let mut memory = initial(graph, name);
    for (index, buffer) in graph.buffers().iter().enumerate() {
        if let BufferRole::Outer(outer) = buffer.role {
            memory[index].clone_from(&around[outer.index()]);
        }
    }
    run(u, graph, &mut memory)?;
    for (index, buffer) in graph.buffers().iter().enumerate() {
        if let BufferRole::Outer(outer) = buffer.role {
            around[outer.index()].clone_from(&memory[index]);
        }
    }
    Ok(())
}

fn initial(graph: &ComputeGraph, name: &str) -> Memory {
    let bytes = |(index, buffer): (usize, &phonograph_graph::Buffer)| {
        (0..buffer.bytes).map(|byte| named(("initial", name, index, byte))).collect()
    };
    graph.buffers().iter().enumerate().map(bytes).collect()
}

/// What the user's buffers hold after two replays.
fn results(u: &mut Unstructured, graph: &ComputeGraph) -> Result<Memory> {
    let mut memory = initial(graph, "");
    for _ in 0..2 {
        run(u, graph, &mut memory)?;
    }
    let outside = |(index, _): &(usize, Vec<u64>)| {
        graph.buffer(BufferId::from_index(*index)).role != BufferRole::Internal
    };
    Ok(memory.into_iter().enumerate().filter(outside).map(|(_, bytes)| bytes).collect())
}

/// What is complete before each node starts, and waits.
fn closure(graph: &ComputeGraph) -> [Vec<BTreeSet<NodeId>>; 2] {
    let empty = vec![BTreeSet::new(); graph.node_count()];
    let [mut start, mut wait] = [empty.clone(), empty];
    for &node in graph.topological_order() {
        for edge in graph.incoming(node) {
            let mut complete = wait[edge.from.index()].clone();
            complete.insert(edge.from);
            if edge.data.is_full() {
                start[node.index()].extend(&complete);
            }
            wait[node.index()].extend(complete);
        }
    }
    [start, wait]
}

/// Pairs that were ordered and are not any more, among nodes that are still there.
fn lost(before: &ComputeGraph, after: &ComputeGraph, image: &Image) -> Vec<(NodeId, NodeId)> {
    let ([start, wait], [new_start, new_wait]) = (closure(before), closure(after));
    let mut lost = Vec::new();
    for to in before.node_ids() {
        let Some(new) = image.of(to) else { continue };
        let generated = after
            .node(new)
            .kernel()
            .is_some_and(|kernel| !matches!(kernel.kernel, KernelRef::Named(_)));
        for &from in &wait[to.index()] {
            let Some(old) = image.of(from).filter(|&old| old != new) else { continue };
            let at_start = start[to.index()].contains(&from) && !generated;
            let kept = if at_start { &new_start } else { &new_wait };
            if !kept[new.index()].contains(&old) {
                lost.push((from, to));
            }
        }
    }
    lost
}

fn has_race(graph: &ComputeGraph) -> bool {
    let inside = graph.nodes().iter().flat_map(|node| node.kind.inner_graphs());
    !races(graph).is_empty() || inside.into_iter().any(has_race)
}

/// Enough of a graph to see what went wrong with it.
fn told(graph: &ComputeGraph, indent: &str, text: &mut String) {
    for (index, buffer) in graph.buffers().iter().enumerate() {
        let (role, bytes) = (buffer.role, buffer.bytes);
        writeln!(text, "{indent}b{index} {} {role:?} {bytes}", buffer.name).unwrap();
    }
    for &node in graph.topological_order() {
        let name = &graph.node(node).name;
        write!(text, "{indent}{node} {name}:").unwrap();
        for edge in graph.incoming(node) {
            write!(text, " {}{}", edge.from, if edge.data.is_full() { "" } else { "~" }).unwrap();
        }
        for (region, access) in graph.operands(node) {
            let (buffer, from, to) = (region.buffer, region.offset, region.end());
            write!(text, " {} {buffer}[{from}..{to}]", access.name()).unwrap();
        }
        writeln!(text).unwrap();
        for inner in graph.node(node).kind.inner_graphs() {
            told(inner, &format!("{indent}    "), text);
        }
    }
}

/// Checks one rewriting in every way there is.
fn judge(u: &mut Unstructured, pass: Pass, before: &ComputeGraph, done: &Rewritten) -> Result<()> {
    let Rewritten { graph: after, image, report } = done;
    let story = || {
        let mut text = format!("{report}\n");
        told(before, "", &mut text);
        text.push_str("became\n");
        told(after, "", &mut text);
        text
    };
    assert_eq!(check_rewrite(before, after, image), [], "{}", story());
    assert_eq!(lost(before, after, image), [], "{}", story());
    if !has_race(before) {
        assert!(!has_race(after), "{}", story());
        // What a merged kernel computes only a backend can tell.
        if pass != Pass::Fusion {
            assert!(results(u, before)? == results(u, after)?, "{}", story());
        }
    }
    Ok(())
}

/// How often each change was made, and each reason to leave something given.
type Tally = BTreeMap<String, usize>;

fn count(report: &PassReport, tally: &mut Tally) {
    for (change, count) in report.counts() {
        *tally.entry(change.to_owned()).or_default() += count;
    }
    for left in &report.left {
        let why: String = format!("{:?}", left.why).chars().take_while(|c| *c != '(').collect();
        *tally.entry(why).or_default() += 1;
    }
}

/// One random graph through a random sequence of passes.
fn case(u: &mut Unstructured, kind: Kind, tally: &mut Tally) -> Result<()> {
    let mut graph = common::graph(u, kind)?;
    *tally.entry("graphs".to_owned()).or_default() += 1;
    for _ in 0..u.int_in_range(1..=8)? {
        let pass = *u.choose(&Pass::ALL)?;
        let done = pass.run(&graph).unwrap();
        judge(u, pass, &graph, &done)?;
        count(&done.report, tally);
        if pass == Pass::Edges {
            assert_eq!(lost_order(&graph, &done.graph), []);
            assert_eq!(lost_order(&done.graph, &graph), []);
        }
        graph = done.graph;
    }
    Ok(())
}

#[test]
fn every_sequence_of_passes_leaves_what_a_graph_does() {
    let mut tally = Tally::new();
    for kind in [Kind::Any, Kind::Runnable] {
        let cases = arbtest(|u| case(u, kind, &mut tally));
        cases.budget_ms(1_500).size_min(2_000).size_max(20_000).run();
    }
    // Every pass has found something to do.
    for change in [
        "dropped",
        "emptied",
        "merged",
        "reads through a copy",
        "updated in place",
        "edge removed",
        "edge weakened",
    ] {
        assert!(tally.contains_key(change), "nothing {change} in {tally:?}");
    }
}

/// A random way to get a rewriting wrong; `None` where it comes to nothing.
fn spoiled(u: &mut Unstructured, before: &ComputeGraph) -> Result<Option<Rewritten>> {
    let nodes: Vec<NodeId> = before.node_ids().collect();
    let mut rebuild = Rebuild::new(before);
    let (a, b) = (*u.choose(&nodes)?, *u.choose(&nodes)?);
    match u.int_in_range(0..=6)? {
        6 => {
            // A result is written over an input, whoever still wants that.
            let Some(kernel) = before.node(a).kernel() else { return Ok(None) };
            let (from, to) = (kernel.args.first(), kernel.args.last());
            let (Some(Arg::View(from, _)), Some(Arg::View(to, _))) = (from, to) else {
                return Ok(None);
            };
            let (from, to) = (from.buffer, to.buffer);
            for node in nodes {
                let mut other = before.node(node).clone();
                let named = |buffer: &mut BufferId| {
                    if *buffer == to {
                        *buffer = from;
                    }
                };
                match &mut other.kind {
                    NodeKind::Kernel(kernel) => {
                        for arg in &mut kernel.args {
                            match arg {
                                Arg::View(view, _) => named(&mut view.buffer),
                                Arg::Region(region, _) => named(&mut region.buffer),
                                Arg::Scalar(_) | Arg::Slot(_) => {}
                            }
                        }
                    }
                    NodeKind::Memcpy(copy) => {
                        for end in [&mut copy.src.target, &mut copy.dst.target] {
                            if let Target::Buffer(buffer) = end {
                                named(buffer);
                            }
                        }
                    }
                    _ => continue,
                }
                if other != *before.node(node) {
                    rebuild.replace(node, other);
                }
            }
        }
        0 => {
            let mut edges: Vec<Edge> = before.edges().collect();
            if edges.is_empty() {
                return Ok(None);
            }
            edges.swap_remove(u.choose_index(edges.len())?);
            rebuild.edges(edges);
        }
        1 => rebuild.drop_node(a),
        2 => {
            // The order stays, the work does not.
            let mut edges: Vec<Edge> = before.edges().collect();
            for &from in before.predecessors(a) {
                edges.extend(before.successors(a).iter().map(|&to| Edge::full(from, to)));
            }
            rebuild.drop_node(a);
            rebuild.edges(edges);
        }
        3 => {
            let weak = before.edges().map(|edge| {
                let kernels = [edge.from, edge.to].map(|node| before.node(node).kernel().is_some());
                let weaken = kernels == [true, true] && u.arbitrary().unwrap_or(false);
                Edge { data: if weaken { EdgeData::PROGRAMMATIC } else { edge.data }, ..edge }
            });
            let weak = weak.collect();
            rebuild.edges(weak);
        }
        // What a merged kernel computes the checker does not claim to know.
        4 if a != b && before.node(a).kernel().is_none() => rebuild.merge(a, b),
        _ => {
            let mut node = before.node(a).clone();
            match &mut node.kind {
                NodeKind::Memcpy(copy) => std::mem::swap(&mut copy.src, &mut copy.dst),
                NodeKind::Memset(fill) => fill.value ^= 1,
                NodeKind::Kernel(kernel) if kernel.args.len() > 1 => kernel.args.swap(0, 1),
                NodeKind::Host(_) => node.kind = NodeKind::Empty,
                _ => return Ok(None),
            }
            rebuild.replace(a, node);
        }
    }
    let report = PassReport::new("spoil");
    // What is not even a graph has been refused already.
    let Ok((graph, image)) = rebuild.build() else { return Ok(None) };
    Ok(Some(Rewritten { graph, image, report }))
}

/// A rewriting spoiled at random: refused, or it changes nothing. Says which.
fn spoiled_case(u: &mut Unstructured) -> Result<Option<bool>> {
    let before = common::graph(u, Kind::Runnable)?;
    let Some(done) = spoiled(u, &before)? else { return Ok(None) };
    let refused = !check_rewrite(&before, &done.graph, &done.image).is_empty();
    if !refused {
        judge(u, Pass::Edges, &before, &done)?;
    }
    Ok(Some(refused))
}

#[test]
fn the_checker_lets_nothing_pass_that_changes_what_a_graph_does() {
    let (mut refused, mut passed) = (0, 0);
    let cases = arbtest(|u| {
        match spoiled_case(u)? {
            Some(true) => refused += 1,
            Some(false) => passed += 1,
            None => {}
        }
        Ok(())
    });
    cases.budget_ms(1_500).size_min(2_000).size_max(20_000).run();
    assert!(refused > passed && passed > 0, "{refused} refused, {passed} passed");
}

/// `PHONOGRAPH_CASES=1000000 cargo test --release -p phonograph-plan --test passes -- --ignored --nocapture`
#[test]
#[ignore = "runs as long as it is told to"]
fn soak() {
    let mut tally = Tally::new();
    common::soak(|u| {
        let kind = *u.choose(&[Kind::Any, Kind::Runnable])?;
        case(u, kind, &mut tally)?;
        spoiled_case(u)?;
        Ok(())
    });
    println!("{tally:#?}");
}
