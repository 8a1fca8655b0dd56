//! Recording primitives with shapes taken care of.

use std::sync::Arc;

use phonograph_graph::{
    Arg, DType, Expr, GraphBuilder, LibraryKernel, NodeId, ReduceOp, Scalar, Shape, View, ViewError,
};

use crate::expr;

/// Why an operation cannot be recorded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpsError {
    /// Shapes that do not go together.
    #[error("{op}: {source}")]
    View {
        /// The name of the operation.
        op: String,
        /// What is wrong.
        source: Box<ViewError>,
    },
    /// An operand that is not what it must be.
    #[error("{op}: {problem}")]
    Operand {
        /// The name of the operation.
        op: String,
        /// What is wrong.
        problem: String,
    },
}

/// Records operations on a builder: each adds nodes, and gives the view of a new internal buffer or works in place. O(nodes
/// added); nothing is computed. Shapes are checked here, the types that an expression or a kernel takes by
/// [`build`](GraphBuilder::build).
///
/// ```
/// use phonograph_graph::{DType, GraphBuilder, View};
/// use phonograph_kernels::Ops;
///
/// let mut builder = GraphBuilder::new();
/// let bytes = 4 * 8 * 3;
/// let x = View::contiguous(builder.external_buffer("x", bytes), DType::F32, &[8, 3])?;
/// let mut ops = Ops::new(&mut builder);
/// let y = ops.softmax("y", x)?;
/// assert_eq!(y.shape().extents(), [8, 3]);
/// assert!(ops.matmul("x x", x, y).is_err()); // 8 × 3 times 8 × 3
/// let graph = builder.build()?;
/// assert_eq!(graph.node_count(), 5); // maximum, difference, exponentials, their sum, quotient
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Ops<'b> {
    builder: &'b mut GraphBuilder,
}

impl<'b> Ops<'b> {
    /// Records on `builder`.
    pub fn new(builder: &'b mut GraphBuilder) -> Self {
        Self { builder }
    }

    /// The builder, for what this type does not cover.
    pub fn builder(&mut self) -> &mut GraphBuilder {
        self.builder
    }

    /// A densely packed tensor in an internal buffer of its own.
    ///
    /// # Errors
    /// [`OpsError::View`] for extents that are no shape.
    pub fn tensor(&mut self, name: &str, dtype: DType, extents: &[u64]) -> Result<View, OpsError> {
        let of = at(name);
        let bytes = Shape::new(extents).map_err(of)?.elements() * dtype.size();
        let buffer = self.builder.alloc_buffer(name, bytes as usize);
        View::contiguous(buffer, dtype, extents).map_err(of)
    }

    /// Applies an expression of one output elementwise; inputs broadcast to the shape they have in common.
    ///
    /// # Errors
    /// [`OpsError::View`] for inputs without a common shape; [`OpsError::Operand`] for an expression of another number of
    /// outputs than one.
    pub fn map(
        &mut self,
        name: &str,
        expr: Arc<Expr>,
        inputs: &[View],
        scalars: &[Arg],
    ) -> Result<View, OpsError> {
        let shape = inputs
            .iter()
            .try_fold(Shape::scalar(), |shape, view| shape.broadcast(&view.shape()))
            .map_err(at(name))?;
        let &[(_, dtype)] = expr.outputs() else {
            return Err(operand(
                name,
                format!("the expression has {} outputs", expr.outputs().len()),
            ));
        };
        let out = self.tensor(name, dtype, shape.extents())?;
        self.map_into(name, expr, inputs, scalars, &[out])?;
        Ok(out)
    }

