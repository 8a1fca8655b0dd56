//! Layered graph in which every edge joins neighbouring layers.
//!
//! In: boxes with layers, and links. Out: vertices (boxes, then dummies that stand for where a long link passes a
//! layer) and the short edges between them. Long links of one bundle that leave the same box, or arrive at the same
//! one, share one *trunk* of dummies, so a box with many long links costs one vertex per layer. What remains is held to
//! [`DUMMIES_PER_BOX`] and [`PASSES_PER_BOX`]: the longest links beyond become jumps, which layout reports and never
//! drops.

use rustc_hash::FxHashMap;

use super::{Link, Separation, layers::Adjacency};
use crate::picture::index;

/// Dummies allowed per box of a component; keeps layout near-linear whatever the links are.
const DUMMIES_PER_BOX: usize = 12;
/// Dummies allowed in any component.
const DUMMIES_ALWAYS: usize = 4_000;
/// Layers that links may pass in total, for each box and in any component: links that share a trunk cost few dummies
/// but each still has a path of its own.
const PASSES_PER_BOX: usize = 100;
const PASSES_ALWAYS: usize = 20_000;

index! {
    /// A box or a dummy of one component; boxes come first.
    Vertex
}

index! {
    /// An edge between neighbouring layers.
    Short
}

/// One edge between neighbouring layers.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShortEdge {
    pub(super) upper: Vertex,
    pub(super) lower: Vertex,
    /// Whether it pulls less than others.
    pub(super) weak: bool,
}

/// How a link runs.
#[derive(Clone, Debug)]
pub(super) enum Run {
    /// Along short edges.
    Edges {
        /// The edges, top to bottom.
        edges: Vec<Short>,
        /// Whether the run shares its end, not its start, with others.
        joins: bool,
    },
    /// Not drawn through: too long for the budget.
    Jump,
}

/// The layered graph of one component.
pub(super) struct Proper {
    /// Boxes of the component; the rest of the vertices are dummies.
    pub(super) boxes: usize,
    /// Layer of each vertex, from 0 without gaps.
    pub(super) layer: Vec<u32>,
    /// Width of each vertex.
    pub(super) width: Vec<f64>,
    /// All short edges.
    pub(super) edges: Vec<ShortEdge>,
    /// Short edges that end in each vertex.
    pub(super) above: Adjacency,
    /// Short edges that start in each vertex.
    pub(super) below: Adjacency,
    /// How each link runs, in the order of the links.
    pub(super) runs: Vec<Run>,
}

impl Proper {
    /// `links` are between boxes `0..widths.len()`, each to a later layer.
    pub(super) fn new(widths: &[f64], mut layer: Vec<u32>, links: &[Link]) -> Self {
        let boxes = widths.len();
        close_gaps(&mut layer);
        split_wide(&mut layer);
        let mut width = widths.to_vec();
        let mut edges: Vec<ShortEdge> = Vec::with_capacity(links.len());
        let budget = DUMMIES_ALWAYS + DUMMIES_PER_BOX * boxes;

        let mut by_span: Vec<u32> = (0..links.len() as u32).collect();
        let span = |l: &Link| layer[l.to.index()] - layer[l.from.index()];
        by_span.sort_by_key(|&e| (span(&links[e as usize]), e));
        let spans: Vec<u32> = links.iter().map(span).collect();

        // A long link joins the trunk of that end of it where more long links meet.
        let mut meeting: FxHashMap<(u32, u8, bool), u32> = FxHashMap::default();
        for (link, &span) in links.iter().zip(&spans) {
            if span > 1 {
                *meeting.entry((link.from.0, link.bundle, true)).or_default() += 1;
                *meeting.entry((link.to.0, link.bundle, false)).or_default() += 1;
            }
        }
        let mut trunks: FxHashMap<(u32, u8, bool), Vec<Short>> = FxHashMap::default();
        let mut runs = vec![Run::Jump; links.len()];
        let (mut dummies, mut passed) = (0, 0);
        let most_passed = PASSES_ALWAYS + PASSES_PER_BOX * boxes;
        for e in by_span {
            let link = links[e as usize];
            let weak = link.weak;
            let passes = spans[e as usize] as usize - 1;
            let (from, to) = (Vertex(link.from.0), Vertex(link.to.0));
            if passes == 0 {
                runs[e as usize] =
                    Run::Edges { edges: vec![Short(edges.len() as u32)], joins: false };
                edges.push(ShortEdge { upper: from, lower: to, weak });
                continue;
            }
            let leaving = (link.from.0, link.bundle, true);
            let arriving = (link.to.0, link.bundle, false);
            let (key, down) = if meeting[&leaving] >= meeting[&arriving] {
                (leaving, true)
            } else {
                (arriving, false)
            };
            let trunk = trunks.entry(key).or_default();
            let new = passes.saturating_sub(trunk.len());
            passed += passes;
            if dummies + new > budget || passed > most_passed {
                // Sorted by span: no later link is shorter.
                break;
            }
            dummies += new;
            let end = |edges: &[ShortEdge], s: Short| {
                let edge = edges[s.index()];
                if down { edge.lower } else { edge.upper }
            };
            while trunk.len() < passes {
                let last = trunk.last().map_or(if down { from } else { to }, |&s| end(&edges, s));
                let v = Vertex(layer.len() as u32);
                width.push(Separation::DUMMY_WIDTH);
                trunk.push(Short(edges.len() as u32));
                if down {
                    layer.push(layer[last.index()] + 1);
                    edges.push(ShortEdge { upper: last, lower: v, weak });
                } else {
                    layer.push(layer[last.index()] - 1);
                    edges.push(ShortEdge { upper: v, lower: last, weak });
                }
            }
            let far = end(&edges, trunk[passes - 1]);
            let branch = Short(edges.len() as u32);
            let mut run = Vec::with_capacity(passes + 1);
            if down {
                run.extend_from_slice(&trunk[..passes]);
                run.push(branch);
                edges.push(ShortEdge { upper: far, lower: to, weak });
            } else {
                run.push(branch);
                run.extend(trunk[..passes].iter().rev());
                edges.push(ShortEdge { upper: from, lower: far, weak });
            }
            runs[e as usize] = Run::Edges { edges: run, joins: !down };
        }

        let n = layer.len();
        let numbered = || edges.iter().enumerate();
        let above = Adjacency::new(n, numbered().map(|(i, e)| (e.lower.0, i as u32)));
        let below = Adjacency::new(n, numbered().map(|(i, e)| (e.upper.0, i as u32)));
        Proper { boxes, layer, width, edges, above, below, runs }
    }

