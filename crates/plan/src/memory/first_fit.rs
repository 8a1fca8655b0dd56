//! Greedy placement: each item in turn at the lowest place that is free of those it conflicts with.
//!
//! In: items, which of them conflict, an order. Out: offsets. The conflict relation comes in two forms: spans over sections,
//! where the order of buffers is an interval order, and lists.
//!
//! Cost: for spans O(items) a placement, in a plain scan of what is placed, from below until there is room; for lists
//! O(conflicts · log conflicts).

use super::Budget;
use super::sections::Span;

/// No place yet.
pub(super) const UNPLACED: u64 = u64::MAX;

/// What is to be placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Item {
    pub bytes: u64,
    /// A power of two.
    pub align: u64,
}

/// Which items must not share bytes.
pub(super) enum Conflicts {
    /// Those whose spans meet.
    Spans(Vec<Span>),
    /// By item a range of `others`.
    Lists { start: Vec<u32>, others: Vec<u32> },
}

/// Places items one by one.
pub(super) struct FirstFit<'a> {
    items: &'a [Item],
    conflicts: &'a Conflicts,
    pub offsets: Vec<u64>,
    /// For spans: what is placed, lowest first.
    placed: Vec<(u64, u64, Span)>,
    /// For lists: the bytes that are taken for the item at hand.
    taken: Vec<(u64, u64)>,
}

impl<'a> FirstFit<'a> {
    pub fn new(items: &'a [Item], conflicts: &'a Conflicts) -> Self {
        let offsets = vec![UNPLACED; items.len()];
        Self { items, conflicts, offsets, placed: Vec::new(), taken: Vec::new() }
    }

    /// Places all items in this order: the peak; `None` if the budget ran out or the peak would reach `limit`.
    pub fn place_all(&mut self, order: &[u32], limit: u64, budget: &mut Budget<'_>) -> Option<u64> {
        /// Placed items looked at in about a step's time.
        const A_STEP: usize = 512;
        self.offsets.fill(UNPLACED);
        self.placed.clear();
        let mut peak = 0;
        for &item in order {
            let looked_at = match self.conflicts {
                Conflicts::Spans(_) => self.placed.len(),
                Conflicts::Lists { start, .. } => {
                    (start[item as usize + 1] - start[item as usize]) as usize * 8
                }
            };
            if !budget.spend(1 + (looked_at / A_STEP) as u64) {
                return None;
            }
            let end = self.place(item);
            peak = peak.max(end);
            if peak >= limit {
                return None;
            }
        }
        Some(peak)
    }

    /// Places one item: the end of its bytes.
    fn place(&mut self, item: u32) -> u64 {
        let Item { bytes, align } = self.items[item as usize];
        let mut at = 0u64;
        let mut room = |start: u64, end: u64| {
            let fits = at + bytes <= start;
            if !fits {
                at = at.max(end.next_multiple_of(align));
            }
            fits
        };
        match self.conflicts {
            Conflicts::Spans(spans) => {
                let span = spans[item as usize];
                for &(start, end, other) in &self.placed {
                    if other.meets(span) && room(start, end) {
                        break;
                    }
                }
                let place = self.placed.partition_point(|&(start, _, _)| start < at);
                self.placed.insert(place, (at, at + bytes, span));
            }
            Conflicts::Lists { start, others } => {
                let range = start[item as usize] as usize..start[item as usize + 1] as usize;
                self.taken.clear();
                for &other in &others[range] {
                    let offset = self.offsets[other as usize];
                    if offset != UNPLACED {
                        self.taken.push((offset, offset + self.items[other as usize].bytes));
                    }
                }
                self.taken.sort_unstable();
                let _full = self.taken.iter().any(|&(start, end)| room(start, end));
            }
        }
        self.offsets[item as usize] = at;
        at + bytes
    }
}
