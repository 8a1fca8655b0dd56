//! The same elements in another order: a kernel is seen as one over its reader's index space, so that both can become one.
//!
//! In: a graph. Out: kernels over other shapes, for fusion to look at; nothing is run as it stands there. An elementwise
//! kernel does not care in which order it goes through its elements. If all readers of its result see it through one other
//! view that names each element once as well (transposed, reshaped, with other axes of one element), the kernel can go
//! through its elements as they do: each axis of theirs is made of whole parts of its own axes, and every operand is
//! seen along these parts, if that takes one stride an axis. Readers come first, so a chain follows its end.
//!
//! Where readers repeat elements the kernel would compute them several times: [`Repeats`] says whether it may. Such a kernel can
//! only be part of one that does not store its result. O(nodes + operands).

use phonograph_graph::{Arg, ComputeGraph, Expr, KernelNode, KernelRef, NodeId, Op, Scalar, View};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::Uses;
use super::group::{expression, views};
use super::repeat::Repeats;
use crate::passes::Reason;

/// Readers of a result that are asked how they see it, at most.
const MOST_READERS: usize = 8;

/// The kernels of a graph, some of them as their readers see them.
pub(super) struct Seen<'a> {
    pub graph: &'a ComputeGraph,
    other: FxHashMap<NodeId, KernelNode>,
    /// Those among them that go through elements several times, readers first.
    pub repeating: Vec<NodeId>,
    /// Those that would have been among them but for this reason.
    pub refused: Vec<(NodeId, Reason)>,
}

impl<'a> Seen<'a> {
    /// Every kernel as it is.
    pub fn as_is(graph: &'a ComputeGraph) -> Self {
        Self { graph, other: FxHashMap::default(), repeating: Vec::new(), refused: Vec::new() }
    }

    /// Kernels as their readers see them.
    pub fn as_read(graph: &'a ComputeGraph, uses: &Uses, repeats: &Repeats) -> Self {
        let mut seen = Self::as_is(graph);
        for &node in graph.topological_order().iter().rev() {
            let Some((kernel, expr)) = seen.elementwise(node) else { continue };
            let results = views(kernel).filter(|(_, stored)| *stored).map(|(view, _)| view);
            let wanted = results.into_iter().find_map(|result| {
                let view = seen.wanted(uses, node, &result)?;
                Some((result, view))
            });
            let Some((result, view)) = wanted else { continue };
            let repeated = view.elements() > result.elements();
            if repeated && let Err(why) = repeats.judge(node, &result, &view) {
                seen.refused.extend(why.map(|why| (node, why)));
            } else if let Some(changed) = along(kernel, expr, &result, &view) {
                seen.repeating.extend(repeated.then_some(node));
                seen.other.insert(node, changed);
            }
        }
        seen
    }

    /// Whether every kernel is as it is.
    pub fn is_as_is(&self) -> bool {
        self.other.is_empty()
    }

    /// A kernel that planners may merge.
    pub fn kernel(&self, node: NodeId) -> Option<&KernelNode> {
        let own = self.graph.node(node).kernel().filter(|kernel| kernel.fusible)?;
        Some(self.other.get(&node).unwrap_or(own))
    }

    /// The expression of an elementwise node that planners may merge.
    pub fn elementwise(&self, node: NodeId) -> Option<(&KernelNode, &Expr)> {
        expression(self.kernel(node)?)
    }

    /// The one view through which all readers of a result see it, if it is not the one through which it is written. Only
    /// elementwise readers may repeat it.
    fn wanted(&self, uses: &Uses, writer: NodeId, result: &View) -> Option<View> {
        let mut wanted = None;
        let mut readers = 0;
        let mut elementwise = true;
        for reader in uses.after(writer, result) {
            readers += 1;
            if readers > MOST_READERS {
                return None;
            }
            elementwise &= self.elementwise(reader).is_some();
            for (view, _) in views(self.kernel(reader)?).filter(|(v, _)| v.buffer == result.buffer)
            {
                if *wanted.get_or_insert(view) != view {
                    return None;
                }
            }
        }
        wanted.filter(|view| {
            let there = view.dtype == result.dtype && view.offset == result.offset;
            let (once, often) = (result.elements(), view.elements());
            let whole = once == often || 0 < once && once < often && elementwise;
            there && view != result && whole
        })
    }
}

/// A part of an axis: every `step`-th element of it, `len` of them.
#[derive(Clone, Copy)]
struct Part {
    axis: usize,
    step: u64,
    len: u64,
}

/// For each axis of `to` the parts of the axes of `from` that it runs through, the fastest first; none along an axis that
/// repeats elements. `None` if an axis is made of no such parts, or an element would not be named as often as any other.
fn parts(from: &View, to: &View) -> Option<Vec<SmallVec<[Part; 2]>>> {
    let (shape, strides) = (from.shape(), from.strides());
    let extents = shape.extents();
    let axis_at = |stride: u64| {
        (0..extents.len()).find(|&axis| {
            let (extent, own) = (extents[axis], strides[axis]);
            extent > 1 && own <= stride && stride < own * extent && stride.is_multiple_of(own)
        })
    };
    let mut all: Vec<SmallVec<[Part; 2]>> = Vec::new();
    for (&extent, &stride) in to.shape().extents().iter().zip(to.strides()) {
        let mut list = SmallVec::new();
        let (mut rest, mut stride) = (if stride == 0 { 1 } else { extent }, stride);
        while rest > 1 {
            let axis = axis_at(stride)?;
            let step = stride / strides[axis];
            if !extents[axis].is_multiple_of(step) {
                return None;
            }
            let len = rest.min(extents[axis] / step);
            if !rest.is_multiple_of(len) || !(extents[axis] / step).is_multiple_of(len) {
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
                strides.push(unused); // one element, or one repeated: as the reader has it
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
