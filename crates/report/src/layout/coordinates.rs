//! Horizontal positions for ordered layers.
//!
//! In: a [`Proper`] graph and the order of its rows. Out: the centre of each vertex. Method: Brandes and Köpf, *Fast
//! and simple horizontal coordinate assignment*, 2001: vertices are aligned in vertical blocks with a median neighbour
//! above or below, preferring left or right; each of the four results is packed, and a vertex gets the mean of the
//! middle two. Packing is done by longest paths over the graph of blocks instead of the paper's classes, which handles
//! boxes of different widths. Chains and long links come out straight. O(V + E) apart from sorting neighbours.

use super::Separation;
use super::crossings::Rows;
use super::proper::{Proper, Vertex};

/// The centre of each vertex; the leftmost edge of any box is 0.
pub(super) fn assign(graph: &Proper, rows: &Rows) -> Vec<f64> {
    let mut place = vec![0u32; graph.len()];
    for row in rows {
        for (i, v) in row.iter().enumerate() {
            place[v.index()] = i as u32;
        }
    }
    let conflicts = conflicts(graph, rows, &place);
    let mut results: Vec<Vec<f64>> = Vec::with_capacity(4);
    for (downward, leftward) in [(true, true), (true, false), (false, true), (false, false)] {
        let pass = Pass {
            graph,
            rows,
            place: &place,
            conflicts: &conflicts,
            downward,
            leftward,
        };
        results.push(pass.pack(&pass.align()));
    }
    let extent = |xs: &[f64]| {
        let mut span = (f64::INFINITY, f64::NEG_INFINITY);
        for (x, w) in xs.iter().zip(&graph.width) {
            span = (span.0.min(x - w / 2.0), span.1.max(x + w / 2.0));
        }
        span
    };
    let spans: Vec<(f64, f64)> = results.iter().map(|xs| extent(xs)).collect();
    let narrowest = (0..4)
        .min_by(|&a, &b| (spans[a].1 - spans[a].0).total_cmp(&(spans[b].1 - spans[b].0)))
        .unwrap_or(0);
    let target = spans[narrowest];
    for (i, xs) in results.iter_mut().enumerate() {
        // Even passes prefer the left, odd ones the right.
        let shift = if i % 2 == 0 {
            target.0 - spans[i].0
        } else {
            target.1 - spans[i].1
        };
        xs.iter_mut().for_each(|x| *x += shift);
    }
    // The k-th smallest of four separated layouts is separated, so their mean is.
    let mut xs: Vec<f64> = (0..graph.len())
        .map(|v| {
            let mut four = [results[0][v], results[1][v], results[2][v], results[3][v]];
            four.sort_by(f64::total_cmp);
            (four[1] + four[2]) / 2.0
        })
        .collect();
    let left = extent(&xs).0;
    xs.iter_mut().for_each(|x| *x -= left);
    xs
}

/// Edges that cross a piece of a long link: the link stays straight and the edge bends.
fn conflicts(graph: &Proper, rows: &Rows, place: &[u32]) -> Vec<bool> {
    let mut crossed = vec![false; graph.edges.len()];
    let inner_above = |v: Vertex| graph.uppers(v).next().filter(|&u| graph.is_dummy(v) && graph.is_dummy(u));
    for row in rows.iter().skip(1) {
        let mut from = 0;
        let mut left = 0;
        for i in 0..row.len() {
            let inner = inner_above(row[i]);
            if inner.is_none() && i + 1 < row.len() {
                continue;
            }
            let right = inner.map_or(u32::MAX, |u| place[u.index()]);
            for &v in &row[from..=i] {
                for &e in graph.above.of(v.0) {
                    let edge = graph.edges[e as usize];
                    let k = place[edge.upper.index()];
                    let is_inner = graph.is_dummy(v) && graph.is_dummy(edge.upper);
                    if !is_inner && (k < left || k > right) {
                        crossed[e as usize] = true;
                    }
                }
            }
            from = i + 1;
            left = right;
        }
    }
    crossed
}

