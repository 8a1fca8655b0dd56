//! Better layouts than those that are planned: a descent by small changes, each of which is measured.
//!
//! In: a layout, and a function that says whether another one is faster. Out: the last one that was. What is changed are
//! chains beside others: when a chain is made, and on whose lane it runs. Forks that look alike are first changed alike,
//! since what one of them gains may be less than can be measured; then each for itself. What is tried, and in which order,
//! depends on a seed and on the answers alone.
//!
//! A change costs O((nodes + edges) · log nodes), beside its measurement.

use std::collections::{BTreeMap, HashSet};

use phonograph_graph::{ComputeGraph, NodeId};
use phonograph_plan::random::Random;

use super::layout::{Layout, chains, made};

/// Decides in which order the search tries changes.
pub const SEED: u64 = 11;

/// Chains of a fork up to which any two of them are tried together.
const WIDE: usize = 16;

/// What a measurement says.
pub(super) enum Answer {
    /// It is faster than the last that was.
    Faster,
    /// It is not.
    Slower,
    /// Nothing: there is no time left.
    Over,
}

/// Chains that become ready together.
type Fork = Vec<Vec<NodeId>>;

/// What can be changed.
pub(super) struct Neighbourhood<'a> {
    flow: &'a ComputeGraph,
    forks: Vec<Fork>,
}

/// What becomes of a chain among those beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    /// It is made as soon as it is ready, to its end.
    First,
    /// It is made when nothing else is ready.
    Last,
    /// It is made before another one, to its end.
    Before(usize),
    /// Its nodes are made in turn with those of another one.
    Beside(usize),
    /// It runs on the lane of what is before them all.
    Trunk,
    /// It runs on the lane of another one.
    Onto(usize),
    /// It runs on a lane of its own.
    Alone,
    /// It changes lanes with another one.
    Swap(usize),
}

/// A change of the chain of this place in each of these forks.
struct Move {
    forks: Vec<usize>,
    chain: usize,
    change: Change,
}

impl<'a> Neighbourhood<'a> {
    /// Of a graph without edges that others imply.
    pub fn new(flow: &'a ComputeGraph) -> Self {
        let mut forks = BTreeMap::<Vec<NodeId>, Fork>::new();
        for chain in chains(flow) {
            let mut after = flow.predecessors(chain[0]).to_vec();
            after.sort_unstable();
            forks.entry(after).or_default().push(chain);
        }
        let mut forks: Vec<Fork> = forks.into_values().filter(|fork| fork.len() > 1).collect();
        forks.sort_by_key(|fork| fork[0][0]);
        Self { flow, forks }
    }

    /// Forks that look alike together, then each alone in an order by chance.
    fn moves(&self, seed: u64, alone: bool) -> [Vec<Move>; 2] {
        let mut alike = BTreeMap::<Vec<usize>, Vec<usize>>::new();
        let mut wide = BTreeMap::<usize, Vec<usize>>::new();
        for (at, fork) in self.forks.iter().enumerate() {
            let lengths = fork.iter().map(Vec::len).collect();
            alike.entry(lengths).or_default().push(at);
            wide.entry(fork.len()).or_default().push(at);
        }
        let mut together: Vec<Vec<usize>> = wide.into_values().chain(alike.into_values()).collect();
        together.retain(|forks| forks.len() > 1);
        together.sort_by_key(|forks| std::cmp::Reverse(forks.len()));
        together.dedup();
        let together = together.iter().flat_map(|forks| self.changes(forks, alone)).collect();
        let mut single: Vec<Move> =
            (0..self.forks.len()).flat_map(|fork| self.changes(&[fork], alone)).collect();
        let mut random = Random::new(seed);
        for at in (1..single.len()).rev() {
            single.swap(at, random.below(at + 1));
        }
        [together, single]
    }

    /// Every change of every chain of forks of the same width; of wide ones, with the chains next to it.
    fn changes(&self, forks: &[usize], alone: bool) -> Vec<Move> {
        let width = self.forks[forks[0]].len();
        let mut moves = Vec::new();
        for chain in 0..width {
            let mut changes = vec![Change::First, Change::Last, Change::Trunk];
            changes.extend(alone.then_some(Change::Alone));
            let near = |other: usize| width <= WIDE || other.abs_diff(chain) == 1;
            for other in (0..width).filter(|&other| other != chain && near(other)) {
                changes.extend([Change::Before(other), Change::Beside(other), Change::Onto(other)]);
                changes.extend((chain < other).then_some(Change::Swap(other)));
            }
            let forks = || forks.to_vec();
            moves.extend(changes.into_iter().map(|change| Move { forks: forks(), chain, change }));
        }
        moves
    }

