//! Gives a captured graph of the driver back the parallelism that capturing on one stream has lost.
//!
//! In: a [`Watch`], a foreign graph with the memory that its nodes may touch, and a function that gives it inputs. Out: the
//! driver's graph in a faster order, or as it was, with a [`Report`].
//!
//! What each node reads and writes is found by watching memory ([`plan::recover`](crate::plan::recover), which says what
//! is assumed). The order that this asks for is tried as it is and on fewer streams, since too many branches lose, with
//! nodes made in several orders, and with an empty kernel before all or behind all; from the fastest of these, small changes
//! are searched, each by measurement. The fastest that gives the captured order's bytes on fresh inputs is kept, the captured
//! order if none is faster.

mod choose;
mod layout;
mod search;
mod told;

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};
use std::time::Duration;

use phonograph_cuda::{
    Arrangement, Diversion, DriverError, Ends, Memory, Saved, Watch, WatchError,
};
use phonograph_graph::{ComputeGraph, GraphError, NodeId};
use phonograph_plan::PlanError;
use phonograph_plan::recover::{BlockId, Change, Diverted, Limits, Progress, Recovered, Subject};

pub use layout::Making;
use layout::depth;
pub use search::SEED;

/// What is to be tried.
#[derive(Clone, Debug)]
pub struct Options {
    /// How far the observation goes.
    pub limits: Limits,
    /// Inputs on which the order that is kept is verified.
    pub inputs: u32,
    /// Caps on how many nodes run side by side, beside none.
    pub caps: Vec<u32>,
    /// How long better layouts than the planned ones are searched for.
    pub search: Duration,
    /// What is known of the blocks, by place in [`Watch::blocks`]; of those without a row, nothing.
    pub blocks: Vec<Known>,
    /// Nodes that keep their place among all others, and are run on nothing but what captured order gives them: such as
    /// wait for what they find in memory. By number in [`Watch::imported`], which is how errors name them.
    pub excluded: Vec<NodeId>,
}

impl Default for Options {
    /// The default limits, 20 inputs, caps of 2 to 6, 8 and 16, a search of 2 s, nothing known of blocks, none excluded.
    fn default() -> Self {
        let caps = vec![2, 3, 4, 5, 6, 8, 16];
        let search = Duration::from_secs(2);
        let limits = Limits::default();
        Self { limits, inputs: 20, caps, search, blocks: Vec::new(), excluded: Vec::new() }
    }
}

/// What is known of a block, beside what watching it shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// Nobody looks at what it holds after a replay: it may be filled with zeros, and nodes may get copies of their own.
    pub scratch: bool,
    /// Nobody has written it yet, so that nothing can depend on what it holds: it may be filled with anything before the first
    /// replay, which shows what writes zeros there.
    pub fresh: bool,
}

/// Why nothing was recovered. The graph is as it was.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The driver refused. After a fault of a kernel the context is beyond use.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The graph cannot be taken apart or put together.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// What gives inputs failed.
    #[error("input {sample} was not given: {reason}")]
    Input {
        /// Its number.
        sample: u32,
        /// What it said.
        reason: String,
    },
    /// A node that is to be excluded is not there.
    #[error("{node} is to be excluded, and the graph has {nodes} nodes")]
    Excluded {
        /// Its number.
        node: NodeId,
        /// How many there are.
        nodes: usize,
    },
    /// An order on fewer streams could not be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// What was found is no valid graph.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// One order that was tried.
#[derive(Clone, PartialEq, Debug)]
pub struct Tried {
    /// The most nodes side by side; `None` for no cap.
    pub cap: Option<u32>,
    /// In which order its nodes were made.
    pub making: Making,
    /// How many changes the search has made to it.
    pub changes: u32,
    /// Kernels that do nothing, before and behind all others.
    pub ends: Ends,
    /// Edges.
    pub edges: usize,
    /// Nodes on the longest path.
    pub depth: usize,
    /// Microseconds of a replay, the median.
    pub micros: f64,
    /// Whether it gave the captured order's bytes; `None` if it was not asked.
    pub right: Option<bool>,
}

