//! A large graph in parts: where it can be cut, and how the parts become executable side by side.
//!
//! In: a graph, its reuse edges, the order in which its nodes are issued. Out: an executable for each part, which are launched
//! one after another. At a cut one node is behind all nodes before it and before all nodes behind it, so parts that follow
//! one another on a stream keep every order and forbid nothing that the graph allows. Nodes between two cuts that have nothing to do
//! with one another can be cut anywhere: a part of thousands of them ends later by its longest at most.
//!
//! The driver's time for a node grows with the graph that the node is in: to instantiate it takes 1.1 µs among 1000 nodes, 2.2
//! among 10,000 and 5 among 100,000 on an H200; and one graph can be made and another uploaded meanwhile. A part costs a
//! launch of a microsecond more, and as much on the device, so small graphs stay whole. O(nodes + edges), besides the driver's.

use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUgraphNode};
use phonograph_graph::{ComputeGraph, NodeId, NodeKind};
use rustc_hash::FxHashMap;

use super::scope::Scope;
use super::{How, Lowering, issued, reuse};
use crate::bindings::InstantiateError;
use crate::front::PartId;
use crate::graph::{Executable, Graph, Refused};
use crate::made::Made;
use crate::profile::Split;
use crate::spares::{Origin, Spares};
use crate::stream::Stream;

/// The fewest nodes of a graph that is cut.
const LARGE: usize = 16_384;
/// The fewest nodes of a part.
const LENGTH: usize = 4096;
/// The most parts of a graph.
const MAX_PARTS: usize = 64;
/// How many instantiate at once: the driver has locks that more of them would only wait for.
const MAX_WORKERS: usize = 4;

/// A part in the driver's form, or the notes of its nodes; and the flags that it is instantiated with.
struct Part {
    id: PartId,
    graph: Graph,
    made: Option<Made>,
    flags: u64,
}

/// A part that was made executable, or refused.
struct Ready {
    id: PartId,
    origin: Origin,
    executable: Result<Executable, Refused>,
}

