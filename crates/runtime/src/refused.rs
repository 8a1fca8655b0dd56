//! What every backend refuses, whatever a graph's nodes are: schedules that are not right, conflicting accesses without an order,
//! memory and values that do not fit what they are for, at first and between replays.
//!
//! In: a graph as data, its schedule, and where the memory lies that is to be bound to its buffers. Nothing is known of the
//! device. O(nodes + edges + bindings log bindings), and what the checker takes.

use std::fmt;

use phonograph_graph::{
    Buffer, BufferId, BufferRole, ComputeGraph, DType, NodeId, NodeKind, Race, Scalar, Schedule,
    SlotId, Violation, check, races,
};
use rustc_hash::FxHashMap;
use thiserror::Error;

/// The way to a node: the node of the outermost graph, then nodes of inner graphs, each with its name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodePath(pub Vec<(NodeId, String)>);

impl fmt::Display for NodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, (id, name)) in self.0.iter().enumerate() {
            let arrow = if depth > 0 { " → " } else { "" };
            write!(f, "{arrow}{id} ({name})")?;
        }
        Ok(())
    }
}

/// Why no backend makes a graph executable as it is given.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Refused {
    /// The schedule is not right for the graph.
    #[error("the schedule is not right: {}{}", .0[0], more(.0.len()))]
    Schedule(Vec<Violation>),
    /// The graph does not order conflicting accesses.
    #[error("the graph has a race{}: {}{}", within(.inside), .races[0], more(.races.len()))]
    Race {
        /// The node whose inner graph has them; empty for the outermost.
        inside: NodePath,
        /// The races.
        races: Vec<Race>,
    },
    /// A binding that does not fit.
    #[error("the memory bound to {buffer} {problem}")]
    Binding {
        /// The buffer.
        buffer: BufferId,
        /// What is wrong.
        problem: String,
    },
}

fn more(count: usize) -> String {
    if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() }
}

fn within(path: &NodePath) -> String {
    if path.0.is_empty() { String::new() } else { format!(" inside {path}") }
}

/// That the schedule is right and conflicting accesses are ordered.
///
/// # Errors
/// [`Refused::Schedule`], [`Refused::Race`].
pub fn check_graph(graph: &ComputeGraph, schedule: &Schedule) -> Result<(), Refused> {
    let violations = check(graph, schedule);
    if !violations.is_empty() {
        return Err(Refused::Schedule(violations));
    }
    check_races(graph)
}

/// That conflicting accesses are ordered at every depth: without an order a device would race, or a schedule put them either
/// way.
///
/// # Errors
/// [`Refused::Race`] with the first races, from the outside in and in the order of nodes.
///
/// ```
/// use phonograph_graph::{GraphBuilder, NodeKind};
/// use phonograph_runtime::refused::{Refused, check_races};
///
/// let mut body = GraphBuilder::new().with_auto_infer_edges(false);
/// let x = body.alloc_buffer("x", 64);
/// body.add_kernel("write", 1, 1, 0).outputs([x]).finish();
/// body.add_kernel("read", 1, 1, 0).inputs([x]).finish();
/// let mut b = GraphBuilder::new();
/// b.add("inner", NodeKind::Child(Box::new(body.build()?)));
///
/// let refused = check_races(&b.build()?).unwrap_err();
/// let Refused::Race { inside, races } = refused else { panic!("no edge is between them") };
/// assert_eq!((inside.to_string().as_str(), races.len()), ("n0 (inner)", 1));
/// # Ok::<(), phonograph_graph::GraphError>(())
/// ```
pub fn check_races(graph: &ComputeGraph) -> Result<(), Refused> {
    let mut rest = vec![(NodePath::default(), graph)];
    while let Some((inside, graph)) = rest.pop() {
        let races = races(graph);
        if !races.is_empty() {
            return Err(Refused::Race { inside, races });
        }
        let first = rest.len();
        for id in graph.node_ids() {
            let node = graph.node(id);
            for inner in node.kind.inner_graphs() {
                let mut path = inside.clone();
                path.0.push((id, node.name.to_string()));
                rest.push((path, inner));
            }
        }
        rest[first..].reverse();
    }
    Ok(())
}

