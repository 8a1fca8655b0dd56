//! Who wrote what a node reads, where that was observed.
//!
//! In topological order, what each buffer's bytes were last written by; a write that replaces all of its bytes hides those
//! before. O(operands · writers that a buffer has at a time).

use std::collections::{BTreeMap, HashMap};

use phonograph_graph::{Access, BufferId, ComputeGraph, NodeId, Region};

/// By observed node: what it reads, and whose results that may be; nobody's of the graph, if there is no node.
pub type Sources = BTreeMap<NodeId, Vec<(Region, Vec<NodeId>)>>;

/// Who wrote what the observed nodes of a graph read, its inner graphs aside.
///
/// ```
/// use phonograph_graph::{Access, GraphBuilder, Observed, Region};
/// use phonograph_report::sources;
///
/// let mut b = GraphBuilder::new();
/// let region = Region { buffer: b.external_buffer("x", 64), offset: 0, bytes: 64 };
/// let nodes = [Access::Write, Access::Read].map(|access| {
///     let node = b.add_kernel("opaque", 1, 1, 0).finish();
///     b.observe(node, Observed::new(&[(region, access)], 8));
///     node
/// });
/// let graph = b.build()?;
/// assert_eq!(sources(&graph)[&nodes[1]], [(region, vec![nodes[0]])]);
/// # Ok::<(), phonograph_graph::GraphError>(())
/// ```
pub fn sources(graph: &ComputeGraph) -> Sources {
    let mut writers: HashMap<BufferId, Vec<(Region, NodeId)>> = HashMap::new();
    let mut sources = Sources::new();
    for &node in graph.topological_order() {
        let operands = graph.operands(node);
        if graph.observed(node).is_some() {
            let reads = operands.iter().filter(|(_, access)| access.reads());
            let from = reads.map(|&(region, _)| {
                let known = writers.get(&region.buffer).into_iter().flatten();
                let from = known.filter(|(written, _)| written.overlaps(&region));
                (region, from.map(|(_, writer)| *writer).collect())
            });
            sources.insert(node, from.collect());
        }
        for &(region, access) in operands.iter().filter(|(_, access)| access.writes()) {
            let known = writers.entry(region.buffer).or_default();
            if access == Access::Write {
                let inside =
                    |old: &Region| old.offset >= region.offset && old.end() <= region.end();
                known.retain(|(old, _)| !inside(old));
            }
            known.push((region, node));
        }
    }
    sources
}

#[cfg(test)]
mod tests {
    use phonograph_graph::{GraphBuilder, Observed};

    use super::*;

    #[test]
    fn a_read_comes_from_those_who_wrote_last() {
        let mut b = GraphBuilder::new();
        let x = b.external_buffer("x", 128);
        let part = |offset, bytes| Region { buffer: x, offset, bytes };
        let seen = [
            (part(0, 128), Access::Write),
            (part(0, 64), Access::Write),
            (part(0, 128), Access::Write),
            (part(64, 64), Access::ReadWrite),
            (part(0, 128), Access::Read),
            (part(0, 32), Access::Read),
        ];
        for (region, access) in seen {
            let node = b.add_kernel("k", 1, 1, 0).finish();
            b.observe(node, Observed::new(&[(region, access)], 1));
        }
        let sources = sources(&b.build().unwrap());
        let of = |node: u32| -> Vec<u32> {
            sources[&NodeId(node)].iter().flat_map(|(_, from)| from).map(|from| from.0).collect()
        };
        assert_eq!([of(0), of(3), of(4), of(5)], [vec![], vec![2], vec![2, 3], vec![2]]);
    }
}
