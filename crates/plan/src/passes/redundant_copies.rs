//! Redundant copies: those that bring what is there already, and those whose source could be read instead.
//!
//! 1. *There already.* A copy is dropped if, at the place where it writes, an earlier copy left the same bytes of the
//!    same source, or the source is a copy of that very place, and neither has been written since.
//! 2. *Read instead.* A copy within one memory, into scratch that only it writes, is dropped if everybody who reads the
//!    scratch can read the source itself: kernels and copies that read no more of it than was copied, and before
//!    whoever writes the source next. Readers keep their alignment and write nothing of what they would read. A copy of
//!    a copy takes another round, up to 32 of them.
//!
//! Neither touches buffers for which nodes race, or memory of the user's in graphs with nodes of unknown effects.
//! Contents are followed in topological order, which shows the same as any other where there is no race. O(nodes +
//! edges + operands · log segments) a round, and [`ordered`] for the writers and readers of what is copied.

use std::ops::Range;

use phonograph_graph::{
    Access, Arg, BufferId, ComputeGraph, Node, NodeId, NodeKind, Rebuild, Region, Space,
};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::contract::contract;
use super::dead::take_out;
use super::transfer::PlainCopy;
use super::{Change, Left, PassError, PassReport, Reason, Rewritten, on_every_graph};
use crate::analysis::segments::Segments;
use crate::analysis::{By, Outlasts, Watch, ordered, outlasting, raced_buffers};

const PASS: &str = "drop redundant copies";

/// Rounds of reading through copies; each halves chains of copies.
const ROUNDS: usize = 32;

/// Drops copies of what is there already, and copies whose source can be read instead.
///
/// ```
/// use phonograph_graph::{GraphBuilder, Region};
/// use phonograph_plan::passes::drop_redundant_copies;
///
/// let mut b = GraphBuilder::new();
/// let [input, output] = ["input", "output"].map(|name| b.external_buffer(name, 1024));
/// let staging = b.alloc_buffer("staging", 1024);
/// let whole = |buffer| Region { buffer, offset: 0, bytes: 1024 };
/// b.add_region_copy("stage", whole(input), whole(staging));
/// b.add_kernel("work", 4, 256, 0).inputs([staging]).outputs([output]).finish();
/// let rewritten = drop_redundant_copies(&b.build()?)?;
/// assert_eq!(rewritten.graph.node_count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`PassError`], if the graph that comes out is not valid.
pub fn drop_redundant_copies(graph: &ComputeGraph) -> Result<Rewritten, PassError> {
    on_every_graph(graph, &|graph| {
        let mut done = drop_copies_of_what_is_there(graph)?;
        for _ in 0..ROUNDS {
            let next = read_through(&done.graph)?;
            let again = may_go_on(&done.graph, &next);
            done = done.followed_by(next);
            if !again {
                break;
            }
        }
        Ok(done)
    })
}

fn plain(graph: &ComputeGraph, node: NodeId) -> Option<PlainCopy> {
    match &graph.node(node).kind {
        NodeKind::Memcpy(copy) => PlainCopy::of(copy),
        _ => None,
    }
}

fn has_plain_copies(graph: &ComputeGraph) -> bool {
    graph.node_ids().any(|node| plain(graph, node).is_some())
}

/// Whether another round could find something: copies are left that share a buffer with one that is gone.
fn may_go_on(before: &ComputeGraph, done: &Rewritten) -> bool {
    let mut touched: FxHashSet<BufferId> = FxHashSet::default();
    for change in &done.report.changed {
        if let Change::Dropped { node } | Change::Emptied { node } = *change
            && let Some(copy) = plain(before, node)
        {
            touched.extend([copy.from.buffer, copy.to.buffer]);
        }
    }
    let shares =
        |copy: PlainCopy| touched.contains(&copy.from.buffer) || touched.contains(&copy.to.buffer);
    !touched.is_empty()
        && done.graph.node_ids().any(|node| plain(&done.graph, node).is_some_and(shares))
}

/// Who wrote a byte last, and from where it was copied.
#[derive(Clone, Copy)]
struct Written {
    /// Place in topological order.
    place: u32,
    /// Buffer that it was copied from, and over which distance.
    copied: Option<(BufferId, u64)>,
}

