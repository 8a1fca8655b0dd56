//! Which buffers are wholly before which, for every pair: for pools small enough that this pays.
//!
//! In: tenants of one pool that may share, and an exact index of the nodes' order. Out: for each tenant the set of those
//! that it is wholly before, and, where the order is an *interval order*, spans on a line that say the same: then placement
//! is the problem of lifetimes, for which there is a complete search. O(tenants²) questions and bits.

use fixedbitset::FixedBitSet;

use super::Budget;
use super::first_fit::Conflicts;
use super::sections::Span;
use super::tenants::Tenant;
use crate::precedence::Precedence;

/// The order of the tenants of a pool.
pub(super) struct BufferOrder {
    /// By tenant, those that it is wholly before.
    pub after: Vec<FixedBitSet>,
}

impl BufferOrder {
    /// Tenants must be sorted by their first users. `None` if the budget runs out.
    pub fn new(
        precedence: &Precedence<'_>,
        tenants: &[Tenant],
        budget: &mut Budget<'_>,
    ) -> Option<Self> {
        /// Pairs asked about in about a step's time.
        const A_STEP: u64 = 32;
        let count = tenants.len();
        let mut after = vec![FixedBitSet::with_capacity(count); count];
        for (old, after) in tenants.iter().zip(&mut after) {
            let from = tenants.partition_point(|new| new.from <= old.to);
            if !budget.spend(1 + (count - from) as u64 / A_STEP) {
                return None;
            }
            for (index, new) in tenants.iter().enumerate().skip(from) {
                after.set(index, old.is_before(new, precedence));
            }
        }
        Some(Self { after })
    }

    /// The pairs that must not share bytes. O(tenants²).
    pub fn conflicts(&self) -> Conflicts {
        let count = self.after.len();
        let mut others: Vec<Vec<u32>> = vec![Vec::new(); count];
        for old in 0..count {
            for new in old + 1..count {
                if !self.after[old].contains(new) {
                    others[old].push(new as u32);
                    others[new].push(old as u32);
                }
            }
        }
        let mut start = vec![0u32];
        for list in &others {
            start.push(start[start.len() - 1] + list.len() as u32);
        }
        Conflicts::Lists { start, others: others.concat() }
    }

    /// Spans that meet where tenants conflict, and the number of sections, if there are such spans.
    ///
    /// In an interval order the sets of what comes before an item are nested in each other, so their sizes number the
    /// moments at which items start, and an item ends where the first of those after it starts (Greenough, 1976). Whether that
    /// says the same as the order is then compared pair by pair.
    pub fn spans(&self) -> Option<(Vec<Span>, usize)> {
        let count = self.after.len();
        let mut before = vec![0u32; count];
        for after in &self.after {
            after.ones().for_each(|later| before[later] += 1);
        }
        let mut starts = before.clone();
        starts.sort_unstable();
        starts.dedup();
        let rank = |item: usize| starts.partition_point(|&size| size < before[item]) as u32;
        let span = |item: usize| Span {
            first: rank(item),
            end: self.after[item].ones().map(rank).min().unwrap_or(starts.len() as u32),
        };
        let spans: Vec<Span> = (0..count).map(span).collect();
        let agree = (0..count).all(|old| {
            spans[old].first < spans[old].end
                && (old + 1..count)
                    .all(|new| self.after[old].contains(new) != spans[old].meets(spans[new]))
        });
        agree.then_some((spans, starts.len()))
    }
}
