//! What the code of every language has in common.

use std::ops::Range;

use phonograph_graph::CompareOp;

/// The sign of a comparison.
pub(crate) fn sign(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Eq => "==",
        CompareOp::Ne => "!=",
        CompareOp::Lt => "<",
        CompareOp::Le => "<=",
        CompareOp::Gt => ">",
        CompareOp::Ge => ">=",
    }
}

/// Stores an expression's outputs, from `first` on, to these views: `store` says how, given a view and its output.
pub(crate) fn stores(
    views: Range<usize>,
    first: usize,
    store: impl Fn(usize, usize) -> String,
) -> String {
    views.zip(first..).map(|(view, output)| store(view, output)).collect()
}