    fn changed(&self, layout: &Layout, what: &Move) -> Layout {
        let mut rank = vec![0i64; layout.made.len()];
        for (at, node) in (1..).zip(&layout.made) {
            rank[node.index()] = 2 * at;
        }
        let was = rank.clone();
        let mut lane = layout.lane.clone();
        for &fork in &what.forks {
            let fork = &self.forks[fork];
            let chain = &fork[what.chain];
            let lane_of = |lane: &[u32], chain: usize| lane[fork[chain][0].index()];
            let mut onto = |chain: &[NodeId], to: u32| {
                chain.iter().for_each(|node| lane[node.index()] = to);
            };
            match what.change {
                Change::First => chain.iter().for_each(|node| rank[node.index()] = 0),
                Change::Last => chain.iter().for_each(|node| rank[node.index()] = i64::MAX),
                Change::Before(other) => {
                    let before = was[fork[other][0].index()] - 1;
                    chain.iter().for_each(|node| rank[node.index()] = before);
                }
                Change::Beside(other) => {
                    let other = &fork[other];
                    for (at, node) in chain.iter().enumerate() {
                        let beside = other[at * other.len() / chain.len()];
                        rank[node.index()] = was[beside.index()] + 1;
                    }
                }
                Change::Trunk => {
                    if let Some(before) = self.flow.predecessors(chain[0]).first() {
                        onto(chain, layout.lane[before.index()]);
                    }
                }
                Change::Onto(other) => onto(chain, lane_of(&layout.lane, other)),
                Change::Alone => onto(chain, layout.lane.len() as u32 + chain[0].0),
                Change::Swap(other) => {
                    let (a, b) = (lane_of(&layout.lane, what.chain), lane_of(&layout.lane, other));
                    onto(chain, b);
                    onto(&fork[other], a);
                }
            }
        }
        let made = made(self.flow, |node, _| -rank[node.index()]);
        Layout { lane, made, ends: layout.ends }
    }

