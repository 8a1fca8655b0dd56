//! Making a graph anew from another: nodes dropped, merged or replaced, edges given; buffers and slots stay as they are.
//!
//! In goes a graph and what shall become of its nodes, out come the new graph and the [`Image`] of the old one in it.
//! Nothing is inferred: the edges are those given, or the graph's own. O(nodes + edges + operands), as building is.

use std::collections::BTreeMap;

use crate::{ComputeGraph, Edge, GraphBuilder, GraphError, Node, NodeId, NodeKind};

/// Where the nodes of a graph went when it was rewritten.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Image {
    /// For each node before, by id, the node that does its work now; `None` for one that was dropped.
    pub nodes: Vec<Option<NodeId>>,
    /// For each node before whose inner graphs were rewritten, their images, in their order.
    pub inner: BTreeMap<NodeId, Vec<Image>>,
}

impl Image {
    /// The image of a graph of `nodes` nodes in itself.
    pub fn identity(nodes: usize) -> Self {
        let nodes = (0..nodes).map(|index| Some(NodeId::from_index(index))).collect();
        Self { nodes, inner: BTreeMap::new() }
    }

    /// The node that does the work of `node` now; `None` if it was dropped or never was.
    pub fn of(&self, node: NodeId) -> Option<NodeId> {
        self.nodes.get(node.index()).copied().flatten()
    }

    /// This rewriting, then `next`. O(nodes).
    pub fn then(&self, next: &Image) -> Image {
        let nodes: Vec<Option<NodeId>> =
            self.nodes.iter().map(|&between| between.and_then(|node| next.of(node))).collect();
        let mut inner = BTreeMap::new();
        for (index, &between) in self.nodes.iter().enumerate() {
            let (node, Some(between)) = (NodeId::from_index(index), between) else { continue };
            let composed = match (self.inner.get(&node), next.inner.get(&between)) {
                (None, None) => continue,
                (Some(first), None) => first.clone(),
                (None, Some(second)) => second.clone(),
                // Images nest as deep as graphs do, which building bounds.
                (Some(first), Some(second)) => {
                    first.iter().zip(second).map(|(first, second)| first.then(second)).collect()
                }
            };
            inner.insert(node, composed);
        }
        Image { nodes, inner }
    }
}

/// What becomes of one node.
#[derive(Clone, PartialEq, Debug)]
enum Fate {
    Kept,
    Replaced(Box<Node>),
    Dropped,
    MergedInto(NodeId),
}

/// A graph about to be made from another. All ids are of the graph before.
///
/// ```
/// use phonograph_graph::{Edge, GraphBuilder, Rebuild};
///
/// let mut b = GraphBuilder::new();
/// let [x, pause, y] = ["x", "pause", "y"].map(|name| b.add_barrier(name));
/// b.chain(&[x, pause, y]);
/// let graph = b.build()?;
///
/// let mut rebuild = Rebuild::new(&graph);
/// rebuild.drop_node(pause);
/// rebuild.edges(vec![Edge::full(x, y)]);
/// let (graph, image) = rebuild.build()?;
/// assert_eq!(graph.node_count(), 2);
/// assert_eq!(image.of(pause), None);
/// assert!(graph.is_reachable(image.of(x).unwrap(), image.of(y).unwrap()));
/// # Ok::<(), phonograph_graph::GraphError>(())
/// ```
#[derive(Debug)]
pub struct Rebuild<'a> {
    graph: &'a ComputeGraph,
    fates: Vec<Fate>,
    edges: Option<Vec<Edge>>,
    inner: BTreeMap<NodeId, Vec<Image>>,
}

impl<'a> Rebuild<'a> {
    /// The graph as it is.
    pub fn new(graph: &'a ComputeGraph) -> Self {
        let fates = vec![Fate::Kept; graph.node_count()];
        Self { graph, fates, edges: None, inner: BTreeMap::new() }
    }

    /// Leaves a node out. Its edges vanish; whoever wants the order that they gave says so with [`edges`](Self::edges).
    ///
    /// # Panics
    /// If the id is not of the graph.
    pub fn drop_node(&mut self, node: NodeId) {
        self.fates[node.index()] = Fate::Dropped;
    }

    /// Puts another node in a node's place.
    ///
    /// # Panics
    /// If the id is not of the graph.
    pub fn replace(&mut self, node: NodeId, by: Node) {
        self.fates[node.index()] = Fate::Replaced(Box::new(by));
    }

