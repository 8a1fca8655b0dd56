//! Whether an order suffices: nodes are run in orders that it allows, as far from the captured one as can be, on inputs that
//! no observation has seen, and each node's results are compared with the captured order's bit for bit.
//!
//! Where a node's results differ, something that precedes it in captured order had not run yet, or something that follows
//! it had. Which of them matters is found by halving (delta debugging: Zeller and Hildebrandt, IEEE TSE 2002).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use phonograph_graph::{ComputeGraph, NodeId};

use super::histories::{all, update};
use super::{Bench, BlockId, Limits, Missed, Observed, Stage, Subject, Verdict};
use crate::random::{GOLDEN, scramble};

/// Orders tried on each input.
const ORDERS: u32 = 3;

type Copies<S> = Vec<(BlockId, Rc<S>)>;

/// Runs `limits.rounds` inputs in several orders of the graph that `flow` gives, and mends what differs: orders that were
/// missing go to `missed`, writes that had not been seen to `observed`.
pub(super) fn verify<S: Subject>(
    bench: &mut Bench<'_, S>,
    limits: Limits,
    observed: &mut [Observed],
    missed: &mut Vec<Missed>,
    flow: &dyn Fn(&[Observed], &[Missed]) -> ComputeGraph,
) -> Result<Verdict, S::Error> {
    let mut current = all(bench)?;
    let mut graph = flow(observed, missed);
    let of = limits.rounds.saturating_mul(ORDERS);
    let mut mended = 0;
    for round in 0..limits.rounds {
        bench.subject.give(limits.samples.max(2) + 1 + round)?;
        update(bench, &mut current)?;
        let start = current.clone();
        let Some(Reference { results, news }) = reference(bench, limits, observed, &mut current)?
        else {
            return Ok(Verdict::Full);
        };
        if news {
            graph = flow(observed, missed);
        }
        let mut kind = 0;
        while kind < ORDERS {
            let done = round * ORDERS + kind;
            let order = Order { graph: &graph, seed: (kind > 0).then_some(done) };
            let mut replay = Replay { bench, start: &start, results: &results, done, of };
            let node = match replay.run(&order, &[], None)? {
                Outcome::Same => {
                    kind += 1;
                    continue;
                }
                Outcome::Stopped => return Ok(Verdict::Stopped),
                Outcome::DiffersAt(node) => node,
            };
            let suspects = suspects(node, graph.node_count() as u32);
            let Some(needed) = replay.needed(&order, suspects, node)? else {
                return Ok(Verdict::Stopped);
            };
            mended += 1;
            if needed.is_empty() || mended > graph.node_count() {
                return Ok(Verdict::Unexplained { node });
            }
            missed.extend(needed.into_iter().map(|(before, after)| Missed {
                before,
                after,
                seen_at: node,
            }));
            graph = flow(observed, missed);
        }
        // The next round goes on from what a replay leaves.
        restore(bench, &current)?;
    }
    Ok(Verdict::Verified { orders: of })
}

fn restore<S: Subject>(bench: &mut Bench<'_, S>, to: &[Rc<S::Saved>]) -> Result<(), S::Error> {
    let copies: Vec<(BlockId, &S::Saved)> =
        (0..).map(BlockId).zip(to.iter().map(|saved| &**saved)).collect();
    bench.subject.restore(&copies)
}

/// The captured order on one input.
struct Reference<S> {
    /// What each node's blocks hold after it.
    results: Vec<Copies<S>>,
    /// Whether a node wrote what it never had.
    news: bool,
}

/// Runs the captured order; `None` if its results need more memory than is allowed.
fn reference<S: Subject>(
    bench: &mut Bench<'_, S>,
    limits: Limits,
    observed: &mut [Observed],
    current: &mut [Rc<S::Saved>],
) -> Result<Option<Reference<S::Saved>>, S::Error> {
    let mut found = Reference { results: Vec::new(), news: false };
    let mut held = 0u64;
    for (node, seen) in (0..).map(NodeId).zip(observed) {
        bench.run(node)?;
        let (changes, taken) = update(bench, current)?;
        held += taken;
        for change in changes {
            found.news |= seen.writes.binary_search(&change.block).is_err();
            seen.writes_to(&change);
        }
        if held > limits.saved_bytes {
            return Ok(None);
        }
        let after = |&block: &BlockId| (block, current[block.index()].clone());
        found.results.push(seen.writes.iter().map(after).collect());
    }
    Ok(Some(found))
}

