//! What experiments showed of the memory that a node touches, where its own parameters do not tell.

use crate::{Access, Operands, Region};

/// What was seen to be read and written by a node of which nothing else is known.
///
/// It rests on an assumption that whoever relies on it shares: that the node touches nothing more on other inputs than it
/// did in the trials.
///
/// ```
/// use phonograph_graph::{Access, Effects, GraphBuilder, Observed, Region};
///
/// let mut b = GraphBuilder::new();
/// let x = b.external_buffer("x", 4096);
/// let opaque = b.add_kernel("sm90_gemm", 4, 256, 0).finish();
/// let region = Region { buffer: x, offset: 0, bytes: 1024 };
/// b.observe(opaque, Observed::new(&[(region, Access::Write)], 12));
/// let graph = b.build()?;
/// assert!(matches!(graph.effects(opaque), Effects::Observed(seen) if seen.trials == 12));
/// assert_eq!(graph.operands(opaque)[..], [(region, Access::Write)]);
/// # Ok::<(), phonograph_graph::GraphError>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Observed {
    /// The bytes, with how they are accessed: [`Write`](crate::Access::Write) only where all were seen to be replaced,
    /// whatever was there.
    pub operands: Operands,
    /// How often the node was run.
    pub trials: u32,
}

impl Observed {
    /// These accesses, seen in so many runs.
    pub fn new(operands: &[(Region, Access)], trials: u32) -> Self {
        Self { operands: operands.iter().copied().collect(), trials }
    }
}
