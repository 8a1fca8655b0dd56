//! Places lifetimes: greedy orders first, then search, until the lower bound is met or the budget is spent.
//!
//! In: lifetimes, perhaps a capacity that is good enough, a budget. Out: offsets, their peak, and the lower bound.
//!
//! Sizes are divided by their greatest common divisor, lifetimes without bytes left out. Ways to place, each where it pays:
//! a sweep along the time line that gives what starts the tightest gap (O(n log n), any size); first fit in several
//! orders (O(n²), up to [`FIRST_FIT`] items); the complete search of `niche`, at the lower bound first, and between it and
//! the best known peak in turn.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::Budget;
use super::first_fit::{Conflicts, Item};
use super::lifetimes::Lifetimes;
use super::local::{Placed, best_order};
use super::niche::{Layout, Outcome, Piece, Search};
use super::sections::cut;

/// Items up to which first fit is tried.
const FIRST_FIT: usize = 1 << 15;

/// Sections covered by all items up to which the complete search is tried.
pub(super) const SEARCHED: u64 = 1 << 22;

/// Where lifetimes lie.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Placement {
    /// First byte of each, by id; 0 for those without bytes.
    pub offsets: Vec<u64>,
    /// One past the last byte of all.
    pub peak: u64,
    /// What every placement needs at least.
    pub lower_bound: u64,
    /// Whether the search ended by itself: the peak is as low as can be, or within the capacity asked for, or every
    /// placement below it was tried. If not, the budget ran out, or there were too many lifetimes for a search.
    pub complete: bool,
}

/// Places lifetimes so that those which meet share no byte, with a peak as low as the budget allows.
///
/// Without a capacity the search goes on until the peak is the least, or the budget spent; with one it ends at the first
/// placement within it. The budget counts steps of the search, of about a microsecond; greedy placement is done at any budget.
///
/// ```
/// use phonograph_plan::memory::{Budget, Lifetime, Lifetimes, place};
///
/// let live = |lower, upper, bytes| Lifetime { lower, upper, bytes };
/// let lifetimes = Lifetimes::new(vec![live(0, 3, 4), live(3, 9, 4), live(0, 9, 4), live(9, 21, 4), live(0, 21, 4)])?;
/// let placement = place(&lifetimes, None, &mut Budget::new(1000, &mut || false));
/// assert_eq!((placement.peak, placement.lower_bound, placement.complete), (12, 12, true));
/// # Ok::<(), phonograph_plan::memory::LifetimeError>(())
/// ```
pub fn place(lifetimes: &Lifetimes, capacity: Option<u64>, budget: &mut Budget<'_>) -> Placement {
    scaled(lifetimes, capacity, |pieces, sections, enough| {
        let (best, complete) = place_greedily(&pieces, sections, enough, budget);
        if complete || Layout::area(&pieces) > SEARCHED {
            return (best, complete);
        }
        let layout = Layout::new(pieces, sections);
        let best = dive(&layout, enough, best, budget);
        search(&layout, enough, best, budget)
    })
}

/// Places lifetimes by the quick methods with which [`place`] begins; the budget bounds how many of them.
pub fn greedy(lifetimes: &Lifetimes, budget: &mut Budget<'_>) -> Placement {
    scaled(lifetimes, None, |pieces, sections, enough| {
        let (best, complete) = place_greedily(&pieces, sections, enough, budget);
        if complete || Layout::area(&pieces) > SEARCHED {
            return (best, complete);
        }
        let best = dive(&Layout::new(pieces, sections), enough, best, budget);
        let complete = best.peak <= enough;
        (best, complete)
    })
}

