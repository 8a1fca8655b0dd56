//! What the nodes of an opaque graph really read and write, found by watching memory, and the order that this asks for.
//!
//! In: a [`Subject`], a graph whose kernels nobody can look into, captured as a chain or nearly, with its memory cut into
//! blocks. Out: an [`Observed`] for each node, and the graph with only the edges that conflicts on those blocks need.
//!
//! The method, in the order of its steps. `histories` runs the nodes in captured order on several inputs and calls a block
//! *written* by a node if its bytes changed; where different nodes write what lies side by side in a block, `borders` cuts it.
//! For each node `observe` then puts other values into blocks that other nodes write
//! (the bytes that they hold at that place on another input, or held at the first run of all before anything wrote them,
//! which no kernel can choke on; zeros only if allowed), runs the
//! node again and sees whether its results differ: those blocks were *read*; the node's parameters give a guess which, and
//! halving the others finds what the guess lacks. `workspaces` gives runs of nodes that only share scratch memory copies of
//! their own. `flow` turns conflicts into edges and drops the implied ones. `verify` runs the nodes in orders as far from the
//! captured one as the edges allow, on fresh inputs, and compares each node's results bit for bit; where they differ it finds by
//! halving which order was missing and adds it.
//!
//! What is assumed, since no experiment shows it: accesses depend on the data no further than the trials went; nothing depends on
//! what fresh memory holds, which is spoiled before the first run of all; a block that
//! neither that run nor any other changes is written by nobody (unless zeros are allowed, which show it); no node
//! uses scratch that it leaves as it found it; what a kernel finds in scratch that the caller has given out as such it never
//! takes for an address, and it waits for nothing there that its parameters do not name. What cannot be told apart is taken as
//! a dependency. A node that visibly writes nothing, or not the same twice, keeps its place among all others. One whose
//! results are the same on every input counts as reading all that its parameters name, or everything if it touches what
//! they do not name. A block that holds the same bytes on every input counts as read by everyone after its writer; so does one
//! of which a part does, for the nodes whose parameters name it.
//!
//! Cost: each sample runs every node once. A node takes about two runs a sample more and one for each block that its
//! parameters name, and `log c` for a read among `c` candidates that they do not; a verification round as many as there are
//! nodes, for each order. Memory: every block twice, and what nodes write once a sample.

use std::ops::{ControlFlow, Range};

use phonograph_graph::{ComputeGraph, NodeId};

mod borders;
mod flow;
mod histories;
mod observe;
mod verify;
mod workspaces;

use histories::Histories;

pub use flow::data_flow;
pub use workspaces::{Diverted, Private};

/// A piece of memory that is compared and exchanged as a whole: a row of the subject's table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockId(pub u32);

impl BlockId {
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// A graph that can be run node by node, and its memory. Node ids count in the order in which it was captured.
///
/// Blocks do not overlap and hold everything that a node may read or write and another one too. Running a node twice on
/// the same bytes should give the same bytes; nodes of which that is not true are found. What is asked for takes effect in
/// the order of the calls; only [`changed`](Self::changed) has to wait for it.
pub trait Subject {
    /// What the machine below may answer.
    type Error;
    /// A copy of a block's bytes, wherever the subject keeps it.
    type Saved;

    /// How many nodes there are.
    fn nodes(&self) -> u32;
    /// How many blocks there are.
    fn blocks(&self) -> u32;
    /// The name of a node, for reports.
    fn name(&self, node: NodeId) -> String;
    /// The size of a block.
    fn bytes(&self, block: BlockId) -> u64;
    /// Blocks that a node's parameters seem to name, and at which byte. Nothing is concluded from it; a good guess saves
    /// experiments.
    fn named(&self, node: NodeId) -> Vec<(BlockId, u64)>;
    /// Whether a node is to keep its place among all others, and to be run on nothing but what captured order gives it: one
    /// that waits for what it finds in memory, say.
    fn is_excluded(&self, node: NodeId) -> bool;
    /// Whether nobody looks at what a block holds after a replay.
    fn is_scratch(&self, block: BlockId) -> bool;
    /// Whether nobody has written a block yet: no node can have been meant to read it before another one writes it.
    fn is_fresh(&self, block: BlockId) -> bool;
    /// Cuts blocks at these bytes, which are given in ascending order; blocks are numbered anew. A node that seems to name a
    /// block seems to name all its pieces.
    fn cut(&mut self, borders: &[(BlockId, u64)]);
    /// Writes input number `sample` where the graph expects its inputs. The same number is the same input.
    fn give(&mut self, sample: u32) -> Result<(), Self::Error>;
    /// Runs one node.
    fn run(&mut self, node: NodeId) -> Result<(), Self::Error>;
    /// Copies blocks.
    fn save(&mut self, blocks: &[BlockId]) -> Result<Vec<Self::Saved>, Self::Error>;
    /// Copies blocks that hold what these copies do but for the bytes of the change, and says how many bytes each takes: what
    /// is the same may be shared.
    fn save_changes(
        &mut self,
        changes: &[(&Change, &Self::Saved)],
    ) -> Result<Vec<(Self::Saved, u64)>, Self::Error>;
    /// Writes copies back, each block at most once.
    fn restore(&mut self, copies: &[(BlockId, &Self::Saved)]) -> Result<(), Self::Error>;
    /// Fills blocks with bytes that no node is likely to write everywhere, the same ones everywhere.
    fn spoil(&mut self, blocks: &[BlockId]) -> Result<(), Self::Error>;
    /// Fills blocks with zeros.
    fn clear(&mut self, blocks: &[BlockId]) -> Result<(), Self::Error>;
    /// Which of these blocks do not hold those bytes, in the order of the list.
    fn changed(&mut self, expected: &[(BlockId, &Self::Saved)])
    -> Result<Vec<Change>, Self::Error>;
    /// Adds a block; `None` if there is no memory for it.
    fn spare(&mut self, bytes: u64) -> Result<Option<BlockId>, Self::Error>;
    /// Makes a node use other memory, from its next run on; none for what it was captured with. False, and nothing changes,
    /// if its parameters do not name the block.
    fn divert(&mut self, node: NodeId, instead: &[Diverted]) -> Result<bool, Self::Error>;
}

/// A block that does not hold what it was compared with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The block.
    pub block: BlockId,
    /// The bytes from the first that differs to the last.
    pub bytes: Range<u64>,
}

