//! The same elements in another order: a kernel is seen as one over its reader's index space, so that both can become one.
//!
//! In: a graph. Out: the graph with kernels over other shapes, for fusion to look at; nothing is run as it stands there. An elementwise
//! kernel does not care in which order it goes through its elements. If all readers of its result see it through one other
//! view that names each element once as well (transposed, reshaped, with other axes of one element), the kernel can go
//! through its elements as they do: each axis of theirs is made of whole parts of its own axes, and every operand is
//! seen along these parts, if that takes one stride an axis. Readers come first, so a chain follows its end.
//!
//! Not where a reader repeats elements: computing them again costs more than storing them. O(nodes + operands).

use phonograph_graph::{
    Arg, ComputeGraph, Expr, KernelNode, KernelRef, Node, NodeId, NodeKind, Op, Rebuild, Scalar,
    View,
};
use smallvec::SmallVec;

use super::Uses;
use super::group::views;

/// Readers of a result that are asked how they see it, at most.
const MOST_READERS: usize = 8;

/// The graph as readers see it; `None` if no kernel goes another way for them.
pub(super) fn renumbered(graph: &ComputeGraph, uses: &Uses) -> Option<ComputeGraph> {
    let mut other: Vec<Option<KernelNode>> = Vec::new();
    for &node in graph.topological_order().iter().rev() {
        let Some(kernel) = graph.node(node).kernel().filter(|kernel| kernel.fusible) else {
            continue;
        };
        let KernelRef::Elementwise(expr) = &kernel.kernel else { continue };
        let seen = |node: NodeId| -> Option<&KernelNode> {
            let own = graph.node(node).kernel().filter(|kernel| kernel.fusible)?;
            Some(other.get(node.index()).and_then(Option::as_ref).unwrap_or(own))
        };
        let results = views(kernel).filter(|(_, stored)| *stored).map(|(view, _)| view);
        let wanted = results.into_iter().find_map(|result| {
            let view = as_read(uses, node, result, &seen)?;
            Some((result, view))
        });
        let changed = wanted.and_then(|(result, view)| along(kernel, expr, &result, &view));
        if let Some(changed) = changed {
            other.resize(graph.node_count(), None);
            other[node.index()] = Some(changed);
        }
    }
    if other.is_empty() {
        return None;
    }
    let mut rebuild = Rebuild::new(graph);
    for (node, kernel) in graph.node_ids().zip(other) {
        if let Some(kernel) = kernel {
            let Node { name, stream, .. } = graph.node(node).clone();
            rebuild.replace(node, Node { name, kind: NodeKind::Kernel(kernel), stream });
        }
    }
    // Each kernel has its old operands, whole and in bounds.
    rebuild.build().ok().map(|(graph, _)| graph)
}

/// The one view through which all readers of a result see it, if it is not the one through which it is written.
fn as_read<'a>(
    uses: &Uses,
    writer: NodeId,
    result: View,
    seen: &impl Fn(NodeId) -> Option<&'a KernelNode>,
) -> Option<View> {
    let mut wanted = None;
    let mut readers = 0;
    for reader in uses.after(writer, &result) {
        readers += 1;
        if readers > MOST_READERS {
            return None;
        }
        for (view, _) in views(seen(reader)?).filter(|(view, _)| view.buffer == result.buffer) {
            if *wanted.get_or_insert(view) != view {
                return None;
            }
        }
    }
    let alike = |view: &View| {
        view.dtype == result.dtype
            && view.offset == result.offset
            && view.elements() == result.elements()
            && *view != result
    };
    wanted.filter(alike)
}

/// A part of an axis: every `step`-th element of it, `len` of them.
#[derive(Clone, Copy)]
struct Part {
    axis: usize,
    step: u64,
    len: u64,
}

/// For each axis of `to` the parts of the axes of `from` that it runs through, the fastest first. `None` if it is made of none, or
/// some element would be named twice or not at all.
fn parts(from: &View, to: &View) -> Option<Vec<SmallVec<[Part; 2]>>> {
    let (shape, strides) = (from.shape(), from.strides());
    let extents = shape.extents();
    let axis_at = |stride: u64| {
        (0..extents.len()).find(|&axis| {
            let (extent, own) = (extents[axis], strides[axis]);
            extent > 1 && own <= stride && stride < own * extent && stride % own == 0
        })
    };
    let mut all: Vec<SmallVec<[Part; 2]>> = Vec::new();
    for (&extent, &stride) in to.shape().extents().iter().zip(to.strides()) {
        let mut list = SmallVec::new();
        let (mut rest, mut stride) = (extent, stride);
        while rest > 1 {
            let axis = axis_at(stride).filter(|_| stride > 0)?;
            let step = stride / strides[axis];
            if extents[axis] % step != 0 {
                return None;
            }
            let len = rest.min(extents[axis] / step);
            if rest % len != 0 || extents[axis] / step % len != 0 {
                return None;
            }
            list.push(Part { axis, step, len });
            rest /= len;
            stride *= len;
        }
        all.push(list);
    }
    // The parts of each axis make it up, each once.
    let whole = (0..extents.len()).all(|axis| {
        let mut own: SmallVec<[Part; 4]> =
            all.iter().flatten().copied().filter(|part| part.axis == axis).collect();
        own.sort_unstable_by_key(|part| part.step);
        let reached = own.iter().try_fold(1, |at, part| (part.step == at).then_some(at * part.len));
        reached == Some(extents[axis])
    });
    whole.then_some(all)
}

/// The kernel that goes through its elements as a reader sees its result; `None` where an operand cannot follow.
fn along(kernel: &KernelNode, expr: &Expr, result: &View, read: &View) -> Option<KernelNode> {
    let parts = parts(result, read)?;
    let shape = read.shape();
    let follow = |view: &View| {
        let mut strides: SmallVec<[u64; 6]> = SmallVec::new();
        for (parts, &unused) in parts.iter().zip(read.strides()) {
            let stride = |part: &Part| part.step * view.strides()[part.axis];
            let Some(first) = parts.first() else {
                strides.push(unused); // one element: as the reader has it
                continue;
            };
            let even =
                parts.windows(2).all(|pair| stride(&pair[1]) == stride(&pair[0]) * pair[0].len);
            strides.push(Some(stride(first)).filter(|_| even)?);
        }
        View::strided(view.buffer, view.dtype, view.offset, shape.extents(), &strides).ok()
    };
    let args = kernel.args.iter().map(|arg| match arg {
        Arg::View(view, access) => Some(Arg::View(follow(view)?, *access)),
        other => Some(*other),
    });
    let args = args.collect::<Option<_>>()?;
    let from = result.shape();
    let ops = expr.ops().iter().map(|op| {
        let Op::Index(axis) = *op else { return Some(*op) };
        let extent = from.extents()[axis as usize];
        if extent == 1 {
            return Some(Op::Const(Scalar::U32(0)));
        }
        let is_it = |parts: &SmallVec<[Part; 2]>| match parts[..] {
            [Part { axis: own, step: 1, len }] => own == axis as usize && len == extent,
            _ => false,
        };
        let axis = parts.iter().position(is_it)?;
        Some(Op::Index(axis as u8))
    });
    let ops = ops.collect::<Option<_>>()?;
    let (inputs, params) = (expr.inputs().to_vec(), expr.params().to_vec());
    let expr = Expr::new(inputs, params, ops, expr.outputs().to_vec()).ok()?;
    let kernel_ref = KernelRef::Elementwise(expr.into());
    Some(KernelNode { kernel: kernel_ref, args, ..kernel.clone() })
}