/// One of the four ways to align.
struct Pass<'a> {
    graph: &'a Proper,
    rows: &'a Rows,
    place: &'a [u32],
    conflicts: &'a [bool],
    /// Align with neighbours above, from the top; otherwise below, from the bottom.
    downward: bool,
    /// Prefer the left; otherwise everything is mirrored.
    leftward: bool,
}

impl Pass<'_> {
    /// The root of each vertex's block: the first of the block that the pass meets.
    fn align(&self) -> Vec<Vertex> {
        let mut root: Vec<Vertex> = (0..self.graph.len() as u32).map(Vertex).collect();
        let depth = self.rows.len();
        let mut near: Vec<(u32, u32, Vertex)> = Vec::new();
        for step in 1..depth {
            let row = &self.rows[if self.downward { step } else { depth - 1 - step }];
            // Place up to which the other row is used, in the direction of the pass.
            let mut used: Option<u32> = None;
            for i in 0..row.len() {
                let v = row[if self.leftward { i } else { row.len() - 1 - i }];
                near.clear();
                let edges = if self.downward { &self.graph.above } else { &self.graph.below };
                for &e in edges.of(v.0) {
                    let edge = self.graph.edges[e as usize];
                    let w = if self.downward { edge.upper } else { edge.lower };
                    near.push((self.place[w.index()], e, w));
                }
                near.sort_unstable();
                if !self.leftward {
                    near.reverse();
                }
                let n = near.len();
                if n == 0 {
                    continue;
                }
                for m in [(n - 1) / 2, n / 2] {
                    let (place, e, w) = near[m];
                    let free = match used {
                        None => true,
                        Some(u) if self.leftward => place > u,
                        Some(u) => place < u,
                    };
                    if free && !self.conflicts[e as usize] {
                        root[v.index()] = root[w.index()];
                        used = Some(place);
                        break;
                    }
                }
            }
        }
        root
    }

    /// Positions of blocks, as near to each other as separation allows.
    fn pack(&self, root: &[Vertex]) -> Vec<f64> {
        let n = self.graph.len();
        // Neighbours in a row: `after[b]` holds what lies next to block b, and how far.
        let mut pairs: Vec<(u32, u32, f64)> = Vec::with_capacity(n);
        for row in self.rows {
            for two in row.windows(2) {
                let gap = Separation::between(self.graph, two[0], two[1]);
                let (l, r) = (root[two[0].index()].0, root[two[1].index()].0);
                pairs.push(if self.leftward { (l, r, gap) } else { (r, l, gap) });
            }
        }
        let mut start = vec![0u32; n + 1];
        let mut waiting = vec![0u32; n];
        for &(a, b, _) in &pairs {
            start[a as usize + 1] += 1;
            waiting[b as usize] += 1;
        }
        for k in 0..n {
            start[k + 1] += start[k];
        }
        let mut next = start.clone();
        let mut after = vec![(0u32, 0f64); pairs.len()];
        for &(a, b, gap) in &pairs {
            after[next[a as usize] as usize] = (b, gap);
            next[a as usize] += 1;
        }
        let of = |b: u32| &after[start[b as usize] as usize..start[b as usize + 1] as usize];

        // Blocks do not cross, so "left of" has no cycle and every root is reached.
        let mut order: Vec<u32> = (0..n as u32)
            .filter(|&b| root[b as usize].0 == b && waiting[b as usize] == 0)
            .collect();
        let mut x = vec![0f64; n];
        let mut at = 0;
        while let Some(&b) = order.get(at) {
            at += 1;
            for &(c, gap) in of(b) {
                x[c as usize] = x[c as usize].max(x[b as usize] + gap);
                waiting[c as usize] -= 1;
                if waiting[c as usize] == 0 {
                    order.push(c);
                }
            }
        }
        // A block with nothing on one side would stay far from what it belongs to: move it up to its neighbour.
        for &b in order.iter().rev() {
            let limit = of(b)
                .iter()
                .map(|&(c, gap)| x[c as usize] - gap)
                .fold(f64::INFINITY, f64::min);
            if limit.is_finite() {
                x[b as usize] = x[b as usize].max(limit);
            }
        }
        let sign = if self.leftward { 1.0 } else { -1.0 };
        root.iter().map(|r| sign * x[r.index()]).collect()
    }
}
