//! Fusion: kernels that hand their results to one another element by element become one kernel.
//!
//! In: a graph. Out: a graph in which each group of kernels is one ordinary kernel node whose expression is composed of
//! theirs, so that whoever plans, checks or runs it needs to know nothing of fusion. Memory is planned afterwards:
//! what a group hands over inside is not stored, where the buffer is the graph's own and nobody outside reads it.
//!
//! What is merged:
//! - Kernels over one index space that follow one another, through the same views; other operands may be repeated along any axis.
//!   A kernel whose readers all see its result transposed or reshaped goes through its elements as they do (see
//!   `renumber`), and one whose result they repeat is computed anew for each of their elements, where that is little
//!   work (see `repeat` for the rule). One that sees the same bytes otherwise (shifted, gathered) needs all elements
//!   first, so it stays.
//! - A reduction with the kernels that compute what it reads, where rows lie together in memory, and a reduction or matrix
//!   product with what is done to its result, element by element: one [`FusedKernel`].
//! - Convex groups only: no path leaves a group and comes back, through edges of any kind (see `find`).
//! - Kernels that do not depend on one another only if they are small, at most
//!   [`independent_elements`](FusionOptions::independent_elements), and equally far from the start of the graph: together
//!   they cost one launch instead of several, and at this size the work that could run side by side is worth less.
//! - Never kernels with programmatic edges, whose early start would be lost, and never kernels marked as not fusible: a
//!   node that will be disabled for some replays must be ([`GraphBuilder::set_fusible`]).
//!
//! The result is the same to the bit (of NaN, a NaN): values are rounded to the type that they would have been stored as.
//!
//! Cost: O(nodes + edges + operands), and for a group of k kernels O(k²) with a bound on k.
//!
//! [`GraphBuilder::set_fusible`]: phonograph_graph::GraphBuilder::set_fusible

mod compose;
mod find;
mod group;
mod renumber;
mod repeat;

use phonograph_graph::{
    Access, Arg, BufferId, BufferRole, ComputeGraph, FusedKernel, KernelNode, KernelRef,
    MAX_EXPR_OPS, Node, NodeId, NodeKind, Rebuild, Region, View,
};
use rustc_hash::FxHashSet;

use crate::analysis::{Outlasts, outlasting, raced_buffers};
use crate::passes::{Change, PassError, PassReport, Rewritten, on_every_graph};
use compose::Composer;
use find::Groups;
use group::Group;
use renumber::Seen;
use repeat::Repeats;

/// The longest name of a merged kernel, in bytes, that lists the names of its parts.
const NAME_BYTES: usize = 60;
/// Users of a buffer that are asked whether they read what a group stored, at most.
const MOST_USERS: usize = 64;
/// How often groups are sought anew because of results that turned out to be needed in memory, until none is repeated.
const MOST_ROUNDS: u32 = 3;

/// What fusion may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FusionOptions {
    /// Operations and operands of a merged expression, at most; [`MAX_EXPR_OPS`] is the most there can be.
    pub max_ops: usize,
    /// Operands in memory of a merged kernel, at most. Backends differ in what they can bind.
    pub max_operands: usize,
    /// Whether reductions are merged with what computes their elements, and they and matrix products with what is done to
    /// their results.
    pub library: bool,
    /// Kernels that do not depend on one another are merged up to this many elements; 0 for never.
    pub independent_elements: u64,
    /// Operations that may be done more often than once to compute a result anew for every element of a reader that sees
    /// it repeated, instead of by a kernel of its own; 0 for never. As many as are set take a core less than half a
    /// microsecond. On a GPU, where memory is what large kernels wait for, millions cost less than a launch.
    pub repeated_ops: u64,
}

impl Default for FusionOptions {
    fn default() -> Self {
        Self {
            max_ops: MAX_EXPR_OPS / 4,
            max_operands: 32,
            library: true,
            independent_elements: 4096,
            repeated_ops: 4096,
        }
    }
}

