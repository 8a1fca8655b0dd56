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

/// The name of the position along an axis of the elements that are reduced along `reduced`: their results lack that axis.
pub(crate) fn position_of_element(reduced: usize) -> impl Fn(u8) -> String {
    move |axis| match usize::from(axis) {
        axis if axis == reduced => "at".to_owned(),
        axis => format!("c{}", if axis < reduced { axis } else { axis - 1 }),
    }
}

/// The inputs of what is done to a result: the result, then views from `first` on.
pub(crate) fn result_and_views(
    result: &'static str,
    first: usize,
    element: impl Fn(usize) -> String,
) -> impl Fn(usize) -> String {
    move |input| match input {
        0 => result.to_owned(),
        other => element(first + other - 1),
    }
}
