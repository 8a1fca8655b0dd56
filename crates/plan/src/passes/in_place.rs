//! In-place updates: a kernel writes its result over an input that nobody needs after it, so that one buffer does where two did.
//!
//! In: a graph. Out: the same nodes and edges on fewer buffers. Elementwise kernels, and the elementwise parts of fused
//! ones, read each element before they write it, so a result can take the place of an input that is seen through the same
//! view. Of two scratch buffers of one size and memory, of which the kernel reads one and writes the other, one is enough
//! if
//!
//! 1. every other node that touches the input is complete before the kernel touches memory, and
//! 2. every other node that touches the result touches memory only once the kernel is complete.
//!
//! Then whoever names the result names the input's buffer instead (or the other way round, where that is aligned more strictly).
//! Both conditions speak of the graph as it was, so a chain of updates ends up in one buffer, and no order is added: no
//! node that could run beside another loses that. A set of buffers that must lie apart afterwards is no heavier than one that had
//! to before. Left alone: the user's memory, buffers that carry something to the next round, whatever has gaps.
//! O(nodes + edges + operands), and [`ordered`] for users that are not the kernel's neighbours.

use std::ops::Range;

use phonograph_graph::{
    Access, Arg, BufferId, ComputeGraph, KernelNode, KernelRef, Node, NodeId, NodeKind, Rebuild,
    Target, View,
};

use smallvec::SmallVec;

use super::{Change, Left, PassError, PassReport, Reason, Rewritten, on_every_graph};
use crate::analysis::{By, Outlasts, ordered, outlasting};

/// Lets results take the place of inputs that nobody needs any more.
///
/// ```
/// use phonograph_graph::{DType, Expr, GraphBuilder, View};
/// use phonograph_plan::memory::{MemoryOptions, plan};
/// use phonograph_plan::passes::update_in_place;
///
/// let mut b = GraphBuilder::new();
/// let half: std::sync::Arc<Expr> = Expr::build(|e| e.output(e.input(DType::F32) * e.f32(0.5)))?.into();
/// let [input, output] = ["input", "output"].map(|name| b.external_buffer(name, 4096));
/// let [s, t] = ["s", "t"].map(|name| b.alloc_buffer(name, 4096));
/// let row = |buffer| View::contiguous(buffer, DType::F32, &[1024]).unwrap();
/// for pair in [input, s, t, output].windows(2) {
///     b.add_elementwise("half", half.clone(), &[row(pair[0])], &[], &[row(pair[1])]);
/// }
/// let graph = b.build()?;
/// let done = update_in_place(&graph)?;
/// assert_eq!(done.report.changed[0].to_string(), "n1 writes over b2 instead of into b3");
/// let pool = |graph| plan(graph, &MemoryOptions::default()).map(|planned| planned.memory.pool_bytes());
/// assert_eq!((pool(&graph)?, pool(&done.graph)?), (8192, 4096));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`PassError`], if the graph that comes out is not valid.
pub fn update_in_place(graph: &ComputeGraph) -> Result<Rewritten, PassError> {
    on_every_graph(graph, &in_one_graph)
}

fn in_one_graph(graph: &ComputeGraph) -> Result<Rewritten, PassError> {
    let mut report = PassReport::new("update in place");
    if !graph.node_ids().any(|node| parts(graph, node).is_some()) {
        return Ok(Rewritten::unchanged(graph, report));
    }
    let scratch = Scratch::of(graph);
    let mut candidates = Vec::new();
    for &node in graph.topological_order() {
        if let Err(why) = scratch.candidates(node, &mut candidates) {
            report.left.push(Left { node, why });
        }
    }
    let late = scratch.out_of_order(&candidates);
    let mut shared = Shared::new(&scratch);
    for (candidates, late) in chunks(&candidates, &late) {
        let node = candidates[0].node;
        let mut why = None;
        let placed = candidates.iter().zip(late).find(|(candidate, late)| {
            let refused = late.or_else(|| shared.join(candidate).err());
            why = why.or(refused);
            refused.is_none()
        });
        match (placed, why) {
            (Some((&Candidate { input, result, .. }, _)), _) => {
                report.changed.push(Change::InPlace { node, over: input, result });
            }
            (None, Some(why)) => report.left.push(Left { node, why }),
            (None, None) => {}
        }
    }
    if report.changed.is_empty() {
        return Ok(Rewritten::unchanged(graph, report));
    }
    let mut rebuild = Rebuild::new(graph);
    for node in graph.node_ids() {
        let renamed = |buffer| shared.place_of(buffer);
        if graph.operands(node).iter().any(|(region, _)| renamed(region.buffer) != region.buffer) {
            rebuild.replace(node, on_other_buffers(graph.node(node), renamed));
        }
    }
    Rewritten::rebuilt(rebuild, report)
}

