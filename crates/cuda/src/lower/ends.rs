//! A graph that begins or ends in many places is given one kernel before all others and one behind them.
//!
//! In: the nodes of a graph of the driver's in issue order. Out: the same graph with kernels that do nothing and that nobody
//! else knows of: what came after nothing comes after the first, and the last comes after all that had nothing behind it. The
//! edges are full ones; every order stays, and nothing waits for more than those kernels. O(nodes + edges).
//!
//! Of a graph with many beginnings the driver's launch takes a microsecond for each, and in a row, in some processes, ten times as
//! much. 1000 empty kernels in ten layers, each after two of the layer before, take 341 µs on an H200, and 188 with one
//! beginning and one end; 1000 without edges 1160 and 240. Fills and copies gain nothing. BENCHMARKS.md has more.
//!
//! Launch-order edges between kernels that nothing orders (the second may launch once the blocks of the first have) are no way
//! to the same. Driver 580 takes what is on one stream to be over once the last kernel there is, which such an edge does not
//! promise, and lets kernels begin before what they come after by full edges has ended: in 12 launches of those layers, of
//! kernels of 1 to 30 µs, 4127 times. Between kernels without full edges they are right, but let some 32 run at once: of
//! 640 kernels, every fifth of 300 µs, the last ends after 1245 µs instead of 459.

use cudarc::driver::sys::CUgraphNode;
use phonograph_graph::{ComputeGraph, NodeId, NodeKind};
use rustc_hash::FxHashMap;

use super::Lowering;
use super::scope::Scope;
use crate::bindings::InstantiateError;
use crate::graph::{Dependencies, add_kernel, edge_data};
use crate::launch::{Launch, Pointers, Values};

/// The fewest kernels at the beginning that get one before them: the second costs more than that one.
const BEGINNINGS: usize = 2;
/// The fewest kernels at the end that get one behind them.
const ENDS: usize = 8;
/// The most edges to or from one of these kernels: what the driver takes to instantiate grows with their square. Where there are
/// more beginnings or ends, groups of them have kernels of their own between them and the first or the last.
const GROUP: usize = 128;

/// What nodes come after that come after nothing else: each group after one.
#[derive(Default)]
pub(super) struct Beginnings {
    kernels: Vec<CUgraphNode>,
    nodes: usize,
}

impl Beginnings {
    /// What the next node comes after, if there is anything.
    pub fn next(&mut self) -> Option<CUgraphNode> {
        let at = self.nodes / GROUP;
        self.nodes += 1;
        self.kernels.get(at).or(self.kernels.last()).copied()
    }

    /// Puts others in the place of the driver's nodes.
    pub fn rename(&mut self, now: impl Fn(CUgraphNode) -> CUgraphNode) {
        self.kernels.iter_mut().for_each(|kernel| *kernel = now(*kernel));
    }
}

/// Whether so many nodes, so many of them kernels, are worth a kernel of their own.
fn is_worth(nodes: usize, kernels: usize, fewest: usize) -> bool {
    kernels >= fewest && 2 * kernels >= nodes
}

impl Lowering<'_> {
    /// Lowers nodes of the outermost graph as [`nodes`](Self::nodes) does, between one beginning and one end.
    pub(super) fn between_ends(
        &mut self,
        scope: &mut Scope<'_>,
        reuse: &FxHashMap<NodeId, Vec<NodeId>>,
        nodes: &[NodeId],
    ) -> Result<(), InstantiateError> {
        // The kernels would be on the first, and others wait for it. Edges at launch order have to be the last ones.
        if self.target.devices.len() > 1 || scope.graph.has_weak_edges() {
            return self.nodes(scope, reuse, nodes);
        }
        let graph = scope.graph;
        let kernels = |all: &[NodeId]| all.iter().filter(|id| is_kernel(graph, **id)).count();
        let begins = |id: &&NodeId| {
            let reused = reuse.get(id).into_iter().flatten();
            !graph.predecessors(**id).iter().chain(reused).any(|from| self.is_here(scope, *from))
        };
        let first: Vec<NodeId> = nodes.iter().filter(begins).copied().collect();
        let one_beginning = is_worth(first.len(), kernels(&first), BEGINNINGS);
        if one_beginning {
            let kernel = self.nothing(scope, &Dependencies::default())?;
            let mut after = Dependencies::default();
            after.push_full(kernel);
            let groups = (first.len() > GROUP).then(|| 0..first.len().div_ceil(GROUP));
            let groups = groups.into_iter().flatten().map(|_| self.nothing(scope, &after));
            let groups = groups.collect::<Result<Vec<_>, _>>()?;
            let kernels = if groups.is_empty() { vec![kernel] } else { groups };
            scope.beginnings = Beginnings { kernels, nodes: 0 };
        }
        self.nodes(scope, reuse, nodes)?;
        scope.beginnings = Beginnings::default();
        let is_last = |id: &&NodeId| !scope.is_followed[id.index()];
        let last: Vec<NodeId> = nodes.iter().filter(is_last).copied().collect();
        // With several beginnings an end costs more than it gains.
        let has_one = one_beginning || first.len() <= 1;
        if has_one && is_worth(last.len(), kernels(&last), ENDS) {
            let ends = last.iter().flat_map(|id| scope.ends[id.index()].iter().copied());
            let mut ends: Vec<CUgraphNode> = ends.collect();
            while ends.len() > 1 {
                let groups = ends.chunks(GROUP).map(|group| self.nothing(scope, &all(group)));
                ends = groups.collect::<Result<_, _>>()?;
            }
        }
        Ok(())
    }

    /// Adds a kernel that does nothing.
    fn nothing(
        &mut self,
        scope: &Scope<'_>,
        after: &Dependencies,
    ) -> Result<CUgraphNode, InstantiateError> {
        let function = self.target.kernels.empty(&self.target.devices[0]);
        let function = function.map_err(InstantiateError::Own)?;
        let one = (1, 1, 1);
        let (handle, values) = (function.handle(), Values::default());
        let launch = Launch { function: handle, grid: one, block: one, shared_bytes: 0, values };
        let mut pointers = Pointers::new();
        let node = match self.noted(scope, scope.driver) {
            Some(made) => made.kernel(after, &launch, false, None),
            // SAFETY: the graph lives and has the nodes before; the function takes no parameters, and the `Exec` keeps it.
            None => unsafe { add_kernel(scope.driver, after, &launch.params(&mut pointers)) }?,
        };
        self.held.functions.entry(handle).or_insert(function);
        Ok(node)
    }
}

