//! A graph that begins or ends in many places is given one kernel before all others and one behind them.
//!
//! In: the nodes of a graph of the driver's in issue order. Out: the same graph with kernels that do nothing and that nobody
//! else knows of: what came after nothing comes after the first, and the last comes after all that had nothing behind it. The
//! edges are full ones; every order stays, and nothing waits for more than those kernels. O(nodes + edges).
//!
//! Of a graph with many beginnings the driver's launch takes a microsecond for each, and in a row, in some processes, ten times as
//! much. 1000 empty kernels in ten layers, each after two of the layer before, take 341 µs on an H200, and 188 with one
//! beginning and one end; 1000 without edges 1160 and 240. Fills gain nothing, so half of what begins, or ends, has to be
//! kernels. BENCHMARKS.md has more.
//!
//! Launch-order edges between kernels that nothing orders (the second may launch once the blocks of the first have) also
//! spare beginnings, and keep nothing waiting, but let only some 32 kernels run at once: of 640 without other edges, every
//! fifth of 300 µs, the last ends after 1245 µs on 16 lanes so linked, after 459 between one beginning and one end.
//! Beside full edges they cost those, see [`Behind`](crate::graph::Behind).

use cudarc::driver::sys::CUgraphNode;
use phonograph_graph::{ComputeGraph, NodeId, NodeKind};
use rustc_hash::FxHashMap;

use super::Lowering;
use super::scope::Scope;
use crate::bindings::InstantiateError;
use crate::graph::{Dependencies, add_kernel};
use crate::launch::{Launch, Pointers, Values};

/// The fewest kernels at the beginning that get one before them: the second costs more than that one.
const BEGINNINGS: usize = 2;
/// The fewest kernels at the end that get one behind them.
const ENDS: usize = 8;
/// The most edges to or from one of these kernels: what the driver takes to instantiate grows with their square. Where there are
/// more beginnings or ends, groups of them have kernels of their own between them and the first or the last.
const GROUP: usize = 128;

/// What nodes come after that come after nothing else.
#[derive(Default)]
pub(super) struct Beginnings {
    /// How many nodes begin otherwise.
    count: usize,
    /// One for each group of them, if they get any.
    kernels: Vec<CUgraphNode>,
    /// How many have one.
    given: usize,
}

impl Beginnings {
    /// What the next node comes after, if there is anything.
    pub fn next(&mut self) -> Option<CUgraphNode> {
        let at = self.given / GROUP;
        self.given += 1;
        self.kernels.get(at).or(self.kernels.last()).copied()
    }

    /// The driver's nodes, or what stands for them.
    pub fn kernels_mut(&mut self) -> &mut [CUgraphNode] {
        &mut self.kernels
    }
}

/// Whether so many nodes, so many of them kernels, are worth a kernel of their own.
fn is_worth(graph: &ComputeGraph, nodes: &[NodeId], fewest: usize) -> bool {
    let is_kernel = |id: &&NodeId| matches!(graph.node(**id).kind, NodeKind::Kernel(_));
    let kernels = nodes.iter().filter(is_kernel).count();
    kernels >= fewest && 2 * kernels >= nodes.len()
}

