//! The library kernels: the few operations that are not elementwise, and the shapes they accept.
//!
//! Everything bigger (softmax, layer norm, losses, optimisers) is composed of these and of
//! [expressions](crate::Expr), as several nodes, so that planners see it.

use crate::{Access, DType, Shape, View, ViewError};

/// How a reduction combines the elements along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReduceOp {
    /// The sum.
    Sum,
    /// The largest; NaN is ignored unless there is nothing else.
    Max,
    /// The position of the largest (the first of equals), as i32.
    ArgMax,
}

/// A kernel of the library. The operands are tensor views in the order given.
///
/// | kernel | operands |
/// | --- | --- |
/// | `Reduce` | input, output (the input's shape without the axis) |
/// | `MatMul` | a `[.., m, k]`, b `[.., k, n]`, output `[.., m, n]`; up to one batch axis; transposes are strides |
/// | `Gather` | table `[rows, ..]`, row numbers `[n]` (i32 or u32), output `[n, ..]` |
/// | `ScatterAdd` | source `[n, ..]`, row numbers `[n]`, accumulator `[rows, ..]` (each row summed in index order) |
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LibraryKernel {
    /// Combines the elements along one axis; the tree depends on the shape only.
    Reduce {
        /// How.
        op: ReduceOp,
        /// Along which axis of the input.
        axis: u8,
    },
    /// Matrix product of f32 or f64.
    MatMul,
    /// Copies the rows that an index tensor names. A row number out of range is an error of the replay.
    Gather,
    /// Adds rows into the rows that an index tensor names. A row number out of range is an error of the replay.
    ScatterAdd,
}

/// Why a kernel does not accept its operands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperandError {
    /// Too few or too many.
    #[error("takes {expected} operands, not {given}")]
    Count {
        /// How many it takes.
        expected: usize,
        /// How many were given.
        given: usize,
    },
    /// An operand that is not what it must be.
    #[error("operand {index} {problem}")]
    Operand {
        /// Which operand.
        index: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// Shapes that do not go together.
    #[error(transparent)]
    View(#[from] ViewError),
}

impl OperandError {
    pub(crate) fn at(index: usize, problem: impl Into<String>) -> Self {
        OperandError::Operand { index, problem: problem.into() }
    }
}

impl LibraryKernel {
    /// The name used in files and pictures.
    pub const fn name(&self) -> &'static str {
        match self {
            LibraryKernel::Reduce { op: ReduceOp::Sum, .. } => "reduce_sum",
            LibraryKernel::Reduce { op: ReduceOp::Max, .. } => "reduce_max",
            LibraryKernel::Reduce { op: ReduceOp::ArgMax, .. } => "argmax",
            LibraryKernel::MatMul => "matmul",
            LibraryKernel::Gather => "gather",
            LibraryKernel::ScatterAdd => "scatter_add",
        }
    }

    /// How each operand must be accessed.
    pub const fn accesses(&self) -> &'static [Access] {
        match self {
            LibraryKernel::Reduce { .. } => &[Access::Read, Access::Write],
            LibraryKernel::MatMul | LibraryKernel::Gather => {
                &[Access::Read, Access::Read, Access::Write]
            }
            LibraryKernel::ScatterAdd => &[Access::Read, Access::Read, Access::ReadWrite],
        }
    }

    /// Checks the operands' types, shapes and accesses.
    pub fn check(&self, operands: &[(View, Access)]) -> Result<(), OperandError> {
        let accesses = self.accesses();
        if operands.len() != accesses.len() {
            return Err(OperandError::Count { expected: accesses.len(), given: operands.len() });
        }
        for (index, (&(_, given), &wanted)) in operands.iter().zip(accesses).enumerate() {
            if given != wanted {
                let problem = format!("is for {}, not {}", wanted.name(), given.name());
                return Err(OperandError::at(index, problem));
            }
        }
        let view = |i: usize| &operands[i].0;
        match self {
            LibraryKernel::Reduce { op, axis } => {
                let (input, output) = (view(0), view(1));
                let shape = input.shape();
                expect_shape(1, output, &shape.without(*axis as usize)?)?;
                if *op != ReduceOp::Sum && shape.extents()[*axis as usize] == 0 {
                    return Err(OperandError::at(0, "has no element along the axis"));
                }
                let result = if *op == ReduceOp::ArgMax { DType::I32 } else { input.dtype };
                expect_types(
                    0,
                    input,
                    &[DType::F32, DType::F64, DType::I32, DType::I64, DType::U32],
                )?;
                expect_types(1, output, &[result])
            }
            LibraryKernel::MatMul => {
                let (a, b, c) = (view(0), view(1), view(2));
                expect_types(0, a, &[DType::F32, DType::F64])?;
                expect_types(1, b, &[a.dtype])?;
                expect_types(2, c, &[a.dtype])?;
                let (sa, sb) = (a.shape(), b.shape());
                let (ea, eb) = (sa.extents(), sb.extents());
                let rank = ea.len();
                if !(2..=3).contains(&rank) {
                    return Err(OperandError::at(0, format!("has rank {rank}, not 2 or 3")));
                }
                let mut expected = ea.to_vec();
                expected[rank - 2] = ea[rank - 1];
                expected[rank - 1] = eb.last().copied().unwrap_or(1);
                expect_shape(1, b, &Shape::new(&expected)?)?;
                expected[rank - 2] = ea[rank - 2];
                expect_shape(2, c, &Shape::new(&expected)?)
            }
            LibraryKernel::Gather => {
                let (table, rows, out) = (view(0), view(1), view(2));
                expect_types(2, out, &[table.dtype])?;
                expect_rows(0, table, 1, rows, 2, out)
            }
            LibraryKernel::ScatterAdd => {
                let (source, rows, sum) = (view(0), view(1), view(2));
                expect_types(
                    0,
                    source,
                    &[DType::F32, DType::F64, DType::I32, DType::I64, DType::U32],
                )?;
                expect_types(2, sum, &[source.dtype])?;
                expect_rows(2, sum, 1, rows, 0, source)
            }
        }
    }
}

