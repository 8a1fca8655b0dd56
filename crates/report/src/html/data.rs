//! What a page's script is given: pages, tabs, positions, texts, as JSON that is safe inside a script element.
//!
//! In: pages. Out: JSON. Texts are kept once, in a table; positions are whole tenths of a pixel. Linear plus layout.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use serde::{Serialize, Serializer};

use super::{Page, PageError, Section};
use crate::boxes::{BoxText, fit};
use crate::collapse::{Collapsed, collapse, drop_undrawn_bodies, link};
use crate::compare::{Change, Changes, Comparison};
use crate::edges::why;
use crate::layout::{Piece, Placed, Point, Route, Size, layout};
use crate::levels::{Levels, Part};
use crate::picture::{Group, GroupIx, NodeClass, NodeIx, Picture, PictureError};
use crate::skyline::{Pool, Skyline, SkylineError};
use crate::style::Line;
use crate::text::{brief, capped, elide, plain};
use crate::timeline::{Timeline, TimelineError, Unit};

/// Longest title of anything.
const TITLE_COLUMNS: usize = 200;
/// Nodes of collapsed graphs, all those of a picture together, up to which a page has what lies in their boxes: some
/// 20 MB.
pub const EMBEDDED_NODES: usize = 60_000;
/// The same of edges.
pub const EMBEDDED_EDGES: usize = 240_000;

/// Where a page gets what lies in the boxes of a collapsed graph.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Boxes {
    /// It has that in it, as far as the limits permit.
    Inside,
    /// It asks its server.
    Served,
}

#[derive(Serialize)]
struct Data {
    pages: Vec<PageData>,
    strings: Vec<String>,
    /// Names of node classes and line styles, by the numbers used elsewhere.
    classes: Vec<&'static str>,
    lines: Vec<[&'static str; 2]>,
}

#[derive(Serialize)]
struct PageData {
    title: String,
    summary: Vec<(String, String)>,
    tabs: Vec<TabData>,
}

#[derive(Serialize)]
#[serde(tag = "is", rename_all = "lowercase")]
enum TabData {
    Graph(PictureData),
    Timeline(TimelineData),
    Skyline(SkylineData),
    Comparison(ComparisonData),
}

/// A text: its place in the table.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Text(u32);

/// A coordinate in tenths of a pixel.
#[derive(Clone, Copy)]
struct Tenths(f64);

impl Serialize for Tenths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64((self.0 * 10.0).round() as i64)
    }
}

#[derive(Serialize)]
struct PictureData {
    title: String,
    /// Whether every node is drawn as itself.
    whole: bool,
    /// Those of the picture, then what lies in boxes.
    groups: Vec<GroupData>,
}

#[derive(Serialize)]
pub(super) struct GroupData {
    title: String,
    notes: Vec<String>,
    size: [Tenths; 2],
    nodes: Vec<NodeData>,
    edges: Vec<EdgeData>,
    /// How many nodes the boxes of a collapsed graph stand for.
    #[serde(skip_serializing_if = "Option::is_none")]
    stands: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<PartData>,
}

/// Of which graph and box something is a part.
#[derive(Serialize)]
struct PartData {
    of: u32,
    path: Vec<u32>,
    /// By node: its number in the whole graph; nothing for boxes.
    numbers: Vec<u32>,
    /// Edges out: the node, the other end's number and name, whether that is the producer, line.
    outside: Vec<(u32, u32, Text, u8, u8)>,
}

/// How a box is opened: by the group that lies in it, or by asking the server.
#[derive(Serialize)]
#[serde(untagged)]
enum Opens {
    Group(u32),
    Asked(bool),
}

#[derive(Serialize)]
pub(super) struct NodeData {
    label: Text,
    /// The label without namespaces, for lists.
    brief: Text,
    /// The label and the lines as the box shows them.
    shown: Text,
    detail: Vec<Text>,
    class: NodeClassIx,
    /// Corner, width and height.
    at: [Tenths; 4],
    lines: Vec<Text>,
    facts: Vec<(Text, Text)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bodies: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    opens: Option<Opens>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    critical: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    disabled: bool,
}