    /// The graph whose layouts are searched.
    pub fn flow(&self) -> &'a ComputeGraph {
        self.flow
    }

    /// Goes from layout to faster layout until no change is an improvement, or there is no time left: how many changes were
    /// made. `faster` remembers the last layout of which it said so. `alone` allows lanes that were not there.
    ///
    /// # Errors
    /// What the measurement answers.
    pub fn descend<E>(
        &self,
        start: Layout,
        seed: u64,
        alone: bool,
        faster: &mut dyn FnMut(&Layout) -> Result<Answer, E>,
    ) -> Result<u32, E> {
        let mut known = HashSet::from([start.clone()]);
        let (mut best, mut taken) = (start, 0);
        for moves in self.moves(seed, alone) {
            loop {
                let before = taken;
                for one in &moves {
                    let next = self.changed(&best, one);
                    if !known.insert(next.clone()) {
                        continue;
                    }
                    match faster(&next)? {
                        Answer::Faster => (best, taken) = (next, taken + 1),
                        Answer::Slower => {}
                        Answer::Over => return Ok(taken),
                    }
                }
                if taken == before {
                    break;
                }
            }
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use phonograph_cuda::Ends;
    use phonograph_graph::GraphBuilder;

    use super::*;
    use crate::recover::layout::{Capped, Making};

    /// Forks of branches, one after the other; by fork the lengths of its branches.
    fn forks(all: &[&[u32]]) -> ComputeGraph {
        let mut b = GraphBuilder::new();
        let mut last = b.add_barrier("");
        for branches in all {
            let mut ends = Vec::new();
            for &length in *branches {
                let mut end = last;
                for _ in 0..length {
                    let next = b.add_barrier("");
                    b.dep(end, next);
                    end = next;
                }
                ends.push(end);
            }
            last = b.add_barrier("");
            ends.into_iter().for_each(|end| {
                b.dep(end, last);
            });
        }
        b.build().unwrap()
    }

    /// A device that runs two lanes at once, each node as soon as it may, lanes with what was made first first.
    fn makespan(flow: &ComputeGraph, layout: &Layout) -> u32 {
        let order = layout.order(flow).unwrap();
        let mut done = vec![u32::MAX; flow.node_count()];
        let mut waiting = layout.made.clone();
        let mut step = 0;
        while !waiting.is_empty() {
            let ready = |n: &NodeId| {
                order.predecessors(*n).iter().all(|before| done[before.index()] <= step)
            };
            let runs: Vec<NodeId> = waiting.iter().copied().filter(ready).take(2).collect();
            step += 1;
            runs.iter().for_each(|node| done[node.index()] = step);
            waiting.retain(|node| !runs.contains(node));
        }
        step
    }

    /// Searches, checks every layout that is asked about, and gives how long the first and the last take.
    fn check(flow: &ComputeGraph, cap: Option<u32>, seed: u64, most: usize) -> (u32, u32, usize) {
        let costs = vec![1; flow.node_count()];
        let start =
            Capped::new(flow, cap, &costs).unwrap().layout(Making::Captured, Ends::default());
        let first = makespan(flow, &start);
        let (mut best, mut asked, mut wins) = (first, 0, 0);
        let changes = Neighbourhood::new(flow).descend::<std::convert::Infallible>(
            start,
            seed,
            cap.is_none(),
            &mut |layout| {
                if asked == most {
                    return Ok(Answer::Over);
                }
                asked += 1;
                let mut place = vec![usize::MAX; flow.node_count()];
                layout.made.iter().enumerate().for_each(|(at, node)| place[node.index()] = at);
                assert_eq!(layout.made.len(), place.len());
                let order = layout.order(flow).unwrap();
                let forward = order.edges().all(|e| place[e.from.index()] < place[e.to.index()]);
                assert!(forward, "{layout:?}");
                assert!(flow.edges().all(|edge| order.is_reachable(edge.from, edge.to)));
                let takes = makespan(flow, layout);
                if takes >= best {
                    return Ok(Answer::Slower);
                }
                (best, wins) = (takes, wins + 1);
                Ok(Answer::Faster)
            },
        );
        assert_eq!(changes, Ok(wins));
        (first, best, asked)
    }

    #[test]
    fn the_longest_branch_comes_to_be_made_first() {
        // As captured, the short branches run side by side and then the long one alone: three times two and four steps, and
        // what is between them. The long one first, four steps each.
        let flow = forks(&[&[2, 2, 4], &[2, 2, 4], &[2, 2, 4]]);
        let (first, best, _) = check(&flow, None, SEED, usize::MAX);
        assert_eq!((first, best), (22, 16));
        assert_eq!(check(&flow, Some(2), SEED, usize::MAX).1, 16);
        let (first, best, asked) = check(&flow, None, SEED, 0);
        assert_eq!((first, asked), (best, 0), "no time, no change");
    }

    #[test]
    fn wide_forks_have_few_changes() {
        let flow = forks(&[&[1; 400]]);
        let [together, single] = Neighbourhood::new(&flow).moves(SEED, true);
        // Four for each chain; three for each and one for both of two that are next to each other.
        assert_eq!((together.len(), single.len()), (0, 400 * 4 + 2 * 399 * 3 + 399));
    }

    #[test]
    fn every_layout_keeps_the_order() {
        arbtest::arbtest(|u| {
            let fork =
                |u: &mut arbtest::arbitrary::Unstructured| -> arbtest::arbitrary::Result<Vec<u32>> {
                    (0..u.int_in_range(1..=4)?).map(|_| u.int_in_range(1..=4)).collect()
                };
            let all: Vec<Vec<u32>> =
                (0..u.int_in_range(1..=4)?).map(|_| fork(u)).collect::<Result<_, _>>()?;
            let all: Vec<&[u32]> = all.iter().map(Vec::as_slice).collect();
            let cap = *u.choose(&[None, Some(2), Some(3)])?;
            let (first, best, _) = check(&forks(&all), cap, u.arbitrary()?, 300);
            assert!(best <= first);
            Ok(())
        })
        .budget_ms(1000);
    }
}