    /// Applies an expression elementwise into given outputs of one shape; inputs broadcast to it. An output may be the
    /// very view of an input: then it is updated in place.
    ///
    /// # Errors
    /// [`OpsError::View`] for inputs that do not broadcast to the outputs' shape.
    pub fn map_into(
        &mut self,
        name: &str,
        expr: Arc<Expr>,
        inputs: &[View],
        scalars: &[Arg],
        outputs: &[View],
    ) -> Result<NodeId, OpsError> {
        let shape = outputs.first().map_or(Shape::scalar(), View::shape);
        if inputs.iter().all(|view| view.shape() == shape) {
            return Ok(self.builder.add_elementwise(name, expr, inputs, scalars, outputs));
        }
        let wide: Result<Vec<View>, ViewError> =
            inputs.iter().map(|view| view.broadcast_to(shape)).collect();
        let wide = wide.map_err(at(name))?;
        Ok(self.builder.add_elementwise(name, expr, &wide, scalars, outputs))
    }

    /// A tensor of one value.
    ///
    /// # Errors
    /// [`OpsError::View`] for extents that are no shape.
    pub fn fill(
        &mut self,
        name: &str,
        value: impl Into<Scalar>,
        extents: &[u64],
    ) -> Result<View, OpsError> {
        let value = value.into();
        let out = self.tensor(name, value.dtype(), extents)?;
        self.map_into(name, expr::constant(value), &[], &[], &[out])?;
        Ok(out)
    }

    /// 0, 1, 2, … along `axis`.
    ///
    /// # Errors
    /// [`OpsError::View`] for extents that are no shape.
    pub fn iota(
        &mut self,
        name: &str,
        dtype: DType,
        extents: &[u64],
        axis: u8,
    ) -> Result<View, OpsError> {
        let out = self.tensor(name, dtype, extents)?;
        self.map_into(name, expr::iota(axis, dtype), &[], &[], &[out])?;
        Ok(out)
    }

    /// The same elements, densely packed.
    ///
    /// # Errors
    /// Those of [`map`](Self::map).
    pub fn copy(&mut self, name: &str, x: View) -> Result<View, OpsError> {
        self.map(name, expr::identity(x.dtype), &[x], &[])
    }

    /// The same values in another type.
    ///
    /// # Errors
    /// Those of [`map`](Self::map).
    pub fn cast(&mut self, name: &str, x: View, to: DType) -> Result<View, OpsError> {
        self.map(name, expr::cast(x.dtype, to), &[x], &[])
    }

    /// x + y, of f32.
    ///
    /// # Errors
    /// [`OpsError::View`] for operands without a common shape.
    pub fn add(&mut self, name: &str, x: View, y: View) -> Result<View, OpsError> {
        self.map(name, expr::binary(|_, x, y| x + y), &[x, y], &[])
    }

    /// x y, of f32, elementwise.
    ///
    /// # Errors
    /// [`OpsError::View`] for operands without a common shape.
    pub fn multiply(&mut self, name: &str, x: View, y: View) -> Result<View, OpsError> {
        self.map(name, expr::binary(|_, x, y| x * y), &[x, y], &[])
    }

    /// x times a constant, of f32.
    ///
    /// # Errors
    /// Those of [`map`](Self::map).
    pub fn scale(&mut self, name: &str, x: View, by: f32) -> Result<View, OpsError> {
        self.map(name, expr::unary(|e, x| x * e.f32(by)), &[x], &[])
    }

    fn reduce(&mut self, name: &str, op: ReduceOp, x: View, axis: usize) -> Result<View, OpsError> {
        let shape = x.shape().without(axis);
        let shape = shape.map_err(at(name))?;
        let dtype = if op == ReduceOp::ArgMax { DType::I32 } else { x.dtype };
        let out = self.tensor(name, dtype, shape.extents())?;
        let axis = axis as u8; // below the rank, which is at most 6
        self.library(name, LibraryKernel::Reduce { op, axis }, &[x, out])?;
        Ok(out)
    }

    /// The sum along an axis, which is dropped.
    ///
    /// # Errors
    /// [`OpsError::View`] for an axis that `x` does not have; [`OpsError::Operand`] for a type that cannot be reduced.
    pub fn sum(&mut self, name: &str, x: View, axis: usize) -> Result<View, OpsError> {
        self.reduce(name, ReduceOp::Sum, x, axis)
    }

