//! Where a long narrow part is broken into columns.
//!
//! In: an ordered [`Proper`] graph and box sizes. Out: for each column, the layer after its last. A part that is much
//! taller than wide is broken between layers where few lines pass, so that the columns side by side have the shape of
//! a screen. It comes before coordinates, so that a column is no wider than it needs to be. Linear.

use super::crossings::Rows;
use super::pack::ASPECT;
use super::proper::Proper;
use super::{LayerIx, Separation, Size};

/// Space between rows at least.
pub(super) const MIN_GAP: f64 = 30.0;
/// Distance of lines in a gutter, and of the gutter from boxes.
pub(super) const TRACK: f64 = 8.0;
pub(super) const GUTTER: f64 = 18.0;

/// A part is broken if it is taller than this, and this many times taller than wide.
const HEIGHT: f64 = 1_100.0;
const SHAPE: f64 = 3.0;
/// Lines that may pass a break.
const MAX_PASSING: usize = 24;
/// How far a column may be from the height aimed at.
const SLACK: f64 = 0.25;

/// The height of each row.
pub(super) fn heights(graph: &Proper, rows: &Rows, sizes: &[Size]) -> Vec<f64> {
    rows.iter()
        .map(|row| {
            let boxes = row.iter().filter(|&&v| !graph.is_dummy(v));
            boxes.map(|v| sizes[v.index()].height).fold(0.0, f64::max)
        })
        .collect()
}

/// The layer after the last of each column; the last is the number of layers.
pub(super) fn breaks(graph: &Proper, rows: &Rows, sizes: &[Size]) -> Vec<LayerIx> {
    let depth = rows.len();
    let whole = vec![LayerIx(depth as u32)];
    let steps: Vec<f64> = heights(graph, rows, sizes).iter().map(|h| h + MIN_GAP).collect();
    let height: f64 = steps.iter().sum();
    let width = rows
        .iter()
        .map(|row| {
            let between =
                row.windows(2).map(|w| Separation::between(graph, w[0], w[1])).sum::<f64>();
            let ends = row.first().zip(row.last());
            between
                + ends.map_or(0.0, |(a, b)| (graph.width[a.index()] + graph.width[b.index()]) / 2.0)
        })
        .fold(0.0, f64::max);
    if height <= HEIGHT || height <= SHAPE * width {
        return whole;
    }
    let mut passing = vec![0usize; depth];
    for edge in &graph.edges {
        passing[graph.layer[edge.upper.index()] as usize] += 1;
    }
    let gutter = 2.0 * GUTTER + TRACK * passing.iter().sum::<usize>() as f64 / depth as f64;
    let count = (ASPECT * height / (width + gutter)).sqrt().round().max(1.0);
    let target = height / count;

    let mut ends = Vec::new();
    let (mut start, mut left) = (0, height);
    loop {
        // The gap with the fewest lines among those near the target; of equals, the nearest.
        let mut best: Option<(usize, f64, usize, f64)> = None;
        let mut y = 0.0;
        for l in start..depth - 1 {
            y += steps[l];
            if y > (1.0 + SLACK) * target && best.is_some() {
                break;
            }
            let (lines, off) = (passing[l], (y - target).abs());
            let near = y >= (1.0 - SLACK) * target && lines <= MAX_PASSING;
            if near && best.is_none_or(|b| (lines, off) < (b.0, b.1)) {
                best = Some((lines, off, l + 1, y));
            }
        }
        match best {
            // What would be left for a last column has to be worth one.
            Some((_, _, end, used)) if left - used >= SLACK * target => {
                ends.push(LayerIx(end as u32));
                start = end;
                left -= used;
            }
            _ => break,
        }
    }
    ends.extend(whole);
    ends
}