impl Lowering<'_> {
    /// Adds what nodes come after that come after none of these, which are about to be lowered.
    pub(super) fn begin_as_one(
        &mut self,
        scope: &mut Scope<'_>,
        reuse: &FxHashMap<NodeId, Vec<NodeId>>,
        nodes: &[NodeId],
    ) -> Result<(), InstantiateError> {
        let begins = |id: &&NodeId| {
            let are_here = |before: &[NodeId]| before.iter().any(|from| self.is_here(scope, *from));
            !are_here(scope.graph.predecessors(**id))
                && !reuse.get(id).is_some_and(|before| are_here(before))
        };
        let first: Vec<NodeId> = nodes.iter().filter(begins).copied().collect();
        scope.beginnings = Beginnings { count: first.len(), ..Beginnings::default() };
        if !is_worth(scope.graph, &first, BEGINNINGS) {
            return Ok(());
        }
        let kernel = self.nothing(scope, &[])?;
        scope.beginnings.kernels = match first.len() {
            ..=GROUP => vec![kernel],
            many => (0..many.div_ceil(GROUP))
                .map(|_| self.nothing(scope, &[kernel]))
                .collect::<Result<_, _>>()?,
        };
        Ok(())
    }

    /// Adds what comes after those of these nodes that nothing comes after. They have been lowered.
    pub(super) fn end_as_one(
        &mut self,
        scope: &Scope<'_>,
        nodes: &[NodeId],
    ) -> Result<(), InstantiateError> {
        let Beginnings { count, kernels, .. } = &scope.beginnings;
        // With several beginnings an end costs more than it gains.
        if *count > 1 && kernels.is_empty() {
            return Ok(());
        }
        let is_last = |id: &&NodeId| !scope.is_followed[id.index()];
        let last: Vec<NodeId> = nodes.iter().filter(is_last).copied().collect();
        if is_worth(scope.graph, &last, ENDS) {
            let ends = last.iter().flat_map(|id| scope.ends[id.index()].iter().copied());
            let mut ends: Vec<CUgraphNode> = ends.collect();
            while ends.len() > 1 {
                let groups = ends.chunks(GROUP).map(|group| self.nothing(scope, group));
                ends = groups.collect::<Result<_, _>>()?;
            }
        }
        Ok(())
    }

    /// Adds a kernel that does nothing after these nodes.
    fn nothing(
        &mut self,
        scope: &Scope<'_>,
        nodes: &[CUgraphNode],
    ) -> Result<CUgraphNode, InstantiateError> {
        let after = Dependencies::on(nodes.iter().copied());
        let function = self.target.kernels.empty(&self.target.devices[0]);
        let function = function.map_err(InstantiateError::Own)?;
        let one = (1, 1, 1);
        let (handle, values) = (function.handle(), Values::default());
        let launch = Launch { function: handle, grid: one, block: one, shared_bytes: 0, values };
        let mut pointers = Pointers::new();
        let node = match self.noted(scope, scope.driver) {
            Some(made) => made.kernel(&after, &launch, false, None),
            // SAFETY: the graph lives and has the nodes before; the function takes no parameters, and the `Exec` keeps it.
            None => unsafe { add_kernel(scope.driver, &after, &launch.params(&mut pointers)) }?,
        };
        self.held.functions.entry(handle).or_insert(function);
        Ok(node)
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use arbtest::arbitrary::Unstructured;
    use libloading::Library;
    use phonograph_graph::{EdgeData, EventId, GraphBuilder, Schedule};
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
        (
            "cuGraphAddDependencies_v2",
            "(long g, long *from, long *to, void *data, long many) { extern long count, edges[][2]; while (many) { edges[count][0] = from[--many]; edges[count++][1] = to[many]; } return 0; }",
        ),
        ("cuFuncGetParamInfo", "(void) { return 1; }"),
        ("cuFuncGetAttribute", "(int *v) { *v = 1024; return 0; }"),
    ];

    type Edge = (usize, usize);

    /// The first and the last node of the graph that was created last, and its edges in the order in which they were added.
    fn noted() -> (usize, usize, Vec<Edge>) {
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
    /// kernels that do nothing. Gives how many of these there are.
    #[track_caller]
    fn check(cuda: &mut Cuda, k: &Function, nodes: u32, edges: &[(u32, u32)]) -> usize {
        let mut b = GraphBuilder::new();
        let ids: Vec<NodeId> = (0..nodes).map(|_| b.add_kernel("k", 1, 32, 0).finish()).collect();
        for &(from, to) in edges {
            b.dep(ids[from as usize], ids[to as usize]);
        }
        let graph = b.build().unwrap();
        // SAFETY: nothing is launched.
        let bindings = unsafe { Bindings::new().kernel("k", k) };
        let exec = cuda.instantiate(&graph, &Schedule::sequential(&graph), &bindings).unwrap();
        let (start, end, found) = noted();
        let found: FxHashSet<Edge> = found.into_iter().collect();
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
            let mut check = |nodes: u32, edges: &[(u32, u32)]| check(&mut cuda, &k, nodes, edges);
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
    fn edges_at_launch_order_are_added_behind_those_of_the_end() {
        let name = "lower::ends::tests::edges_at_launch_order_are_added_behind_those_of_the_end";
        on_kernels(name, || {
            let (mut cuda, k) = made();
            let mut b = GraphBuilder::new();
            let ids: Vec<NodeId> = (0..20).map(|_| b.add_kernel("k", 1, 32, 0).finish()).collect();
            let data = EdgeData::LAUNCH_ORDER;
            b.add_edge(phonograph_graph::Edge { from: ids[3], to: ids[7], data });
            let graph = b.build().unwrap();
            // SAFETY: nothing is launched.
            let bindings = unsafe { Bindings::new().kernel("k", &k) };
            let exec = cuda.instantiate(&graph, &Schedule::sequential(&graph), &bindings).unwrap();
            let made: Vec<usize> =
                exec.driver_nodes().map(|node| node.unwrap()[0].addr()).collect();
            let (start, end, edges) = noted();
            assert_eq!(end + 1 - start, 22);
            assert_eq!(edges.last(), Some(&(made[3], made[7])));
        });
    }

    /// The kernels are noted, and made before the event, which cannot be; what begins behind it comes after the same kernel.
    #[test]
    fn what_is_not_noted_comes_after_the_beginning_too() {
        on_kernels("lower::ends::tests::what_is_not_noted_comes_after_the_beginning_too", || {
            let (mut cuda, k) = made();
            // So that no node has the number that it is noted by.
            check(&mut cuda, &k, 9, &[]);
            let mut b = GraphBuilder::new();
            let first = b.add_kernel("k", 1, 32, 0).finish();
            b.add_kernel("k", 1, 32, 0).finish();
            let event = b.add_event_record("done", EventId(0));
            b.dep(first, event);
            b.add_kernel("k", 1, 32, 0).finish();
            let graph = b.build().unwrap();
            // SAFETY: nothing is launched.
            let bindings = unsafe { Bindings::new().kernel("k", &k) };
            let exec = cuda.instantiate(&graph, &Schedule::sequential(&graph), &bindings).unwrap();
            let made: Vec<usize> =
                exec.driver_nodes().flatten().map(|nodes| nodes[0].addr()).collect();
            let (start, end, found) = noted();
            let others: Vec<usize> = (start..=end).filter(|node| !made.contains(node)).collect();
            let [beginning, event] = others[..] else { panic!("{others:?}") };
            let mut expected: Vec<Edge> = made.iter().map(|&kernel| (beginning, kernel)).collect();
            expected.push((made[0], event));
            let set = |edges: Vec<Edge>| edges.into_iter().collect::<FxHashSet<Edge>>();
            assert_eq!(set(found), set(expected));
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
                check(&mut cuda, &k, nodes, &edges);
                Ok(())
            };
            arbtest::arbtest(random).budget_ms(500);
        });
    }
}