/// What was found and done.
#[derive(Debug)]
pub struct Report {
    /// What nodes read and write, and the order that follows. Its nodes are numbered in captured order.
    pub recovered: Recovered,
    /// The same to keep and to look at: the nodes as captured, with what was
    /// [observed](phonograph_graph::Effects::Observed) of each, and the edges that this asks for.
    pub graph: ComputeGraph,
    /// Nodes on the longest path as captured.
    pub captured_depth: usize,
    /// Microseconds of a replay as captured, the median.
    pub captured_micros: f64,
    /// The orders that were tried, those aside that the search has left again.
    pub tried: Vec<Tried>,
    /// Layouts that the search has tried.
    pub searched: u32,
    /// Which of them the graph has now; `None` if it is as it was.
    pub chosen: Option<usize>,
    /// Inputs on which the chosen order gave the captured order's bytes.
    pub inputs: u32,
    /// Scratch memory that the graph's nodes use now: to be kept for as long as the graph and what was instantiated of it.
    pub workspaces: Vec<Memory>,
}

impl Report {
    /// Nodes on the longest path that the nodes' effects ask for.
    pub fn recovered_depth(&self) -> usize {
        depth(&self.recovered.graph)
    }
}

/// Observes, verifies and times, and puts the driver's graph into the fastest order. Memory is left as it was found.
///
/// `give(k)` writes input number `k` where the graph expects its inputs and waits until it is there; the same number is
/// the same input. `progress` may stop the observation, which leaves the graph as it was.
///
/// # Errors
/// [`RecoverError`]; the graph is as it was.
pub fn recover(
    watch: &mut Watch,
    give: &mut dyn FnMut(u32) -> Result<(), String>,
    options: &Options,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Report, RecoverError> {
    let order = watch.imported().graph().topological_order().to_vec();
    if let Some(&node) = options.excluded.iter().find(|node| node.index() >= order.len()) {
        return Err(RecoverError::Excluded { node, nodes: order.len() });
    }
    let edges = watch.imported().graph().edges().collect();
    let captured = Arrangement { nodes: order.clone(), edges, ends: Ends::default() };
    let captured_depth = depth(watch.imported().graph());
    // Before nodes are diverted.
    let before = watch.arrange(&captured)?;
    let mut known = options.blocks.clone();
    known.resize(watch.blocks().len(), Known::default());
    let named = order
        .iter()
        .map(|&node| watch.named(node))
        .map(|named| named.into_iter().map(|(at, offset)| (BlockId(at as u32), offset)).collect())
        .collect();
    let excluded = options.excluded.iter().copied().collect();
    let mut bench = Watched { watch, order, give, known, named, excluded };
    let recovered = phonograph_plan::recover::recover(&mut bench, options.limits, progress)?;
    let sizes: Vec<u64> = bench.watch.blocks().iter().map(|block| block.bytes).collect();
    let graph = told::told(bench.watch.imported().graph(), &bench.order, &recovered, &sizes)?;
    let mut report = Report {
        recovered,
        graph,
        captured_depth,
        captured_micros: 0.0,
        tried: Vec::new(),
        searched: 0,
        chosen: None,
        inputs: options.inputs,
        workspaces: Vec::new(),
    };
    let original = bench.save_all()?;
    let found = bench.choose(before, options, &mut report);
    let restored = bench.restore_all(&original);
    let best = found?;
    restored?;
    bench.watch.wait()?;
    if let Some((at, order)) = best {
        bench.watch.apply(&order)?;
        report.chosen = Some(at);
        let own = report.recovered.private.iter().map(|private| private.instead.own.0 as usize);
        report.workspaces = own.filter_map(|block| bench.watch.spare_memory(block)).collect();
    }
    Ok(report)
}

/// What memory is spoiled with: 1.23 as a number of any length that floats have, so that it looks like one.
const SPOILED: u32 = 0x3f9d_3f9d;

/// A watched graph as a subject: its nodes in captured order.
struct Watched<'a> {
    watch: &'a mut Watch,
    order: Vec<NodeId>,
    give: &'a mut dyn FnMut(u32) -> Result<(), String>,
    /// By block.
    known: Vec<Known>,
    /// By node: what its parameters seem to name.
    named: Vec<Vec<(BlockId, u64)>>,
    excluded: BTreeSet<NodeId>,
}

fn place(block: BlockId) -> usize {
    block.0 as usize
}

fn all_places(blocks: &[BlockId]) -> Vec<usize> {
    blocks.iter().map(|&block| place(block)).collect()
}

fn places<'s>(copies: &[(BlockId, &'s Saved)]) -> Vec<(usize, &'s Saved)> {
    copies.iter().map(|&(block, saved)| (place(block), saved)).collect()
}

