//! Edges of a graph as SVG paths.
//!
//! In: an edge and its route. Out: a path with its style, arrow head and tooltip, or two stubs for a route that is not
//! drawn through. Linear in the route.

use crate::layout::{Piece, Point, Route};
use crate::picture::{Edge, EdgeStyle, Group, NodeIx};
use crate::style::Line;
use crate::text::{elide, escaped, num};

/// Radius of rounded corners.
const CORNER: f64 = 7.0;
/// Length of a stub.
const STUB: f64 = 12.0;

/// Draws an edge; `prefix` begins the ids of arrow heads, `id` is its own.
pub(crate) fn draw_edge(
    out: &mut String,
    group: &Group,
    edge: &Edge,
    route: &Route,
    prefix: &str,
    id: &str,
) {
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
                ("", *leave, Point { x: leave.x, y: leave.y + STUB }),
                ("b", Point { x: arrive.x, y: arrive.y - STUB }, *arrive),
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
    let name = |n: NodeIx| format!("{n} {}", elide(&group.nodes[n.index()].label, 60));
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
    if let Some(why) = why(group, edge) {
        words.push('\n');
        words.push_str(&why);
    }
    escaped(&words)
}

/// Why an edge is there, if that is known.
pub(crate) fn why(group: &Group, edge: &Edge) -> Option<String> {
    let why = edge.why?;
    let buffer = elide(&group.buffers[why.buffer.index()], 60);
    Some(why.hazard.words().replace("{}", &buffer))
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
    Point { x: corner.x + dx * t, y: corner.y + dy * t }
}