fn drop_copies_of_what_is_there(graph: &ComputeGraph) -> Result<Rewritten, PassError> {
    let mut report = PassReport::new(PASS);
    if !has_plain_copies(graph) {
        return Ok(Rewritten::unchanged(graph, report));
    }
    let watch = Watch::of(graph);
    // Races are looked for only where it matters.
    let mut raced = None;
    let mut memory: Vec<Segments<Written>> = vec![Segments::default(); graph.buffers().len()];
    let mut goes = vec![false; graph.node_count()];
    for (place, &node) in (0u32..).zip(graph.topological_order()) {
        let mut copied = None;
        if let Some(copy) = plain(graph, node) {
            copied = Some((copy.from.buffer, copy.distance()));
            if is_there(&memory, copy) {
                let buffers = [copy.from.buffer, copy.to.buffer];
                let raced = raced.get_or_insert_with(|| raced_buffers(graph));
                let race = buffers.into_iter().find(|buffer| raced.contains(buffer));
                let why = race.map(Reason::Raced).or_else(|| {
                    watch.sees(copy.to.buffer).then_some(Reason::Watched(copy.to.buffer))
                });
                match why {
                    Some(why) => report.left.push(Left { node, why }),
                    None => {
                        goes[node.index()] = true;
                        continue;
                    }
                }
            }
        }
        let operands = graph.operands(node);
        for (region, _) in operands.iter().filter(|(_, access)| access.writes()) {
            let written = Written { place, copied };
            memory[region.buffer.index()].assign(region.offset, region.end(), written);
        }
    }
    take_out(graph, &goes, report)
}

fn is_there(memory: &[Segments<Written>], PlainCopy { from, to }: PlainCopy) -> bool {
    let distance = to.offset.wrapping_sub(from.offset);
    if from == to {
        return true;
    }
    // Bytes of `at` were copied from `source` over that distance, and the source has not changed since.
    let unchanged_copy = |at: Region, source: BufferId, distance: u64| {
        memory[at.buffer.index()].all(at.offset, at.end(), |copy| {
            let [start, end] = [copy.start, copy.end].map(|at| at.wrapping_sub(distance));
            let earlier = |place: u32| place < copy.value.place;
            copy.value.copied == Some((source, distance))
                && memory[source.index()].within(start, end).iter().all(|s| earlier(s.value.place))
        })
    };
    from.bytes > 0
        && (unchanged_copy(to, from.buffer, distance)
            || unchanged_copy(from, to.buffer, distance.wrapping_neg()))
}