/// Places in units, without what has no bytes; `place` gets the pieces, the number of sections and a peak that is enough.
fn scaled(
    lifetimes: &Lifetimes,
    capacity: Option<u64>,
    place: impl FnOnce(Vec<Piece>, usize, u64) -> (Placed, bool),
) -> Placement {
    let lower_bound = lifetimes.lower_bound();
    let (spans, sections) = cut(lifetimes);
    let list = lifetimes.as_slice();
    let used: Vec<usize> = (0..list.len()).filter(|&i| list[i].bytes > 0).collect();
    let unit = used.iter().fold(0, |unit, &i| gcd(unit, list[i].bytes)).max(1);
    let pieces = used.iter().map(|&i| Piece { span: spans[i], size: list[i].bytes / unit });
    // No peak is lower than the bound, and none needs to be lower than the capacity.
    let enough = capacity.map_or(0, |bytes| bytes / unit).max(lower_bound / unit);
    let (placed, complete) = place(pieces.collect(), sections, enough);
    let mut offsets = vec![0; list.len()];
    for (&index, &offset) in used.iter().zip(&placed.offsets) {
        offsets[index] = offset * unit;
    }
    Placement { offsets, peak: placed.peak * unit, lower_bound, complete }
}

fn place_greedily(
    pieces: &[Piece],
    sections: usize,
    enough: u64,
    budget: &mut Budget<'_>,
) -> (Placed, bool) {
    let mut best = sweep(pieces, sections);
    if best.peak > enough && pieces.len() <= FIRST_FIT {
        let items: Vec<Item> = pieces.iter().map(|p| Item { bytes: p.size, align: 1 }).collect();
        let spans = Conflicts::Spans(pieces.iter().map(|p| p.span).collect());
        let ordered = best_order(&items, &spans, orders(pieces, sections), enough, budget);
        best = ordered.into_iter().fold(best, |best, (placed, _)| best.better(placed));
    }
    let complete = best.peak <= enough;
    (best, complete)
}

/// Gives each piece, from the first section to the last, the tightest gap between those that are live.
fn sweep(pieces: &[Piece], sections: usize) -> Placed {
    let mut starting: Vec<Vec<u32>> = vec![Vec::new(); sections + 1];
    let mut ending: Vec<Vec<u32>> = vec![Vec::new(); sections + 1];
    for (index, piece) in (0..).zip(pieces) {
        starting[piece.span.first as usize].push(index);
        ending[piece.span.end as usize].push(index);
    }
    let mut offsets = vec![0; pieces.len()];
    let mut gaps = Gaps::default();
    for (starting, ending) in starting.iter_mut().zip(&ending) {
        for &index in ending {
            gaps.give_back(offsets[index as usize], pieces[index as usize].size);
        }
        // What lives longest goes lowest where several start at once.
        let length = |&index: &u32| {
            let Piece { span, size } = pieces[index as usize];
            Reverse((span.len(), size))
        };
        starting.sort_by_key(length);
        for &index in &*starting {
            offsets[index as usize] = gaps.take(pieces[index as usize].size);
        }
    }
    Placed { offsets, peak: gaps.end }
}

/// Free bytes, by place and by size.
#[derive(Default)]
struct Gaps {
    by_start: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    end: u64,
}

impl Gaps {
    fn add(&mut self, start: u64, size: u64) {
        self.by_start.insert(start, size);
        self.by_size.insert((size, start));
    }

    fn remove(&mut self, start: u64, size: u64) {
        self.by_start.remove(&start);
        self.by_size.remove(&(size, start));
    }

    /// The first byte of the tightest gap, or at the end, which moves.
    fn take(&mut self, size: u64) -> u64 {
        if let Some(&(gap, start)) = self.by_size.range((size, 0)..).next() {
            self.remove(start, gap);
            if gap > size {
                self.add(start + size, gap - size);
            }
            return start;
        }
        let last = self.by_start.last_key_value().map(|(&start, &gap)| (start, gap));
        let start = match last {
            Some((start, gap)) if start + gap == self.end => {
                self.remove(start, gap);
                start
            }
            _ => self.end,
        };
        self.end = start + size;
        start
    }

    fn give_back(&mut self, mut start: u64, mut size: u64) {
        let below = self.by_start.range(..start).next_back().map(|(&at, &gap)| (at, gap));
        if let Some((at, gap)) = below.filter(|(at, gap)| at + gap == start) {
            self.remove(at, gap);
            (start, size) = (at, size + gap);
        }
        if let Some(&gap) = self.by_start.get(&(start + size)) {
            self.remove(start + size, gap);
            size += gap;
        }
        self.add(start, size);
    }
}

