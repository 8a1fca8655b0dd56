//! Horizontal positions for ordered layers.
//!
//! In: a [`Proper`] graph and the order of its rows. Out: the centre of each vertex. Method: sweeps down and up, each
//! placing one row so that the weighted lengths of its edges to rows already placed are least while the row keeps its
//! order and distances. That is an isotonic regression in the first norm, solved exactly by a heap of break points in
//! O(E log E) a row. The first norm keeps chains and long links exactly straight (a median moves only when it is
//! outweighed), where a mean bends all a little. Brandes and Köpf's four alignments were tried first: long links that
//! overlap in time become rigid blocks there, and push each other out to many times the width of the widest row.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::crossings::Rows;
use super::proper::{Proper, ShortEdge, Vertex};
use super::{LayerIx, Separation};

/// Pairs of sweeps, down and up; the last pair looks at both sides of each row.
const ROUNDS: usize = 4;
/// Pairs of sweeps in which all lines weigh the same, so that long links come near to where they belong: later they
/// are rigid, and a row by itself can no longer move them.
const SOFT: usize = 1;

/// What a bend costs: a long link should not wriggle, a chain of boxes should be straight, and a link may bend where
/// it meets a box.
const LINK: u32 = 480;
const CHAIN: u32 = 160;
const END: u32 = 40;
/// What it costs to be away from where the soft rounds left a vertex. A whole row so outweighs one long link, which
/// would otherwise drag row after row along.
const REST: u32 = 4;

/// What a bend in each edge costs. Many edges of one kind at one vertex share what two would cost: together they
/// would bend the long link that they branch from.
fn bends(graph: &Proper, link: u32, chain: u32) -> Vec<u32> {
    let mut out = vec![[0u32; 2]; graph.len()];
    let mut into = vec![[0u32; 2]; graph.len()];
    let kind =
        |edge: &ShortEdge| usize::from(graph.is_dummy(edge.upper) || graph.is_dummy(edge.lower));
    for edge in &graph.edges {
        out[edge.upper.index()][kind(edge)] += 1;
        into[edge.lower.index()][kind(edge)] += 1;
    }
    graph
        .edges
        .iter()
        .map(|edge| {
            let whole = match (graph.is_dummy(edge.upper), graph.is_dummy(edge.lower)) {
                (true, true) => return link,
                (false, false) => chain,
                _ => END,
            };
            // What other links say too follows them.
            let whole = if edge.weak { whole / 8 } else { whole };
            let alike =
                out[edge.upper.index()][kind(edge)].max(into[edge.lower.index()][kind(edge)]);
            (2 * whole / alike.max(2)).max(1)
        })
        .collect()
}

/// The centre of each vertex. Columns end before the layers of `ends` and do not pull at each other.
pub(super) fn assign(graph: &Proper, rows: &Rows, ends: &[LayerIx]) -> Vec<f64> {
    let mut x = vec![0f64; graph.len()];
    for row in rows {
        let mut at = 0.0;
        for (i, &v) in row.iter().enumerate() {
            if i > 0 {
                at += Separation::between(graph, row[i - 1], v);
            }
            x[v.index()] = at;
        }
        row.iter().for_each(|v| x[v.index()] -= at / 2.0);
    }
    let mut scratch = Scratch {
        bends: bends(graph, LINK, CHAIN),
        soft_bends: bends(graph, END, END),
        ..Scratch::default()
    };
    let mut start = 0;
    for end in ends.iter().map(|l| l.index()) {
        let column = &rows[start..end];
        let last = column.len().saturating_sub(1);
        for round in 0..ROUNDS {
            scratch.soft = round < SOFT;
            if round == SOFT {
                scratch.home.clone_from(&x);
            }
            let both = round + 1 == ROUNDS;
            for (l, row) in column.iter().enumerate() {
                scratch.place(graph, row, &mut x, l > 0, both && l < last);
            }
            for (l, row) in column.iter().enumerate().rev() {
                scratch.place(graph, row, &mut x, both && l > 0, l < last);
            }
        }
        start = end;
    }
    x
}

/// Where a vertex would like to be, less what its row needs to its left; and how much.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pull {
    at: f64,
    weight: u32,
}

impl Eq for Pull {}

impl Ord for Pull {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.total_cmp(&other.at).then(self.weight.cmp(&other.weight))
    }
}

impl PartialOrd for Pull {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Default)]
struct Scratch {
    /// What a bend in each edge costs.
    bends: Vec<u32>,
    /// The same in the soft rounds.
    soft_bends: Vec<u32>,
    /// Before `home` is known.
    soft: bool,
    /// Where the soft rounds left each vertex.
    home: Vec<f64>,
    pulls: Vec<Pull>,
    /// For each vertex of the row, where its pulls end.
    ends: Vec<usize>,
    offsets: Vec<f64>,
    heap: BinaryHeap<Pull>,
    from_left: Vec<f64>,
    from_right: Vec<f64>,
}

