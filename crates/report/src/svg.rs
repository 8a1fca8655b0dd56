//! A [`Picture`] as one SVG document.
//!
//! In: a picture. Out: XML that stands alone: style sheet, legend, one frame for each graph. Every text is escaped,
//! shortened where it is displayed, and given whole (to 2,000 characters) in a tooltip. Cost: layout plus linear.

use std::collections::BTreeSet;

use crate::boxes::{BoxText, DETAIL_STEP, PAD_X, fit};
use crate::collapse::{collapse, link};
use crate::layout::{Layout, Piece, Point, Route, Size, layout, pack};
use crate::picture::{Edge, EdgeStyle, Group, GroupIx, LaneIx, Node, NodeClass, Picture, PictureError};
use crate::style::{self, Line};
use crate::text::{capped, columns, elide, escape, escaped, num};

/// Space around everything, inside frames, and between frames.
const MARGIN: f64 = 20.0;
const FRAME_PAD: f64 = 16.0;
const FRAME_GAP: f64 = 26.0;
const NOTE_STEP: f64 = 16.0;
/// Width of a character of the proportional font, on the safe side.
const SANS_WIDTH: f64 = 7.4;
const TITLE_WIDTH: f64 = 10.2;
const CORNER: f64 = 7.0;

/// Draws the picture as an SVG document.
///
/// # Errors
///
/// [`PictureError`] if an index names nothing or the edges of a group form a cycle.
///
/// See [`Picture`] for an example. Groups of more than [`MAX_NODES`](crate::MAX_NODES) nodes or
/// [`MAX_EDGES`](crate::MAX_EDGES) edges are drawn as one box for each run of levels, and the drawing says so.
pub fn svg(picture: &Picture) -> Result<String, PictureError> {
    let picture = collapse(picture)?;
    let drawing = draw(&picture, "")?;
    let legend = legend(&drawing.used, "");
    let title_width = columns(&picture.title).min(TITLE_COLUMNS) as f64 * TITLE_WIDTH;
    let width = drawing.size.width.max(legend.size.width).max(title_width) + 2.0 * MARGIN;
    let top = MARGIN + 26.0 + legend.size.height;
    let height = top + drawing.size.height + MARGIN;

    let mut out = String::with_capacity(drawing.body.len() + 8_000);
    out.push_str(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"pg\" role=\"img\" width=\"{0}\" height=\"{1}\" \
         viewBox=\"0 0 {0} {1}\"><title>{2}</title><style>{3}</style>",
        num(width),
        num(height),
        escaped(&capped(&picture.title)),
        style::sheet()
    ));
    let lines: Vec<Line> = drawing.used.lines.iter().copied().collect();
    style::markers(&mut out, "", &lines);
    out.push_str("<rect class=\"bg\" width=\"100%\" height=\"100%\"/>");
    text(&mut out, "h", MARGIN, MARGIN + 14.0, &elide(&picture.title, TITLE_COLUMNS));
    at(&mut out, MARGIN, MARGIN + 26.0, &legend.body);
    at(&mut out, MARGIN, top, &drawing.body);
    out.push_str("</svg>\n");
    Ok(out)
}

const TITLE_COLUMNS: usize = 90;

/// A part of a document with the space that it takes.
pub(crate) struct Fragment {
    pub(crate) body: String,
    pub(crate) size: Size,
}

/// What a legend has to explain.
#[derive(Default)]
pub(crate) struct Used {
    pub(crate) classes: BTreeSet<NodeClass>,
    pub(crate) lines: BTreeSet<Line>,
    pub(crate) lanes: BTreeSet<LaneIx>,
    disabled: bool,
    critical: bool,
    jumps: bool,
}

/// The frames of a picture, and what they use.
pub(crate) struct Drawing {
    pub(crate) body: String,
    pub(crate) size: Size,
    pub(crate) used: Used,
}

/// Draws all groups of a collapsed picture; `prefix` begins every id.
pub(crate) fn draw(picture: &Picture, prefix: &str) -> Result<Drawing, PictureError> {
    let mut used = Used::default();
    let owners = owners(picture);
    let mut frames = Vec::with_capacity(picture.groups.len());
    for (g, group) in picture.groups.iter().enumerate() {
        frames.push(frame(picture, group, GroupIx(g as u32), owners[g].as_deref(), prefix, &mut used)?);
    }
    let sizes: Vec<Size> = frames.iter().map(|f| f.size).collect();
    let (corners, size) = arrange(&sizes);
    let mut body = String::new();
    for (frame, corner) in frames.iter().zip(corners) {
        at(&mut body, corner.x, corner.y, &frame.body);
    }
    Ok(Drawing { body, size, used })
}

