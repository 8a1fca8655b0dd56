//! Gives a captured graph of the driver back the parallelism that capturing on one stream has lost.
//!
//! In: a [`Watch`], a foreign graph with the memory that its nodes may touch, and a function that gives it inputs. Out: the
//! driver's graph in a faster order, or as it was, with a [`Report`].
//!
//! What each node reads and writes is found by watching memory ([`plan::recover`](crate::plan::recover), which says what
//! is assumed). The order that this asks for is tried as it is and on fewer streams, since too many branches lose, and with
//! nodes made in several orders; all are timed, a few of the fastest more often. The fastest that gives the captured order's
//! bytes on fresh inputs is kept, the captured order if none is faster.

mod layout;
mod told;

use std::ops::{ControlFlow, Range};
use std::time::Instant;

use phonograph_cuda::{Arranged, Diversion, DriverError, Memory, Saved, Watch, WatchError};
use phonograph_graph::{ComputeGraph, GraphError, NodeId};
use phonograph_plan::PlanError;
use phonograph_plan::recover::{
    BlockId, Change, Diverted, Limits, Progress, Recovered, Subject, Verdict,
};

pub use layout::Making;
use layout::{Capped, depth};

/// What is to be tried.
#[derive(Clone, Debug)]
pub struct Options {
    /// How far the observation goes.
    pub limits: Limits,
    /// Inputs on which the order that is kept is verified.
    pub inputs: u32,
    /// Caps on how many nodes run side by side, beside none.
    pub caps: Vec<u32>,
    /// The first of the blocks at whose contents nobody looks after a replay; they may be filled with zeros, and nodes may
    /// get copies of their own. Which blocks follow one another is the caller's to choose.
    pub scratch_from: usize,
}

impl Default for Options {
    /// The default limits, 20 inputs, caps of 2, 3, 4, 6, 8 and 16, no scratch memory.
    fn default() -> Self {
        let caps = vec![2, 3, 4, 6, 8, 16];
        Self { limits: Limits::default(), inputs: 20, caps, scratch_from: usize::MAX }
    }
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
    /// The orders that were tried.
    pub tried: Vec<Tried>,
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
    let captured: Edges =
        watch.imported().graph().edges().map(|edge| (edge.from, edge.to)).collect();
    let captured_depth = depth(watch.imported().graph());
    // Before nodes are diverted.
    let before = watch.arrange(&order, &captured)?;
    let scratch = options.scratch_from.min(watch.blocks().len())..watch.blocks().len();
    let named = order
        .iter()
        .map(|&node| watch.named(node))
        .map(|named| named.into_iter().map(|(at, offset)| (BlockId(at as u32), offset)).collect())
        .collect();
    let mut bench = Watched { watch, order, give, scratch, named };
    let recovered = phonograph_plan::recover::recover(&mut bench, options.limits, progress)?;
    let sizes: Vec<u64> = bench.watch.blocks().iter().map(|block| block.bytes).collect();
    let graph = told::told(bench.watch.imported().graph(), &bench.order, &recovered, &sizes)?;
    let mut report = Report {
        recovered,
        graph,
        captured_depth,
        captured_micros: 0.0,
        tried: Vec::new(),
        chosen: None,
        inputs: options.inputs,
        workspaces: Vec::new(),
    };
    let original = bench.save_all()?;
    let found = bench.compare(before, options, &mut report);
    let restored = bench.restore_all(&original);
    let best = found?;
    restored?;
    bench.watch.wait()?;
    if let Some((at, nodes, edges)) = best {
        bench.watch.apply(&nodes, &edges)?;
        report.chosen = Some(at);
        let own = report.recovered.private.iter().map(|private| private.instead.own.0 as usize);
        report.workspaces = own.filter_map(|block| bench.watch.spare_memory(block)).collect();
    }
    Ok(report)
}

/// A watched graph as a subject: its nodes in captured order.
struct Watched<'a> {
    watch: &'a mut Watch,
    order: Vec<NodeId>,
    give: &'a mut dyn FnMut(u32) -> Result<(), String>,
    scratch: Range<usize>,
    /// By node: what its parameters seem to name.
    named: Vec<Vec<(BlockId, u64)>>,
}

