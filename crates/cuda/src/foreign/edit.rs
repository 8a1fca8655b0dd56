//! Taking edges out of a graph of the driver, in place.
//!
//! In: a graph that was read, and the same graph with fewer edges. Out: the driver's graph with only those, changed by one
//! call for each graph inside. Nothing changes before it is proved that all order stays ([`lost_order`], which says what it
//! costs); beyond that O(edges · log edges).

use std::sync::Arc;

use cudarc::driver::sys::{CUgraph, CUgraphEdgeData, CUgraphNode};
use phonograph_graph::{ComputeGraph, Edge, NodeId, NodeKind, RewriteViolation, lost_order};

use super::read::{Read, read};
use super::{ImportError, Imported, ReadOnly};
use crate::error::{DriverError, call};

/// Why a graph is not edited. Unless it is the driver that refuses, nothing has changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EditError {
    /// A graph that can only be looked at.
    #[error(transparent)]
    ReadOnly(#[from] ReadOnly),
    /// What is given is not the graph with fewer edges.
    #[error("{}this is not the driver's graph with fewer edges: {problem}", within(.inside))]
    Other {
        /// The child nodes on the way down to it; empty for the outermost graph.
        inside: Vec<NodeId>,
        /// What differs.
        problem: String,
    },
    /// An order would be lost.
    #[error("{}an order would be lost: {violation}", within(.inside))]
    Order {
        /// The child nodes on the way down to it; empty for the outermost graph.
        inside: Vec<NodeId>,
        /// The first.
        violation: RewriteViolation,
    },
    /// The driver refused to make a node of the graph anew.
    #[error("{}{node} ({name}) is not made anew: {error}", within(.inside))]
    Node {
        /// The child nodes on the way down to it; empty for the outermost graph.
        inside: Vec<NodeId>,
        /// The node.
        node: NodeId,
        /// What it is called.
        name: Arc<str>,
        /// What the driver says.
        error: Box<DriverError>,
    },
    /// The driver refused. What it had done until then stays.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The graph cannot be read again.
    #[error(transparent)]
    Import(#[from] ImportError),
}

impl EditError {
    /// Says at which node the driver refused; if it is known already, in which child graph that lies.
    pub(super) fn at(self, id: NodeId, name: &Arc<str>) -> Self {
        match self {
            EditError::Driver(error) => EditError::Node {
                inside: Vec::new(),
                node: id,
                name: name.clone(),
                error: Box::new(error),
            },
            EditError::Node { mut inside, node, name, error } => {
                inside.insert(0, id);
                EditError::Node { inside, node, name, error }
            }
            other => other,
        }
    }
}

fn within(inside: &[NodeId]) -> String {
    inside.iter().map(|node| format!("inside {node}: ")).collect()
}

/// What was done to a graph and the graphs inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Edited {
    /// Edges before.
    pub edges: usize,
    /// Edges that are gone.
    pub removed: usize,
}

impl Imported {
    /// Takes out of the driver's graph every edge that `reduced` does not have, in the graphs inside, too. `reduced` is
    /// [`graph`](Self::graph) with fewer edges, as transitive reduction gives it. Executables that were made before stay as
    /// they are.
    ///
    /// # Errors
    /// [`EditError`]: for a graph that is read-only, for anything but this graph with fewer edges, and if an order would be
    /// lost.
    pub fn reduce_to(&mut self, reduced: &ComputeGraph) -> Result<Edited, EditError> {
        let mut removals = Vec::new();
        let edited = compare(&self.0, reduced, &mut removals)?;
        for removal in &removals {
            if let Err(error) = removal.perform() {
                // What is known of the graph follows what the driver made of it.
                // SAFETY: `Imported::read` was promised that the graph lives as long as this value.
                self.0 = unsafe { read(self.0.handle) }?;
                return Err(error.into());
            }
        }
        self.0.replace(reduced);
        Ok(edited)
    }
}

