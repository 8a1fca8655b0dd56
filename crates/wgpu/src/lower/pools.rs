//! Cutting the pools of a schedule into buffers of wgpu's.
//!
//! A dispatch may not read one binding of a buffer and write another. Generated kernels get by with one binding for each
//! buffer; a kernel of the user's has one for each operand, so what it reads and what it writes must lie in different
//! buffers. A pool is cut where no internal buffer crosses, into as few buffers as greedy colouring finds: sections that one
//! user kernel reads and writes get different colours, and a buffer ends where the device's longest would. Without such
//! kernels a pool that fits is one buffer; with them all parts together may take as many times its bytes as there are
//! colours. O(n log n + pairs of operands).

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

impl Cut {
    /// The largest of the internal buffers in a part.
    pub fn largest(&self, graph: &ComputeGraph, part: usize) -> Option<BufferId> {
        let here = self.part_of.iter().enumerate().filter(|(_, of)| **of == Some(part));
        here.map(|(index, _)| BufferId::from_index(index)).max_by_key(|&id| graph.buffer(id).bytes)
    }
}

/// Cuts the pool of a space. Parts begin at multiples of `align`, so that offsets keep theirs, and have at most `longest`
/// bytes, unless buffers that share bytes have more together.
pub(super) fn cut(
    graph: &ComputeGraph,
    schedule: &Schedule,
    space: Space,
    align: u64,
    longest: u64,
) -> Cut {
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
    // The part of each section, and of each colour the last.
    let (mut parts, mut chosen, mut last): (Vec<Part>, Vec<usize>, Vec<usize>) = Default::default();
    for (at, section) in sections.iter().enumerate() {
        let taken: Vec<usize> = apart[at].iter().filter_map(|&b| colours.get(b).copied()).collect();
        let colour = (0..).find(|colour| !taken.contains(colour)).expect("colours do not run out");
        colours.push(colour);
        let open = last.get(colour).copied();
        let fits = open.filter(|&part: &usize| section.end - parts[part].start <= longest);
        chosen.push(fits.unwrap_or(parts.len()));
        match fits {
            Some(part) => parts[part].end = section.end,
            None => {
                match last.get_mut(colour) {
                    Some(last) => *last = parts.len(),
                    // Colours are taken in order, so it is the next.
                    None => last.push(parts.len()),
                }
                let start = section.start - section.start % align;
                parts.push(Part { start, end: section.end });
            }
        }
    }
    let part_of = section_of.into_iter().map(|section| Some(chosen[section?])).collect();
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

#[cfg(test)]
mod tests {
    use phonograph_graph::{DType, Expr, GraphBuilder, View};

    use super::*;

    /// Scratch buffers of these sizes, all alive at once.
    fn alive(sizes: &[u64]) -> (ComputeGraph, Schedule) {
        let mut b = GraphBuilder::new();
        let one = |buffer| View::contiguous(buffer, DType::U8, &[1]).unwrap();
        let buffers: Vec<_> = (sizes.iter().enumerate())
            .map(|(at, &bytes)| b.alloc_buffer(&format!("t{at}"), bytes as usize))
            .collect();
        let start = Expr::build(|e| e.output_as(e.constant(1u32), DType::U8)).unwrap();
        let start = std::sync::Arc::new(start);
        for &buffer in &buffers {
            b.add_elementwise("start", start.clone(), &[], &[], &[one(buffer)]);
        }
        let next = Expr::build(|e| e.output_as(e.input(DType::U8), DType::U8)).unwrap();
        let next = std::sync::Arc::new(next);
        for &buffer in &buffers {
            b.add_elementwise("use", next.clone(), &[one(buffer)], &[], &[one(buffer)]);
        }
        let graph = b.build().unwrap();
        let schedule = Schedule::sequential(&graph);
        (graph, schedule)
    }

    #[test]
    fn a_pool_is_cut_where_the_longest_buffer_ends() {
        for (sizes, longest, expected) in [
            (&[1000, 1000, 1000][..], 4096, 1),
            (&[1000, 1000, 1000], 2048, 2),
            (&[1000, 1000, 1000], 1024, 3),
            (&[256, 5000, 256], 1024, 3), // the one that is too long alone is refused as it is
            (&[], 1024, 0),
        ] {
            let (graph, schedule) = alive(sizes);
            let space = Space::Device(0);
            let Cut { parts, part_of } = cut(&graph, &schedule, space, 256, longest);
            assert_eq!(parts.len(), expected, "{sizes:?} in parts of {longest}: {parts:?}");
            for (index, part) in part_of.iter().enumerate() {
                let (part, buffer) = (&parts[part.unwrap()], BufferId::from_index(index));
                let start = schedule.memory.offset(buffer).unwrap();
                let end = start + graph.buffer(buffer).bytes;
                assert!(part.start.is_multiple_of(256), "{part:?}");
                assert!(part.start <= start && end <= part.end, "{buffer} is not in {part:?}");
                let alone = graph.buffer(buffer).bytes > longest;
                assert!(part.end - part.start <= longest || alone, "{part:?}");
            }
        }
    }
}
