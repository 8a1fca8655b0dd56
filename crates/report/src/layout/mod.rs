//! Layered layout: where each box goes and how each link runs.
//!
//! In: the size of each box and the links between them. Out: a [`Layout`] in which every link leads to a later layer,
//! boxes never overlap and the same input gives the same numbers. Method: Sugiyama, Tagawa and Toda 1981, in phases of
//! one file each: `layers`, `proper` (dummies for long links), `crossings` (order), `breaks`, `coordinates`, `columns`
//! (places and routes). Unconnected parts are laid out one by one and packed (`pack`).
//! Time is O((V + E) log V) with bounded rounds; memory is linear, with at most twelve dummies a box.

mod breaks;
mod columns;
mod coordinates;
mod crossings;
pub(crate) mod layers;
pub(crate) mod pack;
mod proper;

pub use columns::ColumnIx;

use crate::picture::{NodeIx, index};
use proper::{Proper, Vertex};

index! {
    /// A horizontal row of boxes; links lead to higher ones.
    LayerIx
}

/// Width and height.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Size {
    /// Horizontal extent in pixels.
    pub width: f64,
    /// Vertical extent in pixels.
    pub height: f64,
}

/// A point; y grows downward.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Pixels from the left.
    pub x: f64,
    /// Pixels from the top.
    pub y: f64,
}

/// A link from a box to one below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The upper box.
    pub from: NodeIx,
    /// The lower box.
    pub to: NodeIx,
    /// Links of one box with equal bundles may share part of their way: give equal ones to links that look alike.
    pub bundle: u8,
    /// Whether it pulls its ends into line less than others, because others say what it says.
    pub weak: bool,
}

/// Where a box is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Placed {
    /// The upper left corner.
    pub corner: Point,
    /// The size that was asked for.
    pub size: Size,
    /// The layer within the connected part that the box belongs to.
    pub layer: LayerIx,
    /// The column that the layer is in, where a long part is broken into several.
    pub column: ColumnIx,
}

/// A piece of a route, from where the last one ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Piece {
    /// A straight line to the point.
    Line(Point),
    /// A curve to the point that leaves and arrives vertically.
    Curve(Point),
}

impl Piece {
    /// Where the piece ends.
    pub fn end(self) -> Point {
        match self {
            Piece::Line(p) | Piece::Curve(p) => p,
        }
    }
}

/// How a link is drawn.
#[derive(Clone, Debug, PartialEq)]
pub enum Route {
    /// From the upper box to the lower.
    Path {
        /// At the upper box.
        start: Point,
        /// The way from there; it ends at the lower box.
        pieces: Vec<Piece>,
        /// Whether its end, not its start, lies on other links: dashes counted from there coincide.
        joins: bool,
    },
    /// Too long to be drawn among so many: only its ends are marked.
    Jump {
        /// At the upper box.
        leave: Point,
        /// At the lower box.
        arrive: Point,
    },
}

/// The result of layout.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    /// A place for each box.
    pub boxes: Vec<Placed>,
    /// A route for each link.
    pub routes: Vec<Route>,
    /// What it all takes, from the origin.
    pub size: Size,
}

/// Distances between vertices of one row.
struct Separation;

impl Separation {
    const DUMMY_WIDTH: f64 = 4.0;
    const BOXES: f64 = 22.0;
    const LINES: f64 = 8.0;

    /// How far the centres of two neighbours have to be apart.
    fn between(graph: &Proper, a: Vertex, b: Vertex) -> f64 {
        let gap = match (graph.is_dummy(a), graph.is_dummy(b)) {
            (false, false) => Self::BOXES,
            (true, true) => Self::LINES,
            _ => (Self::BOXES + Self::LINES) / 2.0,
        };
        (graph.width[a.index()] + graph.width[b.index()]) / 2.0 + gap
    }
}

