//! An expression that is part of a node: before a reduction, after a reduction or a matrix product.
//!
//! One of its tensors is no operand of the node but what is handed over, in memory that the node has for it. In: the
//! expression, the operands of the node and the view of what is handed over. Out: any range of elements, on request.

use std::ops::Range;

use phonograph_graph::{Expr, FusedKernel, MAX_FUSED_OPERANDS, View};

use super::PrepareError;
use super::elementwise::Elementwise;
use super::tensor::Operands;

pub(super) struct Part {
    code: Elementwise,
    /// Which of the node's scalars are its own.
    scalars: Range<usize>,
    /// How many tensors the node has.
    operands: usize,
}

impl Part {
    /// What is done before: its elements are visited in the order in which `elements`, the view of what is handed
    /// over, has them.
    pub fn before(
        fused: &FusedKernel,
        expr: &Expr,
        views: &[View],
        elements: View,
    ) -> Result<Self, PrepareError> {
        let at = fused.operands();
        let real = |range: Range<usize>| range.map(|i| (i, views[i]));
        let handed = (views.len(), elements);
        let inputs = real(at.before_inputs);
        let seen: Vec<_> = inputs.chain([handed]).chain(real(at.before_outputs)).collect();
        let code = Elementwise::part(expr, &seen, expr.inputs().len())?;
        Ok(Self { code, scalars: 0..expr.params().len(), operands: views.len() })
    }

    /// What is done after, likewise with `result`.
    pub fn after(
        fused: &FusedKernel,
        expr: &Expr,
        views: &[View],
        result: View,
    ) -> Result<Self, PrepareError> {
        let at = fused.operands();
        let real = |range: Range<usize>| range.map(|i| (i, views[i]));
        let handed = (views.len(), result);
        let seen: Vec<_> = [handed]
            .into_iter()
            .chain(real(at.after_inputs))
            .chain(real(at.after_outputs))
            .collect();
        let code = Elementwise::part(expr, &seen, 0)?;
        let first = fused.before.as_ref().map_or(0, |before| before.params().len());
        Ok(Self { code, scalars: first..first + expr.params().len(), operands: views.len() })
    }

    pub fn scratch_bytes(&self) -> usize {
        self.code.scratch_bytes()
    }

    pub fn cost_ps(&self) -> u64 {
        self.code.cost_ps()
    }

    /// Runs some elements. `handed` is where element 0 of what is handed over would lie.
    ///
    /// # Safety
    /// As for [`Elementwise::run_elements`], with the node's operands; the elements of what is handed over exist.
    pub unsafe fn run(
        &self,
        on: &Operands<'_>,
        handed: *mut u8,
        elements: Range<usize>,
        registers: *mut u8,
    ) {
        if elements.is_empty() {
            return;
        }
        let mut buffers = [std::ptr::null_mut(); MAX_FUSED_OPERANDS + 1];
        buffers[..self.operands].copy_from_slice(&on.buffers[..self.operands]);
        buffers[self.operands] = handed;
        let scalars = &on.scalars[self.scalars.clone()];
        let own =
            Operands { buffers: &buffers[..=self.operands], scalars, workspace: on.workspace };
        // SAFETY: the caller's promise; the last buffer is what is handed over.
        unsafe { self.code.run_elements(&own, elements, registers) }
    }
}