/// `table [rows, ..]` indexed by `rows [n]` has the shape of `picked [n, ..]`.
fn expect_rows(
    table_index: usize,
    table: &View,
    rows_index: usize,
    rows: &View,
    picked_index: usize,
    picked: &View,
) -> Result<(), OperandError> {
    expect_types(rows_index, rows, &[DType::I32, DType::U32])?;
    let table_shape = table.shape();
    if table_shape.rank() == 0 {
        return Err(OperandError::at(table_index, "has no axis of rows"));
    }
    if rows.shape().rank() != 1 {
        return Err(OperandError::at(rows_index, "is not a list of row numbers"));
    }
    let mut expected = table_shape.extents().to_vec();
    expected[0] = rows.shape().extents()[0];
    expect_shape(picked_index, picked, &Shape::new(&expected)?)
}

fn expect_types(index: usize, view: &View, allowed: &[DType]) -> Result<(), OperandError> {
    if allowed.contains(&view.dtype) {
        return Ok(());
    }
    let names: Vec<_> = allowed.iter().map(|t| t.name()).collect();
    Err(OperandError::at(index, format!("is of type {}, not {}", view.dtype, names.join(" or "))))
}

fn expect_shape(index: usize, view: &View, shape: &Shape) -> Result<(), OperandError> {
    if view.shape() == *shape {
        return Ok(());
    }
    Err(OperandError::at(index, format!("has shape {:?}, not {shape:?}", view.shape())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BufferId;

    fn view(dtype: DType, extents: &[u64]) -> View {
        View::contiguous(BufferId(0), dtype, extents).unwrap()
    }

    #[test]
    fn shapes_are_checked() {
        use Access::*;
        let f = |e: &[u64]| view(DType::F32, e);
        let matmul = |a: &[u64], b: &[u64], c: &[u64]| {
            LibraryKernel::MatMul.check(&[(f(a), Read), (f(b), Read), (f(c), Write)])
        };
        assert_eq!(matmul(&[2, 3], &[3, 4], &[2, 4]), Ok(()));
        assert_eq!(matmul(&[5, 2, 3], &[5, 3, 4], &[5, 2, 4]), Ok(()));
        assert_eq!(
            matmul(&[2, 3], &[4, 3], &[2, 4]).unwrap_err().to_string(),
            "operand 1 has shape [4, 3], not [3, 3]"
        );
        let argmax = LibraryKernel::Reduce { op: ReduceOp::ArgMax, axis: 1 };
        let rows = view(DType::I32, &[7]);
        assert_eq!(argmax.check(&[(f(&[7, 10]), Read), (rows, Write)]), Ok(()));
        assert!(argmax.check(&[(f(&[7, 0]), Read), (rows, Write)]).is_err());
        let gather = LibraryKernel::Gather;
        assert_eq!(gather.check(&[(f(&[9, 4]), Read), (rows, Read), (f(&[7, 4]), Write)]), Ok(()));
        assert!(gather.check(&[(f(&[9, 4]), Read), (rows, Read), (f(&[7, 4]), Read)]).is_err());
    }
}
