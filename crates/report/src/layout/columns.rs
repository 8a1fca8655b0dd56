//! Vertical positions, columns side by side, and routes.
//!
//! In: an ordered [`Proper`] graph with breaks and horizontal positions. Out: the [`Layout`] of one connected part.
//! Each line that passes a break goes round through the gutter to the top of the next column. Linear but for sorting.

use super::breaks::{GUTTER, MIN_GAP, TRACK, heights};
use super::crossings::Rows;
use super::proper::{Proper, Run, Short, Vertex};
use super::{LayerIx, Layout, Link, Piece, Placed, Point, Route, Size};
use crate::picture::index;

index! {
    /// One of the columns that a long part is broken into.
    ColumnIx
}

/// Space between rows at most.
const MAX_GAP: f64 = 130.0;
/// Distance of line ends along a box.
const PORT: f64 = 11.0;

struct Column {
    /// First layer and the one after the last.
    layers: (usize, usize),
    /// To be added to horizontal positions.
    shift: f64,
    /// Left end of the gutter behind it.
    gutter: f64,
}

/// Places boxes and routes links.
pub(super) fn place(
    graph: &Proper,
    rows: &Rows,
    ends: &[LayerIx],
    xs: &[f64],
    sizes: &[Size],
    links: &[Link],
) -> Layout {
    let heights = heights(graph, rows, sizes);
    let (gaps, passing) = gaps(graph, xs, rows.len());
    let columns = columns(graph, rows, xs, ends, &passing);

    let tracks = |c: &Column| passing.get(c.layers.1.wrapping_sub(1)).map_or(0, |p| p.len());
    let head = match columns.len() {
        1 => 0.0,
        _ => GUTTER + TRACK * columns.iter().map(tracks).max().unwrap_or(0) as f64,
    };
    let mut top = vec![0.0; rows.len()];
    let mut column_of = vec![0u32; rows.len()];
    let mut size = Size::default();
    for (c, column) in columns.iter().enumerate() {
        let mut y = head;
        for l in column.layers.0..column.layers.1 {
            if l > column.layers.0 {
                y += gaps[l - 1];
            }
            top[l] = y;
            column_of[l] = c as u32;
            y += heights[l];
        }
        let below = if c + 1 < columns.len() { head } else { 0.0 };
        size.height = size.height.max(y + below);
    }

    let mut x = vec![0.0; graph.len()];
    for (l, row) in rows.iter().enumerate() {
        for &v in row {
            x[v.index()] = xs[v.index()] + columns[column_of[l] as usize].shift;
            size.width = size.width.max(x[v.index()] + graph.width[v.index()] / 2.0);
        }
    }
    let boxes: Vec<Placed> = (0..graph.boxes)
        .map(|v| {
            let l = graph.layer[v] as usize;
            Placed {
                corner: Point { x: x[v] - sizes[v].width / 2.0, y: top[l] },
                size: sizes[v],
                layer: LayerIx(l as u32),
                column: ColumnIx(column_of[l]),
            }
        })
        .collect();
    let router = Router {
        graph,
        x: &x,
        top: &top,
        heights: &heights,
        columns: &columns,
        column_of: &column_of,
        around: tracks_of(&passing, &columns),
        ports: Ports::new(graph, &x),
        boxes: &boxes,
    };
    let routes = links.iter().zip(&graph.runs).map(|(link, run)| router.route(link, run)).collect();
    Layout { boxes, routes, size }
}

/// The gap below each layer, wide where lines run flat, and the short edges that pass it from left to right.
fn gaps(graph: &Proper, xs: &[f64], depth: usize) -> (Vec<f64>, Vec<Vec<Short>>) {
    let mut gaps = vec![MIN_GAP; depth];
    let mut passing: Vec<Vec<Short>> = vec![Vec::new(); depth];
    for (i, edge) in graph.edges.iter().enumerate() {
        let l = graph.layer[edge.upper.index()] as usize;
        let run = (xs[edge.upper.index()] - xs[edge.lower.index()]).abs();
        gaps[l] = gaps[l].max(run / 7.0).min(MAX_GAP);
        passing[l].push(Short(i as u32));
    }
    for row in &mut passing {
        row.sort_by(|a, b| {
            let ends = |s: &Short| {
                let e = graph.edges[s.index()];
                (xs[e.upper.index()], xs[e.lower.index()])
            };
            let (a_ends, b_ends) = (ends(a), ends(b));
            a_ends.0.total_cmp(&b_ends.0).then(a_ends.1.total_cmp(&b_ends.1)).then(a.cmp(b))
        });
    }
    (gaps, passing)
}

fn columns(
    graph: &Proper,
    rows: &Rows,
    xs: &[f64],
    ends: &[LayerIx],
    passing: &[Vec<Short>],
) -> Vec<Column> {
    let mut columns = Vec::with_capacity(ends.len());
    let (mut start, mut x) = (0, 0.0);
    for end in ends.iter().map(|l| l.index()) {
        let (mut left, mut right) = (f64::INFINITY, f64::NEG_INFINITY);
        for &v in rows[start..end].iter().flatten() {
            left = left.min(xs[v.index()] - graph.width[v.index()] / 2.0);
            right = right.max(xs[v.index()] + graph.width[v.index()] / 2.0);
        }
        let gutter = x + right - left + GUTTER;
        columns.push(Column { layers: (start, end), shift: x - left, gutter });
        x = gutter + TRACK * passing[end - 1].len() as f64 + GUTTER;
        start = end;
    }
    columns
}

