//! Which nodes have to wait for which across streams, no more than needed, and the steps that say so.
//!
//! In: a graph, an issue order, the stream of each node. Out: the waits that together with stream order imply every edge, of
//! which none can be left out.
//!
//! A node knows how many nodes of every stream are complete before it starts: all that its stream knew before, and for each
//! producer what that one knew (vector clocks). It waits for a producer beyond that, the one issued last first,
//! because what it knew is then known too; what is issued earlier never knows of what is issued later, so none of
//! these waits makes another superfluous. The knowledge of a node is kept until its last consumer elsewhere has been
//! issued. Where all of it does not fit a budget, the streams are gone through in blocks: a pass over the graph knows of
//! the streams of one block only and decides which of them are waited for. The answer is the same.
//!
//! Cost: O(edges between streams × streams), in as many passes as blocks; memory 128 MB at most, and 16 bytes a node.

use phonograph_graph::{ComputeGraph, EventId, NodeId, Step, StreamId};
use smallvec::SmallVec;

/// Counters that are kept at once.
const BUDGET: usize = 1 << 25;

/// Who waits for whom.
pub(super) type Wait = (NodeId, NodeId);

/// The waits, in issue order of the nodes that wait.
pub(super) fn waits(
    graph: &ComputeGraph,
    order: &[NodeId],
    stream: &[StreamId],
    streams: u32,
) -> Vec<Wait> {
    within(BUDGET, graph, order, stream, streams as usize)
}

fn within(
    budget: usize,
    graph: &ComputeGraph,
    order: &[NodeId],
    stream: &[StreamId],
    streams: usize,
) -> Vec<Wait> {
    let issue = Issue::new(graph, order, stream, streams);
    let (rows, kept) = issue.kept();
    let block = (budget / (kept + streams).max(1)).clamp(1, streams.max(1));
    let mut found = Vec::new();
    for start in (0..streams).step_by(block) {
        issue.pass(start..streams.min(start + block), kept, rows.clone(), &mut found);
    }
    if block < streams {
        found.sort_unstable_by_key(|&(to, from)| {
            (issue.issued[to.index()], std::cmp::Reverse(issue.issued[from.index()]))
        });
    }
    found
}

struct Issue<'a> {
    graph: &'a ComputeGraph,
    order: &'a [NodeId],
    stream: &'a [StreamId],
    streams: usize,
    /// Place of each node in the order.
    issued: Vec<u32>,
    /// Place of each node on its stream, from 1 on.
    place: Vec<u32>,
}

impl<'a> Issue<'a> {
    fn new(
        graph: &'a ComputeGraph,
        order: &'a [NodeId],
        stream: &'a [StreamId],
        streams: usize,
    ) -> Self {
        let mut issued = vec![0; order.len()];
        let mut place = vec![0; order.len()];
        let mut count = vec![0; streams];
        for (at, &node) in (0u32..).zip(order) {
            issued[node.index()] = at;
            let count = &mut count[stream[node.index()].index()];
            *count += 1;
            place[node.index()] = *count;
        }
        Self { graph, order, stream, streams, issued, place }
    }

    /// Producers on other streams.
    fn elsewhere(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let own = self.stream[node.index()];
        let producers = self.graph.predecessors(node).iter().copied();
        producers.filter(move |from| self.stream[from.index()] != own)
    }

    /// How many consumers elsewhere each node has, and how many nodes at once have some that are not issued yet.
    fn kept(&self) -> (Vec<u32>, usize) {
        let mut consumers = vec![0u32; self.order.len()];
        for &node in self.order {
            for from in self.elsewhere(node) {
                consumers[from.index()] += 1;
            }
        }
        let mut left = consumers.clone();
        let (mut kept, mut most) = (0, 0);
        for &node in self.order {
            for from in self.elsewhere(node) {
                left[from.index()] -= 1;
                kept -= usize::from(left[from.index()] == 0);
            }
            kept += usize::from(left[node.index()] > 0);
            most = most.max(kept);
        }
        (consumers, most)
    }