type NodeClassIx = u8;

/// Producer, consumer, line, and the way: a start, then for each piece 0 for a line or 1 for a curve and where it ends.
/// After 2 come the two ends of an edge that is not drawn through. Then the style, plus 4 for redundant, 8 for critical and
/// 16 for memory reuse; and why it is there.
#[derive(Serialize)]
pub(super) struct EdgeData(u32, u32, u8, Vec<Tenths>, u8, Option<Text>);

#[derive(Serialize)]
struct TimelineData {
    title: String,
    steps: bool,
    length: u64,
    /// The tab whose nodes the spans name.
    #[serde(skip_serializing_if = "Option::is_none")]
    graph: Option<usize>,
    lanes: Vec<LaneData>,
}

#[derive(Serialize)]
struct LaneData {
    name: String,
    /// Label, the same without namespaces, class, start, end, row, whether critical, group and node or nothing.
    spans: Vec<SpanData>,
    rows: usize,
    busy: u64,
}

#[derive(Serialize)]
struct SpanData(Text, Text, NodeClassIx, u64, u64, u32, u8, Option<(u32, u32)>);

#[derive(Serialize)]
struct SkylineData {
    title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    graph: Option<usize>,
    pools: Vec<PoolData>,
}

#[derive(Serialize)]
struct PoolData {
    name: String,
    bytes: u64,
    bound: Option<(u64, String)>,
    unshared: u64,
    group: u32,
    order: Vec<u32>,
    live: Vec<u64>,
    /// Label, offset, bytes, first and last moment.
    blocks: Vec<(Text, u64, u64, u32, u32)>,
}

#[derive(Serialize)]
struct ComparisonData {
    title: String,
    before: PictureData,
    after: PictureData,
    /// By picture and group: 0 same, 1 changed, 2 only here; nodes and edges. Nothing if a picture is not whole.
    changes: [Vec<ChangeData>; 2],
    /// By picture: nodes and edges that are only there; then changed nodes of the first.
    only: [[usize; 2]; 2],
    changed: usize,
    /// Group and node before, group and node after.
    pairs: Vec<[u32; 4]>,
}

#[derive(Serialize)]
struct ChangeData {
    nodes: Vec<u8>,
    edges: Vec<u8>,
}

/// Texts, each once.
#[derive(Default)]
pub(super) struct Texts {
    place: HashMap<String, u32>,
    pub(super) all: Vec<String>,
}

impl Texts {
    fn add(&mut self, text: String) -> Text {
        if let Some(&at) = self.place.get(&text) {
            return Text(at);
        }
        let at = self.all.len() as u32;
        self.place.insert(text.clone(), at);
        self.all.push(text);
        Text(at)
    }

    /// A text to be shown whole, up to a limit.
    fn whole(&mut self, text: &str) -> Text {
        self.add(plain(&capped(text)))
    }

    /// A name to be recognised by.
    fn brief(&mut self, name: &str) -> Text {
        self.add(short(name))
    }
}

/// A name to be recognised by.
pub(super) fn short(name: &str) -> String {
    const COLUMNS: usize = 160;
    let (base, arguments) = brief(&capped(name));
    let short = base + &arguments;
    plain(&elide(if short.is_empty() { name } else { &short }, COLUMNS))
}

/// The JSON of the pages.
pub(super) fn of(pages: &[Page], boxes: Boxes) -> Result<String, PageError> {
    let mut texts = Texts::default();
    let pages =
        pages.iter().map(|page| page_data(page, boxes, &mut texts)).collect::<Result<_, _>>()?;
    let data = Data {
        pages,
        strings: texts.all,
        classes: NodeClass::ALL.iter().map(|class| class.name()).collect(),
        lines: Line::ALL.iter().map(|line| [line.class(), line.words()]).collect(),
    };
    Ok(json(&data))
}

