//! What is known of each value of an expression before any step is chosen for it.
//!
//! In: an expression, and which of its inputs are one element repeated. Out: which values are the same one, which are needed,
//! which are the same for every element, and who uses them last. Two passes, O(operations).

use phonograph_graph::{Expr, Op};

use super::chains::Chain;

pub(super) struct Values {
    /// The value that this one is; another one for conversions that change nothing.
    pub same_as: Vec<usize>,
    /// Whether an output depends on it; never true of a value that is another one.
    pub needed: Vec<bool>,
    /// The same for every element.
    pub uniform: Vec<bool>,
    /// Position of the last operation that uses it; the number of operations if an output does.
    pub last_use: Vec<usize>,
    /// How many operations and outputs use it.
    pub uses: Vec<u32>,
}

impl Values {
    pub fn new(expr: &Expr, is_repeat: impl Fn(usize) -> bool) -> Self {
        let ops = expr.ops();
        let mut same_as: Vec<usize> = (0..ops.len()).collect();
        let mut uniform = vec![false; ops.len()];
        for (at, op) in ops.iter().enumerate() {
            if let Op::Cast(to, from) = *op
                && expr.type_of(from) == to
            {
                same_as[at] = same_as[from.index()];
            }
            uniform[at] = match *op {
                Op::Const(_) | Op::Param(_) => true,
                Op::Input(input) => is_repeat(input as usize),
                Op::Index(_) => false,
                _ => op.operands().iter().flatten().all(|v| uniform[v.index()]),
            };
        }
        let (mut needed, mut last_use) = (vec![false; ops.len()], vec![0; ops.len()]);
        let mut uses = vec![0; ops.len()];
        for &(value, _) in expr.outputs() {
            let value = same_as[value.index()];
            (needed[value], last_use[value]) = (true, ops.len());
            uses[value] += 1;
        }
        for (at, op) in ops.iter().enumerate().rev() {
            if needed[at] {
                for value in op.operands().into_iter().flatten() {
                    let value = same_as[value.index()];
                    needed[value] = true;
                    last_use[value] = last_use[value].max(at);
                    uses[value] += 1;
                }
            }
        }
        Self { same_as, needed, uniform, last_use, uses }
    }

    /// A chain uses its operands when its last operation is done, not where each of its operations stands.
    pub fn used_by(&mut self, chain: &Chain) {
        for value in chain.operands() {
            self.last_use[value] = self.last_use[value].max(chain.last);
        }
    }

    /// Which of the uniform values are needed as blocks, because something that is no chain uses them.
    pub fn wide(&self, expr: &Expr, chain_of: &[Option<usize>]) -> Vec<bool> {
        let mut wide = vec![false; expr.ops().len()];
        for &(value, _) in expr.outputs() {
            wide[self.same_as[value.index()]] = true;
        }
        for (at, op) in expr.ops().iter().enumerate().rev() {
            if self.needed[at] && (wide[at] || !self.uniform[at]) && chain_of[at].is_none() {
                for operand in op.operands().into_iter().flatten() {
                    wide[self.same_as[operand.index()]] = true;
                }
            }
        }
        wide
    }
}