/// A result and an input of a kernel that could be one buffer, as far as the kernel tells.
#[derive(Clone, Copy)]
struct Candidate {
    node: NodeId,
    input: BufferId,
    result: BufferId,
}

/// Candidates by kernel and result, with what was found of them.
fn chunks<'a>(
    candidates: &'a [Candidate],
    late: &'a [Option<Reason>],
) -> impl Iterator<Item = (&'a [Candidate], &'a [Option<Reason>])> {
    let mut at = 0;
    candidates.chunk_by(|a, b| (a.node, a.result) == (b.node, b.result)).map(move |chunk| {
        at += chunk.len();
        (chunk, &late[at - chunk.len()..at])
    })
}

/// What an elementwise kernel, or an elementwise part of one, reads and writes, among the kernel's tensors.
type Part = (Range<usize>, Range<usize>);

fn parts(graph: &ComputeGraph, node: NodeId) -> Option<(&KernelNode, [Part; 2])> {
    let kernel = graph.node(node).kernel()?;
    let none = (0..0, 0..0);
    let parts = match &kernel.kernel {
        KernelRef::Elementwise(expr) => {
            let inputs = expr.inputs().len();
            [(0..inputs, inputs..inputs + expr.outputs().len()), none]
        }
        KernelRef::Fused(fused) => {
            let at = fused.operands();
            let before = if fused.before.is_some() {
                (at.before_inputs, at.before_outputs)
            } else {
                none.clone()
            };
            let after =
                if fused.after.is_some() { (at.after_inputs, at.after_outputs) } else { none };
            [before, after]
        }
        KernelRef::Named(_) | KernelRef::Library(_) => return None,
    };
    Some((kernel, parts))
}

/// The buffers of the graph's own that carry nothing over, and who touches them.
struct Scratch<'a> {
    graph: &'a ComputeGraph,
    outlasting: Vec<Option<Outlasts>>,
    /// Users of each buffer from `starts` on, each once, in topological order.
    starts: Vec<u32>,
    users: Vec<NodeId>,
    /// For each buffer a user that can name no other, if there is one.
    fixed: Vec<Option<NodeId>>,
}

impl<'a> Scratch<'a> {
    fn of(graph: &'a ComputeGraph) -> Self {
        let mut starts = vec![0u32; graph.buffers().len() + 1];
        // Who was the last to be counted, so that nobody counts twice.
        let mut last: Vec<Option<NodeId>> = vec![None; graph.buffers().len()];
        let mut fixed = last.clone();
        let mut uses: Vec<(BufferId, NodeId)> = Vec::new();
        for &node in graph.topological_order() {
            let renames = can_rename(graph.node(node));
            for (region, _) in graph.operands(node) {
                if !renames {
                    fixed[region.buffer.index()] = Some(node);
                }
                if last[region.buffer.index()].replace(node) != Some(node) {
                    starts[region.buffer.index() + 1] += 1;
                    uses.push((region.buffer, node));
                }
            }
        }
        for buffer in 1..starts.len() {
            starts[buffer] += starts[buffer - 1];
        }
        let mut next = starts.clone();
        let mut users = vec![NodeId(0); uses.len()];
        for (buffer, node) in uses {
            let place = &mut next[buffer.index()];
            users[*place as usize] = node;
            *place += 1;
        }
        Self { graph, outlasting: outlasting(graph), starts, users, fixed }
    }