/// Orders in which first fit does well, each better on some inputs.
fn orders(pieces: &[Piece], sections: usize) -> impl Iterator<Item = Vec<u32>> {
    let mut live = vec![0u64; sections];
    for piece in pieces {
        piece.span.sections().for_each(|section| live[section] += piece.size);
    }
    // How full the fullest section is that each piece covers.
    let crowd: Vec<u64> = pieces
        .iter()
        .map(|piece| live[piece.span.sections()].iter().copied().max().unwrap_or(0))
        .collect();
    type Key = [u64; 3];
    let key = move |kind: usize, index: u32| -> Key {
        let Piece { span, size } = pieces[index as usize];
        let (length, crowd) = (span.len() as u64, crowd[index as usize]);
        let area = size.saturating_mul(length);
        match kind {
            0 => [size, length, 0],
            1 => [area, size, 0],
            2 => [length, size, 0],
            3 => [crowd, size, length],
            4 => [crowd, area, 0],
            _ => [crowd, length, size],
        }
    };
    (0..6).map(move |kind| {
        let mut order: Vec<u32> = (0..pieces.len() as u32).collect();
        order.sort_by_cached_key(|&index| (Reverse(key(kind, index)), index));
        order
    })
}

/// One run each at capacities nearer and nearer to what is enough, until one fails.
fn dive(layout: &Layout, enough: u64, mut best: Placed, budget: &mut Budget<'_>) -> Placed {
    for part in [4, 8, 16] {
        let capacity = enough + enough / part;
        if capacity >= best.peak {
            continue;
        }
        let mut search = Search::new(layout, capacity);
        if search.run(budget) != Outcome::Placed {
            break;
        }
        best = best.better(placed(layout, search.offsets));
    }
    best
}

/// Runs at the lowest capacity in question, and between it and the best peak in turn, until one of them is settled: the
/// best placement, and whether there is none lower.
pub(super) fn search(
    layout: &Layout,
    enough: u64,
    mut best: Placed,
    budget: &mut Budget<'_>,
) -> (Placed, bool) {
    /// Runs at the least peak that come first: they settle most instances.
    const AT_LEAST: u64 = 3;
    /// One run in so many is followed by one at a capacity between.
    const BETWEEN: u64 = 8;
    /// Runs at the least peak before another capacity between is tried.
    const TRIES: u64 = 64;
    // Nothing lower is needed or possible.
    let mut least = enough;
    let mut low = Search::new(layout, least);
    let mut between: Option<(u64, Search<'_>)> = None;
    // How near to the best peak the capacity between is, in halvings of the gap.
    let mut halvings = 1u32;
    for runs in 1.. {
        match low.run(budget) {
            Outcome::Placed => return (placed(layout, low.offsets), true),
            Outcome::Impossible => {
                least += 1;
                low = Search::new(layout, least);
            }
            Outcome::Stopped => {}
        }
        let gap = best.peak.saturating_sub(least);
        let capacity = best.peak - (gap >> halvings).max(1);
        if runs >= AT_LEAST && runs % BETWEEN == 0 && capacity > least {
            let (_, mut search) = between
                .take()
                .filter(|&(at, _)| at == capacity)
                .unwrap_or_else(|| (capacity, Search::new(layout, capacity)));
            match search.run(budget) {
                Outcome::Placed => {
                    best = best.better(placed(layout, search.offsets));
                    halvings = 1;
                }
                Outcome::Impossible => {
                    least = capacity + 1;
                    low = Search::new(layout, least);
                }
                Outcome::Stopped => {
                    between = Some((capacity, search));
                    if runs % TRIES == 0 {
                        halvings = if gap >> halvings > 1 { halvings + 1 } else { 1 };
                    }
                }
            }
        }
        if best.peak <= least {
            return (best, true);
        }
        if budget.is_spent() {
            break;
        }
    }
    (best, false)
}

fn placed(layout: &Layout, offsets: Vec<u64>) -> Placed {
    let ends = layout.pieces().iter().zip(&offsets).map(|(piece, &at)| at + piece.size);
    let peak = ends.max().unwrap_or(0);
    Placed { offsets, peak }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}