    /// The largest along an axis, which is dropped.
    ///
    /// # Errors
    /// [`OpsError::View`] for an axis that `x` does not have; [`OpsError::Operand`] for a type that cannot be reduced.
    pub fn max(&mut self, name: &str, x: View, axis: usize) -> Result<View, OpsError> {
        self.reduce(name, ReduceOp::Max, x, axis)
    }

    /// The position of the largest along an axis, which is dropped.
    ///
    /// # Errors
    /// [`OpsError::View`] for an axis that `x` does not have; [`OpsError::Operand`] for a type that cannot be reduced.
    pub fn argmax(&mut self, name: &str, x: View, axis: usize) -> Result<View, OpsError> {
        self.reduce(name, ReduceOp::ArgMax, x, axis)
    }

    /// The mean along an axis, which is dropped; of f32.
    ///
    /// # Errors
    /// [`OpsError::View`] for an axis that `x` does not have; [`OpsError::Operand`] for a type that cannot be reduced.
    pub fn mean(&mut self, name: &str, x: View, axis: usize) -> Result<View, OpsError> {
        let count = x.shape().extents().get(axis).copied().unwrap_or(1);
        let sum = self.sum(&format!("{name}.sum"), x, axis)?;
        self.scale(name, sum, 1.0 / count as f32)
    }

    /// The matrix product of `[.., m, k]` and `[.., k, n]`. For a transpose give a transposed view.
    ///
    /// # Errors
    /// [`OpsError::Operand`] for what are no matrices, or none that can be multiplied; [`OpsError::View`] for a product too
    /// large.
    pub fn matmul(&mut self, name: &str, a: View, b: View) -> Result<View, OpsError> {
        let (sa, sb) = (a.shape(), b.shape());
        let (Some((_, rows)), Some(columns)) = (sa.extents().split_last(), sb.extents().last())
        else {
            return Err(operand(name, "a matrix product needs matrices".to_owned()));
        };
        let mut extents = rows.to_vec();
        extents.push(*columns);
        let out = self.tensor(name, a.dtype, &extents)?;
        self.library(name, LibraryKernel::MatMul, &[a, b, out])?;
        Ok(out)
    }

    /// The rows of a table that an index tensor `[n]` names.
    ///
    /// # Errors
    /// [`OpsError::Operand`] for anything but a table and a list of i32; [`OpsError::View`] for a result too large.
    pub fn gather(&mut self, name: &str, table: View, rows: View) -> Result<View, OpsError> {
        let mut extents = table.shape().extents().to_vec();
        match (extents.first_mut(), rows.shape().extents()) {
            (Some(first), [n]) => *first = *n,
            _ => return Err(operand(name, "a table of rows and a list of row numbers".to_owned())),
        }
        let out = self.tensor(name, table.dtype, &extents)?;
        self.library(name, LibraryKernel::Gather, &[table, rows, out])?;
        Ok(out)
    }

    /// Adds rows into the rows of `sums` that an index tensor names, in place.
    ///
    /// # Errors
    /// [`OpsError::Operand`] for shapes or types that do not go together.
    pub fn scatter_add(
        &mut self,
        name: &str,
        source: View,
        rows: View,
        sums: View,
    ) -> Result<NodeId, OpsError> {
        self.library(name, LibraryKernel::ScatterAdd, &[source, rows, sums])
    }

    /// Records a library kernel on checked operands.
    fn library(
        &mut self,
        name: &str,
        kernel: LibraryKernel,
        operands: &[View],
    ) -> Result<NodeId, OpsError> {
        let accesses = kernel.accesses().iter();
        let checked: Vec<_> = operands.iter().copied().zip(accesses.copied()).collect();
        kernel.check(&checked).map_err(|source| operand(name, source.to_string()))?;
        Ok(self.builder.add_library(name, kernel, operands))
    }
}

pub(crate) fn operand(op: &str, problem: String) -> OpsError {
    OpsError::Operand { op: op.to_owned(), problem }
}

/// Says which operation a view is wrong for.
pub(crate) fn at(op: &str) -> impl Fn(ViewError) -> OpsError + Copy + '_ {
    move |source| OpsError::View { op: op.to_owned(), source: Box::new(source) }
}
