//! Each node runs once; fused groups hold fusible nodes and are convex.

use rustc_hash::FxHashSet;

use crate::checker::{StepId, Violation};
use crate::{ComputeGraph, NodeId, Schedule, Step};

pub(super) fn check(graph: &ComputeGraph, schedule: &Schedule, found: &mut Vec<Violation>) {
    let mut ran_in: Vec<Option<StepId>> = vec![None; graph.node_count()];
    let positions = positions(graph);
    for (index, step) in schedule.steps.iter().enumerate() {
        let id = StepId(index as u32);
        let (stream, streams) = (step.stream(), schedule.streams);
        if stream.0 >= streams {
            found.push(Violation::UnknownStream { step: id, stream, streams });
        }
        let Step::Run { nodes, .. } = step else { continue };
        if nodes.is_empty() {
            found.push(Violation::EmptyStep { step: id });
        }
        for &node in nodes {
            match ran_in.get_mut(node.index()) {
                None => found.push(Violation::UnknownNode { step: id, node }),
                Some(Some(first)) => {
                    found.push(Violation::Repeated { node, first: *first, second: id });
                }
                Some(none) => *none = Some(id),
            }
        }
        if nodes.len() > 1 && nodes.iter().all(|&node| graph.get(node).is_some()) {
            check_group(graph, id, nodes, &positions, found);
        }
    }
    let missing = graph.node_ids().filter(|node| ran_in[node.index()].is_none());
    found.extend(missing.map(|node| Violation::Missing { node }));
}

/// Where each node stands in the graph's topological order.
fn positions(graph: &ComputeGraph) -> Vec<u32> {
    let mut positions = vec![0; graph.node_count()];
    for (position, node) in (0u32..).zip(graph.topological_order()) {
        positions[node.index()] = position;
    }
    positions
}

/// Searches forward from the group through nodes outside it, no further than the group's last node.
fn check_group(
    graph: &ComputeGraph,
    step: StepId,
    nodes: &[NodeId],
    positions: &[u32],
    found: &mut Vec<Violation>,
) {
    for &node in nodes {
        if !graph.node(node).kernel().is_some_and(|kernel| kernel.fusible) {
            found.push(Violation::NotFusible { step, node });
        }
    }
    let group: FxHashSet<NodeId> = nodes.iter().copied().collect();
    let last = nodes.iter().map(|n| positions[n.index()]).max().unwrap_or(0);
    let mut seen = FxHashSet::default();
    let mut stack: Vec<NodeId> = nodes.to_vec();
    while let Some(node) = stack.pop() {
        for &next in graph.successors(node) {
            let outside = !group.contains(&next);
            if outside && positions[next.index()] < last && seen.insert(next) {
                stack.push(next);
            } else if !outside && !group.contains(&node) {
                found.push(Violation::NotConvex { step, through: node });
                return;
            }
        }
    }
}
