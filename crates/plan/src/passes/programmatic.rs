//! Full edges between kernels become programmatic ones: the consumer is launched while the producer still runs, and
//! waits for it on the device.
//!
//! Only where every block of the consumer executes its wait on every path before its first global access: that holds of
//! kernels that backends generate (expressions and the library), and of no kernel known by name. The order of memory
//! accesses stays; what is complete *before start* is less, so memory planning may share less. O(nodes + edges).

use phonograph_graph::{ComputeGraph, Edge, EdgeData, KernelRef, NodeId, Rebuild};

use super::{Change, Left, PassError, PassReport, Reason, Rewritten, on_every_graph};

/// Makes edges programmatic wherever that is safe.
///
/// # Errors
/// [`PassError`], if the graph that comes out is not valid.
pub fn weaken_edges(graph: &ComputeGraph) -> Result<Rewritten, PassError> {
    on_every_graph(graph, &|graph| {
        let mut report = PassReport::new("programmatic edges");
        let kernel = |node: NodeId| graph.node(node).kernel();
        let mut edges = Vec::with_capacity(graph.edge_count());
        let mut named = None;
        for edge in graph.edges() {
            let (from, to) = (kernel(edge.from), kernel(edge.to));
            let (Some(_), Some(to)) = (from, to) else {
                edges.push(edge);
                continue;
            };
            if !edge.data.is_full() {
                edges.push(edge);
            } else if matches!(to.kernel, KernelRef::Named(_)) {
                if named.replace(edge.to) != Some(edge.to) {
                    report.left.push(Left { node: edge.to, why: Reason::NotGenerated });
                }
                edges.push(edge);
            } else {
                report.changed.push(Change::EdgeWeakened { edge });
                edges.push(Edge { data: EdgeData::PROGRAMMATIC, ..edge });
            }
        }
        if report.changed.is_empty() {
            return Ok(Rewritten::unchanged(graph, report));
        }
        let mut rebuild = Rebuild::new(graph);
        rebuild.edges(edges);
        Rewritten::rebuilt(rebuild, report)
    })
}