    fn users(&self, buffer: BufferId) -> &[NodeId] {
        let [from, to] = [0, 1].map(|end| self.starts[buffer.index() + end] as usize);
        &self.users[from..to]
    }

    /// Adds what could be one buffer for a kernel, by result. Where a result in scratch finds no input at all, why; of several
    /// results the last one's reason.
    fn candidates(&self, node: NodeId, found: &mut Vec<Candidate>) -> Result<(), Reason> {
        let Some((kernel, parts)) = parts(self.graph, node) else { return Ok(()) };
        let views: SmallVec<[View; 8]> =
            kernel.args.iter().filter_map(Arg::view).copied().collect();
        let named = |buffer| views.iter().filter(move |view| view.buffer == buffer).count();
        let mut refused = Ok(());
        for (inputs, results) in parts {
            for result in &views[results] {
                if self.outlasting[result.buffer.index()].is_some()
                    || named(result.buffer) > 1
                    || has_gaps(result)
                {
                    continue;
                }
                let before = found.len();
                // What speaks against the input that comes nearest.
                let mut nearest: Option<(u8, Reason)> = None;
                for input in &views[inputs.clone()] {
                    let again = found[before..].iter().any(|c| c.input == input.buffer);
                    // Another part of the kernel works at another time, and another view sees other elements.
                    let same = views[inputs.clone()].iter().filter(|other| *other == input);
                    let only = same.count() == named(input.buffer);
                    match self.against(node, input, result, only) {
                        None if !again => found.push(Candidate {
                            node,
                            input: input.buffer,
                            result: result.buffer,
                        }),
                        None => {}
                        Some(why) if nearest.is_none_or(|(near, _)| near < why.0) => {
                            nearest = Some(why);
                        }
                        Some(_) => {}
                    }
                }
                if let Some((_, why)) = nearest
                    && found.len() == before
                {
                    refused = Err(why);
                }
            }
        }
        refused
    }

    /// What speaks against writing a result over an input, and after how many questions.
    fn against(
        &self,
        node: NodeId,
        input: &View,
        result: &View,
        only: bool,
    ) -> Option<(u8, Reason)> {
        let (from, to) = (input.buffer, result.buffer);
        if *input != result.in_buffer(from) || !only {
            return Some((0, Reason::ReadOtherwise(from)));
        }
        if self.outlasting[from.index()].is_some() {
            return Some((1, Reason::Kept(from)));
        }
        let [a, b] = [from, to].map(|buffer| self.graph.buffer(buffer));
        if (a.bytes, a.space) != (b.bytes, b.space) {
            return Some((2, Reason::OtherSize(from)));
        }
        let last = self.users(from).last().filter(|&&last| last != node);
        if let Some(&last) = last {
            return Some((3, Reason::StillUsed(last)));
        }
        let first = self.users(to).first().filter(|&&first| first != node);
        first.map(|&first| (3, Reason::UsedBefore(first)))
    }

    /// For each candidate a user that no edge keeps off the kernel, if there is one.
    fn out_of_order(&self, candidates: &[Candidate]) -> Vec<Option<Reason>> {
        // Neighbours are known without asking.
        const MOST: usize = 16;
        let mut asked: Vec<(NodeId, NodeId)> = Vec::new();
        let mut of: Vec<u32> = Vec::new();
        for (index, &Candidate { node, input, result }) in (0u32..).zip(candidates) {
            let producers = self.graph.predecessors(node);
            for &user in self.users(input).iter().filter(|&&user| user != node) {
                if !producers.iter().take(MOST).any(|&from| from == user) {
                    asked.push((user, node));
                    of.push(index);
                }
            }
            let consumers = self.graph.successors(node);
            for &user in self.users(result).iter().filter(|&&user| user != node) {
                if !consumers.iter().take(MOST).any(|&to| to == user) {
                    asked.push((node, user));
                    of.push(index);
                }
            }
        }
        let mut late = vec![None; candidates.len()];
        let answers = ordered(self.graph, &asked, By::Wait);
        for ((&(from, to), index), _) in
            asked.iter().zip(of).zip(answers).filter(|(_, ordered)| !ordered)
        {
            let node = candidates[index as usize].node;
            let why = if to == node { Reason::StillUsed(from) } else { Reason::UsedBefore(to) };
            late[index as usize].get_or_insert(why);
        }
        late
    }
}

