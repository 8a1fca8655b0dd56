//! Adjacent fills, and adjacent copies, become one: each is a node that costs a launch, whatever its size.
//!
//! Two fills of one pattern, or copies from one buffer to another over the same distance, whose bytes touch or overlap
//! are merged if either
//!
//! 1. they wait for exactly the same nodes, or
//! 2. one waits for the other and for nothing else that the other does not wait for.
//!
//! Then nothing runs between them, so no cycle can arise, however many are merged at once: every way into a merged
//! node leads through what its first node waits for. Whoever waited for one of them waits for all now; that is all the
//! concurrency that is given up. O(nodes + edges + fills · log fills).

use phonograph_graph::{ComputeGraph, Node, NodeId, NodeKind, Pitched, Rebuild, Region, Target};
use phonograph_graph::{Extent, MemcpyDir, MemcpyNode};
use rustc_hash::{FxHashMap, FxHashSet};

use super::transfer::{PlainCopy, PlainFill};
use super::{Change, Left, PassError, PassReport, Reason, Rewritten, on_every_graph};

/// Merges adjacent fills.
///
/// ```
/// use phonograph_graph::{Extent, GraphBuilder, MemsetNode, Pitched, Target};
/// use phonograph_plan::passes::merge_fills;
///
/// let mut b = GraphBuilder::new();
/// let sums = b.external_buffer("sums", 64);
/// for offset in [0, 32] {
///     let dst = Pitched::linear(Target::Buffer(sums), offset);
///     let extent = Extent::linear(32);
///     b.add_fill("zero", MemsetNode { dst, value: 0, element_size: 4, extent });
/// }
/// let rewritten = merge_fills(&b.build()?)?;
/// assert_eq!(rewritten.graph.node_count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`PassError`], if the graph that comes out is not valid.
pub fn merge_fills(graph: &ComputeGraph) -> Result<Rewritten, PassError> {
    on_every_graph(graph, &|graph| {
        let items = graph.node_ids().filter_map(|node| {
            let NodeKind::Memset(fill) = &graph.node(node).kind else { return None };
            let PlainFill { region, pattern } = PlainFill::of(fill)?;
            let key = (region.buffer, pattern);
            Some(Item { node, key, start: region.offset, end: region.end() })
        });
        let merged = |run: &Run<_>| {
            let (buffer, pattern) = run.key;
            let region = Region { buffer, offset: run.start, bytes: run.end - run.start };
            Some(NodeKind::Memset(Box::new(PlainFill { region, pattern }.node()?)))
        };
        merge(graph, "merge fills", items.collect(), merged)
    })
}

/// Merges adjacent copies.
///
/// # Errors
/// [`PassError`], if the graph that comes out is not valid.
pub fn merge_copies(graph: &ComputeGraph) -> Result<Rewritten, PassError> {
    on_every_graph(graph, &|graph| {
        let items = graph.node_ids().filter_map(|node| {
            let NodeKind::Memcpy(memcpy) = &graph.node(node).kind else { return None };
            let copy = PlainCopy::of(memcpy)?;
            let key = (copy.from.buffer, copy.to.buffer, copy.distance(), direction(memcpy.dir));
            Some(Item { node, key, start: copy.to.offset, end: copy.to.end() })
        });
        let merged = |run: &Run<(_, _, u64, _)>| {
            let (from, to, distance, _) = run.key;
            let bytes = run.end - run.start;
            let source = Region { buffer: from, offset: run.start.wrapping_sub(distance), bytes };
            let target = Region { buffer: to, offset: run.start, bytes };
            // Each of the copies was apart from its source; all of them together may not be.
            if source.overlaps(&target) {
                return None;
            }
            let NodeKind::Memcpy(one) = &graph.node(run.members[0]).kind else { return None };
            let end = |r: Region| Pitched::linear(Target::Buffer(r.buffer), r.offset);
            let (src, dst, extent) = (end(source), end(target), Extent::linear(bytes));
            Some(NodeKind::Memcpy(Box::new(MemcpyNode { dir: one.dir, src, dst, extent })))
        };
        merge(graph, "merge copies", items.collect(), merged)
    })
}

/// Directions in some order.
fn direction(dir: MemcpyDir) -> (u8, u32, u32) {
    match dir {
        MemcpyDir::HostToDevice => (0, 0, 0),
        MemcpyDir::DeviceToHost => (1, 0, 0),
        MemcpyDir::DeviceToDevice => (2, 0, 0),
        MemcpyDir::HostToHost => (3, 0, 0),
        MemcpyDir::PeerToPeer { src_device, dst_device } => (4, src_device, dst_device),
    }
}

/// A node that may be merged with others of its key if their bytes touch.
#[derive(Clone, Copy)]
struct Item<K> {
    node: NodeId,
    key: K,
    start: u64,
    end: u64,
}

/// Nodes to be one, in topological order.
struct Run<K> {
    key: K,
    start: u64,
    end: u64,
    members: Vec<NodeId>,
}