/// The main graph first; others beside it if it is tall, else below.
fn arrange(sizes: &[Size]) -> (Vec<Point>, Size) {
    let Some((main, others)) = sizes.split_first() else {
        return (Vec::new(), Size::default());
    };
    let area: f64 = sizes.iter().map(|s| (s.width + FRAME_GAP) * (s.height + FRAME_GAP)).sum();
    let ideal = (area * pack::ASPECT).sqrt();
    let beside = main.width + FRAME_GAP;
    let tall = ideal > beside && !others.is_empty();
    let order: Vec<usize> = (0..others.len()).collect();
    let widest = others.iter().map(|s| s.width).fold(0.0, f64::max);
    let target = if tall { ideal - beside } else { main.width };
    let (corners, rest) = pack::place(others, &order, FRAME_GAP, target.max(widest));
    let by = if tall {
        Point { x: beside, y: 0.0 }
    } else {
        Point {
            x: 0.0,
            y: main.height + FRAME_GAP,
        }
    };
    let mut all = vec![Point::default()];
    all.extend(corners.iter().map(|c| Point {
        x: c.x + by.x,
        y: c.y + by.y,
    }));
    let size = Size {
        width: main.width.max(if others.is_empty() { 0.0 } else { by.x + rest.width }),
        height: main.height.max(if others.is_empty() { 0.0 } else { by.y + rest.height }),
    };
    (all, size)
}

/// For each group, in words, the nodes that contain it.
fn owners(picture: &Picture) -> Vec<Option<String>> {
    let mut owners: Vec<Option<String>> = vec![None; picture.groups.len()];
    for group in &picture.groups {
        for node in &group.nodes {
            for body in &node.bodies {
                let owner = &mut owners[body.index()];
                match owner {
                    None => *owner = Some(format!("in {} of {}", elide(&node.label, 32), elide(&group.title, 32))),
                    Some(text) if !text.ends_with("others") => text.push_str(" and others"),
                    Some(_) => {}
                }
            }
        }
    }
    owners
}

fn frame(
    picture: &Picture,
    group: &Group,
    ix: GroupIx,
    owner: Option<&str>,
    prefix: &str,
    used: &mut Used,
) -> Result<Fragment, PictureError> {
    let texts: Vec<BoxText> = group.nodes.iter().map(|n| fit(n, picture)).collect();
    let sizes: Vec<Size> = texts.iter().map(|t| t.size).collect();
    let links: Vec<_> = group.edges.iter().map(link).collect();
    let plan = layout(&sizes, &links).map_err(|nodes| PictureError::Cycle { group: ix, nodes })?;

    let mut notes: Vec<String> = group.notes.iter().map(|n| elide(n, 220)).collect();
    let jumps = plan.routes.iter().filter(|r| matches!(r, Route::Jump { .. })).count();
    if jumps > 0 {
        notes.push(format!(
            "{jumps} of the longest edges are drawn as two stubs; a stub's tooltip names its other end."
        ));
        used.jumps = true;
    }
    if group.nodes.is_empty() {
        notes.push("This graph has no nodes.".into());
    }

    let framed = picture.groups.len() > 1;
    let pad = if framed { FRAME_PAD } else { 0.0 };
    let heading = match owner {
        Some(owner) => format!("{} — {owner}", elide(&group.title, 60)),
        None => elide(&group.title, 60),
    };
    let heading_height = if framed { 22.0 } else { 0.0 };
    let top = pad + heading_height + NOTE_STEP * notes.len() as f64 + if notes.is_empty() { 0.0 } else { 8.0 };
    let note_width = notes.iter().map(|n| columns(n) as f64 * 6.4).fold(0.0, f64::max);
    let heading_width = if framed { columns(&heading) as f64 * SANS_WIDTH * 1.1 } else { 0.0 };
    let size = Size {
        width: plan.size.width.max(note_width).max(heading_width) + 2.0 * pad,
        height: top + plan.size.height + pad,
    };

    let mut out = String::new();
    out.push_str(&format!("<g id=\"{prefix}g{ix}\">"));
    if framed {
        out.push_str(&format!(
            "<rect class=\"frame\" width=\"{}\" height=\"{}\" rx=\"8\"/>",
            num(size.width),
            num(size.height)
        ));
        text(&mut out, "f", pad, pad + 8.0, &heading);
    }
    for (i, note) in notes.iter().enumerate() {
        text(&mut out, "s", pad, pad + heading_height + NOTE_STEP * i as f64 + 6.0, note);
    }
    let mut inner = String::new();
    // Heavier lines last, so that they lie above what they cross.
    let mut order: Vec<usize> = (0..group.edges.len()).collect();
    order.sort_by_key(|&e| (Line::of(&group.edges[e]) == Line::Critical, e));
    for e in order {
        let edge = &group.edges[e];
        used.lines.insert(Line::of(edge));
        draw_edge(&mut inner, group, edge, &plan.routes[e], prefix, &format!("{prefix}g{ix}e{e}"));
    }
    for (n, node) in group.nodes.iter().enumerate() {
        used.classes.insert(node.class);
        used.lanes.extend(node.lane);
        used.disabled |= node.disabled;
        used.critical |= node.critical;
        draw_node(&mut inner, node, &texts[n], &plan, n, &format!("{prefix}g{ix}n{n}"));
    }
    at(&mut out, pad, top, &inner);
    out.push_str("</g>");
    Ok(Fragment { body: out, size })
}