/// Where memory lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// What `start` counts in: memory of two spaces has no byte in common.
    pub space: usize,
    /// Its first byte: an address, or a place in an allocation, which is then aligned to whatever a buffer may ask for.
    pub start: u64,
    /// How many there are.
    pub bytes: u64,
}

impl Span {
    /// Memory of no bytes counts as one.
    fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes.max(1))
    }

    /// Whether there is a byte in both.
    pub fn overlaps(self, other: Span) -> bool {
        self.space == other.space && self.start < other.end() && other.start < self.end()
    }
}

/// That memory fits the external buffers and pointer slots that it is bound to: which is bound to which. `unsuited` says what
/// speaks against a memory for a buffer besides.
///
/// # Errors
/// [`Refused::Binding`].
pub fn check_bindings<'m, M>(
    graph: &ComputeGraph,
    bound: &[(BufferId, &'m M)],
    span: impl Fn(&M) -> Span,
    unsuited: impl Fn(&Buffer, &M) -> Option<String>,
) -> Result<FxHashMap<BufferId, &'m M>, Refused> {
    let wrong = |buffer, problem: String| Err(Refused::Binding { buffer, problem });
    let mut given = FxHashMap::default();
    for &(buffer, memory) in bound {
        let Some(declared) = graph.buffers().get(buffer.index()) else {
            return wrong(buffer, "is for a buffer that the graph does not have".into());
        };
        let name = &declared.name;
        if !matches!(declared.role, BufferRole::External | BufferRole::Slot(_)) {
            return wrong(buffer, format!("is for {name}, which is internal"));
        }
        if let Some(problem) = unsuited(declared, memory) {
            return wrong(buffer, problem);
        }
        let Span { start, bytes, .. } = span(memory);
        if bytes < declared.bytes {
            return wrong(buffer, format!("has {bytes} bytes; {name} needs {}", declared.bytes));
        }
        if !start.is_multiple_of(declared.align) {
            return wrong(buffer, format!("is not aligned to {} bytes", declared.align));
        }
        given.insert(buffer, memory);
    }
    let spans: Vec<Span> = bound.iter().map(|(_, memory)| span(memory)).collect();
    if let Some((at, earlier)) = first_overlap(&spans) {
        let [buffer, other] = [at, earlier].map(|at| bound[at].0);
        return wrong(buffer, format!("is bound to {other} as well; operands must not overlap"));
    }
    Ok(given)
}

/// Why a slot could not be set or a node not be disabled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SetError {
    /// No such slot.
    #[error("the graph has no {0}")]
    UnknownSlot(SlotId),
    /// A value of another type.
    #[error("{slot} is of type {expected}, not {given}")]
    Type {
        /// The slot.
        slot: SlotId,
        /// Its type.
        expected: DType,
        /// The value's.
        given: DType,
    },
    /// Not a pointer slot.
    #[error("{0} is no pointer slot of this graph")]
    NotASlot(BufferId),
    /// Memory of another device.
    #[error("the memory belongs to another device")]
    OtherDevice,
    /// Memory that is too small.
    #[error("pointer slot {buffer} needs {needed} bytes, the memory has {given}")]
    TooSmall {
        /// The slot.
        buffer: BufferId,
        /// Bytes needed.
        needed: u64,
        /// Bytes given.
        given: u64,
    },
    /// Memory that starts where the slot's may not.
    #[error("pointer slot {buffer} is aligned to {align} bytes, the memory is not")]
    Misaligned {
        /// The slot.
        buffer: BufferId,
        /// What it needs.
        align: u64,
    },
    /// Memory that another operand uses.
    #[error("the memory for {buffer} is already bound to {other}; operands must not overlap")]
    Overlap {
        /// The slot.
        buffer: BufferId,
        /// Who has it.
        other: BufferId,
    },
    /// A node that the graph does not have.
    #[error("the graph has no node {0}")]
    UnknownNode(NodeId),
    /// A node of a kind that cannot be disabled.
    #[error("{0} cannot be disabled; only kernels, copies and fills can")]
    NotDisableable(NodeId),
}

/// Whether a node can be disabled between replays: kernels, copies and fills, as with a driver's graphs.
pub fn can_be_disabled(kind: &NodeKind) -> bool {
    matches!(kind, NodeKind::Kernel(_) | NodeKind::Memcpy(_) | NodeKind::Memset(_))
}