impl Subject for Watched<'_> {
    type Error = RecoverError;
    type Saved = Saved;

    fn nodes(&self) -> u32 {
        self.order.len() as u32
    }

    fn blocks(&self) -> u32 {
        self.watch.blocks().len() as u32
    }

    fn name(&self, node: NodeId) -> String {
        self.watch.imported().graph().node(self.order[node.index()]).name.to_string()
    }

    fn bytes(&self, block: BlockId) -> u64 {
        self.watch.blocks()[place(block)].bytes
    }

    fn named(&self, node: NodeId) -> Vec<(BlockId, u64)> {
        self.named[node.index()].clone()
    }

    fn is_excluded(&self, node: NodeId) -> bool {
        self.excluded.contains(&self.order[node.index()])
    }

    fn is_scratch(&self, block: BlockId) -> bool {
        self.known.get(place(block)).is_some_and(|known| known.scratch)
    }

    fn is_fresh(&self, block: BlockId) -> bool {
        self.known.get(place(block)).is_some_and(|known| known.fresh)
    }

    fn cut(&mut self, borders: &[(BlockId, u64)]) {
        let borders: Vec<_> = borders.iter().map(|&(block, at)| (place(block), at)).collect();
        // New numbers for what lies behind.
        let new = |block: usize| block + borders.iter().filter(|(cut, _)| *cut < block).count();
        let pieces = |(block, known): (usize, &Known)| vec![*known; new(block + 1) - new(block)];
        self.known = self.known.iter().enumerate().flat_map(pieces).collect();
        for named in &mut self.named {
            let all = named.iter().flat_map(|&(block, offset)| {
                let pieces = new(place(block))..new(place(block) + 1);
                pieces.map(move |piece| (BlockId(piece as u32), offset))
            });
            *named = all.collect();
        }
        self.watch.cut(&borders);
    }

    fn give(&mut self, sample: u32) -> Result<(), RecoverError> {
        self.watch.wait()?;
        (self.give)(sample).map_err(|reason| RecoverError::Input { sample, reason })
    }

    fn run(&mut self, node: NodeId) -> Result<(), RecoverError> {
        Ok(self.watch.run(self.order[node.index()])?)
    }

    fn save(&mut self, blocks: &[BlockId]) -> Result<Vec<Saved>, RecoverError> {
        Ok(self.watch.save(&all_places(blocks))?)
    }

    fn save_changes(
        &mut self,
        changes: &[(&Change, &Saved)],
    ) -> Result<Vec<(Saved, u64)>, RecoverError> {
        let changes: Vec<(usize, Range<u64>, &Saved)> = changes
            .iter()
            .map(|&(change, before)| (place(change.block), change.bytes.clone(), before))
            .collect();
        Ok(self.watch.save_changes(&changes)?)
    }

    fn restore(&mut self, copies: &[(BlockId, &Saved)]) -> Result<(), RecoverError> {
        Ok(self.watch.restore(&places(copies))?)
    }

    fn spoil(&mut self, blocks: &[BlockId]) -> Result<(), RecoverError> {
        Ok(self.watch.fill(&all_places(blocks), SPOILED)?)
    }

    fn clear(&mut self, blocks: &[BlockId]) -> Result<(), RecoverError> {
        Ok(self.watch.fill(&all_places(blocks), 0)?)
    }

    fn changed(&mut self, expected: &[(BlockId, &Saved)]) -> Result<Vec<Change>, RecoverError> {
        let changed = self.watch.changed(&places(expected))?.into_iter();
        Ok(changed.map(|(at, bytes)| Change { block: expected[at].0, bytes }).collect())
    }

    fn spare(&mut self, bytes: u64) -> Result<Option<BlockId>, RecoverError> {
        Ok(Some(BlockId(self.watch.spare(bytes)? as u32)))
    }

    fn divert(&mut self, node: NodeId, instead: &[Diverted]) -> Result<bool, RecoverError> {
        let blocks = self.watch.blocks();
        let diversion = |Diverted { block, bytes, own }: &Diverted| Diversion {
            from: blocks[place(*block)].address + bytes.start,
            bytes: bytes.end - bytes.start,
            to: blocks[place(*own)].address,
        };
        let diversions: Vec<Diversion> = instead.iter().map(diversion).collect();
        Ok(self.watch.divert(self.order[node.index()], &diversions)?)
    }
}

impl Watched<'_> {
    fn all(&self) -> Vec<BlockId> {
        (0..self.blocks()).map(BlockId).collect()
    }

    fn save_all(&mut self) -> Result<Vec<Saved>, RecoverError> {
        self.save(&self.all())
    }

    fn restore_all(&mut self, saved: &[Saved]) -> Result<(), RecoverError> {
        let copies: Vec<_> = (0..).map(BlockId).zip(saved).collect();
        self.restore(&copies)
    }
}
