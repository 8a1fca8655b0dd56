//! Width: the most nodes that no order separates, so the most that can ever run at once.
//!
//! In: a graph and a budget. Out: the exact width with nodes that show it, or bounds. From below: the widest level, counted
//! from the start and from the end. From above: chains that cover all nodes (Dilworth, 1950). Where these meet, that is
//! the answer, in O(nodes + edges). Otherwise, if the closure of the order fits the budget, a maximum matching in it
//! gives the fewest chains, and the nodes it leaves uncovered the antichain (Fulkerson, 1956; König).

use phonograph_graph::{ComputeGraph, NodeId};

use super::index::{Budget, BudgetExceeded, ReachIndex};
use super::levels;
use super::order::{By, positions};
use super::redundant::Chains;
use crate::matching::{Bipartite, Left, Right, maximum_matching};

/// How wide a graph is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Width {
    /// At least so many nodes can run at once.
    pub lower: usize,
    /// At most so many.
    pub upper: usize,
    /// `lower` nodes, by id, none of which comes before another.
    pub antichain: Vec<NodeId>,
    /// What a closer answer would have cost, if there could be one.
    pub exceeded: Option<BudgetExceeded>,
}

impl Width {
    /// The width, if it is known.
    pub fn exact(&self) -> Option<usize> {
        (self.lower == self.upper).then_some(self.upper)
    }
}

/// The width of a graph, weak edges counted as order. The budget is for the closure: its index, and one step for each
/// pair of nodes in order.
///
/// ```
/// use phonograph_graph::GraphBuilder;
/// use phonograph_plan::analysis::{Budget, width};
///
/// let mut b = GraphBuilder::new();
/// let [a, b1, c, d] = ["a", "b", "c", "d"].map(|name| b.add_barrier(name));
/// b.chain(&[a, b1]).chain(&[c, d]).dep(a, d);
/// assert_eq!(width(&b.build()?, Budget::default()).exact(), Some(2));
/// # Ok::<(), phonograph_graph::GraphError>(())
/// ```
pub fn width(graph: &ComputeGraph, budget: Budget) -> Width {
    let antichain = widest_level(graph);
    let chains = Chains::cut_by_any_edge(graph, &positions(graph)).count();
    let (lower, upper) = (antichain.len(), chains);
    let mut width = Width { lower, upper, antichain, exceeded: None };
    if lower < upper {
        match by_matching(graph, budget) {
            Ok(antichain) => {
                (width.lower, width.upper) = (antichain.len(), antichain.len());
                width.antichain = antichain;
            }
            Err(exceeded) => width.exceeded = Some(exceeded),
        }
    }
    width
}

/// The nodes of the widest level, from the start or from the end.
fn widest_level(graph: &ComputeGraph) -> Vec<NodeId> {
    let from_start = levels(graph).level;
    let mut from_end = vec![0u32; graph.node_count()];
    for &node in graph.topological_order().iter().rev() {
        let after = graph.successors(node).iter().map(|to| from_end[to.index()] + 1);
        from_end[node.index()] = after.max().unwrap_or(0);
    }
    let widest = |level: &[u32]| {
        let mut widths = vec![0u32; graph.node_count()];
        level.iter().for_each(|&at| widths[at as usize] += 1);
        let most = (0u32..).zip(&widths).max_by_key(|&(at, &width)| (width, std::cmp::Reverse(at)));
        most.map_or((0, 0), |(at, &width)| (width, at))
    };
    let ((a, at_start), (b, at_end)) = (widest(&from_start), widest(&from_end));
    let (level, at) = if a >= b { (from_start, at_start) } else { (from_end, at_end) };
    graph.node_ids().filter(|node| level[node.index()] == at).collect()
}

fn by_matching(graph: &ComputeGraph, budget: Budget) -> Result<Vec<NodeId>, BudgetExceeded> {
    let index = ReachIndex::new(graph, budget)?;
    let order = graph.topological_order();
    let count = order.len();
    // Asking for each pair is a step, and so is each edge of the closure.
    let pairs = (count * count.saturating_sub(1) / 2) as u64;
    if pairs > budget.steps {
        let needed = Budget { bytes: budget.bytes, steps: pairs };
        return Err(BudgetExceeded { needed, allowed: budget });
    }
    let (mut offsets, mut targets) = (vec![0u32], Vec::new());
    for (place, &from) in order.iter().enumerate() {
        let after = (place + 1..count).filter(|&to| index.before(from, order[to], By::Wait));
        targets.extend(after.map(|to| to as u32));
        let bytes = 4 * targets.len() as u64;
        let Some(end) = u32::try_from(targets.len()).ok().filter(|_| bytes <= budget.bytes) else {
            let needed = Budget { bytes, steps: pairs };
            return Err(BudgetExceeded { needed, allowed: budget });
        };
        offsets.push(end);
    }
    drop(index);
    let closure = Bipartite::new(&offsets, &targets, count as u32)
        .expect("the rows were made one after the other, and places are below the number of nodes");
    let matching = maximum_matching(closure);
    // From left vertices without a partner, along edges to the right and pairs to the left (König): the nodes reached on the
    // left and not on the right belong to no cover, so none of them comes before another.
    let mut left_reached = vec![false; count];
    let mut right_reached = vec![false; count];
    let free = (0..count as u32).filter(|&left| matching.right_of(Left(left)).is_none());
    let mut stack: Vec<u32> = free.collect();
    stack.iter().for_each(|&left| left_reached[left as usize] = true);
    while let Some(left) = stack.pop() {
        let row = offsets[left as usize] as usize..offsets[left as usize + 1] as usize;
        for &right in &targets[row] {
            if std::mem::replace(&mut right_reached[right as usize], true) {
                continue;
            }
            if let Some(Left(next)) = matching.left_of(Right(right))
                && !std::mem::replace(&mut left_reached[next as usize], true)
            {
                stack.push(next);
            }
        }
    }
    let mut antichain: Vec<NodeId> = (0..count)
        .filter(|&at| left_reached[at] && !right_reached[at])
        .map(|at| order[at])
        .collect();
    antichain.sort_unstable();
    Ok(antichain)
}