impl Scratch {
    fn place(&mut self, graph: &Proper, row: &[Vertex], x: &mut [f64], up: bool, down: bool) {
        self.pulls.clear();
        self.ends.clear();
        self.offsets.clear();
        let mut offset = 0.0;
        for (i, &v) in row.iter().enumerate() {
            if i > 0 {
                offset += Separation::between(graph, row[i - 1], v);
            }
            let soft = self.soft;
            let bends = if soft { &self.soft_bends } else { &self.bends };
            let rest = if soft { x[v.index()] } else { self.home[v.index()] };
            self.pulls.push(Pull { at: rest - offset, weight: if soft { END } else { REST } });
            let mut pull = |w: Vertex, e: u32| {
                self.pulls.push(Pull { at: x[w.index()] - offset, weight: bends[e as usize] });
            };
            if up {
                for &e in graph.above.of(v.0) {
                    pull(graph.edges[e as usize].upper, e);
                }
            }
            if down {
                for &e in graph.below.of(v.0) {
                    pull(graph.edges[e as usize].lower, e);
                }
            }
            self.ends.push(self.pulls.len());
            self.offsets.push(offset);
        }
        // Of all best solutions the heap gives the rightmost; mirrored, the leftmost. Their mean is as good, and
        // symmetric.
        regress(&mut self.heap, &self.pulls, &self.ends, false, &mut self.from_left);
        regress(&mut self.heap, &self.pulls, &self.ends, true, &mut self.from_right);
        for (i, v) in row.iter().enumerate() {
            x[v.index()] = (self.from_left[i] + self.from_right[i]) / 2.0 + self.offsets[i];
        }
    }
}

/// Non-decreasing numbers with the least weighted distance to the pulls of each.
///
/// The heap holds where the cost of the best choice up to here changes its slope, as a function of the last number;
/// beyond the largest it is flat. A pull of weight w makes the slope steeper by 2w there, and w of the rightmost
/// slope is then taken off again, since the last number need not be that large.
fn regress(
    heap: &mut BinaryHeap<Pull>,
    pulls: &[Pull],
    ends: &[usize],
    mirrored: bool,
    out: &mut Vec<f64>,
) {
    heap.clear();
    out.clear();
    let n = ends.len();
    let sign = if mirrored { -1.0 } else { 1.0 };
    for k in 0..n {
        let i = if mirrored { n - 1 - k } else { k };
        let start = if i == 0 { 0 } else { ends[i - 1] };
        let mut surplus = 0;
        for pull in &pulls[start..ends[i]] {
            heap.push(Pull { at: sign * pull.at, weight: 2 * pull.weight });
            surplus += pull.weight;
        }
        while let Some(mut top) = heap.peek_mut() {
            if top.weight > surplus {
                top.weight -= surplus;
                break;
            }
            surplus -= top.weight;
            std::collections::binary_heap::PeekMut::pop(top);
        }
        out.push(heap.peek().map_or(0.0, |top| top.at));
    }
    for k in (1..n).rev() {
        out[k - 1] = out[k - 1].min(out[k]);
    }
    if mirrored {
        out.reverse();
        out.iter_mut().for_each(|y| *y = -*y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least cost by dynamic programming over the pulls' positions, which hold a best solution.
    fn least(rows: &[Vec<Pull>]) -> f64 {
        let mut places: Vec<f64> = rows.iter().flatten().map(|p| p.at).collect();
        places.sort_by(f64::total_cmp);
        let mut best = vec![0.0; places.len()];
        for row in rows {
            let mut least = f64::INFINITY;
            for (cost, &at) in best.iter_mut().zip(&places) {
                least = least.min(*cost);
                *cost = least + cost_at(row, at);
            }
        }
        best.into_iter().fold(f64::INFINITY, f64::min)
    }

    fn cost_at(row: &[Pull], at: f64) -> f64 {
        row.iter().map(|p| f64::from(p.weight) * (p.at - at).abs()).sum()
    }

    #[test]
    fn regression_is_exact_from_both_sides() {
        arbtest::arbtest(|u| {
            let n = u.int_in_range(1..=7)?;
            let mut rows = Vec::new();
            for _ in 0..n {
                let mut row = Vec::new();
                for _ in 0..u.int_in_range(1..=4)? {
                    row.push(Pull {
                        at: f64::from(u.int_in_range(-9..=9i32)?),
                        weight: u.int_in_range(1..=5)?,
                    });
                }
                rows.push(row);
            }
            let pulls: Vec<Pull> = rows.iter().flatten().copied().collect();
            let ends: Vec<usize> = rows
                .iter()
                .scan(0, |end, row| {
                    *end += row.len();
                    Some(*end)
                })
                .collect();
            for mirrored in [false, true] {
                let mut out = Vec::new();
                regress(&mut BinaryHeap::new(), &pulls, &ends, mirrored, &mut out);
                assert!(out.windows(2).all(|w| w[0] <= w[1]), "{out:?}");
                let cost: f64 = rows.iter().zip(&out).map(|(row, &at)| cost_at(row, at)).sum();
                assert_eq!(cost, least(&rows), "{rows:?} {mirrored}");
            }
            Ok(())
        })
        .budget_ms(300);
    }
}