/// Orders that put a node where it was captured.
fn suspects(node: NodeId, nodes: u32) -> Vec<(NodeId, NodeId)> {
    let before = (0..node.0).map(|earlier| (NodeId(earlier), node));
    before.chain((node.0 + 1..nodes).map(|later| (node, NodeId(later)))).collect()
}

/// A topological order: the last captured first, or by chance.
struct Order<'a> {
    graph: &'a ComputeGraph,
    seed: Option<u32>,
}

impl Order<'_> {
    fn priority(&self, node: NodeId) -> u64 {
        let Some(seed) = self.seed else { return node.0.into() };
        scramble((u64::from(seed) << 32 | u64::from(node.0)).wrapping_mul(GOLDEN))
    }

    /// All nodes, in an order that also keeps these pairs, which point forward in captured order.
    fn nodes(&self, extra: &[(NodeId, NodeId)]) -> Vec<NodeId> {
        let mut waits: Vec<usize> =
            self.graph.node_ids().map(|node| self.graph.predecessors(node).len()).collect();
        let mut extra = extra.to_vec();
        extra.sort_unstable();
        extra.iter().for_each(|&(_, to)| waits[to.index()] += 1);
        let mut ready: BinaryHeap<(u64, Reverse<NodeId>)> = self
            .graph
            .node_ids()
            .filter(|node| waits[node.index()] == 0)
            .map(|node| (self.priority(node), Reverse(node)))
            .collect();
        let mut order = Vec::with_capacity(waits.len());
        while let Some((_, Reverse(node))) = ready.pop() {
            order.push(node);
            let from = extra.partition_point(|&(before, _)| before < node);
            let more = extra[from..].iter().take_while(|(before, _)| *before == node).map(|e| e.1);
            for next in self.graph.successors(node).iter().copied().chain(more) {
                waits[next.index()] -= 1;
                if waits[next.index()] == 0 {
                    ready.push((self.priority(next), Reverse(next)));
                }
            }
        }
        order
    }
}

/// Runs of one input.
struct Replay<'a, 'b, S: Subject> {
    bench: &'a mut Bench<'b, S>,
    start: &'a [Rc<S::Saved>],
    results: &'a [Copies<S::Saved>],
    done: u32,
    of: u32,
}

/// How a run in another order ended.
enum Outcome {
    Same,
    /// The first node whose results differ.
    DiffersAt(NodeId),
    Stopped,
}

impl<S: Subject> Replay<'_, '_, S> {
    /// Compares the results of every node, or of `only` one: then those of the others may differ.
    fn run(
        &mut self,
        order: &Order<'_>,
        extra: &[(NodeId, NodeId)],
        only: Option<NodeId>,
    ) -> Result<Outcome, S::Error> {
        if !self.bench.goes_on(Stage::Verification, self.done, self.of) {
            return Ok(Outcome::Stopped);
        }
        restore(self.bench, self.start)?;
        for node in order.nodes(extra) {
            self.bench.run(node)?;
            if only.is_none_or(|only| only == node) {
                let expected: Vec<(BlockId, &S::Saved)> =
                    self.results[node.index()].iter().map(|(block, s)| (*block, &**s)).collect();
                if !self.bench.subject.changed(&expected)?.is_empty() {
                    return Ok(Outcome::DiffersAt(node));
                }
                if only.is_some() {
                    return Ok(Outcome::Same);
                }
            }
        }
        Ok(Outcome::Same)
    }

    /// A smallest set of these orders with which a node's results are right; nothing if not even all of them help, `None`
    /// if it was stopped.
    fn needed(
        &mut self,
        order: &Order<'_>,
        suspects: Vec<(NodeId, NodeId)>,
        node: NodeId,
    ) -> Result<Option<Vec<(NodeId, NodeId)>>, S::Error> {
        match self.run(order, &suspects, Some(node))? {
            Outcome::Same => {}
            Outcome::DiffersAt(_) => return Ok(Some(Vec::new())),
            Outcome::Stopped => return Ok(None),
        }
        // Drops ever smaller pieces that are not needed.
        let (mut kept, mut piece) = (suspects, usize::MAX);
        while piece > 1 {
            piece = piece.min(kept.len()).div_ceil(2);
            let mut at = 0;
            while at < kept.len() {
                let end = (at + piece).min(kept.len());
                let without = [&kept[..at], &kept[end..]].concat();
                if without.is_empty() {
                    at = end;
                    continue;
                }
                match self.run(order, &without, Some(node))? {
                    Outcome::Same => kept = without,
                    Outcome::DiffersAt(_) => at = end,
                    Outcome::Stopped => return Ok(None),
                }
            }
        }
        Ok(Some(kept))
    }
}
