//! Cutting the pools of a schedule into buffers of wgpu's.
//!
//! A dispatch may not read one binding of a buffer and write another. Generated kernels get by with one binding for each
//! buffer; a kernel of the user's has one for each operand, so what it reads and what it writes must lie in different
//! buffers. A pool is cut where no internal buffer crosses, into as few buffers as greedy colouring finds: sections that one
//! user kernel reads and writes get different colours. Without such kernels a pool is one buffer; with them all parts
//! together may take as many times its bytes as there are colours. O(n log n + pairs of operands).

use phonograph_graph::{
    Arg, BufferId, BufferRole, ComputeGraph, KernelRef, NodeKind, Schedule, Space,
};

/// Where a part of a pool begins and ends, in bytes of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    pub start: u64,
    pub end: u64,
}

/// A pool in parts, each a buffer of wgpu's.
pub(super) struct Cut {
    pub parts: Vec<Part>,
    /// The part of each internal buffer of the graph that lies in the pool.
    pub part_of: Vec<Option<usize>>,
}

/// Cuts the pool of a space. Parts begin at multiples of `align`, so that offsets keep theirs.
pub(super) fn cut(graph: &ComputeGraph, schedule: &Schedule, space: Space, align: u64) -> Cut {
    let mut placed: Vec<(u64, u64, usize)> = Vec::new();
    for (index, declared) in graph.buffers().iter().enumerate() {
        let offset = schedule.memory.offset(BufferId::from_index(index));
        if let (BufferRole::Internal, Some(offset)) = (declared.role, offset)
            && declared.space == space
        {
            placed.push((offset, offset + declared.bytes, index));
        }
    }
    placed.sort_unstable();
    // Sections: buffers that overlap, also by way of others.
    let mut section_of = vec![None; graph.buffers().len()];
    let mut sections: Vec<Part> = Vec::new();
    for (start, end, index) in placed {
        match sections.last_mut() {
            Some(last) if start < last.end => last.end = last.end.max(end),
            _ => sections.push(Part { start, end }),
        }
        section_of[index] = Some(sections.len() - 1);
    }
    let mut apart = vec![Vec::new(); sections.len()];
    let own: Vec<Option<BufferId>> =
        (0..graph.buffers().len()).map(|index| Some(BufferId::from_index(index))).collect();
    conflicts(graph, &own, &mut |a, b| {
        if let (Some(a), Some(b)) = (section_of[a.index()], section_of[b.index()])
            && a != b
        {
            apart[a].push(b);
            apart[b].push(a);
        }
    });
    let mut colours: Vec<usize> = Vec::with_capacity(sections.len());
    let mut parts: Vec<Part> = Vec::new();
    for (at, section) in sections.iter().enumerate() {
        let taken: Vec<usize> = apart[at].iter().filter_map(|&b| colours.get(b).copied()).collect();
        let colour = (0..).find(|colour| !taken.contains(colour)).expect("colours do not run out");
        colours.push(colour);
        match parts.get_mut(colour) {
            Some(part) => part.end = section.end,
            None => {
                parts.push(Part { start: section.start - section.start % align, end: section.end })
            }
        }
    }
    let part_of = section_of.into_iter().map(|section| Some(colours[section?])).collect();
    Cut { parts, part_of }
}

/// Tells each pair of buffers of which a user kernel, at any depth, only reads one and writes the other. `seen_as` gives the
/// outermost graph's buffer for each of `graph`. Recursive over nesting, which graphs bound.
fn conflicts(
    graph: &ComputeGraph,
    seen_as: &[Option<BufferId>],
    tell: &mut impl FnMut(BufferId, BufferId),
) {
    for node in graph.nodes() {
        if let NodeKind::Kernel(kernel) = &node.kind
            && let KernelRef::Named(_) = kernel.kernel
        {
            let (mut read, mut written) = (Vec::new(), Vec::new());
            for (region, access) in kernel.args.iter().filter_map(operand) {
                if let Some(buffer) = seen_as[region.index()] {
                    if access { written.push(buffer) } else { read.push(buffer) }
                }
            }
            for &a in &read {
                written.iter().for_each(|&b| tell(a, b));
            }
        }
        for inner in node.kind.inner_graphs() {
            let seen: Vec<Option<BufferId>> = inner
                .buffers()
                .iter()
                .map(|declared| match declared.role {
                    BufferRole::Outer(outer) => seen_as[outer.index()],
                    _ => None,
                })
                .collect();
            conflicts(inner, &seen, tell);
        }
    }
}

/// The buffer of an argument, and whether it is written, as bindings have it.
fn operand(arg: &Arg) -> Option<(BufferId, bool)> {
    match arg {
        Arg::View(view, access) => Some((view.buffer, access.writes())),
        Arg::Region(region, access) => Some((region.buffer, access.writes())),
        Arg::Scalar(_) | Arg::Slot(_) => None,
    }
}
