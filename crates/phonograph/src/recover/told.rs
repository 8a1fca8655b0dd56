//! What was found, as a graph to keep: the nodes as they were captured, with what each was seen to read and write, and only
//! the edges that this asks for. O(nodes + edges + blocks touched).

use std::collections::BTreeMap;

use phonograph_graph::{
    Access, BufferId, ComputeGraph, GraphBuilder, GraphError, NodeId, Observed, Region,
};
use phonograph_plan::recover::{BlockId, Recovered};

/// The graph of what was captured, in this order of its nodes, and what was found of it. Buffers are the blocks that a node
/// touches.
pub(super) fn told(
    captured: &ComputeGraph,
    order: &[NodeId],
    recovered: &Recovered,
    sizes: &[u64],
) -> Result<ComputeGraph, GraphError> {
    let mut builder = GraphBuilder::new().named("recovered").with_auto_infer_edges(false);
    let own: BTreeMap<BlockId, BlockId> =
        recovered.private.iter().map(|p| (p.instead.own, p.instead.block)).collect();
    let mut buffers = BTreeMap::<BlockId, BufferId>::new();
    for seen in &recovered.observed {
        for &block in seen.writes.iter().chain(&seen.reads).chain(&seen.assumed) {
            buffers.entry(block).or_insert_with(|| {
                let name = match own.get(&block) {
                    Some(of) => format!("block {}, for block {}", block.0, of.0),
                    None => format!("block {}", block.0),
                };
                builder.external_buffer(&name, sizes[block.0 as usize] as usize)
            });
        }
    }
    for (&node, seen) in order.iter().zip(&recovered.observed) {
        let node = captured.node(node);
        let inside = node.kind.has_inner_graphs();
        let id = builder.add_node(node.clone());
        if seen.opaque.is_some() || inside {
            continue;
        }
        let whole = |block: &BlockId| {
            let bytes = sizes[block.0 as usize];
            Region { buffer: buffers[block], offset: 0, bytes }
        };
        let reads = seen.reads.iter().chain(&seen.assumed).map(|b| (whole(b), Access::Read));
        let writes = seen.writes.iter().zip(&seen.spans).map(|(block, span)| {
            let (offset, bytes) = (span.start, span.end - span.start);
            match seen.replaces.binary_search(block) {
                Ok(_) => (whole(block), Access::Write),
                Err(_) => (Region { offset, bytes, ..whole(block) }, Access::ReadWrite),
            }
        });
        let operands: Vec<_> = reads.chain(writes).collect();
        builder.observe(id, Observed::new(&operands, seen.trials));
    }
    for edge in recovered.graph.edges() {
        builder.dep(edge.from, edge.to);
    }
    builder.build()
}
