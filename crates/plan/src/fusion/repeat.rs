//! Which kernels are computed anew for every element of a reader that sees their result repeated, so that both become one.
//!
//! In: a graph. Out: for each kernel whether it may go through the elements of its reader, and with that through each of
//! its own several times. A row that is added to every row of a matrix, or a number that all elements are
//! multiplied by, is computed once for many elements. To compute it for each of them saves a kernel and a tensor in
//! memory, and costs operations. The rule:
//!
//! - The result is scratch that elementwise kernels alone read, all through one view; they end up in one kernel, so that nobody
//!   needs it in memory.
//! - With the kernel goes all that is computed for it alone. Where something that it reads could become one with it and
//!   cannot come along (a reduction, a matrix product, something that others read as well), it stays there.
//! - In all that is at most [`FusionOptions::repeated_ops`] operations more than were done once. Loads count as operations, functions as
//!   sixteen. What all elements share, a single one, may cost up to [`MOST_OF_ONE`] operations whoever reads it: backends compute
//!   what is the same for all elements once for many.
//!
//! O(nodes + edges + operands).
//!
//! [`FusionOptions::repeated_ops`]: super::FusionOptions::repeated_ops

use std::cell::OnceCell;

use phonograph_graph::{
    BinaryOp, ComputeGraph, Expr, KernelNode, KernelRef, NodeId, Op, UnaryOp, ValueId, View,
};
use rustc_hash::FxHashSet;

use super::Uses;
use super::group::{expression, views};
use crate::passes::Reason;

/// Operations that may be done anew for each element to compute what they all share.
const MOST_OF_ONE: u32 = 32;

/// What may be computed anew.
pub(super) struct Repeats<'a> {
    graph: &'a ComputeGraph,
    uses: &'a Uses,
    most: u64,
    /// Nodes that have turned out to have to store their result.
    stored: &'a FxHashSet<NodeId>,
    /// By node, the operations that one element of its result takes, with all that is computed for it alone; `None` where it
    /// has to stay what it is. Most graphs never ask.
    ops: OnceCell<Vec<Option<u32>>>,
}

impl<'a> Repeats<'a> {
    /// At most `most` operations more for a kernel, none for the `stored` ones; nothing at all where that is 0.
    pub fn new(
        graph: &'a ComputeGraph,
        uses: &'a Uses,
        most: u64,
        stored: &'a FxHashSet<NodeId>,
    ) -> Self {
        Self { graph, uses, most, stored, ops: OnceCell::new() }
    }

    /// Whether `node` may compute `result` for every element of `read`; `Err` says why not, if there is something to say.
    pub fn judge(&self, node: NodeId, result: &View, read: &View) -> Result<(), Option<Reason>> {
        if self.most == 0 || self.stored.contains(&node) {
            return Err(None);
        }
        let ops = self.ops.get_or_init(|| self.all_ops())[node.index()].ok_or(None)?;
        let (once, often) = (result.elements(), read.elements());
        let more = u64::from(ops).saturating_mul(often.saturating_sub(once));
        match more <= self.most || once == 1 && ops <= MOST_OF_ONE {
            true => Ok(()),
            false => Err(Some(Reason::ReadRepeated(more))),
        }
    }

    fn all_ops(&self) -> Vec<Option<u32>> {
        let mut ops = vec![None; self.graph.node_count()];
        for &node in self.graph.topological_order() {
            ops[node.index()] = ops_of(self.graph, self.uses, &ops, node);
        }
        ops
    }
}

fn ops_of(graph: &ComputeGraph, uses: &Uses, known: &[Option<u32>], node: NodeId) -> Option<u32> {
    let (kernel, expr) = expression(graph.node(node).kernel().filter(|kernel| kernel.fusible)?)?;
    if expr.outputs().len() > 1 {
        return None;
    }
    let mut total = (0..expr.ops().len()).map(|at| weight(expr, at)).sum::<u32>();
    for &from in graph.predecessors(node) {
        let may_merge =
            |kernel: &&KernelNode| kernel.fusible && !matches!(kernel.kernel, KernelRef::Named(_));
        let Some(producer) = graph.node(from).kernel().filter(may_merge) else { continue };
        let mut results = views(producer).filter(|(_, stored)| *stored).map(|(view, _)| view);
        let is_read = |result: &View| {
            let mut read = views(kernel).filter(|(_, stored)| !stored);
            read.any(|(view, _)| view.region().overlaps(&result.region()))
        };
        let Some(result) = results.find(is_read) else { continue };
        let mut readers = uses.after(from, &result).peekable();
        let for_it_alone = readers.peek().is_some() && readers.all(|reader| reader == node);
        total = total.saturating_add(known[from.index()].filter(|_| for_it_alone)?);
    }
    Some(total)
}

/// How many plain operations one takes as long as.
fn weight(expr: &Expr, at: usize) -> u32 {
    match expr.ops()[at] {
        Op::Param(_) | Op::Const(_) => 0,
        Op::Unary(op, _) => match op {
            UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Not | UnaryOp::Floor => 1,
            UnaryOp::Sqrt => 4,
            UnaryOp::Exp | UnaryOp::Log | UnaryOp::Tanh | UnaryOp::Erf => 16,
        },
        Op::Binary(BinaryOp::Div, ..) if expr.type_of(ValueId(at as u16)).is_float() => 4,
        Op::Binary(BinaryOp::Div | BinaryOp::Rem, ..) | Op::Philox { .. } => 40,
        Op::Input(_) | Op::Index(_) | Op::Binary(..) | Op::Compare(..) | Op::Select(..) => 1,
        Op::Cast(..) | Op::Round(..) => 1,
    }
}
