//! Gives a captured graph of the driver back the parallelism that capturing on one stream has lost.
//!
//! In: a [`Watch`], a foreign graph with the memory that its nodes may touch, and a function that gives it inputs. Out: the
//! driver's graph in a faster order, or as it was, with a [`Report`].
//!
//! What each node reads and writes is found by watching memory ([`plan::recover`](crate::plan::recover), which says what
//! is assumed). The order that this asks for is tried as it is and on fewer streams, since too many branches lose; each is
//! verified on fresh inputs, bit for bit against the captured order, and timed. The fastest is kept, the captured one if none
//! is faster.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Instant;

use phonograph_cuda::{Arranged, DriverError, Saved, Watch, WatchError};
use phonograph_graph::{ComputeGraph, GraphBuilder, NodeId, Step};
use phonograph_plan::PlanError;
use phonograph_plan::analysis::{levels, redundant_edges};
use phonograph_plan::recover::{BlockId, Limits, Progress, Recovered, Subject, Verdict};
use phonograph_plan::streams::{PlanOptions, schedule};

/// What is to be tried.
#[derive(Clone, Debug)]
pub struct Options {
    /// How far the observation goes.
    pub limits: Limits,
    /// Inputs on which each arrangement is verified.
    pub inputs: u32,
    /// Caps on how many nodes run side by side, beside none.
    pub caps: Vec<u32>,
}

impl Default for Options {
    /// The default limits, 20 inputs, caps of 2, 4 and 8.
    fn default() -> Self {
        Self { limits: Limits::default(), inputs: 20, caps: vec![2, 4, 8] }
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
}

/// One order that was tried.
#[derive(Clone, PartialEq, Debug)]
pub struct Tried {
    /// The most nodes side by side; `None` for no cap.
    pub cap: Option<u32>,
    /// Edges.
    pub edges: usize,
    /// Nodes on the longest path.
    pub depth: usize,
    /// Microseconds of a replay, the median; `None` if it gave other bytes than the captured order.
    pub micros: Option<f64>,
}

/// What was found and done.
#[derive(Debug)]
pub struct Report {
    /// What nodes read and write, and the order that follows. Its nodes are numbered in captured order.
    pub recovered: Recovered,
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
    let captured: Vec<(NodeId, NodeId)> =
        watch.imported().graph().edges().map(|edge| (edge.from, edge.to)).collect();
    let captured_depth = depth(watch.imported().graph());
    let mut bench = Watched { watch, order, give };
    let recovered = phonograph_plan::recover::recover(&mut bench, options.limits, progress)?;
    let mut report = Report {
        recovered,
        captured_depth,
        captured_micros: 0.0,
        tried: Vec::new(),
        chosen: None,
        inputs: options.inputs,
    };
    let original = bench.save_all()?;
    let found = bench.compare(&captured, options, &mut report);
    let restored = bench.restore_all(&original);
    let best = found?;
    restored?;
    if let Some((at, edges)) = best {
        bench.watch.apply(&edges)?;
        report.chosen = Some(at);
    }
    Ok(report)
}

fn depth(graph: &ComputeGraph) -> usize {
    levels(graph).level.iter().max().map_or(0, |level| *level as usize + 1)
}

/// A watched graph as a subject: its nodes in captured order.
struct Watched<'a> {
    watch: &'a mut Watch,
    order: Vec<NodeId>,
    give: &'a mut dyn FnMut(u32) -> Result<(), String>,
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
        self.watch.blocks()[block.0 as usize].bytes
    }

    fn give(&mut self, sample: u32) -> Result<(), RecoverError> {
        (self.give)(sample).map_err(|reason| RecoverError::Input { sample, reason })
    }

    fn run(&mut self, node: NodeId) -> Result<(), RecoverError> {
        Ok(self.watch.run(self.order[node.index()])?)
    }

    fn save(&mut self, block: BlockId) -> Result<Saved, RecoverError> {
        Ok(self.watch.save(block.0 as usize)?)
    }

    fn restore(&mut self, block: BlockId, saved: &Saved) -> Result<(), RecoverError> {
        Ok(self.watch.restore(block.0 as usize, saved)?)
    }

    fn clear(&mut self, block: BlockId) -> Result<(), RecoverError> {
        Ok(self.watch.clear(block.0 as usize)?)
    }

    fn changed(&mut self, expected: &[(BlockId, &Saved)]) -> Result<Vec<BlockId>, RecoverError> {
        let rows: Vec<_> =
            expected.iter().map(|&(block, saved)| (block.0 as usize, saved)).collect();
        Ok(self.watch.changed(&rows)?.into_iter().map(|at| expected[at].0).collect())
    }
}

type Edges = Vec<(NodeId, NodeId)>;