    /// How many vertices there are.
    pub(super) fn len(&self) -> usize {
        self.layer.len()
    }

    /// Whether the vertex is a dummy.
    pub(super) fn is_dummy(&self, v: Vertex) -> bool {
        v.index() >= self.boxes
    }

    /// Vertices one layer up that `v` is joined to.
    pub(super) fn uppers(&self, v: Vertex) -> impl Iterator<Item = Vertex> + '_ {
        self.above.of(v.0).iter().map(|&e| self.edges[e as usize].upper)
    }

    /// Vertices one layer down that `v` is joined to.
    pub(super) fn lowers(&self, v: Vertex) -> impl Iterator<Item = Vertex> + '_ {
        self.below.of(v.0).iter().map(|&e| self.edges[e as usize].lower)
    }
}

/// Renumbers layers so that each is used: moving nodes down may have emptied some.
fn close_gaps(layer: &mut [u32]) {
    let mut used = layer.to_vec();
    used.sort_unstable();
    used.dedup();
    // Dense lookup would cost the whole group's depth for each small component.
    for l in layer {
        *l = used.partition_point(|u| *u < *l) as u32;
    }
}

/// Layers wider than this are split.
const WIDE: f64 = 40.0;

/// Sets a layer that is much wider than the others in several rows: ten thousand boxes in one row cannot be read.
/// Where wide layers are the rule (many parallel chains) they stay, up to a shape of about one to forty.
fn split_wide(layer: &mut [u32]) {
    let depth = layer.iter().max().map_or(0, |&l| l as usize + 1);
    let mut size = vec![0u32; depth];
    for &l in layer.iter() {
        size[l as usize] += 1;
    }
    let mut sorted = size.clone();
    sorted.sort_unstable();
    let usual = f64::from(sorted.get(depth / 2).copied().unwrap_or(0));
    let root = (layer.len() as f64).sqrt();
    let limit = WIDE.max(2.0 * root).max((4.0 * usual).min(6.0 * root)).ceil() as u32;
    // Rows of a split layer are equally long.
    let per_row: Vec<u32> =
        size.iter().map(|&n| n.div_ceil(n.div_ceil(limit).max(1)).max(1)).collect();
    let mut first = vec![0u32; depth];
    for l in 1..depth {
        first[l] = first[l - 1] + size[l - 1].div_ceil(per_row[l - 1]);
    }
    let mut seen = vec![0u32; depth];
    for l in layer.iter_mut() {
        let at = *l as usize;
        *l = first[at] + seen[at] / per_row[at];
        seen[at] += 1;
    }
}
