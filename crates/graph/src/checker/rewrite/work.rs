//! Every node that is gone may be, and every node after does the work of those that it stands for, as far as that can be
//! told from one node alone. What fills and copies write is left to `values`, which knows it byte for byte.

use smallvec::SmallVec;

use crate::checker::rewrite::values::is_followed;
use crate::checker::rewrite::{Groups, RewriteViolation, Seen, is_outside};
use crate::{
    Access, Arg, ComputeGraph, Effects, KernelNode, KernelRef, LibraryKernel, MemsetNode, Node,
    NodeId, NodeKind, Operands, Region,
};

/// Whether some node touches memory that no node it stands for touched. Then races may be new.
pub(super) fn check(groups: &Groups, watched: bool, found: &mut Vec<RewriteViolation>) -> bool {
    for node in groups.dropped() {
        found.extend(missed(groups.before, node, watched));
    }
    let mut widened = false;
    for image in groups.after.node_ids() {
        let new = groups.after.node(image);
        match *groups.members(image) {
            [] if matches!(new.kind, NodeKind::Empty) => {}
            [] => found.push(RewriteViolation::Invented { node: image }),
            [node] => {
                let old = groups.before.node(node);
                if old.kind == new.kind {
                    continue;
                }
                if matches!(new.kind, NodeKind::Empty) {
                    found.extend(missed(groups.before, node, watched));
                } else if !same_work(&old.kind, &new.kind) {
                    found.push(RewriteViolation::Changed { node, image });
                } else {
                    widened |= wider(groups, image, watched, found);
                    overlap(groups, node, image, found);
                }
            }
            [first, ref rest @ ..] => {
                for &node in rest.iter().chain([&first]) {
                    if !may_merge(groups.before.node(node), new)
                        || groups.before.effects(node) == Effects::Unknown
                    {
                        let second = if node == first { rest[0] } else { node };
                        found.push(RewriteViolation::Merged { first, second, image });
                        break;
                    }
                }
                widened |= wider(groups, image, watched, found);
            }
        }
    }
    widened
}

/// Why a node must not be gone whatever it leaves in memory.
fn missed(graph: &ComputeGraph, node: NodeId, watched: bool) -> Option<RewriteViolation> {
    let missed = |why| Some(RewriteViolation::Missed { node, why });
    if let Some(why) = seen(graph.node(node)) {
        return missed(why);
    }
    if graph.effects(node) == Effects::Unknown {
        return missed(Seen::Unknown);
    }
    let operands = graph.operands(node);
    let mut written = operands.iter().filter(|(_, access)| access.writes());
    let outside = written.find(|(region, _)| watched && is_outside(graph, region.buffer));
    outside.and_then(|(region, _)| missed(Seen::Watched(region.buffer)))
}

/// What is seen of a node besides memory.
fn seen(node: &Node) -> Option<Seen> {
    match &node.kind {
        NodeKind::Host(_) => Some(Seen::Host),
        NodeKind::Alloc(_) | NodeKind::Free(_) => Some(Seen::Outside),
        NodeKind::EventRecord(_) | NodeKind::EventWait(_) => Some(Seen::Outside),
        NodeKind::Kernel(kernel) => match kernel.kernel {
            KernelRef::Library(LibraryKernel::Gather | LibraryKernel::ScatterAdd) => {
                Some(Seen::Fails)
            }
            _ => None,
        },
        // A loop may not end; a switch may have no body for a value.
        NodeKind::Conditional(_) => Some(Seen::Fails),
        NodeKind::Child(graph) => graph.nodes().iter().find_map(seen),
        NodeKind::Memcpy(_) | NodeKind::Memset(_) | NodeKind::Empty => None,
    }
}

/// Whether one node may be the other, on other memory.
fn same_work(old: &NodeKind, new: &NodeKind) -> bool {
    match (old, new) {
        (NodeKind::Kernel(old), NodeKind::Kernel(new)) => same_kernel(old, new),
        (NodeKind::Memcpy(old), NodeKind::Memcpy(new)) => {
            let (from, to) = ([old.src, old.dst], [new.src, new.dst]);
            let pitches = |(a, b): (crate::Pitched, crate::Pitched)| {
                a.pitch == b.pitch && a.slice_rows == b.slice_rows
            };
            old.dir == new.dir && old.extent == new.extent && from.into_iter().zip(to).all(pitches)
        }
        (NodeKind::Memset(old_fill), NodeKind::Memset(new_fill)) => {
            let pitched = |fill: &MemsetNode| {
                let (dst, extent) = (fill.dst, fill.extent);
                (dst.pitch, dst.slice_rows, extent, fill.value, fill.element_size)
            };
            is_followed(old) && is_followed(new) || pitched(old_fill) == pitched(new_fill)
        }
        (NodeKind::Child(_), NodeKind::Child(_)) => true,
        (NodeKind::Conditional(old), NodeKind::Conditional(new)) => {
            let same = old.kind == new.kind && old.condition == new.condition;
            same && old.bodies.len() == new.bodies.len()
        }
        // Everything else is told by itself alone.
        _ => false,
    }
}