/// Proves that `reduced` is what was read with fewer edges and all of its order, and collects the edges that are gone.
pub(super) fn compare(
    read: &Read,
    reduced: &ComputeGraph,
    removals: &mut Vec<Removal>,
) -> Result<Edited, EditError> {
    if let Some(reason) = read.read_only {
        return Err(reason.into());
    }
    let mut edited = Edited::default();
    let mut pending = vec![(Vec::new(), read, reduced)];
    while let Some((inside, read, reduced)) = pending.pop() {
        let other = |problem: String| EditError::Other { inside: inside.clone(), problem };
        let before = &read.graph;
        let counts = [before.node_count(), reduced.node_count()];
        if counts[0] != counts[1] {
            return Err(other(format!("{} nodes, not {}", counts[1], counts[0])));
        }
        let same = |id: NodeId| match (&before.node(id).kind, &reduced.node(id).kind) {
            (NodeKind::Child(_), NodeKind::Child(_)) => true,
            (a, b) => a == b,
        };
        if let Some(id) = before.node_ids().find(|&id| !same(id)) {
            return Err(other(format!("{id} does something else")));
        }
        let gone = missing(before, reduced).map_err(other)?;
        let order = || inside.clone();
        if let Some(violation) = lost_order(before, reduced).into_iter().next() {
            return Err(EditError::Order { inside: order(), violation });
        }
        edited.edges += before.edge_count();
        edited.removed += gone.len();
        if !gone.is_empty() {
            removals.push(Removal::new(read, &gone));
        }
        for (id, child) in &read.children {
            if let NodeKind::Child(graph) = &reduced.node(*id).kind {
                let mut inside = inside.clone();
                inside.push(*id);
                pending.push((inside, child, graph));
            }
        }
    }
    Ok(edited)
}

/// The edges of `before` that `reduced` lacks; says so if it has one that `before` lacks.
fn missing(before: &ComputeGraph, reduced: &ComputeGraph) -> Result<Vec<Edge>, String> {
    let sorted = |graph: &ComputeGraph| {
        let mut edges: Vec<Edge> = graph.edges().collect();
        edges.sort_unstable();
        edges
    };
    let (before, reduced) = (sorted(before), sorted(reduced));
    let mut kept = reduced.iter().peekable();
    let gone: Vec<Edge> =
        before.iter().filter(|edge| kept.next_if_eq(edge).is_none()).copied().collect();
    match kept.next() {
        None => Ok(gone),
        Some(Edge { from, to, .. }) => Err(format!("it has an edge {from} → {to} more")),
    }
}

/// Edges to take out of one graph of the driver.
pub(super) struct Removal {
    graph: CUgraph,
    from: Vec<CUgraphNode>,
    to: Vec<CUgraphNode>,
    data: Vec<CUgraphEdgeData>,
}

impl Removal {
    fn new(read: &Read, gone: &[Edge]) -> Self {
        let node = |id: NodeId| read.nodes[id.index()];
        Self {
            graph: read.handle,
            from: gone.iter().map(|edge| node(edge.from)).collect(),
            to: gone.iter().map(|edge| node(edge.to)).collect(),
            data: gone.iter().map(|edge| read.data_of(edge)).collect(),
        }
    }

    fn perform(&self) -> Result<(), DriverError> {
        let (from, to, data) = (self.from.as_ptr(), self.to.as_ptr(), self.data.as_ptr());
        // SAFETY: the three lists are of one length; the graph lives, as `Imported::read` was promised, and was read with
        // these edges between these nodes.
        unsafe { call!(cuGraphRemoveDependencies_v2(self.graph, from, to, data, self.from.len())) }
    }
}

