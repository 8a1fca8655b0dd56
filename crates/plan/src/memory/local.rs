//! Local search over the order in which first fit places items.
//!
//! In: items, conflicts, an order and what it gives. Out: a better placement, if one was found. What decides the peak is
//! an item that ends there: it is taken earlier in the order, or changes places with one that it conflicts with, and the
//! new order is kept where the peak is no higher. After many tries in vain a few items are moved at random, and after very
//! many the search ends. One step is one placement of all items.

use super::Budget;
use super::first_fit::{Conflicts, FirstFit, Item};
use crate::random::Random;

/// Offsets by item, and one past the last byte of all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Placed {
    pub offsets: Vec<u64>,
    pub peak: u64,
}

impl Placed {
    /// The one with the lower peak; this one if both are as low.
    pub fn better(self, other: Placed) -> Placed {
        if other.peak < self.peak { other } else { self }
    }
}

/// The best of several orders: what it gives, and the order. Stops at `enough`. The first order is placed at any budget.
pub(super) fn best_order(
    items: &[Item],
    conflicts: &Conflicts,
    orders: impl IntoIterator<Item = Vec<u32>>,
    enough: u64,
    budget: &mut Budget<'_>,
) -> Option<(Placed, Vec<u32>)> {
    let mut fit = FirstFit::new(items, conflicts);
    let mut best: Option<(Placed, Vec<u32>)> = None;
    for order in orders {
        let limit = best.as_ref().map_or(u64::MAX, |(placed, _)| placed.peak);
        if limit <= enough {
            break;
        }
        if let Some(peak) = fit.place_all(&order, limit, budget) {
            best = Some((Placed { offsets: fit.offsets.clone(), peak }, order));
        }
    }
    best
}

/// Improves on an order until the peak is `enough` or the budget spent.
pub(super) fn improve(
    items: &[Item],
    conflicts: &Conflicts,
    mut order: Vec<u32>,
    mut best: Placed,
    enough: u64,
    budget: &mut Budget<'_>,
) -> Placed {
    const PATIENCE: u32 = 200;
    /// Orders tried for each item without a lower peak, after which there is no hope.
    const HOPE: usize = 1000;
    if order.len() < 2 {
        return best;
    }
    let mut random = Random::new(1);
    let mut fit = FirstFit::new(items, conflicts);
    let (mut current, mut in_vain, mut since_best) = (best.clone(), 0, 0);
    while best.peak > enough && since_best < HOPE * order.len() && !budget.is_spent() {
        let mut tried = order.clone();
        let mut limit = current.peak + 1;
        if in_vain >= PATIENCE {
            for _ in 0..4 {
                take_to(&mut tried, random.below(order.len()), random.below(order.len()));
            }
            limit = u64::MAX;
            in_vain = 0;
        } else {
            let at_peak = |&&item: &&u32| {
                current.offsets[item as usize] + items[item as usize].bytes == current.peak
            };
            let peaks: Vec<u32> = order.iter().filter(at_peak).copied().collect();
            let Some(&item) = peaks.get(random.below(peaks.len().max(1))) else { break };
            let Some(from) = order.iter().position(|&other| other == item) else { break };
            match random.below(3) {
                0 => tried.swap(from, random.below(order.len())),
                _ => take_to(&mut tried, from, random.below(from + 1)),
            }
        }
        in_vain += 1;
        since_best += 1;
        if let Some(peak) = fit.place_all(&tried, limit, budget) {
            in_vain = if peak < current.peak { 0 } else { in_vain };
            current = Placed { offsets: fit.offsets.clone(), peak };
            order = tried;
            if peak < best.peak {
                best = current.clone();
                since_best = 0;
            }
        }
    }
    best
}

/// Moves what is at `from` to `to`.
fn take_to(order: &mut [u32], from: usize, to: usize) {
    if from <= to {
        order[from..=to].rotate_left(1);
    } else {
        order[to..=from].rotate_right(1);
    }
}