/// For each short edge that passes a break, its track: 0 is the innermost.
fn tracks_of(passing: &[Vec<Short>], columns: &[Column]) -> rustc_hash::FxHashMap<Short, usize> {
    let mut tracks = rustc_hash::FxHashMap::default();
    for column in &columns[..columns.len() - 1] {
        // The rightmost line turns first: lines that keep their order then do not cross.
        for (k, &s) in passing[column.layers.1 - 1].iter().rev().enumerate() {
            tracks.insert(s, k);
        }
    }
    tracks
}

/// Where lines meet boxes, as offsets from the middle.
struct Ports {
    upper: Vec<f64>,
    lower: Vec<f64>,
}

impl Ports {
    fn new(graph: &Proper, x: &[f64]) -> Self {
        let mut ports =
            Ports { upper: vec![0.0; graph.edges.len()], lower: vec![0.0; graph.edges.len()] };
        for v in (0..graph.boxes as u32).map(Vertex) {
            spread(graph.below.of(v.0), v, graph, x, &mut ports.upper, |e| {
                graph.edges[e as usize].lower
            });
            spread(graph.above.of(v.0), v, graph, x, &mut ports.lower, |e| {
                graph.edges[e as usize].upper
            });
        }
        ports
    }
}

/// Lines straight up or down stay in the middle; those to the left and right take places on that side.
fn spread(
    edges: &[u32],
    v: Vertex,
    graph: &Proper,
    x: &[f64],
    offsets: &mut [f64],
    other: impl Fn(u32) -> Vertex,
) {
    if edges.len() < 2 {
        return;
    }
    let mut sides: [Vec<(f64, u32)>; 2] = [Vec::new(), Vec::new()];
    for &e in edges {
        let dx = x[other(e).index()] - x[v.index()];
        if dx.abs() > 0.5 {
            sides[usize::from(dx > 0.0)].push((dx.abs(), e));
        }
    }
    let straight = edges.len() > sides[0].len() + sides[1].len();
    let room = graph.width[v.index()] * 0.4;
    for (side, sign) in sides.iter_mut().zip([-1.0, 1.0]) {
        side.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let first = if straight { 1.0 } else { 0.5 };
        let step = PORT.min(room / side.len().max(1) as f64);
        for (k, &(_, e)) in side.iter().enumerate() {
            offsets[e as usize] = sign * step * (k as f64 + first);
        }
    }
}

struct Router<'a> {
    graph: &'a Proper,
    x: &'a [f64],
    top: &'a [f64],
    heights: &'a [f64],
    columns: &'a [Column],
    column_of: &'a [u32],
    around: rustc_hash::FxHashMap<Short, usize>,
    ports: Ports,
    boxes: &'a [Placed],
}

impl Router<'_> {
    fn route(&self, link: &Link, run: &Run) -> Route {
        let from = &self.boxes[link.from.index()];
        let to = &self.boxes[link.to.index()];
        let (edges, joins) = match run {
            Run::Edges { edges, joins } => (edges, *joins),
            Run::Jump => {
                return Route::Jump {
                    leave: Point {
                        x: from.corner.x + from.size.width * 0.9,
                        y: from.corner.y + from.size.height,
                    },
                    arrive: Point { x: to.corner.x + to.size.width * 0.1, y: to.corner.y },
                };
            }
        };
        let mut path = Path::default();
        for (i, &s) in edges.iter().enumerate() {
            let edge = self.graph.edges[s.index()];
            let upper = self.x[edge.upper.index()] + self.ports.upper[s.index()];
            let lower = self.x[edge.lower.index()] + self.ports.lower[s.index()];
            let u = self.graph.layer[edge.upper.index()] as usize;
            let bottom = self.top[u] + self.heights[u];
            if i == 0 {
                path.start = Point { x: upper, y: from.corner.y + from.size.height };
            }
            path.line(upper, bottom);
            match self.around.get(&s) {
                Some(&track) => self.go_round(&mut path, u, track, lower),
                None => path.curve(lower, self.top[u + 1]),
            }
        }
        Route::Path { start: path.start, pieces: path.pieces, joins }
    }

    /// From the end of a column to the head of the next.
    fn go_round(&self, path: &mut Path, upper: usize, track: usize, lower: f64) {
        let column = self.column_of[upper] as usize;
        let under = self.top[upper] + self.heights[upper] + GUTTER / 2.0 + TRACK * track as f64;
        let gutter = self.columns[column].gutter + TRACK * track as f64;
        let last = self.columns[column].layers.1;
        let over = GUTTER / 2.0 + TRACK * track as f64;
        let x = path.at().x;
        path.line(x, under);
        path.line(gutter, under);
        path.line(gutter, over);
        path.line(lower, over);
        path.line(lower, self.top[last]);
    }
}

#[derive(Default)]
struct Path {
    start: Point,
    pieces: Vec<Piece>,
}

impl Path {
    fn at(&self) -> Point {
        self.pieces.last().map_or(self.start, |p| p.end())
    }

    /// A line, joined to the last one if both are vertical.
    fn line(&mut self, x: f64, y: f64) {
        let at = self.at();
        if at.x == x && at.y == y {
            return;
        }
        let to = Piece::Line(Point { x, y });
        let n = self.pieces.len();
        let before = if n > 1 { self.pieces[n - 2].end() } else { self.start };
        match self.pieces.last_mut() {
            Some(last @ Piece::Line(_)) if before.x == at.x && at.x == x => *last = to,
            _ => self.pieces.push(to),
        }
    }

    fn curve(&mut self, x: f64, y: f64) {
        if (self.at().x - x).abs() < 0.05 {
            let x = self.at().x;
            self.line(x, y);
        } else {
            self.pieces.push(Piece::Curve(Point { x, y }));
        }
    }
}
