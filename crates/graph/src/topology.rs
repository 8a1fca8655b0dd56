//! Topological order, or the cycle that prevents one.

use fixedbitset::FixedBitSet;

use crate::{Adjacency, NodeId};

/// A topological order: creation order if every edge goes forward in it, else Kahn's (oldest ready node first).
/// `Err` holds the nodes of one cycle, in order. O(nodes + edges), iterative.
pub(crate) fn order(
    predecessors: &Adjacency,
    successors: &Adjacency,
) -> Result<Box<[NodeId]>, Vec<NodeId>> {
    let count = predecessors.rows();
    let ids = || (0..count as u32).map(NodeId);
    if ids().all(|id| predecessors.of(id).iter().all(|&p| p < id)) {
        return Ok(ids().collect());
    }
    let mut missing: Vec<u32> = ids().map(|id| predecessors.of(id).len() as u32).collect();
    let mut order: Vec<NodeId> = ids().filter(|id| missing[id.index()] == 0).collect();
    let mut next = 0;
    while next < order.len() {
        let node = order[next];
        next += 1;
        for &successor in successors.of(node) {
            missing[successor.index()] -= 1;
            if missing[successor.index()] == 0 {
                order.push(successor);
            }
        }
    }
    if order.len() == count {
        return Ok(order.into_boxed_slice());
    }
    Err(find_cycle(predecessors, &missing))
}

/// Every node left over has a predecessor left over: walking backwards must come round.
fn find_cycle(predecessors: &Adjacency, missing: &[u32]) -> Vec<NodeId> {
    let left = |node: &&NodeId| missing[node.index()] > 0;
    let Some(start) = (0..missing.len()).find(|&n| missing[n] > 0) else { return Vec::new() };
    let mut seen = FixedBitSet::with_capacity(missing.len());
    let mut path = vec![NodeId::from_index(start)];
    loop {
        let node = path[path.len() - 1];
        if seen.put(node.index()) {
            let first = path.iter().position(|&n| n == node).unwrap_or(0);
            let mut cycle = path.split_off(first);
            cycle.pop();
            cycle.reverse();
            return cycle;
        }
        match predecessors.of(node).iter().find(left) {
            Some(&previous) => path.push(previous),
            None => return path,
        }
    }
}