/// One round: copies that no longer are needed once their readers read the source.
fn read_through(graph: &ComputeGraph) -> Result<Rewritten, PassError> {
    let mut report = PassReport::new(PASS);
    if !has_plain_copies(graph) {
        return Ok(Rewritten::unchanged(graph, report));
    }
    let uses = Uses::of_copied_buffers(graph);
    let outlasting = outlasting(graph);
    let watch = Watch::of(graph);
    // Races are looked for only where it matters.
    let mut raced = None;
    let mut candidates: Vec<Candidate> = Vec::new();
    for node in graph.node_ids() {
        let Some(copy) = plain(graph, node) else { continue };
        let why = match outlasting[copy.to.buffer.index()] {
            // A copy to the user is no scratch; nobody wonders why it stays.
            Some(Outlasts::Exported) => continue,
            Some(Outlasts::Carried) => Some(Reason::Carried(copy.to.buffer)),
            None if watch.sees(copy.from.buffer) => Some(Reason::Watched(copy.from.buffer)),
            None => {
                let raced = raced.get_or_insert_with(|| raced_buffers(graph));
                let mut both = [copy.from.buffer, copy.to.buffer].into_iter();
                both.find(|buffer| raced.contains(buffer)).map(Reason::Raced)
            }
        };
        match why.map_or_else(|| Candidate::new(graph, &uses, node, copy), Err) {
            Ok(candidate) => candidates.push(candidate),
            Err(why) => report.left.push(Left { node, why }),
        }
    }
    let changed = changed_too_early(graph, &candidates);
    let mut taken: FxHashSet<NodeId> = FxHashSet::default();
    let mut goes = vec![false; graph.node_count()];
    let mut through: FxHashMap<NodeId, Vec<PlainCopy>> = FxHashMap::default();
    for (Candidate { node, copy, readers, .. }, changed) in candidates.into_iter().zip(changed) {
        if let Some(writer) = changed {
            report.left.push(Left { node, why: Reason::SourceChanges(writer) });
            continue;
        }
        // What another copy of this round changes waits for the next.
        if taken.contains(&node) || readers.iter().any(|reader| goes[reader.index()]) {
            continue;
        }
        goes[node.index()] = true;
        for &reader in &readers {
            taken.insert(reader);
            through.entry(reader).or_default().push(copy);
            report.changed.push(Change::ReadsThrough { node: reader, copy: node });
        }
    }
    if !goes.contains(&true) {
        return Ok(Rewritten::unchanged(graph, report));
    }
    let contracted = contract(graph, |node| goes[node.index()]);
    let mut rebuild = Rebuild::new(graph);
    for node in graph.node_ids() {
        if goes[node.index()] {
            rebuild.drop_node(node);
            report.changed.push(Change::Dropped { node });
        } else if let Some(copies) = through.get(&node) {
            let mut reader = graph.node(node).clone();
            copies.iter().for_each(|copy| redirect(&mut reader, copy));
            rebuild.replace(node, reader);
        }
    }
    for &(node, ..) in &contracted.stay {
        let Node { name, stream, .. } = graph.node(node).clone();
        rebuild.replace(node, Node { name, kind: NodeKind::Empty, stream });
        report.changed.retain(|change| *change != Change::Dropped { node });
        report.changed.push(Change::Emptied { node });
    }
    rebuild.edges(contracted.edges);
    Rewritten::rebuilt(rebuild, report)
}

/// Of each candidate, a writer of the source that is neither before the copy nor after every reader. The order of all is asked
/// for at once.
fn changed_too_early(graph: &ComputeGraph, candidates: &[Candidate]) -> Vec<Option<NodeId>> {
    let before: Vec<(NodeId, NodeId)> = candidates
        .iter()
        .flat_map(|of| of.writers.iter().map(|&writer| (writer, of.node)))
        .collect();
    let mut is_before = ordered(graph, &before, By::Wait).into_iter();
    let mut after = Vec::new();
    let mut asked = Vec::with_capacity(candidates.len());
    for Candidate { writers, readers, .. } in candidates {
        let from = after.len();
        for (&writer, _) in writers.iter().zip(&mut is_before).filter(|(_, before)| !before) {
            after.extend(readers.iter().map(|&reader| (reader, writer)));
        }
        asked.push(from..after.len());
    }
    let is_after = ordered(graph, &after, By::Wait);
    let early = |mut asked: Range<usize>| asked.find(|&at| !is_after[at]).map(|at| after[at].1);
    asked.into_iter().map(early).collect()
}

/// Who touches the buffers that plain copies read or write.
struct Uses {
    /// Place of each buffer in `of`, or [`NONE`].
    place: Vec<u32>,
    of: Vec<SmallVec<[(NodeId, Region, Access); 4]>>,
}

/// No place.
const NONE: u32 = u32::MAX;

impl Uses {
    fn of_copied_buffers(graph: &ComputeGraph) -> Self {
        let mut place = vec![NONE; graph.buffers().len()];
        let mut count = 0u32;
        for copy in graph.node_ids().filter_map(|node| plain(graph, node)) {
            for buffer in [copy.from.buffer, copy.to.buffer] {
                if place[buffer.index()] == NONE {
                    place[buffer.index()] = count;
                    count += 1;
                }
            }
        }
        let mut of = vec![SmallVec::new(); count as usize];
        for node in graph.node_ids() {
            for (region, access) in graph.operands(node) {
                let place = place[region.buffer.index()];
                if place != NONE && region.bytes > 0 {
                    of[place as usize].push((node, region, access));
                }
            }
        }
        Self { place, of }
    }

