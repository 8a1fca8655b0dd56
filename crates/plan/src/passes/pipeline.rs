//! Several passes, one after the other.

use std::fmt;
use std::str::FromStr;

use phonograph_graph::ComputeGraph;

use crate::fusion::{FusionOptions, fuse};

use super::{
    PassError, PassReport, Rewritten, dissolve_empties, drop_dead, drop_redundant_copies,
    merge_copies, merge_fills, reduce_edges, update_in_place, weaken_edges,
};

/// A pass by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Pass {
    /// [`drop_redundant_copies`].
    RedundantCopies,
    /// [`drop_dead`].
    Dead,
    /// [`merge_copies`].
    Copies,
    /// [`merge_fills`].
    Fills,
    /// [`fuse`], as it is without options.
    Fusion,
    /// [`update_in_place`].
    InPlace,
    /// [`dissolve_empties`].
    Empties,
    /// [`reduce_edges`].
    Edges,
    /// [`weaken_edges`].
    Programmatic,
}

impl Pass {
    /// All passes, in an order in which each finds what the ones before have made possible.
    pub const ALL: [Pass; 9] = [
        Pass::RedundantCopies,
        Pass::Dead,
        Pass::Copies,
        Pass::Fills,
        Pass::Fusion,
        Pass::InPlace,
        Pass::Empties,
        Pass::Edges,
        Pass::Programmatic,
    ];

    /// The passes of a level: 0 none; 1 those that leave every node that does something alone; 2 all that leave
    /// what is complete before what starts alone; from 3 on all.
    pub fn of_level(level: u8) -> &'static [Pass] {
        match level {
            0 => &[],
            1 => &[Pass::Empties, Pass::Edges],
            2 => &Self::ALL[..8],
            _ => &Self::ALL,
        }
    }

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Pass::RedundantCopies => "redundant-copies",
            Pass::Dead => "dead",
            Pass::Copies => "copies",
            Pass::Fills => "fills",
            Pass::Fusion => "fusion",
            Pass::InPlace => "in-place",
            Pass::Empties => "empties",
            Pass::Edges => "edges",
            Pass::Programmatic => "programmatic",
        }
    }

    /// Carries the pass out.
    ///
    /// # Errors
    /// [`PassError`], if the graph that comes out is not valid.
    pub fn run(self, graph: &ComputeGraph) -> Result<Rewritten, PassError> {
        match self {
            Pass::RedundantCopies => drop_redundant_copies(graph),
            Pass::Dead => drop_dead(graph),
            Pass::Copies => merge_copies(graph),
            Pass::Fills => merge_fills(graph),
            Pass::Fusion => fuse(graph, &FusionOptions::default()),
            Pass::InPlace => update_in_place(graph),
            Pass::Empties => dissolve_empties(graph),
            Pass::Edges => reduce_edges(graph),
            Pass::Programmatic => weaken_edges(graph),
        }
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No pass of that name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no pass {0:?}; there are {known}", known = Pass::ALL.map(Pass::name).join(", "))]
pub struct UnknownPass(pub String);

impl FromStr for Pass {
    type Err = UnknownPass;

    fn from_str(name: &str) -> Result<Self, UnknownPass> {
        let found = Self::ALL.into_iter().find(|pass| pass.name() == name);
        found.ok_or_else(|| UnknownPass(name.to_owned()))
    }
}

/// The graph after several passes, and what each of them says of the graph that it got.
///
/// `step` sees each graph and what became of it, before the former is let go: that is the place to run the checker.
///
/// ```
/// use phonograph_graph::{GraphBuilder, check_rewrite};
/// use phonograph_plan::passes::{Pass, optimize};
///
/// let mut b = GraphBuilder::new();
/// let [x, pause, y] = ["x", "pause", "y"].map(|name| b.add_barrier(name));
/// let work = b.add_kernel("work", 1, 32, 0).finish();
/// b.chain(&[x, pause, y, work]).dep(x, work);
/// let (graph, reports) = optimize(&b.build()?, Pass::of_level(2), |before, done| {
///     assert_eq!(check_rewrite(before, &done.graph, &done.image), []);
/// })?;
/// assert_eq!(graph.node_count(), 1);
/// assert_eq!(reports.len(), 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`PassError`], if some graph that comes out is not valid.
pub fn optimize(
    graph: &ComputeGraph,
    passes: &[Pass],
    mut step: impl FnMut(&ComputeGraph, &Rewritten),
) -> Result<(ComputeGraph, Vec<PassReport>), PassError> {
    let mut reports = Vec::with_capacity(passes.len());
    let mut now: Option<ComputeGraph> = None;
    for pass in passes {
        let before = now.as_ref().unwrap_or(graph);
        let done = pass.run(before)?;
        step(before, &done);
        reports.push(done.report);
        now = Some(done.graph);
    }
    Ok((now.unwrap_or_else(|| graph.clone()), reports))
}
