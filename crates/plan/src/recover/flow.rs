//! From what was observed to the order that it asks for: conflicts on blocks (read after write, write after read, write
//! after write) in captured order, opaque nodes against everything, and of these edges the ones that no path implies.
//!
//! Near-linear in nodes, operands and opaque nodes.

use phonograph_graph::{BufferId, ComputeGraph, GraphBuilder, NodeId};

use super::{BlockId, Missed, Observed};
use crate::analysis::redundant_edges;

/// The graph of nodes with these names on blocks of these sizes. `missed` adds to it.
///
/// # Panics
/// If there are not as many names as observations, or a block is named that has no size.
pub fn data_flow(
    names: &[String],
    bytes: &[u64],
    observed: &[Observed],
    missed: &[Missed],
) -> ComputeGraph {
    assert_eq!(names.len(), observed.len());
    let full = build(names, bytes, observed, missed, None);
    let implied = redundant_edges(&full);
    if implied.is_empty() {
        return full;
    }
    let mut implied: Vec<(NodeId, NodeId)> = implied.iter().map(|e| (e.from, e.to)).collect();
    implied.sort_unstable();
    let needed = full
        .edges()
        .map(|edge| (edge.from, edge.to))
        .filter(|pair| implied.binary_search(pair).is_err())
        .collect();
    build(names, bytes, observed, missed, Some(needed))
}

/// With the edges that follow from the operands, or with exactly these.
fn build(
    names: &[String],
    bytes: &[u64],
    observed: &[Observed],
    missed: &[Missed],
    exactly: Option<Vec<(NodeId, NodeId)>>,
) -> ComputeGraph {
    let mut builder = GraphBuilder::new().with_auto_infer_edges(exactly.is_none());
    for (block, &bytes) in bytes.iter().enumerate() {
        builder.external_buffer(&format!("block {block}"), bytes as usize);
    }
    let buffers = |blocks: &[BlockId]| -> Vec<BufferId> {
        blocks.iter().map(|block| BufferId(block.0)).collect()
    };
    for (name, seen) in names.iter().zip(observed) {
        let read: Vec<BlockId> = seen.reads.iter().chain(&seen.assumed).copied().collect();
        builder
            .add_kernel(name, 1, 1, 0)
            .inputs(buffers(&read))
            .outputs(buffers(&seen.writes))
            .fusible(false)
            .finish();
    }
    if let Some(edges) = exactly {
        for (from, to) in edges {
            builder.dep(from, to);
        }
    } else {
        let nodes = || (0..observed.len() as u32).map(NodeId);
        let opaque = |node: NodeId| observed[node.index()].opaque.is_some();
        let mut since = None;
        for node in nodes() {
            if let Some(before) = since {
                builder.dep(before, node);
            }
            if opaque(node) {
                for earlier in
                    nodes().take(node.index()).skip(since.map_or(0, |s: NodeId| s.index() + 1))
                {
                    builder.dep(earlier, node);
                }
                since = Some(node);
            }
        }
        for missed in missed {
            builder.dep(missed.before, missed.after);
        }
    }
    builder.build().expect("edges point forward in captured order and operands are whole blocks")
}
