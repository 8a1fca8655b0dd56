//! The text of a node's box, and how large the box is.
//!
//! In: a node. Out: lines that fit, and the size to give to layout. Linear in the text shown.

use crate::layout::Size;
use crate::picture::{Node, Picture};
use crate::text::{brief, columns, count, elide};

/// Space left and right of the text.
pub(crate) const PAD_X: f64 = 12.0;
/// From one detail line to the next.
pub(crate) const DETAIL_STEP: f64 = 14.0;

const LABEL_COLUMNS: usize = 34;
const DETAIL_COLUMNS: usize = 40;
const MAX_LINES: usize = 8;
/// Advance of the fixed-width font at the sizes of the style sheet.
const LABEL_WIDTH: f64 = 7.25;
const DETAIL_WIDTH: f64 = 6.35;
const MIN_WIDTH: f64 = 44.0;

/// What is written in a box.
pub(crate) struct BoxText {
    pub(crate) label: String,
    pub(crate) lines: Vec<String>,
    pub(crate) size: Size,
}

/// Fits a node's text.
pub(crate) fn fit(node: &Node, picture: &Picture) -> BoxText {
    let (base, arguments) = brief(&node.label);
    let label = elide(if base.is_empty() { &node.label } else { &base }, LABEL_COLUMNS);
    let arguments = Some(arguments).filter(|text| !text.is_empty());
    let bodies = node.bodies.iter().map(|b| format!("▸ {}", picture.groups[b.index()].title));
    let total = usize::from(arguments.is_some()) + node.lines.len() + node.bodies.len();
    let shown = if total > MAX_LINES { MAX_LINES - 1 } else { total };
    let mut lines: Vec<String> = arguments
        .into_iter()
        .chain(node.lines.iter().cloned())
        .chain(bodies)
        .take(shown)
        .map(|l| elide(&l, DETAIL_COLUMNS))
        .collect();
    if total > shown {
        lines.push(format!("… {}", count(total - shown, "more line")));
    }
    let text = lines
        .iter()
        .map(|l| columns(l) as f64 * DETAIL_WIDTH)
        .fold(columns(&label) as f64 * LABEL_WIDTH, f64::max);
    let size = Size {
        width: (text + 2.0 * PAD_X).max(MIN_WIDTH).ceil(),
        height: 26.0 + DETAIL_STEP * lines.len() as f64,
    };
    BoxText { label, lines, size }
}