/// How far an observation goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Inputs that are tried, at least two.
    pub samples: u32,
    /// Fresh inputs on which the result is verified.
    pub rounds: u32,
    /// Bytes of copies that may be held at once.
    pub saved_bytes: u64,
    /// Bytes of copies of scratch memory that nodes may get.
    pub private_bytes: u64,
    /// Whether zeros may be put where they have not been seen. A kernel that takes a zero for a pointer faults on them.
    pub zeros: bool,
}

impl Default for Limits {
    /// Three samples, four rounds, 8 GiB of copies and 1 GiB for nodes to keep, nothing that was not seen.
    fn default() -> Self {
        Self { samples: 3, rounds: 4, saved_bytes: 8 << 30, private_bytes: 1 << 30, zeros: false }
    }
}

/// How far it is. What watches may stop it, for reasons of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// Steps done in this stage: nodes, or orders.
    pub done: u32,
    /// Steps of this stage.
    pub of: u32,
    /// Node runs so far.
    pub runs: u64,
}

/// Stages of a recovery, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Running every sample, to see what is written.
    Writes,
    /// Exchanging bytes, to see what is read.
    Reads,
    /// Giving runs of nodes scratch memory of their own.
    Workspaces,
    /// Running other orders.
    Verification,
}

/// What was seen of one node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Observed {
    /// Blocks whose bytes a run changed, in ascending order.
    pub writes: Vec<BlockId>,
    /// By place in `writes`: the bytes from the first that was seen to change to the last.
    pub spans: Vec<Range<u64>>,
    /// Those of the blocks in `writes` of which it replaces every byte, whatever they held, in ascending order.
    pub replaces: Vec<BlockId>,
    /// Blocks whose bytes its results depend on.
    pub reads: Vec<BlockId>,
    /// Blocks that it may read: they hold the same bytes on every input, or those of a part that is written, so nothing there
    /// could be exchanged; or its own results are the same on every input, and tell nothing.
    pub assumed: Vec<BlockId>,
    /// Why it is ordered against everything, if it is.
    pub opaque: Option<Opaque>,
    /// How often it was run.
    pub trials: u32,
}

impl Observed {
    /// Notes that it has changed a block.
    fn writes_to(&mut self, change: &Change) {
        match self.writes.binary_search(&change.block) {
            Ok(at) => {
                let span = &mut self.spans[at];
                *span = span.start.min(change.bytes.start)..span.end.max(change.bytes.end);
            }
            Err(at) => {
                self.writes.insert(at, change.block);
                self.spans.insert(at, change.bytes.clone());
            }
        }
    }
}

/// Why a node keeps its place among all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opaque {
    /// Nothing that it writes was seen.
    NothingWritten,
    /// The same bytes gave different results.
    NotRepeatable,
    /// The subject wants it so.
    Excluded,
    /// The observation was stopped, or reached its limit of memory, before this node.
    NotExamined,
}

impl std::fmt::Display for Opaque {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Opaque::NothingWritten => "it writes nothing that was seen",
            Opaque::NotRepeatable => "it gives different results for the same bytes",
            Opaque::Excluded => "it was excluded",
            Opaque::NotExamined => "it was not examined",
        })
    }
}