fn has_gaps(view: &View) -> bool {
    Arg::View(*view, Access::Write).effect().is_none_or(|(_, access)| access.reads())
}

/// Which buffers have become one: chains in which each is read by the kernel that writes the next.
struct Shared<'a> {
    scratch: &'a Scratch<'a>,
    /// The chain of each buffer that is on one.
    chain: Vec<Option<u32>>,
    /// For each chain the buffer whose bytes all of it use: none on it is aligned more strictly.
    place: Vec<BufferId>,
    /// Buffers that a result lies over.
    taken: Vec<bool>,
}

impl<'a> Shared<'a> {
    fn new(scratch: &'a Scratch<'a>) -> Self {
        let buffers = scratch.graph.buffers().len();
        Self { scratch, chain: vec![None; buffers], place: Vec::new(), taken: vec![false; buffers] }
    }

    fn place_of(&self, buffer: BufferId) -> BufferId {
        self.chain[buffer.index()].map_or(buffer, |chain| self.place[chain as usize])
    }

    /// Puts a result where an input is, or the input and all that share its bytes where the result is. A result is on no chain
    /// yet: only one kernel writes it first, and that one's candidates are tried in turn.
    fn join(&mut self, &Candidate { input, result, .. }: &Candidate) -> Result<(), Reason> {
        if self.taken[input.index()] {
            return Err(Reason::TakenOver(input));
        }
        let place = self.place_of(input);
        let align = |buffer: BufferId| self.scratch.graph.buffer(buffer).align;
        let fixed = |buffer: BufferId| self.scratch.fixed[buffer.index()];
        let moves =
            |from: BufferId, to: BufferId| fixed(from).is_none() && align(to) >= align(from);
        let to = if moves(result, place) {
            place
        } else if moves(place, result) {
            result
        } else {
            // Of two alignments one is the stricter, so somebody keeps a buffer from moving there.
            let why = fixed(result).or(fixed(place)).map(Reason::CannotRename);
            return Err(why.unwrap_or(Reason::OtherSize(input)));
        };
        let chain = self.chain[input.index()].unwrap_or(self.place.len() as u32);
        match self.place.get_mut(chain as usize) {
            Some(place) => *place = to,
            None => self.place.push(to),
        }
        self.chain[input.index()] = Some(chain);
        self.chain[result.index()] = Some(chain);
        self.taken[input.index()] = true;
        Ok(())
    }
}

/// Whether a node can be given other buffers. One that holds graphs names buffers in there, too; what a host function is given
/// is for whoever registered it.
fn can_rename(node: &Node) -> bool {
    matches!(node.kind, NodeKind::Kernel(_) | NodeKind::Memcpy(_) | NodeKind::Memset(_))
}

fn on_other_buffers(node: &Node, renamed: impl Fn(BufferId) -> BufferId) -> Node {
    let mut node = node.clone();
    let target = |target: &mut Target| {
        if let Target::Buffer(buffer) = target {
            *buffer = renamed(*buffer);
        }
    };
    match &mut node.kind {
        NodeKind::Kernel(kernel) => {
            for arg in &mut kernel.args {
                match arg {
                    Arg::View(view, _) => view.buffer = renamed(view.buffer),
                    Arg::Region(region, _) => region.buffer = renamed(region.buffer),
                    Arg::Scalar(_) | Arg::Slot(_) => {}
                }
            }
        }
        NodeKind::Memcpy(copy) => {
            target(&mut copy.src.target);
            target(&mut copy.dst.target);
        }
        NodeKind::Memset(fill) => target(&mut fill.dst.target),
        _ => {}
    }
    node
}