/// Merges kernels, here and in graphs inside.
///
/// ```
/// use phonograph_graph::{DType, Expr, GraphBuilder, View};
/// use phonograph_plan::fusion::{FusionOptions, fuse};
///
/// let mut b = GraphBuilder::new();
/// let x = View::contiguous(b.external_buffer("x", 4096), DType::F32, &[1024])?;
/// let t = View::contiguous(b.alloc_buffer("t", 4096), DType::F32, &[1024])?;
/// let double = Expr::build(|e| e.output(e.input(DType::F32) * e.f32(2.0)))?;
/// let exp = Expr::build(|e| e.output(e.input(DType::F32).exp()))?;
/// b.add_elementwise("double", double.into(), &[x], &[], &[t]);
/// b.add_elementwise("exp", exp.into(), &[t], &[], &[x]);
/// let graph = b.build()?;
///
/// let fused = fuse(&graph, &FusionOptions::default())?;
/// assert_eq!(fused.graph.node_count(), 1);
/// assert_eq!(&*fused.graph.nodes()[0].name, "double+exp");
/// assert_eq!(fused.graph.nodes()[0].kernel().unwrap().args.len(), 2); // x and x: nothing is stored in t
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Only if the merged graph is not valid, which would be a mistake in here.
pub fn fuse(graph: &ComputeGraph, options: &FusionOptions) -> Result<Rewritten, PassError> {
    on_every_graph(graph, &|part| fuse_one(part, options))
}

fn fuse_one(graph: &ComputeGraph, options: &FusionOptions) -> Result<Rewritten, PassError> {
    let uses = Uses::new(graph);
    let as_is = Seen::as_is(graph);
    let plain = grouped(&as_is, &uses, options);
    let mut forced = FxHashSet::default();
    let repeats = Repeats::new(graph, &uses, options.repeated_ops, &forced);
    let mut as_read = Seen::as_read(graph, &uses, &repeats);
    let mut report = PassReport::new("fuse");
    if as_read.is_as_is() && plain.found().next().is_none() {
        report.left = plain.left(&as_read.refused);
        return Ok(Rewritten::unchanged(graph, report));
    }
    let stored = Stored { uses: &uses, raced: raced_buffers(graph) };
    let mut round = 0;
    let regrouped = loop {
        if as_read.is_as_is() {
            break None;
        }
        let groups = grouped(&as_read, &uses, options);
        let needed = needed_in_memory(&groups, &as_read, &stored);
        if needed.is_empty() {
            break Some(groups);
        }
        forced.extend(needed);
        round += 1;
        let most = if round < MOST_ROUNDS { options.repeated_ops } else { 0 };
        as_read = Seen::as_read(graph, &uses, &Repeats::new(graph, &uses, most, &forced));
    };
    // Kernels that go another way for their readers may lose their producers: not everywhere is that a gain.
    let better = regrouped.filter(|groups| merges(groups) > merges(&plain));
    let (groups, seen) = better.map_or((plain, &as_is), |groups| (groups, &as_read));
    report.left = groups.left(&as_read.refused);
    if groups.found().next().is_none() {
        return Ok(Rewritten::unchanged(graph, report));
    }
    let mut rebuild = Rebuild::new(graph);
    for group in groups.found() {
        let members = uses.in_order(group);
        let Some(&into) = members.last() else { continue };
        rebuild.replace(into, merged(seen, &stored, &members, group));
        for &member in &members[..members.len() - 1] {
            rebuild.merge(member, into);
            report.changed.push(Change::Merged { node: member, into });
        }
    }
    report.changed.sort_unstable_by_key(|change| match change {
        Change::Merged { node, .. } => *node,
        _ => NodeId(0),
    });
    let (graph, image) =
        rebuild.build().map_err(|source| PassError::Graph { pass: report.pass, source })?;
    Ok(Rewritten { graph, image, report })
}

fn grouped<'a>(seen: &Seen<'a>, uses: &'a Uses, options: &FusionOptions) -> Groups<'a> {
    let mut groups = Groups::new(seen, &uses.counts, options);
    groups.merge_dependent();
    if options.library {
        groups.merge_library();
    }
    if options.independent_elements > 0 {
        groups.merge_independent(options.independent_elements);
    }
    groups
}

/// Members of groups that go through elements several times although somebody needs their result in memory.
fn needed_in_memory(groups: &Groups, seen: &Seen, stored: &Stored) -> Vec<NodeId> {
    let mut needed = Vec::new();
    for &node in &seen.repeating {
        let Some(group) = groups.of(node) else { continue };
        let members = stored.uses.in_order(group);
        let results = seen.kernel(node).into_iter().flat_map(group::views);
        let results = results.filter(|(_, stored)| *stored).map(|(view, _)| view);
        let within = |view: &View| {
            let mut readers = stored.uses.after(node, view).peekable();
            let all = readers.peek().is_some() && readers.all(|user| group.members.contains(&user));
            all && !stored.is_read_after(view, &members)
        };
        if !results.into_iter().all(|view| within(&view)) {
            needed.push(node);
        }
    }
    needed
}

