//! Conflicting accesses that nothing orders, at any depth of a graph.
//!
//! In: a graph with the graphs inside its nodes. Out: where the first races are, from the outside in and in the order of
//! nodes. Every backend asks before it makes anything: the order of such accesses would be chance. Costs what
//! [`races`] costs, for each graph.

use phonograph_graph::{ComputeGraph, Race, races};

use super::NodePath;

/// The races of the first graph that has any: the way to the node that holds it, which is empty for `graph` itself, and
/// the races between its nodes. `None` if conflicting accesses are ordered everywhere.
///
/// ```
/// use phonograph_graph::{GraphBuilder, NodeKind};
/// use phonograph_runtime::cpu::first_races;
///
/// let mut body = GraphBuilder::new().with_auto_infer_edges(false);
/// let x = body.alloc_buffer("x", 64);
/// body.add_kernel("write", 1, 1, 0).outputs([x]).finish();
/// body.add_kernel("read", 1, 1, 0).inputs([x]).finish();
/// let mut b = GraphBuilder::new();
/// b.add("inner", NodeKind::Child(Box::new(body.build()?)));
///
/// let (inside, races) = first_races(&b.build()?).expect("no edge is between them");
/// assert_eq!((inside.to_string().as_str(), races.len()), ("n0 (inner)", 1));
/// # Ok::<(), phonograph_graph::GraphError>(())
/// ```
pub fn first_races(graph: &ComputeGraph) -> Option<(NodePath, Vec<Race>)> {
    let mut rest = vec![(NodePath(Vec::new()), graph)];
    while let Some((inside, graph)) = rest.pop() {
        let races = races(graph);
        if !races.is_empty() {
            return Some((inside, races));
        }
        let first = rest.len();
        for id in graph.node_ids() {
            let node = graph.node(id);
            for inner in node.kind.inner_graphs() {
                let mut path = inside.clone();
                path.0.push((id, node.name.to_string()));
                rest.push((path, inner));
            }
        }
        rest[first..].reverse();
    }
    None
}