/// An order that no observation had shown and verification found missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Missed {
    /// What must be complete.
    pub before: NodeId,
    /// What must start after it.
    pub after: NodeId,
    /// The node whose results differed without.
    pub seen_at: NodeId,
}

/// What came of it.
#[derive(Debug)]
pub struct Recovered {
    /// By node.
    pub observed: Vec<Observed>,
    /// The nodes as kernels with the blocks they touch as operands, and only the edges that are needed. Node ids are the
    /// subject's; buffer ids are block numbers.
    pub graph: ComputeGraph,
    /// What verification added.
    pub missed: Vec<Missed>,
    /// Nodes that use other memory now, which the subject has added.
    pub private: Vec<Private>,
    /// How it ended.
    pub verdict: Verdict,
    /// Node runs in all.
    pub runs: u64,
}

/// How a recovery ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Every order that was tried gave the captured order's bytes.
    Verified {
        /// Orders tried.
        orders: u32,
    },
    /// A node's results differ in a way that no order among the nodes explains. Keep the graph as it was captured.
    Unexplained {
        /// The first such node.
        node: NodeId,
    },
    /// Stopped before all was verified. Keep the graph as it was captured.
    Stopped,
    /// Copies would have taken more than [`Limits::saved_bytes`]. Keep the graph as it was captured.
    Full,
}

/// Observes, orders and verifies. The memory is left as it was found, also after an error.
///
/// # Errors
/// What the subject answers; its first error, if restoring the memory fails too.
pub fn recover<S: Subject>(
    subject: &mut S,
    limits: Limits,
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Recovered, S::Error> {
    let mut bench = Bench { subject, watch, runs: 0 };
    let mut whole = true;
    loop {
        let blocks: Vec<BlockId> = (0..bench.subject.blocks()).map(BlockId).collect();
        let original = bench.subject.save(&blocks)?;
        let found = attempt(&mut bench, limits, whole);
        let copies: Vec<_> = blocks.iter().copied().zip(&original).collect();
        let restored = bench.subject.restore(&copies);
        let found = found?;
        restored?;
        match found {
            Found::All(recovered) => return Ok(*recovered),
            Found::Borders(borders) => bench.subject.cut(&borders),
        }
        whole = false;
    }
}

/// What an attempt has found.
enum Found {
    All(Box<Recovered>),
    /// Places at which blocks are to be cut before anything else is looked for.
    Borders(Vec<(BlockId, u64)>),
}

fn attempt<S: Subject>(
    bench: &mut Bench<'_, S>,
    limits: Limits,
    whole: bool,
) -> Result<Found, S::Error> {
    let mut observed = vec![Observed::default(); bench.subject.nodes() as usize];
    let (histories, mut ended) = Histories::record(bench, limits, &mut observed)?;
    if ended.is_some() {
        // Without all samples nothing can be exchanged.
        observed.iter_mut().for_each(|seen| seen.opaque = Some(Opaque::NotExamined));
    } else if whole {
        let mut borders = borders::borders(&observed);
        // Copies of scratch memory are of whole blocks.
        borders.retain(|(block, _)| !bench.subject.is_scratch(*block));
        if !borders.is_empty() {
            return Ok(Found::Borders(borders));
        }
    }
    if ended.is_none() && !observe::observe(bench, limits, &histories, &mut observed)? {
        ended = Some(Verdict::Stopped);
    }
    let names: Vec<String> =
        (0..bench.subject.nodes()).map(|n| bench.subject.name(NodeId(n))).collect();
    let mut private = Vec::new();
    if ended.is_none() {
        match workspaces::privatise(bench, limits, &histories, &mut observed, &names)? {
            Some(found) => private = found,
            None => ended = Some(Verdict::Stopped),
        }
    }
    drop(histories);
    let bytes: Vec<u64> =
        (0..bench.subject.blocks()).map(|b| bench.subject.bytes(BlockId(b))).collect();
    let mut missed = Vec::new();
    let flow =
        |observed: &[Observed], missed: &[Missed]| data_flow(&names, &bytes, observed, missed);
    let verdict = match ended {
        Some(ended) => ended,
        None => verify::verify(bench, limits, &mut observed, &mut missed, &flow)?,
    };
    let (graph, runs) = (flow(&observed, &missed), bench.runs);
    let recovered = Recovered { graph, observed, missed, private, verdict, runs };
    Ok(Found::All(Box::new(recovered)))
}

/// A subject, what watches it, and the count of runs.
struct Bench<'a, S> {
    subject: &'a mut S,
    watch: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    runs: u64,
}

impl<S: Subject> Bench<'_, S> {
    fn run(&mut self, node: NodeId) -> Result<(), S::Error> {
        self.runs += 1;
        self.subject.run(node)
    }

    fn goes_on(&mut self, stage: Stage, done: u32, of: u32) -> bool {
        (self.watch)(Progress { stage, done, of, runs: self.runs }).is_continue()
    }
}
