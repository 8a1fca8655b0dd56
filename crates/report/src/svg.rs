//! A [`Picture`] as one SVG document.
//!
//! In: a picture. Out: XML that stands alone: style sheet, legend, one frame for each graph. Every text is escaped,
//! shortened where it is displayed, and given whole (to 2,000 characters) in a tooltip. Cost: layout plus linear.

use crate::boxes::{BoxText, DETAIL_STEP, PAD_X, fit};
use crate::collapse::{collapse, link};
use crate::edges::draw_edge;
use crate::html::PageError;
use crate::layout::{Placed, Point, Route, Size, layout, pack};
use crate::legend::{Used, legend};
use crate::picture::{Group, GroupIx, Node, NodeClass, Picture, PictureError};
use crate::skyline::{self, Skyline};
use crate::style::{self, Line};
use crate::text::{capped, columns, elide, escape, escaped, num};
use crate::timeline::{self, Timeline};

/// Space around everything, inside frames, and between frames.
pub(crate) const MARGIN: f64 = 20.0;
const FRAME_PAD: f64 = 16.0;
const FRAME_GAP: f64 = 26.0;
const NOTE_STEP: f64 = 16.0;
/// Width of a character of the proportional font, on the safe side.
pub(crate) const SANS_WIDTH: f64 = 7.4;
const TITLE_WIDTH: f64 = 10.2;

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

    let mut body = String::with_capacity(drawing.body.len() + 8_000);
    let lines: Vec<Line> = drawing.used.lines.iter().copied().collect();
    style::markers(&mut body, "", &lines);
    at(&mut body, MARGIN, MARGIN + 26.0, &legend.body);
    at(&mut body, MARGIN, top, &drawing.body);
    Ok(document(&picture.title, Size { width, height }, &body))
}

/// The drawing of a plan for a paper: when what runs, and below it where the buffers lie.
///
/// # Errors
///
/// [`PageError`] with section 0 if the timeline cannot be drawn, 1 if the skyline cannot.
///
/// ```
/// use phonograph_graph::{GraphBuilder, Schedule};
/// use phonograph_report::timeline::Unit;
/// use phonograph_report::{Marks, picture_of, plan_svg, skyline_of, timeline_of};
///
/// let mut b = GraphBuilder::new();
/// b.add_barrier("x");
/// let graph = b.build()?;
/// let schedule = Schedule::sequential(&graph);
/// let picture = picture_of(&graph, "one", Some(&schedule), &mut |_| Marks::default());
/// let timeline = timeline_of(&picture, "in turn", schedule.streams, Unit::Steps, []);
/// let drawing = plan_svg("a plan", &timeline, &skyline_of(&graph, &schedule, "memory"))?;
/// assert!(drawing.contains("stream 0"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn plan_svg(title: &str, timeline: &Timeline, skyline: &Skyline) -> Result<String, PageError> {
    const HEADING: f64 = 30.0;
    let mut used = Used::default();
    let times = timeline::draw(timeline, &mut used)
        .map_err(|error| PageError::Timeline { section: 0, error })?;
    let memory =
        skyline::draw(skyline).map_err(|error| PageError::Skyline { section: 1, error })?;
    let legend = legend(&used, "");
    let mut body = String::new();
    let mut y = MARGIN + 26.0;
    at(&mut body, MARGIN, y, &legend.body);
    y += legend.size.height;
    let mut width = legend.size.width;
    for (heading, drawing) in [(&timeline.title, times), (&skyline.title, memory)] {
        text(&mut body, "f", MARGIN, y + 14.0, &elide(heading, TITLE_COLUMNS));
        at(&mut body, MARGIN, y + HEADING, &drawing.body);
        y += HEADING + drawing.size.height + MARGIN;
        width = width.max(drawing.size.width);
    }
    Ok(document(title, Size { width: width + 2.0 * MARGIN, height: y }, &body))
}

/// An SVG document with its heading.
pub(crate) fn document(title: &str, size: Size, body: &str) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"pg\" role=\"img\" width=\"{0}\" height=\"{1}\" \
         viewBox=\"0 0 {0} {1}\"><title>{2}</title><style>{3}</style>\
         <rect class=\"bg\" width=\"100%\" height=\"100%\"/>",
        num(size.width),
        num(size.height),
        escaped(&capped(title)),
        style::sheet()
    );
    text(&mut out, "h", MARGIN, MARGIN + 14.0, &elide(title, TITLE_COLUMNS));
    out.push_str(body);
    out.push_str("</svg>\n");
    out
}

const TITLE_COLUMNS: usize = 90;

/// A part of a document with the space that it takes.
pub(crate) struct Fragment {
    pub(crate) body: String,
    pub(crate) size: Size,
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
        frames.push(frame(
            picture,
            group,
            GroupIx(g as u32),
            owners[g].as_deref(),
            prefix,
            &mut used,
        )?);
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
    if others.is_empty() {
        return (vec![Point::default()], *main);
    }
    let area: f64 = sizes.iter().map(|s| (s.width + FRAME_GAP) * (s.height + FRAME_GAP)).sum();
    let ideal = (area * pack::ASPECT).sqrt();
    let beside = main.width + FRAME_GAP;
    let tall = ideal > beside;
    let order: Vec<usize> = (0..others.len()).collect();
    let widest = others.iter().map(|s| s.width).fold(0.0, f64::max);
    let target = if tall { ideal - beside } else { main.width };
    let (corners, rest) = pack::place(others, &order, FRAME_GAP, target.max(widest));
    let by = if tall {
        Point { x: beside, y: 0.0 }
    } else {
        Point { x: 0.0, y: main.height + FRAME_GAP }
    };
    let mut all = vec![Point::default()];
    all.extend(corners.iter().map(|c| Point { x: c.x + by.x, y: c.y + by.y }));
    let size = Size {
        width: main.width.max(by.x + rest.width),
        height: main.height.max(by.y + rest.height),
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
                    None => {
                        *owner = Some(format!(
                            "in {} of {}",
                            elide(&node.label, 32),
                            elide(&group.title, 32)
                        ))
                    }
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
    let top = pad
        + heading_height
        + NOTE_STEP * notes.len() as f64
        + if notes.is_empty() { 0.0 } else { 8.0 };
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
        draw_node(&mut inner, node, &texts[n], &plan.boxes[n], &format!("{prefix}g{ix}n{n}"));
    }
    at(&mut out, pad, top, &inner);
    out.push_str("</g>");
    Ok(Fragment { body: out, size })
}

fn draw_node(out: &mut String, node: &Node, fitted: &BoxText, placed: &Placed, id: &str) {
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
    if x == 0.0 && y == 0.0 || body.is_empty() {
        out.push_str(body);
        return;
    }
    out.push_str(&format!("<g transform=\"translate({} {})\">", num(x), num(y)));
    out.push_str(body);
    out.push_str("</g>");
}