fn draw_node(out: &mut String, node: &Node, fitted: &BoxText, plan: &Layout, n: usize, id: &str) {
    let placed = &plan.boxes[n];
    let (x, y) = (placed.corner.x, placed.corner.y);
    let (w, h) = (placed.size.width, placed.size.height);
    let rx = match node.class {
        NodeClass::Empty | NodeClass::Event => (h / 2.0).min(14.0),
        NodeClass::Alloc | NodeClass::Free => 1.0,
        NodeClass::Memcpy | NodeClass::Memset => 8.0,
        _ => 4.0,
    };
    out.push_str(&format!("<g class=\"n {}", style::box_class(node.class)));
    if node.critical {
        out.push_str(" crit");
    }
    if node.disabled {
        out.push_str(" off");
    }
    out.push_str(&format!("\" id=\"{id}\"><title>"));
    escape(out, &tooltip(node));
    out.push_str(&format!(
        "</title><rect class=\"b\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{}\"/>",
        num(x),
        num(y),
        num(w),
        num(h),
        num(rx)
    ));
    if matches!(node.class, NodeClass::Child | NodeClass::Conditional) {
        // A second border: there is a graph inside.
        out.push_str(&format!(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"2\"/>",
            num(x + 3.0),
            num(y + 3.0),
            num(w - 6.0),
            num(h - 6.0)
        ));
    }
    if let Some(lane) = node.lane {
        out.push_str(&format!(
            "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"4\" height=\"{}\" rx=\"2\"/>",
            style::lane_class(lane),
            num(x + 3.0),
            num(y + 5.0),
            num(h - 10.0)
        ));
    }
    text(out, "t", x + PAD_X, y + 17.0, &fitted.label);
    for (i, line) in fitted.lines.iter().enumerate() {
        text(out, "d", x + PAD_X, y + 17.0 + DETAIL_STEP * (i + 1) as f64, line);
    }
    out.push_str("</g>");
}

/// Everything that is known of a node, a line each.
fn tooltip(node: &Node) -> String {
    let mut tip = format!("{}\nkind: {}", capped(&node.label), node.class.name());
    for line in &node.lines {
        tip.push('\n');
        tip.push_str(&capped(line));
    }
    if let Some(lane) = node.lane {
        tip.push_str(&format!("\nlane: {lane}"));
    }
    for (name, value) in &node.facts {
        tip.push_str(&format!("\n{}: {}", capped(name), capped(value)));
    }
    if node.critical {
        tip.push_str("\non the critical path");
    }
    if node.disabled {
        tip.push_str("\ndisabled");
    }
    capped(&tip)
}

fn draw_edge(out: &mut String, group: &Group, edge: &Edge, route: &Route, prefix: &str, id: &str) {
    let line = Line::of(edge);
    let class = line.class();
    let words = edge_words(group, edge);
    match route {
        Route::Path { start, pieces, joins } => {
            let (end, data) = if *joins {
                let (start, pieces) = backward(*start, pieces);
                ("start", path_data(start, &pieces))
            } else {
                ("end", path_data(*start, pieces))
            };
            out.push_str(&format!(
                "<path id=\"{id}\" class=\"e {class}\" marker-{end}=\"url(#{prefix}{class})\" d=\"{data}\">\
                 <title>{words}</title></path>"
            ));
        }
        Route::Jump { leave, arrive } => {
            for (half, from, to) in [
                ("", *leave, Point { x: leave.x, y: leave.y + 12.0 }),
                ("b", Point { x: arrive.x, y: arrive.y - 12.0 }, *arrive),
            ] {
                out.push_str(&format!(
                    "<path id=\"{id}{half}\" class=\"e {class}\" marker-end=\"url(#{prefix}{class})\" d=\"{}\">\
                     <title>{words}</title></path>",
                    path_data(from, &[Piece::Line(to)])
                ));
            }
        }
    }
}