/// That a scalar slot, which has a value of its type, can have another.
///
/// # Errors
/// [`SetError::Type`].
pub fn check_value(slot: SlotId, known: Scalar, value: Scalar) -> Result<(), SetError> {
    let (expected, given) = (known.dtype(), value.dtype());
    if expected == given { Ok(()) } else { Err(SetError::Type { slot, expected, given }) }
}

/// What a pointer slot asks of the memory that is bound to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotExtent {
    /// The slot.
    pub buffer: BufferId,
    /// How many bytes.
    pub bytes: u64,
    /// What the first is a multiple of.
    pub align: u64,
}

impl SlotExtent {
    /// That memory can be bound to it between replays, when other buffers have theirs. O(others).
    ///
    /// # Errors
    /// [`SetError::Overlap`] names the first of them by id; [`SetError::TooSmall`], [`SetError::Misaligned`].
    pub fn check(
        self,
        memory: Span,
        others: impl Iterator<Item = (BufferId, Span)>,
    ) -> Result<(), SetError> {
        let Self { buffer, bytes: needed, align } = self;
        let others = others.filter(|&(id, span)| id != buffer && span.overlaps(memory));
        if let Some(other) = others.map(|(id, _)| id).min() {
            return Err(SetError::Overlap { buffer, other });
        }
        if memory.bytes < needed {
            return Err(SetError::TooSmall { buffer, needed, given: memory.bytes });
        }
        if !memory.start.is_multiple_of(align) {
            return Err(SetError::Misaligned { buffer, align });
        }
        Ok(())
    }
}

/// Two spans that overlap, the later one first. O(n log n).
fn first_overlap(spans: &[Span]) -> Option<(usize, usize)> {
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by_key(|&at| (spans[at].space, spans[at].start, at));
    // What overlaps anything overlaps the one before it whose end lies furthest.
    let mut furthest: Option<usize> = None;
    let mut clash = None;
    for at in order {
        let same = furthest.filter(|&other| spans[other].space == spans[at].space);
        if let Some(other) = same.filter(|&other| spans[at].start < spans[other].end()) {
            let pair = (at.max(other), at.min(other));
            clash = Some(clash.map_or(pair, |known: (usize, usize)| known.min(pair)));
        }
        if same.is_none_or(|other| spans[at].end() > spans[other].end()) {
            furthest = Some(at);
        }
    }
    clash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_those_that_every_pair_shows() {
        arbtest::arbtest(|u| {
            let count = u.int_in_range(0..=8)?;
            let mut span = || {
                let space = u.int_in_range(0..=1)?;
                let (start, bytes) = (u.int_in_range(0..=20)?, u.int_in_range(0..=6)?);
                Ok(Span { space, start, bytes })
            };
            let spans = (0..count).map(|_| span()).collect::<Result<Vec<_>, _>>()?;
            let all = (0..count).flat_map(|at| (0..at).map(move |earlier| (at, earlier)));
            let expected = all.filter(|&(at, earlier)| spans[at].overlaps(spans[earlier])).min();
            let found = first_overlap(&spans);
            assert_eq!(found.is_some(), expected.is_some(), "{spans:?}");
            if let Some((at, earlier)) = found {
                assert!(earlier < at && spans[at].overlaps(spans[earlier]), "{spans:?}: {found:?}");
            }
            Ok(())
        })
        .budget_ms(200);
    }

    #[test]
    fn memory_that_does_not_fit_a_pointer_slot_is_refused() {
        let (buffer, other) = (BufferId(0), BufferId(1));
        let slot = SlotExtent { buffer, bytes: 64, align: 16 };
        let given = |start, bytes| Span { space: 0, start, bytes };
        let others =
            [(BufferId(2), given(200, 1)), (other, given(160, 41)), (buffer, given(0, 64))];
        for (memory, expected) in [
            (given(0, 64), Ok(())),
            (given(96, 64), Ok(())),
            (Span { space: 1, ..given(160, 64) }, Ok(())),
            (given(160, 64), Err(SetError::Overlap { buffer, other })),
            (given(0, 63), Err(SetError::TooSmall { buffer, needed: 64, given: 63 })),
            (given(8, 64), Err(SetError::Misaligned { buffer, align: 16 })),
        ] {
            assert_eq!(slot.check(memory, others.into_iter()), expected, "{memory:?}");
        }
    }
}