/// JSON that is safe inside a script element.
pub(super) fn json(data: &impl Serialize) -> String {
    let json = serde_json::to_string(data).expect("strings and integers are JSON");
    // In JSON these occur only inside strings, where the escape means the same.
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn title(text: &str) -> String {
    plain(&elide(text, TITLE_COLUMNS))
}

fn page_data(page: &Page, boxes: Boxes, texts: &mut Texts) -> Result<PageData, PageError> {
    let mut tabs = Vec::with_capacity(page.sections.len());
    // The graph that spans and moments point into, unless its nodes are nowhere in the page.
    let mut graph = None;
    for (section, content) in page.sections.iter().enumerate() {
        let picture_error = |error| PageError::Picture { section, error };
        tabs.push(match content {
            Section::Graph(picture) => {
                let data = picture_data(picture, boxes, texts).map_err(picture_error)?;
                graph = data.has_nodes().then_some(section);
                TabData::Graph(data)
            }
            Section::Timeline(timeline) => TabData::Timeline(
                timeline_data(timeline, graph, texts)
                    .map_err(|error| PageError::Timeline { section, error })?,
            ),
            Section::Skyline(skyline) => TabData::Skyline(
                skyline_data(skyline, graph, texts)
                    .map_err(|error| PageError::Skyline { section, error })?,
            ),
            Section::Comparison(pair) => {
                TabData::Comparison(comparison_data(pair, boxes, texts).map_err(picture_error)?)
            }
        });
    }
    let text = |text: &String| plain(&capped(text));
    Ok(PageData {
        title: title(&page.title),
        summary: page.summary.iter().map(|(name, value)| (text(name), text(value))).collect(),
        tabs,
    })
}

impl PictureData {
    /// Whether every node is in the page, or comes when it is asked for.
    fn has_nodes(&self) -> bool {
        let opens = |group: &GroupData| {
            group.stands.is_none() || group.nodes.iter().all(|node| node.opens.is_some())
        };
        self.groups.iter().all(opens)
    }
}

fn picture_data(
    picture: &Picture,
    boxes: Boxes,
    texts: &mut Texts,
) -> Result<PictureData, PictureError> {
    let drawn = collapse(picture)?;
    let mut groups = (0..drawn.groups.len() as u32)
        .map(|g| group_data(&drawn.groups[g as usize], &drawn, GroupIx(g), texts))
        .collect::<Result<Vec<_>, _>>()?;
    let whole = matches!(drawn, Cow::Borrowed(_));
    let collapsed = Collapsed::of(picture);
    let sizes = collapsed.groups().map(|g| &picture.groups[g.index()]);
    let (nodes, edges) =
        sizes.fold((0, 0), |(n, e), group| (n + group.nodes.len(), e + group.edges.len()));
    for g in collapsed.groups() {
        let levels = collapsed.levels(picture, g)?;
        groups[g.index()].stands = Some(picture.groups[g.index()].nodes.len());
        let words = match boxes {
            Boxes::Served => {
                ask_for_boxes(&mut groups[g.index()]);
                OPEN_A_BOX
            }
            Boxes::Inside if nodes <= EMBEDDED_NODES && edges <= EMBEDDED_EDGES => {
                add_parts(&mut groups, picture, g, &levels, texts)?;
                OPEN_A_BOX
            }
            Boxes::Inside => {
                "What lies in the boxes is too much for one file: `phonograph view FILE` opens them and finds their \
                 nodes."
            }
        };
        groups[g.index()].notes.push(words.to_owned());
    }
    Ok(PictureData { title: title(&drawn.title), whole, groups })
}

const OPEN_A_BOX: &str = "A double click or Enter opens a box, Esc closes it.";

/// Adds what lies in the boxes of a group, and in the boxes therein.
fn add_parts(
    groups: &mut Vec<GroupData>,
    picture: &Picture,
    of: GroupIx,
    levels: &Levels,
    texts: &mut Texts,
) -> Result<(), PictureError> {
    let mut todo = VecDeque::from([(of.index(), Vec::new())]);
    while let Some((owner, path)) = todo.pop_front() {
        for at in 0..levels.boxes_in(&path) {
            let path = [&path[..], &[at as u32]].concat();
            let Some(part) = levels.open(&path) else { continue };
            let place = groups.len();
            groups.push(part_data(part, picture, of, &path, texts)?);
            groups[owner].nodes[at].opens = Some(Opens::Group(place as u32));
            todo.push_back((place, path));
        }
    }
    Ok(())
}

/// What lies in a box.
pub(super) fn part_data(
    mut part: Part,
    picture: &Picture,
    of: GroupIx,
    path: &[u32],
    texts: &mut Texts,
) -> Result<GroupData, PictureError> {
    drop_undrawn_bodies(&mut part.group.nodes);
    let whole = &picture.groups[of.index()];
    let mut data = group_data(&part.group, picture, of, texts)?;
    let outside = part.outside.iter().map(|outside| {
        let name = texts.brief(&whole.nodes[outside.other.index()].label);
        let produces = u8::from(outside.edge.from == outside.other);
        (outside.inside.0, outside.other.0, name, produces, Line::of(&outside.edge) as u8)
    });
    data.part = Some(PartData {
        of: of.0,
        path: path.to_vec(),
        outside: outside.collect(),
        numbers: part.numbers.iter().map(|node| node.0).collect(),
    });
    Ok(data)
}

/// The box is to be asked for.
pub(super) fn ask_for_boxes(group: &mut GroupData) {
    for node in &mut group.nodes {
        node.opens = Some(Opens::Asked(true));
    }
}

fn group_data(
    group: &Group,
    picture: &Picture,
    ix: GroupIx,
    texts: &mut Texts,
) -> Result<GroupData, PictureError> {
    let fitted: Vec<BoxText> = group.nodes.iter().map(|node| fit(node, picture)).collect();
    let sizes: Vec<Size> = fitted.iter().map(|text| text.size).collect();
    let links: Vec<_> = group.edges.iter().map(link).collect();
    let plan = layout(&sizes, &links).map_err(|nodes| PictureError::Cycle { group: ix, nodes })?;
    let mut notes: Vec<String> = group.notes.iter().map(|note| plain(&capped(note))).collect();
    let jumps = plan.routes.iter().filter(|route| matches!(route, Route::Jump { .. })).count();
    if jumps > 0 {
        notes.push(format!("{jumps} of the longest edges are drawn as two stubs."));
    }
    let nodes = group.nodes.iter().zip(fitted).zip(&plan.boxes).map(|((node, fitted), placed)| {
        let Placed { corner, size, .. } = *placed;
        NodeData {
            label: texts.whole(&node.label),
            brief: texts.brief(&node.label),
            shown: texts.add(plain(&fitted.label)),
            detail: fitted.lines.iter().map(|line| texts.add(plain(line))).collect(),
            class: node.class as u8,
            at: [corner.x, corner.y, size.width, size.height].map(Tenths),
            lines: node.lines.iter().map(|line| texts.whole(line)).collect(),
            facts: node
                .facts
                .iter()
                .map(|(name, value)| (texts.whole(name), texts.whole(value)))
                .collect(),
            bodies: node.bodies.iter().map(|body| body.0).collect(),
            opens: None,
            lane: node.lane.map(|lane| lane.0),
            cost: node.cost,
            critical: node.critical,
            disabled: node.disabled,
        }
    });
    let nodes = nodes.collect();
    let edges = group.edges.iter().zip(&plan.routes).map(|(edge, route)| {
        let flags = edge.style as u8
            + 4 * u8::from(edge.redundant)
            + 8 * u8::from(edge.critical)
            + 16 * u8::from(edge.reuse);
        let why = why(group, edge).map(|words| texts.add(plain(&words)));
        EdgeData(edge.from.0, edge.to.0, Line::of(edge) as u8, way(route), flags, why)
    });
    Ok(GroupData {
        title: title(&group.title),
        notes,
        size: [plan.size.width, plan.size.height].map(Tenths),
        nodes,
        edges: edges.collect(),
        stands: None,
        part: None,
    })
}

fn way(route: &Route) -> Vec<Tenths> {
    let mut way = Vec::new();
    let mut push = |kind: Option<u8>, point: Point| {
        // The kinds are whole numbers as they are.
        way.extend(kind.map(|kind| Tenths(f64::from(kind) / 10.0)));
        way.extend([Tenths(point.x), Tenths(point.y)]);
    };
    match route {
        Route::Path { start, pieces, .. } => {
            push(None, *start);
            for piece in pieces {
                match *piece {
                    Piece::Line(to) => push(Some(0), to),
                    Piece::Curve(to) => push(Some(1), to),
                }
            }
        }
        Route::Jump { leave, arrive } => {
            push(None, *leave);
            push(Some(2), *arrive);
        }
    }
    way
}

fn timeline_data(
    timeline: &Timeline,
    graph: Option<usize>,
    texts: &mut Texts,
) -> Result<TimelineData, TimelineError> {
    let (first, last) = timeline.check()?.unwrap_or((0, 0));
    let lanes = timeline.lanes.iter().map(|lane| {
        let rows = lane.rows();
        let mut row_of = vec![0u32; lane.spans.len()];
        for (r, row) in (0u32..).zip(&rows) {
            for span in row {
                row_of[span.index()] = r;
            }
        }
        let spans = lane.spans.iter().zip(row_of).map(|(span, row)| {
            SpanData(
                texts.whole(&span.label),
                texts.brief(&span.label),
                span.class as u8,
                span.start - first,
                span.end - first,
                row,
                u8::from(span.critical),
                span.node.map(|(GroupIx(group), NodeIx(node))| (group, node)),
            )
        });
        let spans = spans.collect();
        LaneData { name: title(&lane.name), spans, rows: rows.len(), busy: lane.busy() }
    });
    Ok(TimelineData {
        title: title(&timeline.title),
        steps: timeline.unit == Unit::Steps,
        length: last - first,
        graph,
        lanes: lanes.collect(),
    })
}

fn skyline_data(
    skyline: &Skyline,
    graph: Option<usize>,
    texts: &mut Texts,
) -> Result<SkylineData, SkylineError> {
    skyline.check()?;
    let pools = skyline.pools.iter().map(|pool: &Pool| PoolData {
        name: title(&pool.name),
        bytes: pool.bytes,
        bound: pool.bound.as_ref().map(|(bytes, why)| (*bytes, title(why))),
        unshared: pool.unshared,
        group: pool.group.0,
        order: pool.order.iter().map(|node| node.0).collect(),
        live: pool.live(),
        blocks: pool
            .blocks
            .iter()
            .map(|b| (texts.whole(&b.label), b.offset, b.bytes, b.first.0, b.last.0))
            .collect(),
    });
    Ok(SkylineData { title: title(&skyline.title), graph, pools: pools.collect() })
}

fn comparison_data(
    pair: &Comparison,
    boxes: Boxes,
    texts: &mut Texts,
) -> Result<ComparisonData, PictureError> {
    let found = pair.changes();
    let count = |side: usize, kind: Change| {
        let nodes = found[side].iter().flat_map(|group| &group.nodes);
        let edges = found[side].iter().flat_map(|group| &group.edges);
        [nodes.filter(|&c| *c == kind).count(), edges.filter(|&c| *c == kind).count()]
    };
    let only = [0, 1].map(|side| count(side, Change::Only));
    let [changed, _] = count(0, Change::Changed);
    let before = picture_data(&pair.before, boxes, texts)?;
    let after = picture_data(&pair.after, boxes, texts)?;
    // What is said node by node has no place in a picture of levels.
    let whole = before.whole && after.whole;
    let code = |change: &Change| *change as u8;
    let changes = found.map(|groups| {
        let groups = groups.iter().filter(|_| whole);
        let groups = groups.map(|Changes { nodes, edges }| ChangeData {
            nodes: nodes.iter().map(code).collect(),
            edges: edges.iter().map(code).collect(),
        });
        groups.collect()
    });
    let pairs = pair.pairs.iter().filter(|_| whole);
    Ok(ComparisonData {
        title: title(&pair.title),
        before,
        after,
        changes,
        only,
        changed,
        pairs: pairs.map(|((a, x), (b, y))| [a.0, x.0, b.0, y.0]).collect(),
    })
}