fn is_kernel(graph: &ComputeGraph, id: NodeId) -> bool {
    matches!(graph.node(id).kind, NodeKind::Kernel(_))
}

/// Full edges from these nodes.
fn all(nodes: &[CUgraphNode]) -> Dependencies {
    let mut after = Dependencies::default();
    nodes.iter().for_each(|&node| after.push(node, edge_data(0, 0, false)));
    after
}

#[cfg(test)]
mod tests {
    use std::slice;

    use arbtest::arbitrary::Unstructured;
    use libloading::Library;
    use phonograph_graph::{GraphBuilder, KernelConfig, Schedule};
    use rustc_hash::FxHashSet;

    use super::*;
    use crate::bindings::Bindings;
    use crate::cuda::Cuda;
    use crate::module::{Function, Module};
    use crate::stub::on_driver;

    /// A driver that numbers nodes and notes the edges of the graph that was created last, and its first node's number.
    const NOTES: &[(&str, &str)] = &[
        (
            "cuGraphCreate",
            "(long *g) { extern long nodes, count, first; count = 0; first = nodes + 1; *g = 1; return 0; } long nodes, count, first, edges[200000][2];",
        ),
        (
            "cuGraphAddKernelNode_v2",
            "(long *n, long g, long *from, long many) { extern long nodes, count, edges[][2]; nodes++; while (many) { edges[count][0] = from[--many]; edges[count++][1] = nodes; } *n = nodes; return 0; }",
        ),
        (
            "cuGraphAddNode_v2",
            "(long *n, long g, long *from, void *data, long many) { extern long nodes, count, edges[][2]; nodes++; while (many) { edges[count][0] = from[--many]; edges[count++][1] = nodes; } *n = nodes; return 0; }",
        ),
        ("cuFuncGetParamInfo", "(void) { return 1; }"),
        ("cuFuncGetAttribute", "(int *v) { *v = 1024; return 0; }"),
    ];

    type Edge = (usize, usize);

    /// The first and the last node of the graph that was created last, and its edges.
    fn noted() -> (usize, usize, FxHashSet<Edge>) {
        // SAFETY: the driver of this process has these variables, and nobody writes to them now.
        unsafe {
            let library = Library::new("libcuda.so").unwrap();
            let number = |name: &[u8]| **library.get::<*const usize>(name).unwrap();
            let edges = *library.get::<*const [usize; 2]>(b"edges").unwrap();
            let edges = slice::from_raw_parts(edges, number(b"count"));
            let edges = edges.iter().map(|&[from, to]| (from, to)).collect();
            (number(b"first"), number(b"nodes"), edges)
        }
    }