fn merge<K: Ord + Copy>(
    graph: &ComputeGraph,
    pass: &'static str,
    items: Vec<Item<K>>,
    merged: impl Fn(&Run<K>) -> Option<NodeKind>,
) -> Result<Rewritten, PassError> {
    let mut report = PassReport::new(pass);
    if items.len() < 2 {
        return Ok(Rewritten::unchanged(graph, report));
    }
    let runs = Grouping::new(graph, items).into_runs();
    for (first, second) in touching(&runs) {
        report.left.push(Left { node: second, why: Reason::Apart(first) });
    }
    let mut rebuild = Rebuild::new(graph);
    for run in runs.iter().filter(|run| run.members.len() > 1) {
        let (first, rest) = (run.members[0], &run.members[1..]);
        let Some(kind) = merged(run) else {
            report.left.push(Left { node: rest[0], why: Reason::Misfit(first) });
            continue;
        };
        let Node { name, stream, .. } = graph.node(first).clone();
        rebuild.replace(first, Node { name, kind, stream });
        for &node in rest {
            rebuild.merge(node, first);
            report.changed.push(Change::Merged { node, into: first });
        }
    }
    if report.changed.is_empty() {
        return Ok(Rewritten::unchanged(graph, report));
    }
    Rewritten::rebuilt(rebuild, report)
}

/// Neighbours that touch and were not merged.
fn touching<K: Ord + Copy>(runs: &[Run<K>]) -> Vec<(NodeId, NodeId)> {
    let mut sorted: Vec<&Run<K>> = runs.iter().collect();
    sorted.sort_unstable_by_key(|run| (run.key, run.start, run.members[0]));
    let pairs =
        sorted.windows(2).filter(|pair| pair[0].key == pair[1].key && pair[1].start <= pair[0].end);
    pairs.map(|pair| (pair[0].members[0], pair[1].members[0])).collect()
}

struct Grouping<'a, K> {
    graph: &'a ComputeGraph,
    position: Vec<u32>,
    runs: Vec<Run<K>>,
}

impl<'a, K: Ord + Copy> Grouping<'a, K> {
    /// Items that wait for the same nodes, as runs of bytes that touch.
    fn new(graph: &'a ComputeGraph, items: Vec<Item<K>>) -> Self {
        let position = crate::analysis::positions(graph);
        let mut classes: FxHashMap<Vec<NodeId>, u32> = FxHashMap::default();
        let mut sorted: Vec<(u32, Item<K>)> = Vec::with_capacity(items.len());
        for item in items {
            let mut producers = graph.predecessors(item.node).to_vec();
            producers.sort_unstable();
            let next = classes.len() as u32;
            sorted.push((*classes.entry(producers).or_insert(next), item));
        }
        sorted.sort_unstable_by_key(|(class, item)| (*class, item.key, item.start, item.node));
        let mut runs: Vec<Run<K>> = Vec::new();
        let mut last_class = None;
        for (class, Item { node, key, start, end }) in sorted {
            match runs.last_mut() {
                Some(run) if last_class == Some(class) && run.key == key && start <= run.end => {
                    run.end = run.end.max(end);
                    run.members.push(node);
                }
                _ => runs.push(Run { key, start, end, members: vec![node] }),
            }
            last_class = Some(class);
        }
        for run in &mut runs {
            run.members.sort_unstable_by_key(|node| position[node.index()]);
        }
        runs.sort_unstable_by_key(|run| position[run.members[0].index()]);
        Self { graph, position, runs }
    }

    /// Joins runs to those that they wait for, where they wait for nothing else.
    fn into_runs(self) -> Vec<Run<K>> {
        let Self { graph, position, runs } = self;
        let mut joined: Vec<Run<K>> = Vec::with_capacity(runs.len());
        let mut run_of: FxHashMap<NodeId, usize> = FxHashMap::default();
        let mut entry: FxHashSet<NodeId> = FxHashSet::default();
        for run in runs {
            // All members wait for the same nodes.
            let producers = graph.predecessors(run.members[0]);
            let candidates = producers.iter().filter_map(|from| run_of.get(from).copied());
            let into = candidates.into_iter().find(|&at| {
                let other = &joined[at];
                let touch = run.start <= other.end && other.start <= run.end;
                if run.key != other.key || !touch {
                    return false;
                }
                entry.clear();
                entry.extend(graph.predecessors(other.members[0]));
                producers.iter().all(|from| entry.contains(from) || run_of.get(from) == Some(&at))
            });
            let at = into.unwrap_or(joined.len());
            run_of.extend(run.members.iter().map(|&node| (node, at)));
            match into {
                Some(at) => {
                    let other = &mut joined[at];
                    other.start = other.start.min(run.start);
                    other.end = other.end.max(run.end);
                    other.members.extend(run.members);
                }
                None => joined.push(run),
            }
        }
        for run in &mut joined {
            run.members.sort_unstable_by_key(|node| position[node.index()]);
        }
        joined
    }
}