fn edge_words(group: &Group, edge: &Edge) -> String {
    let name = |n: crate::picture::NodeIx| format!("{n} {}", elide(&group.nodes[n.index()].label, 60));
    let style = match edge.style {
        EdgeStyle::Full => "dependency",
        EdgeStyle::Programmatic => "programmatic dependency",
        EdgeStyle::LaunchOrder => "launch order",
    };
    let mut words = format!("{} → {}\n{style}", name(edge.from), name(edge.to));
    for (flag, word) in [
        (edge.redundant, "redundant"),
        (edge.critical, "critical path"),
        (edge.reuse, "memory reuse"),
    ] {
        if flag {
            words.push_str(", ");
            words.push_str(word);
        }
    }
    escaped(&words)
}

/// The same way from its end.
fn backward(start: Point, pieces: &[Piece]) -> (Point, Vec<Piece>) {
    let ends: Vec<Point> = std::iter::once(start).chain(pieces.iter().map(|p| p.end())).collect();
    let turned = pieces.iter().zip(&ends).rev().map(|(piece, &to)| match piece {
        Piece::Line(_) => Piece::Line(to),
        Piece::Curve(_) => Piece::Curve(to),
    });
    (ends[ends.len() - 1], turned.collect())
}

/// Path commands; corners between straight lines are rounded.
fn path_data(start: Point, pieces: &[Piece]) -> String {
    let mut d = format!("M{} {}", num(start.x), num(start.y));
    let mut from = start;
    for (i, piece) in pieces.iter().enumerate() {
        match *piece {
            Piece::Curve(to) => {
                let middle = (from.y + to.y) / 2.0;
                d.push_str(&format!(
                    "C{0} {2} {1} {2} {1} {3}",
                    num(from.x),
                    num(to.x),
                    num(middle),
                    num(to.y)
                ));
                from = to;
            }
            Piece::Line(to) => {
                match pieces.get(i + 1) {
                    Some(&Piece::Line(after)) => {
                        let (a, b) = (toward(to, from), toward(to, after));
                        d.push_str(&format!(
                            "L{} {}Q{} {} {} {}",
                            num(a.x),
                            num(a.y),
                            num(to.x),
                            num(to.y),
                            num(b.x),
                            num(b.y)
                        ));
                    }
                    _ => d.push_str(&format!("L{} {}", num(to.x), num(to.y))),
                }
                from = to;
            }
        }
    }
    d
}

/// The point a corner's radius from `corner` in the direction of `other`, at most half-way.
fn toward(corner: Point, other: Point) -> Point {
    let (dx, dy) = (other.x - corner.x, other.y - corner.y);
    let length = (dx * dx + dy * dy).sqrt();
    if length == 0.0 {
        return corner;
    }
    let t = (CORNER / length).min(0.5);
    Point {
        x: corner.x + dx * t,
        y: corner.y + dy * t,
    }
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
        let swatch =
            format!("<path class=\"e {class}\" marker-end=\"url(#{prefix}{class})\" d=\"M0 8H34\"/>");
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
        items.push((
            String::new(),
            0.0,
            format!("… {} lanes, colours repeat", used.lanes.len()),
        ));
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

/// A text element of a style class.
pub(crate) fn text(out: &mut String, class: &str, x: f64, y: f64, content: &str) {
    if content.is_empty() {
        return;
    }
    out.push_str(&format!("<text class=\"{class}\" x=\"{}\" y=\"{}\">", num(x), num(y)));
    escape(out, content);
    out.push_str("</text>");
}

/// A body moved to a place.
pub(crate) fn at(out: &mut String, x: f64, y: f64, body: &str) {
    if body.is_empty() {
        return;
    }
    out.push_str(&format!("<g transform=\"translate({} {})\">", num(x), num(y)));
    out.push_str(body);
    out.push_str("</g>");
}
