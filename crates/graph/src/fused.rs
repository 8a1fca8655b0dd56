//! Kernels of the library with elementwise work at their ends: what a reduction reads, what is done to a result.
//!
//! The work in front gives the elements that are reduced, so they need not be stored; the work behind takes the result
//! as its first input. Both may have further inputs and outputs of their own. Each is the same to the bit as a kernel of its
//! own that stores its result for the next.

use crate::library::OperandError;
use crate::validate::{check_aliasing, check_elementwise};
use crate::{Access, BufferId, DType, Expr, LibraryKernel, Region, Shape, View};

/// The most operands in memory of a [`FusedKernel`].
pub const MAX_FUSED_OPERANDS: usize = 64;

/// A kernel of the library with expressions before and after it.
///
/// The operands are tensors to read, then tensors to write, then scalars:
///
/// | operands | what |
/// | --- | --- |
/// | inputs of `before`, or what the library kernel reads | read |
/// | inputs of `after` but the first, which is the result | read |
/// | outputs of `before` but the first, which is reduced | written |
/// | outputs of `after`, or the result | written |
/// | scalars of `before`, then of `after` | |
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FusedKernel {
    /// A reduction or a matrix product.
    pub library: LibraryKernel,
    /// Gives the elements that are reduced: its first output, over the shape of the reduction's input.
    pub before: Option<Expr>,
    /// Takes the result: its first input, over the result's shape.
    pub after: Option<Expr>,
}

/// Where the tensors of a [`FusedKernel`] stand among its operands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FusedOperands {
    /// What `before` reads, or the library kernel without it.
    pub before_inputs: std::ops::Range<usize>,
    /// What `after` reads besides the result.
    pub after_inputs: std::ops::Range<usize>,
    /// What `before` stores besides what is reduced.
    pub before_outputs: std::ops::Range<usize>,
    /// What `after` stores, or the result without it.
    pub after_outputs: std::ops::Range<usize>,
}

impl FusedKernel {
    /// Where its tensors stand.
    pub fn operands(&self) -> FusedOperands {
        let reads = self.library.accesses().len() - 1;
        let first = self.before.as_ref().map_or(reads, |expr| expr.inputs().len());
        let second = self.after.as_ref().map_or(0, |expr| expr.inputs().len().saturating_sub(1));
        let third = self.before.as_ref().map_or(0, |expr| expr.outputs().len() - 1);
        let fourth = self.after.as_ref().map_or(1, |expr| expr.outputs().len());
        let ends = [first, first + second, first + second + third];
        FusedOperands {
            before_inputs: 0..ends[0],
            after_inputs: ends[0]..ends[1],
            before_outputs: ends[1]..ends[2],
            after_outputs: ends[2]..ends[2] + fourth,
        }
    }

