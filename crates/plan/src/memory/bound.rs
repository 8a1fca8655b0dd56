//! How many bytes any plan needs for buffers under a partial order: the weight of their heaviest antichain.
//!
//! Buffers of which none is wholly before another must all have bytes of their own. Two ways to find many such:
//!
//! - [`heaviest_antichain`]: exact, by the weighted form of Dilworth's theorem (Annals of Mathematics 1950): the weight of all, less the most
//!   weight that can be handed over from buffers to later ones, which is a maximum flow (Dinic, 1970) through the
//!   reduction of the order. Under a budget of edges looked at.
//! - [`fullest_moment`]: near-linear. However nodes are numbered along their order, buffers in use at one number are an
//!   antichain, so the fullest number bounds every plan, if not always sharply.

use std::collections::VecDeque;

use fixedbitset::FixedBitSet;

use super::Budget;

/// Bytes in use at the fullest of a row of moments; each span says from which moment to which, both included, how
/// many are. O(spans + moments).
pub(super) fn fullest_moment(spans: impl Iterator<Item = (u32, u32, u64)>, moments: usize) -> u64 {
    let mut change = vec![(0u64, 0u64); moments + 1];
    for (from, to, bytes) in spans {
        change[from as usize].0 += bytes;
        change[to as usize + 1].1 += bytes;
    }
    let mut live = 0;
    let at = change.iter().map(|&(starting, ending)| {
        live = live + starting - ending;
        live
    });
    at.max().unwrap_or(0)
}

/// The weight of the heaviest antichain; `None` if the budget runs out.
///
/// `after[i]` holds every item that `i` is before: all of them, not only the next. Items are numbered so that none is
/// before one with a lower number.
pub(super) fn heaviest_antichain(
    weight: &[u64],
    after: &[FixedBitSet],
    budget: &mut Budget<'_>,
) -> Option<u64> {
    let count = weight.len();
    let mut flow = Flow::new(2 * count + 2);
    let (source, sink) = (2 * count as u32, 2 * count as u32 + 1);
    let (left, right) = (|i: usize| 2 * i as u32, |i: usize| 2 * i as u32 + 1);
    let mut covered = FixedBitSet::with_capacity(count);
    for item in 0..count {
        flow.add(source, left(item), weight[item]);
        flow.add(right(item), sink, weight[item]);
        // What is handed to an item may be handed on through it.
        flow.add(right(item), left(item), u64::MAX);
        covered.clear();
        for next in after[item].ones() {
            if !covered.contains(next) {
                flow.add(left(item), right(next), u64::MAX);
                covered.union_with(&after[next]);
                if !budget.spend(1 + count as u64 / 4096) {
                    return None;
                }
            }
        }
    }
    let handed_on = flow.most(source, sink, budget)?;
    Some(weight.iter().sum::<u64>() - handed_on)
}

/// A network of capacities; each edge is followed by its reverse.
struct Flow {
    first: Vec<Vec<u32>>,
    to: Vec<u32>,
    capacity: Vec<u64>,
}

impl Flow {
    fn new(nodes: usize) -> Self {
        Self { first: vec![Vec::new(); nodes], to: Vec::new(), capacity: Vec::new() }
    }

    fn add(&mut self, from: u32, to: u32, capacity: u64) {
        for (from, to, capacity) in [(from, to, capacity), (to, from, 0)] {
            self.first[from as usize].push(self.to.len() as u32);
            self.to.push(to);
            self.capacity.push(capacity);
        }
    }

    fn most(&mut self, source: u32, sink: u32, budget: &mut Budget<'_>) -> Option<u64> {
        let mut total = 0;
        let mut level = vec![u32::MAX; self.first.len()];
        let mut next = vec![0u32; self.first.len()];
        while self.find_levels(source, sink, &mut level, budget)? {
            next.fill(0);
            while let Some(pushed) = self.push(source, sink, &level, &mut next, budget)? {
                total += pushed;
            }
        }
        Some(total)
    }