impl Watched<'_> {
    fn save_all(&mut self) -> Result<Vec<Saved>, RecoverError> {
        (0..self.blocks()).map(|block| self.save(BlockId(block))).collect()
    }

    fn restore_all(&mut self, saved: &[Saved]) -> Result<(), RecoverError> {
        let mut result = Ok(());
        for (block, saved) in (0..).map(BlockId).zip(saved) {
            let restored = self.restore(block, saved);
            result = result.and(restored);
        }
        result
    }

    /// Tries the recovered order without and with caps. The fastest that is right and faster than the captured one.
    fn compare(
        &mut self,
        captured: &Edges,
        options: &Options,
        report: &mut Report,
    ) -> Result<Option<(usize, Edges)>, RecoverError> {
        let mut before = self.watch.arrange(captured)?;
        let verified = matches!(report.recovered.verdict, Verdict::Verified { .. });
        let costs = if verified { self.costs()? } else { Vec::new() };
        let caps = [None].into_iter().chain(options.caps.iter().copied().map(Some));
        let mut arrangements = Vec::new();
        for cap in caps.filter(|_| verified) {
            let Order { edges, depth } = order(&report.recovered.graph, cap, &costs)?;
            let edges: Edges = edges
                .into_iter()
                .map(|(from, to)| (self.order[from.index()], self.order[to.index()]))
                .collect();
            let mut arranged = self.watch.arrange(&edges)?;
            let right = self.agrees(&mut before, &mut arranged, options)?;
            arrangements.push((
                Tried { cap, edges: edges.len(), depth, micros: None },
                edges,
                arranged,
                right,
            ));
        }
        let mut times = vec![Vec::new(); arrangements.len() + 1];
        for _ in 0..ROUNDS {
            times[0].push(self.time(&mut before)?);
            for (times, (.., arranged, _)) in times[1..].iter_mut().zip(&mut arrangements) {
                times.push(self.time(arranged)?);
            }
        }
        let mut medians = times.into_iter().map(median);
        report.captured_micros = medians.next().unwrap_or_default();
        let mut best: Option<(usize, Edges, f64)> = None;
        for (micros, (at, (mut tried, edges, _, right))) in
            medians.zip(arrangements.into_iter().enumerate())
        {
            let least = best.as_ref().map_or(report.captured_micros, |(.., least)| *least);
            tried.micros = right.then_some(micros);
            report.tried.push(tried);
            if right && micros < least {
                best = Some((at, edges, micros));
            }
        }
        Ok(best.map(|(at, edges, _)| (at, edges)))
    }

    /// Nanoseconds of each node alone, launch and wait included.
    fn costs(&mut self) -> Result<Vec<u64>, RecoverError> {
        let mut costs = Vec::with_capacity(self.order.len());
        for node in (0..self.nodes()).map(NodeId) {
            let start = Instant::now();
            self.run(node)?;
            costs.push(start.elapsed().as_nanos() as u64);
        }
        // What a launch costs is in all of them alike.
        let least = costs.iter().copied().min().unwrap_or(0);
        Ok(costs.into_iter().map(|cost| cost - least + 1000).collect())
    }

    /// Whether both leave the same bytes on fresh inputs.
    fn agrees(
        &mut self,
        before: &mut Arranged,
        after: &mut Arranged,
        options: &Options,
    ) -> Result<bool, RecoverError> {
        let first = options.limits.samples.max(2).saturating_add(options.limits.rounds) + 1;
        for sample in first..first.saturating_add(options.inputs) {
            self.give(sample)?;
            let start = self.save_all()?;
            self.watch.replay(before)?;
            let end = self.save_all()?;
            self.restore_all(&start)?;
            self.watch.replay(after)?;
            let expected: Vec<_> = (0..).map(BlockId).zip(&end).collect();
            if !self.changed(&expected)?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn time(&mut self, arranged: &mut Arranged) -> Result<f64, RecoverError> {
        let start = Instant::now();
        self.watch.replay(arranged)?;
        Ok(start.elapsed().as_secs_f64() * 1e6)
    }
}

/// Replays of each order that are timed, in turns.
const ROUNDS: usize = 61;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// An order on positions in captured order: its edges, and the nodes on its longest path.
struct Order {
    edges: Edges,
    depth: usize,
}

/// The graph's order, or that on at most so many streams: its edges and those along each stream, less what they imply.
fn order(graph: &ComputeGraph, cap: Option<u32>, costs: &[u64]) -> Result<Order, PlanError> {
    // Memory is no matter here, only who waits for whom.
    let mut builder = GraphBuilder::new();
    for _ in graph.node_ids() {
        builder.add_barrier("");
    }
    for edge in graph.edges() {
        builder.dep(edge.from, edge.to);
    }
    let options = |cap| PlanOptions { costs: Some(costs), ..PlanOptions::at_most(cap) };
    if let Some(cap) = cap {
        let plan = schedule(graph, &options(cap))?;
        let mut last: Vec<Option<NodeId>> = vec![None; plan.streams as usize];
        for step in &plan.steps {
            let Step::Run { nodes, stream } = step else { continue };
            for &node in nodes {
                if let Some(before) = last[stream.index()].replace(node) {
                    builder.dep(before, node);
                }
            }
        }
    }
    let full = builder.build()?;
    let implied: BTreeSet<(NodeId, NodeId)> =
        redundant_edges(&full).iter().map(|edge| (edge.from, edge.to)).collect();
    let edges: BTreeSet<(NodeId, NodeId)> = full.edges().map(|edge| (edge.from, edge.to)).collect();
    Ok(Order { edges: edges.difference(&implied).copied().collect(), depth: depth(&full) })
}