    /// Types of the scalars, in order.
    pub fn params(&self) -> impl Iterator<Item = DType> + '_ {
        let all = [&self.before, &self.after].into_iter().flatten();
        all.flat_map(|expr| expr.params().iter().copied())
    }

    /// What the library kernel itself would be given: its operands with what is not in memory made up.
    ///
    /// `views` are the tensors, as many as [`operands`](Self::operands) says.
    ///
    /// # Errors
    /// [`OperandError`] for views that the expressions or the library kernel do not accept.
    pub fn library_operands(&self, views: &[View]) -> Result<Vec<View>, OperandError> {
        let at = self.operands();
        let made_up = |dtype: DType, shape: Shape| {
            View::contiguous(BufferId(u32::MAX), dtype, shape.extents())
        };
        let mut all = match &self.before {
            None => views[at.before_inputs].to_vec(),
            Some(expr) => {
                let own = views[at.before_inputs].iter().chain(&views[at.before_outputs]);
                let problem = "would be a tensor of the elements to reduce, to tell their shape";
                let shape = own.map(View::shape).next();
                let shape = shape.ok_or_else(|| OperandError::at(0, problem))?;
                vec![made_up(expr.outputs()[0].1, shape)?]
            }
        };
        all.push(match &self.after {
            None => views[at.after_outputs.start],
            Some(expr) => {
                let problem = "takes no result";
                let dtype = expr.inputs().first();
                let dtype = *dtype.ok_or_else(|| OperandError::at(0, problem))?;
                made_up(dtype, views[at.after_outputs.start].shape())?
            }
        });
        Ok(all)
    }

    /// Checks the operands' types, shapes and accesses, and that no write meets another operand's bytes.
    pub(crate) fn check(
        &self,
        views: &[(View, Access)],
        scalars: &[DType],
        args: usize,
    ) -> Result<(), OperandError> {
        let fits = match self.library {
            LibraryKernel::Reduce { .. } => self.before.is_some() || self.after.is_some(),
            LibraryKernel::MatMul => self.before.is_none() && self.after.is_some(),
            LibraryKernel::Gather | LibraryKernel::ScatterAdd => false,
        };
        if !fits {
            let problem = "is not one of a reduction with work before or after it, or of a matrix product with work after it";
            return Err(OperandError::at(0, problem));
        }
        let at = self.operands();
        let (expected, given) = (at.after_outputs.end, views.len());
        if given != expected {
            return Err(OperandError::Count { expected, given });
        }
        if given > MAX_FUSED_OPERANDS {
            return Err(OperandError::Count { expected: MAX_FUSED_OPERANDS, given });
        }
        let wanted: Vec<DType> = self.params().collect();
        if scalars != wanted || given + scalars.len() != args {
            let problem = format!("is one of the scalars {scalars:?}, not {wanted:?}");
            return Err(OperandError::at(given, problem));
        }
        let plain: Vec<View> = views.iter().map(|&(view, _)| view).collect();
        let library = self.library_operands(&plain)?;
        let with_access = library.iter().copied().zip(self.library.accesses().iter().copied());
        self.library.check(&with_access.collect::<Vec<_>>())?;
        let part = |from: &std::ops::Range<usize>| views[from.clone()].iter().copied();
        if let Some(expr) = &self.before {
            let elements = (library[0], Access::Write);
            let own: Vec<(View, Access)> =
                part(&at.before_inputs).chain([elements]).chain(part(&at.before_outputs)).collect();
            check_elementwise(expr, &own, expr.params(), own.len() + expr.params().len())?;
        }
        if let Some(expr) = &self.after {
            let result = (library[library.len() - 1], Access::Read);
            let own: Vec<(View, Access)> = [result]
                .into_iter()
                .chain(part(&at.after_inputs))
                .chain(part(&at.after_outputs))
                .collect();
            check_elementwise(expr, &own, expr.params(), own.len() + expr.params().len())?;
        }
        for (index, &(_, access)) in views.iter().enumerate() {
            let wanted = if index < at.before_outputs.start { Access::Read } else { Access::Write };
            if access != wanted {
                let problem = format!("is for {}, not {}", wanted.name(), access.name());
                return Err(OperandError::at(index, problem));
            }
        }
        self.check_parts(views)
    }

    /// Work before and work after happen at different times, so what one writes the other must not touch at all.
    fn check_parts(&self, views: &[(View, Access)]) -> Result<(), OperandError> {
        let at = self.operands();
        let of = |ranges: [&std::ops::Range<usize>; 2]| {
            let all = ranges.into_iter().flat_map(|range| views[range.clone()].iter().copied());
            all.collect::<Vec<(View, Access)>>()
        };
        let before = of([&at.before_inputs, &at.before_outputs]);
        let after = of([&at.after_inputs, &at.after_outputs]);
        check_aliasing(&before, self.before.is_some())?;
        check_aliasing(&after, self.after.is_some())?;
        let regions = |part: &[(View, Access)]| {
            part.iter().map(|(view, access)| (view.region(), *access)).collect::<Vec<_>>()
        };
        let (before, after) = (regions(&before), regions(&after));
        let clash = |a: &(Region, Access), b: &(Region, Access)| {
            (a.1.writes() || b.1.writes()) && a.0.overlaps(&b.0)
        };
        match after.iter().position(|b| before.iter().any(|a| clash(a, b))) {
            None => Ok(()),
            Some(index) => {
                let index = if index < at.after_inputs.len() {
                    at.after_inputs.start + index
                } else {
                    at.after_outputs.start + index - at.after_inputs.len()
                };
                Err(OperandError::at(index, "overlaps an operand of the work before"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReduceOp;

    #[test]
    fn parts_must_fit_together() {
        let view = |buffer, extents: &[u64]| {
            View::contiguous(BufferId(buffer), DType::F32, extents).unwrap()
        };
        let square = Expr::build(|e| {
            let x = e.input(DType::F32);
            e.output(x * x);
        });
        let shift = Expr::build(|e| e.output(e.input(DType::F32) + e.input(DType::F32)));
        let kernel = FusedKernel {
            library: LibraryKernel::Reduce { op: ReduceOp::Sum, axis: 1 },
            before: square.ok(),
            after: shift.ok(),
        };
        let check = |views: &[(View, Access)]| {
            kernel.check(views, &[], views.len()).map_err(|e| e.to_string())
        };
        use Access::{Read, Write};
        let (x, bias, out) = (view(0, &[7, 5]), view(1, &[7]), view(2, &[7]));
        assert_eq!(check(&[(x, Read), (bias, Read), (out, Write)]), Ok(()));
        assert_eq!(check(&[(x, Read), (bias, Read), (bias, Write)]), Ok(()));
        let inside = View::contiguous(BufferId(0), DType::F32, &[7]).unwrap();
        assert_eq!(
            check(&[(x, Read), (bias, Read), (inside, Write)]).unwrap_err(),
            "operand 2 overlaps an operand of the work before"
        );
        assert!(check(&[(x, Read), (view(1, &[5]), Read), (out, Write)]).is_err());
        assert!(check(&[(x, Read), (out, Write)]).is_err());
        assert!(check(&[(x, Read), (bias, Read), (out, Read)]).is_err());
    }
}