    /// Distances from the source along edges with room; whether the sink has one.
    fn find_levels(
        &self,
        source: u32,
        sink: u32,
        level: &mut [u32],
        budget: &mut Budget<'_>,
    ) -> Option<bool> {
        level.fill(u32::MAX);
        level[source as usize] = 0;
        let mut queue = VecDeque::from([source]);
        while let Some(node) = queue.pop_front() {
            let edges = &self.first[node as usize];
            if !budget.spend(1 + edges.len() as u64 / 256) {
                return None;
            }
            for &edge in edges {
                let to = self.to[edge as usize] as usize;
                if self.capacity[edge as usize] > 0 && level[to] == u32::MAX {
                    level[to] = level[node as usize] + 1;
                    queue.push_back(to as u32);
                }
            }
        }
        Some(level[sink as usize] != u32::MAX)
    }

    /// Pushes as much as one path takes; `None` inside if there is no path left.
    fn push(
        &mut self,
        source: u32,
        sink: u32,
        level: &[u32],
        next: &mut [u32],
        budget: &mut Budget<'_>,
    ) -> Option<Option<u64>> {
        let mut path: Vec<u32> = Vec::new();
        let mut node = source;
        while node != sink {
            if !budget.step() {
                return None;
            }
            let edges = &self.first[node as usize];
            let open = edges[next[node as usize] as usize..].iter().position(|&edge| {
                let to = self.to[edge as usize];
                self.capacity[edge as usize] > 0
                    && level[to as usize] == level[node as usize].saturating_add(1)
            });
            match open {
                Some(skipped) => {
                    next[node as usize] += skipped as u32;
                    let edge = edges[next[node as usize] as usize];
                    path.push(edge);
                    node = self.to[edge as usize];
                }
                None => {
                    next[node as usize] = edges.len() as u32;
                    let Some(back) = path.pop() else { return Some(None) };
                    node = self.to[(back ^ 1) as usize];
                    next[node as usize] += 1;
                }
            }
        }
        let room = path.iter().map(|&edge| self.capacity[edge as usize]).min().unwrap_or(0);
        for edge in path {
            // An edge without a limit stays so.
            let forward = &mut self.capacity[edge as usize];
            *forward = if *forward == u64::MAX { u64::MAX } else { *forward - room };
            let back = &mut self.capacity[(edge ^ 1) as usize];
            *back = back.saturating_add(room);
        }
        Some(Some(room))
    }
}

#[cfg(test)]
mod tests {
    use arbtest::arbtest;

    use super::*;

    /// The heaviest antichain by trying every subset.
    fn brute(weight: &[u64], after: &[FixedBitSet]) -> u64 {
        let subsets = 0u32..1 << weight.len();
        let items = |subset: u32| (0..weight.len()).filter(move |i| subset >> i & 1 == 1);
        let antichain =
            |&subset: &u32| items(subset).all(|a| items(subset).all(|b| !after[a].contains(b)));
        let weigh = |subset| items(subset).map(|i| weight[i]).sum::<u64>();
        subsets.filter(antichain).map(weigh).max().unwrap_or(0)
    }

    #[test]
    fn the_heaviest_antichain_is_that_of_all_subsets() {
        arbtest(|u| {
            let count = u.int_in_range(0..=9)?;
            let mut after = vec![FixedBitSet::with_capacity(count); count];
            for a in (0..count).rev() {
                for b in a + 1..count {
                    if u.ratio(1, 4)? {
                        let beyond = after[b].clone();
                        after[a].insert(b);
                        after[a].union_with(&beyond);
                    }
                }
            }
            let weight: Vec<u64> =
                (0..count).map(|_| u.int_in_range(0..=20)).collect::<Result<_, _>>()?;
            let found =
                heaviest_antichain(&weight, &after, &mut Budget::new(u64::MAX, &mut || false));
            assert_eq!(found, Some(brute(&weight, &after)), "{weight:?} {after:?}");
            let spent = heaviest_antichain(&weight, &after, &mut Budget::new(3, &mut || false));
            assert!(spent.is_none() || spent == found);
            Ok(())
        })
        .budget_ms(500);
    }

    #[test]
    fn the_fullest_moment_counts_both_ends() {
        let check = |spans: &[(u32, u32, u64)], expected| {
            assert_eq!(fullest_moment(spans.iter().copied(), 4), expected, "{spans:?}");
        };
        check(&[], 0);
        check(&[(0, 1, 3), (1, 3, 4), (2, 3, 5)], 9);
        check(&[(0, 1, 3), (1, 1, 7), (2, 3, 5)], 10);
    }
}