/// How many kernels go into others.
fn merges(groups: &Groups) -> usize {
    groups.found().map(|group| group.members.len() - 1).sum()
}

/// The node that does the work of all members, which are in topological order.
fn merged(seen: &Seen, stored: &Stored, members: &[NodeId], group: &Group) -> Node {
    let graph = seen.graph;
    let compose = |mut composer: Composer, part: &[NodeId], hand_over: Option<View>| {
        for &member in part {
            let Some((kernel, expr)) = seen.elementwise(member) else { continue };
            let (views, params): (Vec<Arg>, Vec<Arg>) =
                kernel.args.iter().copied().partition(|arg| matches!(arg, Arg::View(..)));
            composer.append(
                expr,
                &views.iter().filter_map(Arg::view).copied().collect::<Vec<_>>(),
                &params,
            );
        }
        if let Some(view) = hand_over {
            composer.hand_over(view);
        }
        composer
            .finish(|view, loaded| !loaded || stored.is_read_after(view, members))
            .expect("groups stay below the most operations, and what is stored last is not loaded")
    };
    let (kernel, reads, writes, params, config) = match &group.anchor {
        None => {
            let all = compose(Composer::default(), members, None);
            let kernel = KernelRef::Elementwise(all.expr.into());
            (kernel, all.inputs, all.outputs, all.params, members[members.len() - 1])
        }
        Some(anchor) => {
            let is_after = |member: &NodeId| anchor.after.contains(member);
            let (after, before): (Vec<NodeId>, Vec<NodeId>) =
                members.iter().filter(|&&member| member != anchor.node).partition(|m| is_after(m));
            let before = (!before.is_empty())
                .then(|| compose(Composer::default(), &before, Some(anchor.input)));
            let after =
                (!after.is_empty()).then(|| compose(Composer::seed(anchor.result), &after, None));
            let own = graph.node(anchor.node).kernel();
            let own = own.into_iter().flat_map(group::views);
            let mut reads = match &before {
                Some(before) => before.inputs.clone(),
                None => own.filter(|(_, stored)| !stored).map(|(view, _)| view).collect(),
            };
            reads.extend(after.iter().flat_map(|after| &after.inputs[1..]));
            let mut writes: Vec<View> = before.iter().flat_map(|b| b.outputs.clone()).collect();
            match &after {
                Some(after) => writes.extend(&after.outputs),
                None => writes.push(anchor.result),
            }
            let parts = [&before, &after].into_iter().flatten();
            let params = parts.flat_map(|part| part.params.clone()).collect();
            let fused = FusedKernel {
                library: anchor.library,
                before: before.map(|before| before.expr),
                after: after.map(|after| after.expr),
            };
            (KernelRef::Fused(fused.into()), reads, writes, params, anchor.node)
        }
    };
    let reads = reads.into_iter().map(|view| Arg::View(view, Access::Read));
    let writes = writes.into_iter().map(|view| Arg::View(view, Access::Write));
    let args = reads.chain(writes).chain(params).collect();
    let config = graph.node(config).kernel().map(|kernel| kernel.config);
    let config = config.expect("members are kernels");
    let kernel = KernelNode { kernel, config, args, fusible: true };
    Node { name: name(graph, members).into(), kind: NodeKind::Kernel(kernel), stream: None }
}

/// The parts' names, or the first and the last and how many there are.
fn name(graph: &ComputeGraph, members: &[NodeId]) -> String {
    let of = |member: NodeId| &*graph.node(member).name;
    let (first, last) = (members[0], members[members.len() - 1]);
    let bytes: usize = members.iter().take(NAME_BYTES).map(|&m| of(m).len() + 1).sum();
    if bytes <= NAME_BYTES {
        return members.iter().map(|&m| of(m)).collect::<Vec<_>>().join("+");
    }
    format!("{}+…+{} ({})", of(first), of(last), members.len())
}

/// One access to an internal buffer.
struct Use {
    node: NodeId,
    region: Region,
    access: Access,
}