/// Lays out boxes so that links lead downward.
///
/// # Errors
///
/// The boxes of one cycle, if the links form any.
///
/// # Panics
///
/// If a link names a box that is not there; pictures are checked before.
///
/// ```
/// use phonograph_report::layout::{Link, Size, layout};
/// use phonograph_report::picture::NodeIx;
///
/// let boxes = [Size { width: 80.0, height: 30.0 }; 2];
/// let links = [Link { from: NodeIx(0), to: NodeIx(1), bundle: 0, weak: false }];
/// let layout = layout(&boxes, &links).expect("no cycle");
/// assert!(layout.boxes[0].corner.y + 30.0 < layout.boxes[1].corner.y);
/// ```
pub fn layout(boxes: &[Size], links: &[Link]) -> Result<Layout, Vec<NodeIx>> {
    let layer = layers::layers(boxes.len(), links)?;
    let parts = parts(boxes.len(), links);
    let mut done = Vec::with_capacity(parts.len());
    let mut local = vec![0u32; boxes.len()];
    for part in &parts {
        for (i, v) in part.boxes.iter().enumerate() {
            local[v.index()] = i as u32;
        }
        let sizes: Vec<Size> = part.boxes.iter().map(|v| boxes[v.index()]).collect();
        let part_links: Vec<Link> = part
            .links
            .iter()
            .map(|&e| Link {
                from: NodeIx(local[links[e as usize].from.index()]),
                to: NodeIx(local[links[e as usize].to.index()]),
                ..links[e as usize]
            })
            .collect();
        let widths: Vec<f64> = sizes.iter().map(|s| s.width).collect();
        let part_layer = part.boxes.iter().map(|v| layer[v.index()]).collect();
        let graph = Proper::new(&widths, part_layer, &part_links);
        let rows = crossings::order(&graph);
        let ends = breaks::breaks(&graph, &rows, &sizes);
        let xs = coordinates::assign(&graph, &rows, &ends);
        done.push(columns::place(&graph, &rows, &ends, &xs, &sizes, &part_links));
    }

    let sizes: Vec<Size> = done.iter().map(|d| d.size).collect();
    let (corners, size) = pack::shelves(&sizes, 2.0 * Separation::BOXES);
    let mut all = Layout {
        boxes: vec![Placed::default(); boxes.len()],
        routes: vec![
            Route::Jump { leave: Point::default(), arrive: Point::default() };
            links.len()
        ],
        size,
    };
    for ((part, piece), by) in parts.iter().zip(done).zip(corners) {
        for (v, mut placed) in part.boxes.iter().zip(piece.boxes) {
            placed.corner = placed.corner.moved(by);
            all.boxes[v.index()] = placed;
        }
        for (&e, route) in part.links.iter().zip(piece.routes) {
            all.routes[e as usize] = route.moved(by);
        }
    }
    Ok(all)
}

impl Point {
    fn moved(self, by: Point) -> Point {
        Point { x: self.x + by.x, y: self.y + by.y }
    }
}

impl Route {
    fn moved(self, by: Point) -> Route {
        match self {
            Route::Path { start, pieces, joins } => Route::Path {
                joins,
                start: start.moved(by),
                pieces: pieces
                    .into_iter()
                    .map(|p| match p {
                        Piece::Line(p) => Piece::Line(p.moved(by)),
                        Piece::Curve(p) => Piece::Curve(p.moved(by)),
                    })
                    .collect(),
            },
            Route::Jump { leave, arrive } => {
                Route::Jump { leave: leave.moved(by), arrive: arrive.moved(by) }
            }
        }
    }
}

/// A connected part.
#[derive(Default)]
struct Part {
    boxes: Vec<NodeIx>,
    links: Vec<u32>,
}

/// Connected parts in the order of their first box (union–find with path halving).
fn parts(n: usize, links: &[Link]) -> Vec<Part> {
    let mut parent: Vec<u32> = (0..n as u32).collect();
    fn find(parent: &mut [u32], mut v: u32) -> u32 {
        while parent[v as usize] != v {
            parent[v as usize] = parent[parent[v as usize] as usize];
            v = parent[v as usize];
        }
        v
    }
    for link in links {
        let (a, b) = (find(&mut parent, link.from.0), find(&mut parent, link.to.0));
        // The smaller root wins, so that a part is named by its first box.
        parent[a.max(b) as usize] = a.min(b);
    }
    let mut number = vec![u32::MAX; n];
    let mut parts: Vec<Part> = Vec::new();
    for v in 0..n as u32 {
        let root = find(&mut parent, v) as usize;
        if number[root] == u32::MAX {
            number[root] = parts.len() as u32;
            parts.push(Part::default());
        }
        parts[number[root] as usize].boxes.push(NodeIx(v));
    }
    for (e, link) in links.iter().enumerate() {
        let root = find(&mut parent, link.from.0) as usize;
        parts[number[root] as usize].links.push(e as u32);
    }
    parts
}