    /// Puts other inner graphs into a child graph or conditional; `images` say where the nodes of the old ones went.
    ///
    /// # Panics
    /// If the id is not of the graph, or the node does not hold as many graphs.
    pub fn replace_inner(&mut self, node: NodeId, graphs: Vec<ComputeGraph>, images: Vec<Image>) {
        let mut by = match std::mem::replace(&mut self.fates[node.index()], Fate::Kept) {
            Fate::Replaced(by) => *by,
            _ => self.graph.node(node).clone(),
        };
        assert_eq!(by.kind.inner_graphs().len(), graphs.len(), "one graph for each of {node}");
        match &mut by.kind {
            NodeKind::Child(child) => graphs.into_iter().for_each(|graph| **child = graph),
            NodeKind::Conditional(conditional) => conditional.bodies = graphs,
            _ => {}
        }
        self.replace(node, by);
        self.inner.insert(node, images);
    }

    /// Lets `into` do the work of `node`. Edges of both become edges of `into`; one between them vanishes.
    ///
    /// # Panics
    /// If the id is not of the graph.
    pub fn merge(&mut self, node: NodeId, into: NodeId) {
        self.fates[node.index()] = Fate::MergedInto(into);
    }

    /// Gives all edges anew, instead of the graph's own.
    pub fn edges(&mut self, edges: Vec<Edge>) {
        self.edges = Some(edges);
    }

    /// Makes the graph. Nodes keep their order; a merged node stands where the one stood that it was merged into.
    ///
    /// Fails as building does: on a cycle, on a replaced node that is not valid, on an edge to a node that the graph
    /// does not have, on nodes merged into one another in a circle. A node merged into one that is merged itself goes where
    /// that one goes, and with one that is dropped it is dropped.
    pub fn build(self) -> Result<(ComputeGraph, Image), GraphError> {
        let Self { graph, fates, edges, inner } = self;
        let mut image = Image { nodes: vec![None; fates.len()], inner };
        let mut nodes = Vec::with_capacity(fates.len());
        for (index, fate) in fates.iter().enumerate() {
            let node = match fate {
                Fate::Kept => graph.nodes()[index].clone(),
                Fate::Replaced(by) => (**by).clone(),
                Fate::Dropped | Fate::MergedInto(_) => continue,
            };
            image.nodes[index] = Some(NodeId::from_index(nodes.len()));
            nodes.push(node);
        }
        for (index, fate) in fates.iter().enumerate() {
            let (node, Fate::MergedInto(first)) = (NodeId::from_index(index), fate) else {
                continue;
            };
            let mut into = *first;
            let mut steps = 0;
            while let Some(Fate::MergedInto(next)) = fates.get(into.index()) {
                into = *next;
                steps += 1;
                if steps > fates.len() {
                    let node = crate::validate::named(node, graph.node(node));
                    return Err(GraphError::Cycle(crate::CyclePath(vec![node])));
                }
            }
            image.nodes[index] = image.of(into);
        }
        let known = |edge: &Edge| {
            let missing = [edge.from, edge.to].into_iter().find(|id| id.index() >= fates.len());
            match missing {
                None => Ok(()),
                Some(missing) => Err(GraphError::UnknownNode {
                    from: edge.from,
                    to: edge.to,
                    missing,
                    count: fates.len(),
                }),
            }
        };
        if let Some(edges) = &edges {
            edges.iter().try_for_each(known)?;
        }
        let mapped = |edge: Edge| {
            let (from, to) = (image.of(edge.from)?, image.of(edge.to)?);
            let vanished = from == to && edge.from != edge.to;
            (!vanished).then_some(Edge { from, to, ..edge })
        };
        let edges: Vec<Edge> = match edges {
            Some(edges) => edges.into_iter().filter_map(mapped).collect(),
            None => graph.edges().filter_map(mapped).collect(),
        };
        let (buffers, slots) = (graph.buffers().to_vec(), graph.slots().to_vec());
        let mut builder = GraphBuilder::from_parts(graph.name(), nodes, buffers, slots, edges);
        for (node, observed) in graph.all_observed() {
            if let (Fate::Kept, Some(place)) = (&fates[node.index()], image.of(*node)) {
                builder.observe(place, observed.clone());
            }
        }
        let built = builder.build()?;
        Ok((built, image))
    }
}
