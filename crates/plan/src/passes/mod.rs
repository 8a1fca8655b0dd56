//! Passes: rewritings of a graph that leave what it computes as it is.
//!
//! In goes a graph, out comes a [`Rewritten`]: the new graph, where each node went, and a report of what was done and
//! why the rest was left. Each pass is a function, usable alone; the checker proves what any of
//! them did, sharing no code with them. Passes keep the order of the nodes that stay: what was complete before
//! something else started (or waited) still is. Graphs inside nodes are rewritten too.

mod report;

pub use report::{Change, Left, PassReport, Reason};

use phonograph_graph::{ComputeGraph, GraphError, Image, NodeId, Rebuild};

/// A graph after a pass.
#[derive(Clone, PartialEq, Debug)]
pub struct Rewritten {
    /// The graph now. Buffers and slots keep their ids.
    pub graph: ComputeGraph,
    /// Where each node of the graph before went.
    pub image: Image,
    /// What was done, and why the rest was left. Ids are of the graph before.
    pub report: PassReport,
}

/// Why a pass could not be carried out.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum PassError {
    /// The graph that the pass made is not valid.
    #[error("pass {pass}: {source}")]
    Graph {
        /// The pass.
        pass: &'static str,
        /// What is wrong with the graph.
        source: GraphError,
    },
}

/// Runs `pass` on every graph inside `graph`, innermost first, then on `graph` itself. What a pass does to one graph it
/// says in terms of that graph; this makes one rewriting of them all. O(nodes + edges) apart from the pass.
pub fn on_every_graph(
    graph: &ComputeGraph,
    pass: &impl Fn(&ComputeGraph) -> Result<Rewritten, PassError>,
) -> Result<Rewritten, PassError> {
    let holders = graph.node_ids().filter(|&id| graph.node(id).kind.has_inner_graphs());
    let mut rebuild: Option<Rebuild> = None;
    let mut inner_reports = Vec::new();
    for holder in holders {
        let (mut graphs, mut images) = (Vec::new(), Vec::new());
        let mut changed = false;
        for (index, inner) in (0..).zip(graph.node(holder).kind.inner_graphs()) {
            // Recursive over nesting, which building a graph bounds.
            let rewritten = on_every_graph(inner, pass)?;
            changed |= !rewritten.report.is_unchanged();
            if !rewritten.report.is_empty() {
                inner_reports.push((holder, index, rewritten.report));
            }
            graphs.push(rewritten.graph);
            images.push(rewritten.image);
        }
        if changed {
            let rebuild = rebuild.get_or_insert_with(|| Rebuild::new(graph));
            rebuild.replace_inner(holder, graphs, images);
        }
    }
    let Some(rebuild) = rebuild else {
        let mut rewritten = pass(graph)?;
        rewritten.report.inner.extend(inner_reports);
        return Ok(rewritten);
    };
    let (between, image) = rebuild.build().map_err(|source| PassError::Graph {
        pass: inner_reports.first().map_or("", |(_, _, report)| report.pass),
        source,
    })?;
    // Replacing inner graphs keeps ids, so what the pass says of `between` holds of `graph`.
    let mut rewritten = pass(&between)?;
    rewritten.image = image.then(&rewritten.image);
    rewritten.report.inner.extend(inner_reports);
    Ok(rewritten)
}

impl Rewritten {
    /// A graph that a pass had nothing to do for.
    pub fn unchanged(graph: &ComputeGraph, report: PassReport) -> Self {
        let image = Image::identity(graph.node_count());
        Self { graph: graph.clone(), image, report }
    }

    /// What the graph became through several passes, one after the other: the last graph, the image through all.
    /// `None` without a pass. O(nodes × passes).
    pub fn compose(
        passes: impl IntoIterator<Item = Rewritten>,
    ) -> Option<(ComputeGraph, Image, Vec<PassReport>)> {
        let mut passes = passes.into_iter();
        let Rewritten { mut graph, mut image, report } = passes.next()?;
        let mut reports = vec![report];
        for next in passes {
            image = image.then(&next.image);
            graph = next.graph;
            reports.push(next.report);
        }
        Some((graph, image, reports))
    }

    /// The node that does the work of `node` now.
    pub fn image_of(&self, node: NodeId) -> Option<NodeId> {
        self.image.of(node)
    }
}