impl Read {
    /// Takes over that the driver's graph has become `reduced`. Nesting is bounded, which reading has seen.
    fn replace(&mut self, reduced: &ComputeGraph) {
        self.graph = reduced.clone();
        for (id, child) in &mut self.children {
            if let NodeKind::Child(graph) = &reduced.node(*id).kind {
                child.replace(graph);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use phonograph_graph::{EdgeData, GraphBuilder};
    use rustc_hash::FxHashSet;

    use super::super::parameters::Parameters;
    use super::*;

    /// A graph of so many empty nodes with these edges, as if it had been read.
    fn graph(nodes: usize, edges: &[(u32, u32)]) -> ComputeGraph {
        let mut b = GraphBuilder::new();
        for _ in 0..nodes {
            b.add_barrier("");
        }
        for &(from, to) in edges {
            b.dep(NodeId(from), NodeId(to));
        }
        b.build().unwrap()
    }

    fn read(graph: ComputeGraph, children: Vec<(NodeId, Read)>) -> Read {
        let nodes = (1..=graph.node_count()).map(ptr::without_provenance_mut).collect();
        let parameters = Parameters::default();
        let (handle, untyped) = (ptr::null_mut(), FxHashSet::default());
        Read { handle, graph, nodes, parameters, children, untyped, read_only: None }
    }

    fn gone(read: &Read, reduced: &ComputeGraph) -> Result<Vec<(usize, usize)>, String> {
        let mut removals = Vec::new();
        let edited = compare(read, reduced, &mut removals).map_err(|error| error.to_string())?;
        let ends = removals.iter().flat_map(|r| r.from.iter().zip(&r.to));
        let ends: Vec<_> = ends.map(|(from, to)| (from.addr() - 1, to.addr() - 1)).collect();
        assert_eq!(edited.removed, ends.len());
        Ok(ends)
    }

    #[test]
    fn only_edges_that_others_imply_may_go() {
        let triangle = read(graph(3, &[(0, 1), (0, 2), (1, 2)]), Vec::new());
        let check = |reduced: ComputeGraph, expected: Result<Vec<(usize, usize)>, &str>| {
            assert_eq!(gone(&triangle, &reduced), expected.map_err(str::to_owned));
        };
        check(graph(3, &[(1, 2), (0, 1)]), Ok(vec![(0, 2)]));
        check(graph(3, &[(0, 1), (1, 2), (0, 2)]), Ok(vec![]));
        let lost = "an order would be lost: nothing makes n2 wait for n1 any more";
        check(graph(3, &[(0, 1), (0, 2)]), Err(lost));
        let more = "this is not the driver's graph with fewer edges: ";
        check(graph(4, &[]), Err(&format!("{more}4 nodes, not 3")));
        check(graph(3, &[(1, 0), (0, 2)]), Err(&format!("{more}it has an edge n1 → n0 more")));
        let mut other = GraphBuilder::new();
        other.add_barrier("");
        other.add_kernel("k", 1, 1, 0).finish();
        other.add_barrier("");
        check(other.build().unwrap(), Err(&format!("{more}n1 does something else")));
    }

    #[test]
    fn graphs_inside_are_compared_and_named() {
        let around = |inside: &ComputeGraph| {
            let mut b = GraphBuilder::new();
            b.add_barrier("");
            b.add_child("", inside.clone());
            b.build().unwrap()
        };
        let inside = graph(3, &[(0, 1), (0, 2), (1, 2)]);
        let read_inside = read(inside.clone(), Vec::new());
        let whole = read(around(&inside), vec![(NodeId(1), read_inside)]);
        assert_eq!(gone(&whole, &around(&graph(3, &[(0, 1), (1, 2)]))), Ok(vec![(0, 2)]));
        let error = gone(&whole, &around(&graph(3, &[(0, 1)]))).unwrap_err();
        assert!(error.starts_with("inside n1: an order would be lost: "), "{error}");
    }

    #[test]
    fn of_two_edges_between_the_same_nodes_the_right_one_goes() {
        let kernels = |edges: &[EdgeData]| {
            let mut b = GraphBuilder::new();
            let [from, to] = ["a", "b"].map(|name| b.add_kernel(name, 1, 1, 0).finish());
            for &data in edges {
                b.add_edge(Edge { from, to, data });
            }
            b.build().unwrap()
        };
        let both = read(kernels(&[EdgeData::FULL, EdgeData::PROGRAMMATIC]), Vec::new());
        let mut removals = Vec::new();
        compare(&both, &kernels(&[EdgeData::FULL]), &mut removals).unwrap();
        assert_eq!((removals[0].data[0].from_port, removals[0].data[0].type_), (1, 1));
        // An edge that is at launch order without a type is taken out as it is.
        let mut order = read(kernels(&[EdgeData::FULL, EdgeData::LAUNCH_ORDER]), Vec::new());
        order.untyped.insert((NodeId(0), NodeId(1), 2));
        let mut removals = Vec::new();
        compare(&order, &kernels(&[EdgeData::FULL]), &mut removals).unwrap();
        assert_eq!((removals[0].data[0].from_port, removals[0].data[0].type_), (2, 0));
        let weak = compare(&both, &kernels(&[EdgeData::PROGRAMMATIC]), &mut Vec::new());
        assert!(matches!(weak, Err(EditError::Order { .. })), "{weak:?}");
        let mut looked_at = read(kernels(&[]), Vec::new());
        looked_at.read_only = Some(ReadOnly::Conditional);
        let refused = compare(&looked_at, &kernels(&[]), &mut Vec::new());
        assert_eq!(refused, Err(EditError::ReadOnly(ReadOnly::Conditional)));
    }
}