    /// Finds the waits for nodes on the streams of `block`.
    fn pass(
        &self,
        block: std::ops::Range<usize>,
        kept: usize,
        mut consumers: Vec<u32>,
        found: &mut Vec<Wait>,
    ) {
        let width = block.len();
        // What each stream knows, then what nodes knew: a row of counters, one for each stream of the block.
        let mut known = vec![0u32; self.streams * width];
        let mut rows = vec![0u32; kept * width];
        let mut free: Vec<u32> = (0..kept as u32).rev().collect();
        let mut row = vec![0u32; self.order.len()];
        let mut producers: SmallVec<[NodeId; 8]> = SmallVec::new();
        for &node in self.order {
            let own = self.stream[node.index()].index();
            let knows = &mut known[own * width..(own + 1) * width];
            producers.clear();
            producers.extend(self.elsewhere(node));
            producers.sort_unstable_by_key(|from| std::cmp::Reverse(self.issued[from.index()]));
            for &from in &producers {
                let place = self.place[from.index()];
                let other = self.stream[from.index()].index();
                let column = other.checked_sub(block.start).filter(|&column| column < width);
                if column.is_some_and(|column| knows[column] >= place) {
                    continue;
                }
                let at = row[from.index()] as usize * width;
                for (own, &other) in knows.iter_mut().zip(&rows[at..at + width]) {
                    *own = (*own).max(other);
                }
                if let Some(column) = column {
                    knows[column] = knows[column].max(place);
                    found.push((node, from));
                }
            }
            for &from in &producers {
                let left = &mut consumers[from.index()];
                *left -= 1;
                if *left == 0 {
                    free.push(row[from.index()]);
                }
            }
            if consumers[node.index()] > 0 {
                let at = free.pop().expect("as many rows as nodes are kept at once");
                row[node.index()] = at;
                rows[at as usize * width..(at as usize + 1) * width].copy_from_slice(knows);
            }
        }
    }
}

/// The steps that run `order` with these waits, given in issue order of the nodes that wait. A node is recorded once, right
/// behind it, whoever waits for it.
pub(super) fn steps(order: &[NodeId], stream: &[StreamId], waits: &[Wait]) -> Vec<Step> {
    const NONE: EventId = EventId(u32::MAX);
    let mut recorded = vec![false; order.len()];
    for &(_, from) in waits {
        recorded[from.index()] = true;
    }
    let mut steps = Vec::with_capacity(order.len() + 2 * waits.len());
    let mut event = vec![NONE; order.len()];
    let mut events = 0;
    let mut waits = waits.iter().peekable();
    for &node in order {
        let stream = stream[node.index()];
        while let Some((_, from)) = waits.next_if(|(to, _)| *to == node) {
            steps.push(Step::Wait { event: event[from.index()], stream });
        }
        steps.push(Step::run(node, stream));
        if recorded[node.index()] {
            event[node.index()] = EventId(events);
            steps.push(Step::Record { event: EventId(events), stream });
            events += 1;
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use arbtest::arbtest;
    use phonograph_graph::GraphBuilder;

    use super::*;

    #[test]
    fn blocks_of_streams_find_the_same_waits() {
        arbtest(|u| {
            let count: u32 = u.int_in_range(1..=40)?;
            let mut b = GraphBuilder::new();
            for _ in 0..count {
                b.add_barrier("n");
            }
            for _ in 0..u.int_in_range(0..=3 * count)? {
                let to = u.int_in_range(0..=count - 1)?;
                let from = u.int_in_range(0..=to)?;
                if from < to {
                    b.dep(NodeId(from), NodeId(to));
                }
            }
            let graph = b.build().unwrap();
            let streams = u.int_in_range(1..=7)?;
            let stream = (0..count).map(|_| Ok(StreamId(u.int_in_range(0..=streams - 1)?)));
            let stream: Vec<StreamId> = stream.collect::<arbtest::arbitrary::Result<_>>()?;
            let order: Vec<NodeId> = graph.node_ids().collect();
            let all = waits(&graph, &order, &stream, streams);
            for budget in [1, 20, 60] {
                assert_eq!(within(budget, &graph, &order, &stream, streams as usize), all);
            }
            Ok(())
        })
        .budget_ms(500);
    }
}
