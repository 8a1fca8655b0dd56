//! What the colours and lines of a drawing mean.
//!
//! In: what a drawing uses. Out: swatches for that and nothing else, on rows of moderate width.

use std::collections::BTreeSet;

use crate::layout::Size;
use crate::picture::{LaneIx, NodeClass};
use crate::style::{self, Line};
use crate::svg::{Fragment, SANS_WIDTH, at, text};
use crate::text::columns;

/// What a legend has to explain.
#[derive(Default)]
pub(crate) struct Used {
    pub(crate) classes: BTreeSet<NodeClass>,
    pub(crate) lines: BTreeSet<Line>,
    pub(crate) lanes: BTreeSet<LaneIx>,
    pub(crate) disabled: bool,
    pub(crate) critical: bool,
    pub(crate) jumps: bool,
}

/// Swatches for what a drawing uses, on rows of moderate width.
pub(crate) fn legend(used: &Used, prefix: &str) -> Fragment {
    const ROW: f64 = 22.0;
    const WIDEST: f64 = 1_000.0;
    let mut items: Vec<(String, f64, String)> = Vec::new();
    for &class in &used.classes {
        let swatch = format!(
            "<g class=\"n {}\"><rect class=\"b\" y=\"2\" width=\"16\" height=\"12\" rx=\"3\"/></g>",
            style::box_class(class)
        );
        items.push((swatch, 22.0, class.name().into()));
    }
    if used.critical && !used.lines.contains(&Line::Critical) {
        let swatch = "<g class=\"n crit k-empty\"><rect class=\"b\" y=\"2\" width=\"16\" height=\"12\" rx=\"3\"/></g>";
        items.push((swatch.into(), 22.0, "critical path".into()));
    }
    if used.disabled {
        let swatch = "<g class=\"n off k-empty\"><rect class=\"b\" y=\"2\" width=\"16\" height=\"12\" rx=\"3\"/></g>";
        items.push((swatch.into(), 22.0, "disabled".into()));
    }
    for &line in &used.lines {
        let class = line.class();
        let swatch = format!(
            "<path class=\"e {class}\" marker-end=\"url(#{prefix}{class})\" d=\"M0 8H34\"/>"
        );
        items.push((swatch, 40.0, line.words().into()));
    }
    if used.jumps {
        let swatch = "<path class=\"e l-full\" d=\"M0 8H10M24 8H34\"/>";
        items.push((swatch.into(), 40.0, "long edge, only its ends".into()));
    }
    const LANES_SHOWN: usize = 8;
    for &lane in used.lanes.iter().take(LANES_SHOWN) {
        let swatch = format!(
            "<rect class=\"{}\" y=\"1\" width=\"4\" height=\"14\" rx=\"2\"/>",
            style::lane_class(lane)
        );
        items.push((swatch, 10.0, format!("lane {lane}")));
    }
    if used.lanes.len() > LANES_SHOWN {
        items.push((String::new(), 0.0, format!("… {} lanes, colours repeat", used.lanes.len())));
    }

    let mut body = String::new();
    let (mut x, mut y) = (0.0, 0.0);
    let mut size = Size::default();
    for (swatch, indent, words) in items {
        let width = indent + columns(&words) as f64 * SANS_WIDTH;
        if x > 0.0 && x + width > WIDEST {
            x = 0.0;
            y += ROW;
        }
        let mut item = swatch;
        text(&mut item, "s", indent, 12.0, &words);
        at(&mut body, x, y, &item);
        x += width + 16.0;
        size.width = size.width.max(x);
        size.height = y + ROW + 10.0;
    }
    Fragment { body, size }
}