impl Lowering<'_> {
    /// Lowers the outermost graph and makes it executable. While a part is made, threads instantiate those before it.
    pub(super) fn outermost(
        &mut self,
        scope: &mut Scope<'_>,
        how: How<'_>,
    ) -> Result<(Vec<Origin>, Vec<Executable>), InstantiateError> {
        self.place_internal(scope)?;
        let order: Vec<NodeId> = issued(scope.schedule).collect();
        let reuse = reuse(scope.schedule);
        let length = LENGTH.max(order.len() / MAX_PARTS);
        let mut ends = match how.in_parts {
            true if order.len() >= LARGE => {
                ends_of_parts(scope.graph, &scope.schedule.reuse, &order, length)
            }
            _ => Vec::new(),
        };
        if !ends.is_empty() {
            scope.parts = vec![PartId(0); scope.graph.node_count()];
        }
        ends.push(order.len());
        let (hand_over, parts) = mpsc::channel::<Part>();
        let parts = Mutex::new(parts);
        let spares = self.target.spares.clone();
        let work = || {
            let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
            let executable = |part| executable(part, how.upload, &spares);
            std::iter::from_fn(next).map(executable).collect::<Vec<_>>()
        };
        let made = thread::scope(|threads| {
            let others = match ends.len() {
                1 => 0,
                _ => thread::available_parallelism().map_or(1, usize::from).min(MAX_WORKERS) - 1,
            };
            // What no thread could be had for is done below.
            let workers: Vec<_> = (0..others)
                .map_while(|_| thread::Builder::new().spawn_scoped(threads, work).ok())
                .collect();
            let (mut start, hand_over) = (0, hand_over);
            for (id, &end) in (0..).map(PartId).zip(&ends) {
                let graph = Graph::new(&self.target.devices[0])?;
                if how.timed {
                    let device = &self.target.devices[0];
                    self.split = Some(Split::begin(device, graph.handle())?);
                }
                let part = self.part(scope, id, graph, &reuse, &order[start..end], how)?;
                hand_over.send(part).expect("the other end is open");
                start = end;
            }
            drop(hand_over);
            let mut made = work();
            for worker in workers {
                made.extend(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            Ok::<_, InstantiateError>(made)
        });
        let mut made = made?;
        made.sort_unstable_by_key(|ready| ready.id.0);
        self.name_nodes(scope, &made);
        let (mut origins, mut executables) = (Vec::new(), Vec::new());
        for Ready { id, origin, executable } in made {
            executables.push(executable.map_err(|refused| scope.explain(id, refused))?);
            self.renewed += usize::from(origin.is_renewed);
            origins.push(origin);
        }
        Ok((origins, executables))
    }

    /// Puts the driver's nodes in the place of what stands for them, by part.
    fn name_nodes(&mut self, scope: &mut Scope<'_>, parts: &[Ready]) {
        let name = |part: PartId, node: &mut CUgraphNode| {
            if let Some(made) = &parts[part.0 as usize].origin.made {
                *node = made.now(*node);
            }
        };
        for (at, ends) in scope.ends.iter_mut().enumerate() {
            let part = scope.parts.get(at).copied().unwrap_or(PartId(0));
            ends.iter_mut().for_each(|node| name(part, node));
        }
        self.held.ops.iter_mut().for_each(|op| name(op.part, &mut op.node));
    }

    /// Lowers a part: nodes in issue order.
    fn part(
        &mut self,
        scope: &mut Scope<'_>,
        id: PartId,
        graph: Graph,
        reuse: &FxHashMap<NodeId, Vec<NodeId>>,
        nodes: &[NodeId],
        how: How<'_>,
    ) -> Result<Part, InstantiateError> {
        (scope.driver, self.part) = (graph.handle(), id);
        self.made = (!how.anew).then(|| Made::with_capacity(nodes.len()));
        if !scope.parts.is_empty() {
            nodes.iter().for_each(|node| scope.parts[node.index()] = id);
        }
        self.nodes(scope, reuse, nodes)?;
        let mut flags = 0;
        if std::mem::take(&mut self.held.has_priorities) {
            flags |= CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0;
        }
        if !self.allocated.is_empty() {
            flags |= CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0;
        }
        Ok(Part { id, graph, made: self.made.take(), flags: u64::from(flags) })
    }
}

/// Makes a part executable, of a spare executable if one can be brought up to date, and uploads it. What it was made of comes
/// back, because what the driver refuses is a node of it.
fn executable(part: Part, upload: Option<&Stream>, spares: &Spares) -> Ready {
    let Part { id, graph, mut made, flags } = part;
    let (executable, origin) = match made.as_mut().and_then(|made| renewed(made, spares)) {
        Some((executable, earlier)) => (Ok(executable), Origin::renewed(earlier, made)),
        None => {
            // SAFETY: the graph lives, and what the nodes name is what the `Exec` will hold.
            let nodes = made.as_ref().map(|made| unsafe { made.make_whole(&graph) });
            let nodes = nodes.transpose().map(|nodes| {
                made.iter_mut().zip(nodes).for_each(|(made, nodes)| made.settle(nodes));
            });
            let executable = nodes.and_then(|()| Executable::new(&graph, flags));
            (executable, Origin::new(graph, made))
        }
    };
    let executable = executable.and_then(|mut executable| {
        let uploaded = upload.map_or(Ok(()), |stream| executable.upload(stream));
        uploaded.map(|()| executable).map_err(Refused::of_graph)
    });
    Ready { id, origin, executable }
}

fn renewed(made: &mut Made, spares: &Spares) -> Option<(Executable, Graph)> {
    let spare = if made.can_be_carried_over() { spares.take(made)? } else { return None };
    match spare.renew(made) {
        Ok(renewed) => Some(renewed),
        Err(error) => {
            tracing::debug!(%error, "an executable that was kept cannot be brought up to date");
            None
        }
    }
}

/// The places in `order` where a part ends, each the number of nodes before it, at least `length` nodes after the one
/// before: at a cut, or among nodes between two cuts without an edge among them. None within the last `length` nodes; none at all for graphs with edges that are not full, because the driver has
/// those only within a graph, and for graphs that allocate memory, which must be freed where it was allocated.
fn ends_of_parts(
    graph: &ComputeGraph,
    reuse: &[(NodeId, NodeId)],
    order: &[NodeId],
    length: usize,
) -> Vec<usize> {
    let is_bound =
        |id: &NodeId| matches!(graph.node(*id).kind, NodeKind::Alloc(_) | NodeKind::Free(_));
    if order.len() < 2 * length || graph.has_weak_edges() || order.iter().any(is_bound) {
        return Vec::new();
    }
    let mut place = vec![0u32; graph.node_count()];
    for (at, id) in (0u32..).zip(order) {
        place[id.index()] = at;
    }
    // Of each place, the nearest successor and the nearest predecessor.
    let (mut next, mut last) = (vec![u32::MAX; order.len()], vec![None; order.len()]);
    let edges = graph.edges().map(|edge| (edge.from, edge.to)).chain(reuse.iter().copied());
    for (from, to) in edges {
        let (from, to) = (place[from.index()], place[to.index()]);
        next[from as usize] = next[from as usize].min(to);
        last[to as usize] = last[to as usize].max(Some(from));
    }
    // All nodes behind a place have a predecessor there or behind it: so the node there is before all of them.
    let mut is_cut = vec![true; order.len()];
    let mut earliest = Some(u32::MAX);
    for at in (0..order.len()).rev() {
        is_cut[at] = earliest >= Some(at as u32);
        earliest = earliest.min(last[at]);
    }
    // All nodes before a place have a successor there or before it: so the node there is behind all of them.
    let mut latest = 0;
    for at in 0..order.len() {
        is_cut[at] &= latest <= at as u32;
        latest = latest.max(next[at]);
    }
    // Between two cuts, where no edge leads from node to node, there is a cut behind each.
    let cuts: Vec<usize> = (0..order.len()).filter(|&at| is_cut[at]).chain([order.len()]).collect();
    let mut start = 0;
    for cut in cuts {
        let is_apart = |at: usize| {
            last[at].is_none_or(|from| (from as usize) < start) && next[at] as usize >= cut
        };
        if (start..cut).all(is_apart) {
            is_cut[start..cut].fill(true);
        }
        start = cut + 1;
    }
    let mut ends = Vec::new();
    for end in (1..=order.len()).filter(|&end| is_cut[end - 1]) {
        let from = ends.last().copied().unwrap_or(0);
        if end - from >= length && order.len() - end >= length {
            ends.push(end);
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use phonograph_graph::GraphBuilder;

    use super::*;

    /// Where a graph of these edges is cut into parts of at least so many nodes, in the order of its nodes.
    #[track_caller]
    fn check(nodes: u32, edges: &[(u32, u32)], length: usize, expected: &[usize]) {
        let mut b = GraphBuilder::new();
        let ids: Vec<NodeId> = (0..nodes).map(|_| b.add_barrier("x")).collect();
        for &(from, to) in edges {
            b.dep(ids[from as usize], ids[to as usize]);
        }
        let graph = b.build().unwrap();
        assert_eq!(ends_of_parts(&graph, &[], &ids, length), expected, "{edges:?}");
    }

    #[test]
    fn cuts_are_where_one_node_is_between_all_others() {
        let chain: Vec<(u32, u32)> = (1..8).map(|to| (to - 1, to)).collect();
        check(8, &chain, 2, &[2, 4, 6]);
        check(8, &chain, 3, &[3]);
        check(8, &chain, 5, &[]);
        // An edge past the cut is implied.
        check(4, &[(0, 1), (1, 2), (2, 3), (0, 3)], 2, &[2]);
        // A diamond: before it, at its first node, between its branches, and behind it.
        let diamond = [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5)];
        check(6, &diamond, 1, &[1, 2, 3, 4, 5]);
        // A longer branch: no more between.
        check(7, &[(0, 1), (1, 2), (1, 3), (2, 4), (3, 5), (4, 5), (5, 6)], 1, &[1, 2, 6]);
        // Side by side: anywhere.
        check(6, &[], 2, &[2, 4]);
        check(6, &[(0, 5), (1, 5), (2, 5), (3, 5), (4, 5)], 2, &[2, 4]);
        // Two chains side by side, then nodes that wait for nobody or that nobody waits for.
        check(6, &[(0, 2), (2, 4), (1, 3), (3, 5)], 1, &[]);
        check(4, &[(0, 1), (1, 2)], 1, &[]);
        check(4, &[(1, 2), (2, 3)], 1, &[]);
        check(4, &[(0, 1), (1, 3)], 1, &[]);
        check(0, &[], 1, &[]);
    }

    #[test]
    fn every_path_across_a_cut_goes_through_its_node() {
        arbtest::arbtest(|u| {
            let count = u.int_in_range(2..=24)?;
            let mut b = GraphBuilder::new();
            let ids: Vec<NodeId> = (0..count).map(|_| b.add_barrier("x")).collect();
            for to in 1..count {
                for _ in 0..u.int_in_range(0..=2)? {
                    let near = u.int_in_range(1..=4.min(to))?;
                    b.dep(ids[to - near], ids[to]);
                }
            }
            let graph = b.build().unwrap();
            let reaches = |a: NodeId, b: NodeId| graph.is_reachable(a, b);
            let is_cut = |at: usize| {
                ids[..at].iter().all(|&id| reaches(id, ids[at]))
                    && ids[at + 1..].iter().all(|&id| reaches(ids[at], id))
            };
            // The nodes between the two cuts around a place have nothing to do with one another.
            let is_between = |at: usize| {
                let start = (0..at).rev().find(|&at| is_cut(at)).map_or(0, |cut| cut + 1);
                let end = (at..count).find(|&at| is_cut(at)).unwrap_or(count);
                let mut pairs = (start..end).flat_map(|a| (a + 1..end).map(move |b| (a, b)));
                pairs.all(|(a, b)| !reaches(ids[a], ids[b]))
            };
            let expected: Vec<usize> =
                (1..count).filter(|&end| is_cut(end - 1) || is_between(end - 1)).collect();
            assert_eq!(
                ends_of_parts(&graph, &[], &ids, 1),
                expected,
                "{:?}",
                graph.edges().collect::<Vec<_>>()
            );
            Ok(())
        })
        .budget_ms(300);
    }
}