    /// Makes a graph of the driver's of kernels with these edges, and checks that it has them, and besides them only those of
    /// kernels that do nothing. Gives how many of these there are. The kernels from `urgent` on have a priority.
    #[track_caller]
    fn check(
        cuda: &mut Cuda,
        k: &Function,
        nodes: u32,
        edges: &[(u32, u32)],
        urgent: u32,
    ) -> usize {
        let mut b = GraphBuilder::new();
        let kernel = |at: u32| {
            let priority = -i32::from(at >= urgent);
            let config = KernelConfig { priority, ..KernelConfig::linear(1, 32, 0) };
            b.add_kernel("k", 1, 32, 0).config(config).finish()
        };
        let ids: Vec<NodeId> = (0..nodes).map(kernel).collect();
        for &(from, to) in edges {
            b.dep(ids[from as usize], ids[to as usize]);
        }
        let graph = b.build().unwrap();
        // SAFETY: nothing is launched.
        let bindings = unsafe { Bindings::new().kernel("k", k) };
        let exec = cuda.instantiate(&graph, &Schedule::sequential(&graph), &bindings).unwrap();
        let (start, end, found) = noted();
        // Nobody else gets the executable, whose nodes are those of an earlier graph.
        assert_eq!((exec.renewed(), exec.handles().len()), (0, 1));
        let made: Vec<usize> = exec.driver_nodes().map(|node| node.unwrap()[0].addr()).collect();
        let wanted: FxHashSet<Edge> =
            graph.edges().map(|edge| (made[edge.from.index()], made[edge.to.index()])).collect();
        assert!(wanted.is_subset(&found));
        let known: FxHashSet<usize> = made.iter().copied().collect();
        for (from, to) in found.difference(&wanted) {
            assert!(from < to && !(known.contains(from) && known.contains(to)), "{from} {to}");
        }
        let extra: Vec<usize> = (start..=end).filter(|node| !known.contains(node)).collect();
        for &node in &extra {
            let before = found.iter().filter(|edge| edge.1 == node).count();
            let behind = found.iter().filter(|edge| edge.0 == node).count();
            assert!(before <= GROUP && behind <= GROUP.max(nodes as usize / GROUP + 1));
        }
        let have =
            |side: fn(&Edge) -> usize| -> FxHashSet<usize> { found.iter().map(side).collect() };
        let (followed, following) = (have(|edge| edge.0), have(|edge| edge.1));
        let count =
            |all: &FxHashSet<usize>| (start..=end).filter(|node| !all.contains(node)).count();
        assert!(count(&following) == 1 || nodes == 0);
        assert!(count(&followed) < ENDS, "{} ends", count(&followed));
        extra.len()
    }

    fn on_kernels(test: &str, body: fn()) {
        on_driver(test, NOTES, body);
    }

    fn made() -> (Cuda, Function) {
        let cuda = Cuda::new().unwrap();
        let module = Module::from_ptx(&cuda.devices()[0].clone(), "").unwrap();
        let k = module.function("k").unwrap();
        (cuda, k)
    }

    #[test]
    fn many_beginnings_and_ends_become_one() {
        on_kernels("lower::ends::tests::many_beginnings_and_ends_become_one", || {
            let (mut cuda, k) = made();
            let mut check =
                |nodes: u32, edges: &[(u32, u32)]| check(&mut cuda, &k, nodes, edges, nodes);
            assert_eq!(check(0, &[]), 0);
            assert_eq!(check(1, &[]), 0);
            assert_eq!(check(3, &[(0, 1), (1, 2)]), 0);
            // Two beginnings, two ends: an end for two is not worth it.
            assert_eq!(check(2, &[]), 1);
            assert_eq!(check(8, &[]), 2);
            // A fork and a join have what they need.
            let fork: Vec<(u32, u32)> = (1..=8).map(|to| (0, to)).collect();
            let join: Vec<(u32, u32)> = (1..=8).map(|from| (from, 9)).collect();
            assert_eq!(check(10, &[&fork[..], &join].concat()), 0);
            assert_eq!(check(9, &fork), 1);
            assert_eq!(check(10, &join), 1);
            // Groups: 300 kernels in three of each.
            assert_eq!(check(128, &[]), 2);
            assert_eq!(check(300, &[]), 2 + 3 + 3);
        });
    }

    #[test]
    fn edges_stay_and_others_are_those_of_added_kernels() {
        on_kernels("lower::ends::tests::edges_stay_and_others_are_those_of_added_kernels", || {
            let (mut cuda, k) = made();
            let random = |u: &mut Unstructured<'_>| {
                let nodes = u.int_in_range(0..=400u32)?;
                let most = u.int_in_range(0..=2)?;
                let mut edges = Vec::new();
                for to in 1..nodes {
                    for _ in 0..u.int_in_range(0..=most)? {
                        let edge = (u.int_in_range(0..=to - 1)?, to);
                        if !edges.contains(&edge) {
                            edges.push(edge);
                        }
                    }
                }
                // Nodes before the first with a priority are noted, and made when that is.
                let urgent = u.int_in_range(0..=nodes)?;
                check(&mut cuda, &k, nodes, &edges, urgent);
                Ok(())
            };
            arbtest::arbtest(random).budget_ms(500);
        });
    }
}
