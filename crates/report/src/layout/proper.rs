//! Layered graph in which every edge joins neighbouring layers.
//!
//! In: boxes with layers, and links. Out: vertices (boxes, then dummies that stand for where a long link passes a
//! layer) and the short edges between them. Links of one bundle that leave the same box share one *trunk* of dummies
//! and branch off it, so a box that feeds many later ones costs one vertex per layer. What remains is held to
//! [`DUMMIES_PER_BOX`]: the longest links beyond it become jumps, which layout reports and never drops.

use rustc_hash::FxHashMap;

use super::{Link, Separation, layers::Adjacency};
use crate::picture::index;

/// Dummies allowed per box of a component; keeps layout near-linear whatever the links are.
const DUMMIES_PER_BOX: usize = 12;
/// Dummies allowed in any component.
const DUMMIES_ALWAYS: usize = 4_000;

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
}

/// How a link runs.
#[derive(Clone, Debug)]
pub(super) enum Run {
    /// Along these short edges, top to bottom.
    Edges(Vec<Short>),
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
        let mut width = widths.to_vec();
        let mut edges: Vec<ShortEdge> = Vec::with_capacity(links.len());
        let budget = DUMMIES_ALWAYS + DUMMIES_PER_BOX * boxes;

        let mut by_span: Vec<u32> = (0..links.len() as u32).collect();
        let span = |l: &Link| layer[l.to.index()] - layer[l.from.index()];
        by_span.sort_by_key(|&e| (span(&links[e as usize]), e));
        let spans: Vec<u32> = links.iter().map(span).collect();

        let mut trunks: FxHashMap<(u32, u8), Vec<Short>> = FxHashMap::default();
        let mut runs = vec![Run::Jump; links.len()];
        let mut dummies = 0;
        for e in by_span {
            let link = links[e as usize];
            let passes = spans[e as usize] as usize - 1;
            let mut run = Vec::new();
            let mut last = Vertex(link.from.0);
            if passes > 0 {
                let trunk = trunks.entry((link.from.0, link.bundle)).or_default();
                let new = passes.saturating_sub(trunk.len());
                if dummies + new > budget {
                    // Sorted by span: no later link is shorter.
                    break;
                }
                dummies += new;
                if let Some(&end) = trunk.last() {
                    last = edges[end.index()].lower;
                }
                while trunk.len() < passes {
                    let v = Vertex(layer.len() as u32);
                    layer.push(layer[last.index()] + 1);
                    width.push(Separation::DUMMY_WIDTH);
                    trunk.push(Short(edges.len() as u32));
                    edges.push(ShortEdge { upper: last, lower: v });
                    last = v;
                }
                run.extend_from_slice(&trunk[..passes]);
                last = edges[trunk[passes - 1].index()].lower;
            }
            run.push(Short(edges.len() as u32));
            edges.push(ShortEdge {
                upper: last,
                lower: Vertex(link.to.0),
            });
            runs[e as usize] = Run::Edges(run);
        }

        let n = layer.len();
        let numbered = || edges.iter().enumerate();
        let above = Adjacency::new(n, numbered().map(|(i, e)| (e.lower.0, i as u32)));
        let below = Adjacency::new(n, numbered().map(|(i, e)| (e.upper.0, i as u32)));
        Proper {
            boxes,
            layer,
            width,
            edges,
            above,
            below,
            runs,
        }
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