    /// Who else touches bytes of a region.
    fn others(
        &self,
        node: NodeId,
        region: Region,
    ) -> impl Iterator<Item = (NodeId, Region, Access)> + '_ {
        let uses = self.of.get(self.place[region.buffer.index()] as usize);
        let uses = uses.map_or(&[][..], SmallVec::as_slice);
        let meet = move |(user, used, _): &(NodeId, Region, Access)| {
            *user != node && used.overlaps(&region)
        };
        uses.iter().copied().filter(meet)
    }
}

/// A copy whose readers may be able to read its source.
struct Candidate {
    node: NodeId,
    copy: PlainCopy,
    readers: Vec<NodeId>,
    /// Who else writes the source.
    writers: Vec<NodeId>,
}

impl Candidate {
    /// Readers and writers looked at, at most; more cost more than a copy.
    const MOST: usize = 64;

    fn new(
        graph: &ComputeGraph,
        uses: &Uses,
        node: NodeId,
        copy: PlainCopy,
    ) -> Result<Self, Reason> {
        let space = |region: Region| graph.buffer(region.buffer).space;
        if space(copy.from) != space(copy.to) || space(copy.from) == Space::Unknown {
            return Err(Reason::OtherMemory);
        }
        if copy.from.buffer == copy.to.buffer {
            return Err(Reason::Read(copy.to.buffer));
        }
        let mut readers = Vec::new();
        for (reader, region, access) in uses.others(node, copy.to) {
            if access.writes() {
                return Err(Reason::WrittenAlso(reader));
            }
            let inside = region.offset >= copy.to.offset && region.end() <= copy.to.end();
            if !inside {
                return Err(Reason::ReadsMore(reader));
            }
            can_redirect(graph, reader, region, &copy)?;
            if readers.last() != Some(&reader) {
                readers.push(reader);
            }
        }
        let writers = uses.others(node, copy.from).filter(|(_, _, access)| access.writes());
        let mut writers: Vec<NodeId> = writers.map(|(writer, ..)| writer).collect();
        writers.dedup();
        if readers.len() > Self::MOST || writers.len() > Self::MOST {
            return Err(Reason::TooManyUsers(readers.len() + writers.len()));
        }
        Ok(Self { node, copy, readers, writers })
    }
}

/// Whether a node could read a region from where it was copied.
fn can_redirect(
    graph: &ComputeGraph,
    reader: NodeId,
    region: Region,
    copy: &PlainCopy,
) -> Result<(), Reason> {
    if !matches!(graph.node(reader).kind, NodeKind::Kernel(_) | NodeKind::Memcpy(_)) {
        return Err(Reason::CannotRedirect(reader));
    }
    let mut written = graph.operands(reader).into_iter().filter(|(_, access)| access.writes());
    let offset = region.offset.wrapping_sub(copy.distance());
    let source = Region { buffer: copy.from.buffer, offset, bytes: region.bytes };
    if written.any(|(written, _)| written.overlaps(&source)) {
        return Err(Reason::WrittenAlso(reader));
    }
    // An address is a multiple of what both its buffer and its offset are multiples of; beyond 256 nobody asks.
    let align = |region: Region| {
        let offset = 1u64 << region.offset.trailing_zeros().min(8);
        offset.min(graph.buffer(region.buffer).align)
    };
    if align(source) < align(region) { Err(Reason::CannotRedirect(reader)) } else { Ok(()) }
}

/// Lets a node read a copy's source wherever it reads what was copied.
fn redirect(node: &mut Node, copy: &PlainCopy) {
    let copied = |region: Region| region.overlaps(&copy.to);
    let moved = |offset: u64| offset.wrapping_sub(copy.distance());
    match &mut node.kind {
        NodeKind::Kernel(kernel) => {
            for arg in &mut kernel.args {
                match arg {
                    Arg::View(view, _) if copied(view.region()) => {
                        view.buffer = copy.from.buffer;
                        view.offset = moved(view.offset);
                    }
                    Arg::Region(region, _) if copied(*region) => {
                        region.buffer = copy.from.buffer;
                        region.offset = moved(region.offset);
                    }
                    _ => {}
                }
            }
        }
        NodeKind::Memcpy(memcpy) => {
            memcpy.src.target = phonograph_graph::Target::Buffer(copy.from.buffer);
            memcpy.src.offset = moved(memcpy.src.offset);
        }
        _ => {}
    }
}