fn place(block: BlockId) -> usize {
    block.0 as usize
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

    fn is_scratch(&self, block: BlockId) -> bool {
        self.scratch.contains(&place(block))
    }

    fn give(&mut self, sample: u32) -> Result<(), RecoverError> {
        self.watch.wait()?;
        (self.give)(sample).map_err(|reason| RecoverError::Input { sample, reason })
    }

    fn run(&mut self, node: NodeId) -> Result<(), RecoverError> {
        Ok(self.watch.run(self.order[node.index()])?)
    }

    fn save(&mut self, blocks: &[BlockId]) -> Result<Vec<Saved>, RecoverError> {
        let blocks: Vec<usize> = blocks.iter().map(|&block| place(block)).collect();
        Ok(self.watch.save(&blocks)?)
    }

    fn restore(&mut self, copies: &[(BlockId, &Saved)]) -> Result<(), RecoverError> {
        Ok(self.watch.restore(&places(copies))?)
    }

    fn clear(&mut self, blocks: &[BlockId]) -> Result<(), RecoverError> {
        let blocks: Vec<usize> = blocks.iter().map(|&block| place(block)).collect();
        Ok(self.watch.clear(&blocks)?)
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

type Edges = Vec<(NodeId, NodeId)>;

/// An order that can be launched.
struct Candidate {
    tried: Tried,
    nodes: Vec<NodeId>,
    edges: Edges,
    arranged: Arranged,
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

    /// Times the recovered order in all layouts. The fastest that is right and faster than the captured one.
    fn compare(
        &mut self,
        mut before: Arranged,
        options: &Options,
        report: &mut Report,
    ) -> Result<Option<(usize, Vec<NodeId>, Edges)>, RecoverError> {
        let mut candidates = match report.recovered.verdict {
            Verdict::Verified { .. } => self.candidates(options, &report.recovered)?,
            _ => Vec::new(),
        };
        report.captured_micros = self.time(&mut before, &mut candidates, ROUNDS)?;
        candidates.sort_by(|a, b| a.tried.micros.total_cmp(&b.tried.micros));
        let finalists = candidates.len().min(FINALISTS);
        report.captured_micros =
            self.time(&mut before, &mut candidates[..finalists], FINAL_ROUNDS)?;
        candidates[..finalists].sort_by(|a, b| a.tried.micros.total_cmp(&b.tried.micros));
        let mut best = None;
        for (at, candidate) in candidates.iter_mut().take(finalists).enumerate() {
            if candidate.tried.micros >= report.captured_micros * GAIN {
                break;
            }
            let right = self.agrees(&mut before, &mut candidate.arranged, options)?;
            candidate.tried.right = Some(right);
            if right {
                best = Some(at);
                break;
            }
        }
        let best = best.map(|at| {
            let Candidate { nodes, edges, .. } = &candidates[at];
            (at, nodes.clone(), edges.clone())
        });
        report.tried = candidates.into_iter().map(|candidate| candidate.tried).collect();
        Ok(best)
    }

    /// The recovered order in all layouts.
    fn candidates(
        &mut self,
        options: &Options,
        recovered: &Recovered,
    ) -> Result<Vec<Candidate>, RecoverError> {
        let costs = self.costs()?;
        let mut candidates: Vec<Candidate> = Vec::new();
        for cap in [None].into_iter().chain(options.caps.iter().copied().map(Some)) {
            let capped = Capped::new(&recovered.graph, cap, &costs)?;
            let captured = |node: NodeId| self.order[node.index()];
            let edges: Edges = capped
                .edges()
                .into_iter()
                .map(|(from, to)| (captured(from), captured(to)))
                .collect();
            for making in Making::ALL {
                let nodes: Vec<NodeId> = capped.making(making).into_iter().map(captured).collect();
                if candidates.iter().any(|known| (&known.nodes, &known.edges) == (&nodes, &edges)) {
                    continue;
                }
                let arranged = self.watch.arrange(&nodes, &edges)?;
                let (count, depth) = (edges.len(), capped.depth());
                let tried = Tried { cap, making, edges: count, depth, micros: 0.0, right: None };
                let edges = edges.clone();
                candidates.push(Candidate { tried, nodes, edges, arranged });
            }
        }
        Ok(candidates)
    }

    /// Times all in turns: the median of the captured order, and those of the others in their rows.
    fn time(
        &mut self,
        before: &mut Arranged,
        candidates: &mut [Candidate],
        rounds: usize,
    ) -> Result<f64, RecoverError> {
        let mut times = vec![Vec::new(); candidates.len() + 1];
        for _ in 0..rounds {
            let all = candidates.iter_mut().map(|candidate| &mut candidate.arranged);
            for (times, arranged) in times.iter_mut().zip([&mut *before].into_iter().chain(all)) {
                let start = Instant::now();
                self.watch.replay(arranged)?;
                times.push(start.elapsed().as_secs_f64() * 1e6);
            }
        }
        let mut medians = times.into_iter().map(median);
        let captured = medians.next().unwrap_or_default();
        for (candidate, micros) in candidates.iter_mut().zip(medians) {
            candidate.tried.micros = micros;
        }
        Ok(captured)
    }

    /// Nanoseconds of each node alone, launch and wait included.
    fn costs(&mut self) -> Result<Vec<u64>, RecoverError> {
        let mut costs = Vec::with_capacity(self.order.len());
        for node in (0..self.nodes()).map(NodeId) {
            self.watch.wait()?;
            let start = Instant::now();
            self.run(node)?;
            self.watch.wait()?;
            costs.push(start.elapsed().as_nanos() as u64);
        }
        // What a launch costs is in all of them alike.
        let least = costs.iter().copied().min().unwrap_or(0);
        Ok(costs.into_iter().map(|cost| cost - least + 1000).collect())
    }

    /// Whether both leave the same bytes on fresh inputs, scratch memory and what was added aside.
    fn agrees(
        &mut self,
        before: &mut Arranged,
        after: &mut Arranged,
        options: &Options,
    ) -> Result<bool, RecoverError> {
        let compared: Vec<BlockId> =
            (0..self.scratch.start).map(|block| BlockId(block as u32)).collect();
        let first = options.limits.samples.max(2).saturating_add(options.limits.rounds) + 1;
        for sample in first..first.saturating_add(options.inputs) {
            self.give(sample)?;
            let start = self.save_all()?;
            self.watch.replay(before)?;
            let end = self.save(&compared)?;
            self.restore_all(&start)?;
            self.watch.replay(after)?;
            let expected: Vec<_> = compared.iter().copied().zip(&end).collect();
            if !self.changed(&expected)?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Replays of each order that are timed, in turns; then those of the fastest few.
const ROUNDS: usize = 15;
const FINALISTS: usize = 6;
const FINAL_ROUNDS: usize = 101;

/// Of the captured order's time at most so much: less of a gain may be chance.
const GAIN: f64 = 0.995;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
