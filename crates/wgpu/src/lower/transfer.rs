//! Copies and fills, as elementwise kernels: wgpu's own copies want two buffers and multiples of 4 bytes, and would
//! interrupt the pass.
//!
//! The unit is a word of 4 bytes where everything is a multiple of it, else a byte, which costs two atomic operations.

use phonograph_graph::{
    Access, Arg, BinaryOp, CompareOp, DType, Expr, ExprError, Extent, KernelConfig, KernelNode,
    KernelRef, MemcpyNode, MemsetNode, NodeId, Op, Pitched, Scalar, Target, ValueId, View,
};

use super::{Lowering, Scope};
use crate::bindings::InstantiateError;

impl Lowering<'_> {
    pub(super) fn copy(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        node: &MemcpyNode,
    ) -> Result<(), InstantiateError> {
        if node.overlaps_itself() {
            return Err(scope.unsupported(id, "source and destination of the copy overlap"));
        }
        let words = [node.src, node.dst].iter().all(|end| self.in_words(scope, end, node.extent));
        let dtype = if words { DType::U32 } else { DType::U8 };
        let from = end(scope, id, &node.src, node.extent, dtype, "source of the copy")?;
        let to = end(scope, id, &node.dst, node.extent, dtype, "destination of the copy")?;
        let expr = Expr::new(vec![dtype], vec![], vec![Op::Input(0)], vec![(ValueId(0), dtype)]);
        let args = [Arg::View(from, Access::Read), Arg::View(to, Access::Write)];
        self.expression(scope, id, expr, &args)
    }

    pub(super) fn fill(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        node: &MemsetNode,
    ) -> Result<(), InstantiateError> {
        let pattern = node.value.to_le_bytes();
        // Patterns of 1 and 2 bytes repeat within a word.
        let (repeated, whole) = match node.element_size {
            1 => ([pattern[0]; 4], true),
            2 => ([pattern[0], pattern[1], pattern[0], pattern[1]], true),
            4 => (pattern, true),
            _ => (pattern, false),
        };
        if !whole {
            return Err(scope.unsupported(id, "the fill's pattern is not known"));
        }
        let words = self.in_words(scope, &node.dst, node.extent);
        let dtype = if words { DType::U32 } else { DType::U8 };
        let to = end(scope, id, &node.dst, node.extent, dtype, "fill")?;
        let expr = if words {
            let word = Op::Const(Scalar::U32(u32::from_le_bytes(repeated)));
            Expr::new(vec![], vec![], vec![word], vec![(ValueId(0), dtype)])
        } else {
            by_bytes(repeated)
        };
        self.expression(scope, id, expr, &[Arg::View(to, Access::Write)])
    }

    /// Whether an end lies in whole words, wherever its buffer starts.
    fn in_words(&self, scope: &Scope<'_>, end: &Pitched, extent: Extent) -> bool {
        let Target::Buffer(buffer) = end.target else { return false };
        let base = scope.bases[buffer.index()].map_or(0, |base| base.offset);
        let pitch = if extent.height > 1 || extent.depth > 1 { end.pitch } else { 0 };
        [base, end.offset, extent.width, pitch].iter().all(|bytes| bytes.is_multiple_of(4))
    }

    fn expression(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        expr: Result<Expr, ExprError>,
        args: &[Arg],
    ) -> Result<(), InstantiateError> {
        let expr = expr.map_err(|error| scope.unsupported(id, error.to_string()))?;
        let node = KernelNode {
            kernel: KernelRef::Elementwise(expr.into()),
            config: KernelConfig::unknown(),
            args: args.into(),
            fusible: false,
        };
        self.generated(scope, id, &node)
    }
}

/// An end of a copy or fill as a tensor of slices, rows and units.
fn end(
    scope: &Scope<'_>,
    id: NodeId,
    end: &Pitched,
    extent: Extent,
    dtype: DType,
    what: &str,
) -> Result<View, InstantiateError> {
    let Target::Buffer(buffer) = end.target else {
        let reason =
            format!("the {what} names no declared buffer, so there is no memory to work on");
        return Err(scope.unsupported(id, reason));
    };
    let unit = dtype.size();
    let slice = end.pitch.saturating_mul(end.slice_rows);
    let extents = [extent.depth, extent.height, extent.width / unit];
    let view =
        View::strided(buffer, dtype, end.offset, &extents, &[slice / unit, end.pitch / unit, 1]);
    view.map_err(|error| scope.unsupported(id, error.to_string()))
}

/// Byte i of a row is byte i mod 4 of the pattern.
fn by_bytes(pattern: [u8; 4]) -> Result<Expr, ExprError> {
    // Axis 2 counts the bytes of a row.
    let mut ops = vec![Op::Index(2), Op::Const(Scalar::U32(3))];
    ops.push(Op::Binary(BinaryOp::And, ValueId(0), ValueId(1)));
    let place = ValueId(2);
    ops.push(Op::Const(Scalar::U32(u32::from(pattern[3]))));
    let mut chosen = ValueId(3);
    for at in 0..3u32 {
        let next = |ops: &Vec<Op>| ValueId(ops.len() as u16);
        let number = next(&ops);
        ops.push(Op::Const(Scalar::U32(at)));
        let here = next(&ops);
        ops.push(Op::Compare(CompareOp::Eq, place, number));
        let byte = next(&ops);
        ops.push(Op::Const(Scalar::U32(u32::from(pattern[at as usize]))));
        let select = next(&ops);
        ops.push(Op::Select(here, byte, chosen));
        chosen = select;
    }
    Expr::new(vec![], vec![], ops, vec![(chosen, DType::U8)])
}
