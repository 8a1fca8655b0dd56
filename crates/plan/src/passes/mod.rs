//! Passes: rewritings of a graph that leave what it computes as it is.
//!
//! In goes a graph, out comes a [`Rewritten`]: the new graph, where each node went, and a report of what was done and
//! why the rest was left. Each pass is a function, usable alone; [`phonograph_graph::check_rewrite`] proves what any of
//! them did, sharing no code with them. Passes keep the order of the nodes that stay: what was complete before
//! something else started (or waited) still is. Graphs inside nodes are rewritten too.

mod contract;
mod dead;
mod empties;
mod in_place;
mod merge;
mod pipeline;
mod programmatic;
mod reduce;
mod redundant_copies;
mod report;
mod transfer;

pub use dead::drop_dead;
pub use empties::dissolve_empties;
pub use in_place::update_in_place;
pub use merge::{merge_copies, merge_fills};
pub use pipeline::{Pass, UnknownPass, optimize};
pub use programmatic::weaken_edges;
pub use reduce::reduce_edges;
pub use redundant_copies::drop_redundant_copies;
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
///
/// # Errors
/// Those of the pass; [`PassError::Graph`] where what holds an inner graph does not go with the new one.
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

    /// The graph that a pass has described, built.
    pub(crate) fn rebuilt(rebuild: Rebuild, report: PassReport) -> Result<Self, PassError> {
        let pass = report.pass;
        let built = rebuild.build().map_err(|source| PassError::Graph { pass, source })?;
        let (graph, image) = built;
        Ok(Self { graph, image, report })
    }

    /// This pass, then one on the graph that came out of it, as one pass. O(nodes + changes).
    ///
    /// What is said of nodes that the first one left where they were is said in terms of the graph before; of nodes that it
    /// made of several, as of the first of them.
    pub fn followed_by(self, next: Rewritten) -> Rewritten {
        let mut was: Vec<Option<NodeId>> = vec![None; self.graph.node_count()];
        for (index, image) in self.image.nodes.iter().enumerate().rev() {
            if let Some(image) = image {
                was[image.index()] = Some(NodeId::from_index(index));
            }
        }
        let mut report = self.report;
        report.append(next.report, |node| was.get(node.index()).copied().flatten().unwrap_or(node));
        Rewritten { graph: next.graph, image: self.image.then(&next.image), report }
    }
}