/// Who uses which buffer.
struct Uses {
    /// How many nodes name each buffer.
    counts: Vec<u32>,
    /// Position of each node in the topological order.
    place: Vec<u32>,
    /// Where the accesses to each buffer start in `all`.
    starts: Vec<u32>,
    /// The accesses to internal buffers, by buffer, in topological order.
    all: Vec<Use>,
    outlasting: Vec<Option<Outlasts>>,
}

impl Uses {
    fn new(graph: &ComputeGraph) -> Self {
        let buffers = graph.buffers().len();
        let mut counts = vec![0u32; buffers];
        let mut place = vec![0u32; graph.node_count()];
        let mut listed: Vec<(BufferId, Use)> = Vec::new();
        let mut last_user: Vec<Option<NodeId>> = vec![None; buffers];
        for (at, &node) in (0..).zip(graph.topological_order()) {
            place[node.index()] = at;
            // A graph inside may read what it writes later: of one node what is read counts first.
            let mut operands = graph.operands(node);
            operands.sort_by_key(|(_, access)| !access.reads());
            for (region, access) in operands {
                let buffer = region.buffer;
                if last_user[buffer.index()].replace(node) != Some(node) {
                    counts[buffer.index()] += 1;
                }
                if graph.buffer(buffer).role == BufferRole::Internal {
                    listed.push((buffer, Use { node, region, access }));
                }
            }
        }
        listed.sort_by_key(|(buffer, _)| *buffer); // stable: still in topological order
        let mut starts = vec![0u32; buffers + 1];
        for (buffer, _) in &listed {
            starts[buffer.index() + 1] += 1;
        }
        for buffer in 0..buffers {
            starts[buffer + 1] += starts[buffer];
        }
        let all = listed.into_iter().map(|(_, u)| u).collect();
        Self { counts, place, starts, all, outlasting: outlasting(graph) }
    }

    /// The members of a group in topological order.
    fn in_order(&self, group: &Group) -> Vec<NodeId> {
        let mut members = group.members.clone();
        members.sort_unstable_by_key(|member| self.place[member.index()]);
        members
    }

    /// Who touches a node's result after it, each as often as it does; nobody if others may see it, too.
    fn after(&self, node: NodeId, result: &View) -> impl Iterator<Item = NodeId> + '_ {
        let buffer = result.buffer.index();
        let scratch = self.outlasting[buffer].is_none();
        let uses = &self.all[self.starts[buffer] as usize..self.starts[buffer + 1] as usize];
        let place = |node: NodeId| self.place[node.index()];
        let before = uses.partition_point(|u| place(u.node) <= place(node));
        uses[before..].iter().filter(move |_| scratch).map(|u| u.node)
    }
}

/// What has to be stored although a group hands it over inside.
struct Stored<'a> {
    uses: &'a Uses,
    /// Of these nobody can tell who comes after whom.
    raced: FxHashSet<BufferId>,
}

impl Stored<'_> {
    /// Whether anyone but `members`, which are in topological order, may see what they stored through `view` last.
    ///
    /// Where there is no race, nodes that touch the same bytes, one of them writing, are ordered by a path, so the topological
    /// order tells which of them comes first.
    fn is_read_after(&self, view: &View, members: &[NodeId]) -> bool {
        // The user's memory, and scratch that is read before it is written and so may mean to carry over.
        let Uses { place, starts, all, outlasting, .. } = self.uses;
        if outlasting[view.buffer.index()].is_some() || self.raced.contains(&view.buffer) {
            return true;
        }
        let region = view.region();
        let buffer = view.buffer.index();
        let uses = &all[starts[buffer] as usize..starts[buffer + 1] as usize];
        let is_member = |node: NodeId| {
            members.binary_search_by_key(&place[node.index()], |m| place[m.index()]).is_ok()
        };
        let first = uses.partition_point(|u| place[u.node.index()] < place[members[0].index()]);
        let others = uses[first..].iter().filter(|u| !is_member(u.node));
        for (asked, u) in others.enumerate() {
            if asked < MOST_USERS && !u.region.overlaps(&region) {
                continue;
            }
            if u.access.reads() || asked >= MOST_USERS {
                return true;
            }
            let all = u.region.offset <= region.offset && region.end() <= u.region.end();
            let after = members.last().is_none_or(|m| place[m.index()] < place[u.node.index()]);
            if all && after {
                return false;
            }
        }
        false
    }
}