fn same_kernel(old: &KernelNode, new: &KernelNode) -> bool {
    let same_arg = |(old, new): (&Arg, &Arg)| match (old, new) {
        (Arg::View(old, how), Arg::View(new, so)) => {
            how == so
                && old.dtype == new.dtype
                && old.shape() == new.shape()
                && old.strides() == new.strides()
        }
        (Arg::Region(old, how), Arg::Region(new, so)) => how == so && old.bytes == new.bytes,
        (old, new) => old == new,
    };
    old.kernel == new.kernel
        && old.config == new.config
        && old.fusible == new.fusible
        && old.args.len() == new.args.len()
        && old.args.iter().zip(&new.args).all(same_arg)
}

fn may_merge(old: &Node, new: &Node) -> bool {
    match (&old.kind, &new.kind) {
        (NodeKind::Kernel(old), NodeKind::Kernel(_)) => old.fusible,
        (NodeKind::Memcpy(one), NodeKind::Memcpy(all)) => {
            one.dir == all.dir && is_followed(&old.kind) && is_followed(&new.kind)
        }
        (NodeKind::Memset(_), NodeKind::Memset(_)) => {
            is_followed(&old.kind) && is_followed(&new.kind)
        }
        (NodeKind::Empty, _) => true,
        _ => false,
    }
}

/// Whether a node touches bytes, or writes them, that none of those it stands for did.
fn wider(groups: &Groups, image: NodeId, watched: bool, found: &mut Vec<RewriteViolation>) -> bool {
    let old: Operands =
        groups.members(image).iter().flat_map(|&node| groups.before.operands(node)).collect();
    let mut wider = false;
    for (region, access) in groups.after.operands(image) {
        let reads = !access.reads() || covered(&old, region, Access::reads);
        let writes = !access.writes() || covered(&old, region, Access::writes);
        // Whoever wrote bytes may as well read them: those that conflict with it are the same.
        let reads = reads || covered(&old, region, Access::writes);
        if reads && writes {
            continue;
        }
        wider = true;
        if watched && is_outside(groups.after, region.buffer) {
            found.push(RewriteViolation::Exposed { node: image, buffer: region.buffer });
        }
    }
    wider
}

/// Whether every byte of a region lies in an operand with such an access.
fn covered(operands: &Operands, region: Region, access: impl Fn(Access) -> bool) -> bool {
    let mut parts: SmallVec<[(u64, u64); 8]> = operands
        .iter()
        .filter(|(operand, how)| operand.buffer == region.buffer && access(*how))
        .map(|(operand, _)| (operand.offset, operand.end()))
        .collect();
    parts.sort_unstable();
    let mut reached = region.offset;
    for (start, end) in parts {
        if start > reached {
            break;
        }
        reached = reached.max(end);
    }
    reached >= region.end()
}

/// A node that reads and writes the same bytes now and did not before computes something else, unless its kernel is known to
/// read each element before it writes it.
fn overlap(groups: &Groups, node: NodeId, image: NodeId, found: &mut Vec<RewriteViolation>) {
    let (old, new) = (groups.before.operands(node), groups.after.operands(image));
    if groups.after.node(image).kind.has_inner_graphs() {
        return; // its nodes are looked at one by one
    }
    let clash = |operands: &Operands, i: usize, j: usize| {
        let ((a, how), (b, so)) = (operands[i], operands[j]);
        i != j && (how.writes() || so.writes()) && a.overlaps(&b)
    };
    for i in 0..new.len() {
        for j in 0..i {
            // The same work has the same operands in the same order; a copy or fill may have others.
            let before = old.len() == new.len() && clash(&old, i, j);
            if clash(&new, i, j) && !before && !in_place(groups.after.node(image), i, j) {
                let buffer = new[i].0.buffer;
                found.push(RewriteViolation::Overlap { node: image, was: node, buffer });
                return;
            }
        }
    }
}

/// Whether two operands are one view that elementwise work reads and writes. (That the same part of a fused kernel does
/// both, building has made sure of.)
fn in_place(node: &Node, i: usize, j: usize) -> bool {
    let Some(kernel) = node.kernel() else { return false };
    let mut operands = kernel.args.iter().filter(|arg| arg.effect().is_some());
    let (first, second) = (i.min(j), i.max(j));
    let (a, b) = (operands.nth(first), operands.nth(second - first - 1));
    let (Some(Arg::View(a, how)), Some(Arg::View(b, so))) = (a, b) else { return false };
    let elementwise = matches!(kernel.kernel, KernelRef::Elementwise(_) | KernelRef::Fused(_));
    elementwise && a == b && !(how.writes() && so.writes())
}
