//! From the graph representation to a [`Picture`]: what a node's box, tooltip and side panel say.
//!
//! What an analysis found (redundant edges, the critical path) is handed in as [`Marks`], one call for each graph, so
//! that drawing depends on no analysis. Linear in nodes, edges and operands.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use phonograph_graph as ir;
use phonograph_graph::{
    Access, Arg, BufferRole, ComputeGraph, Condition, Dim3, EdgeData, Effects, KernelConfig,
    KernelNode, KernelRef, NodeId, NodeKind, Pitched, Region, Schedule, Step, Target,
};

use crate::picture::{
    BufferIx, Edge, EdgeStyle, Group, GroupIx, Hazard, LaneIx, Node, NodeClass, NodeIx, Picture,
    Why,
};

use crate::sources::sources;
use crate::text::{bytes, count, thousands};

/// What to emphasise in one graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Marks {
    /// Edges that others imply.
    pub redundant: Vec<ir::Edge>,
    /// The nodes of the critical path, in order.
    pub critical: Vec<NodeId>,
    /// What nodes cost in nanoseconds, as far as it is known.
    pub costs: Vec<(NodeId, u64)>,
}

/// The picture of a graph with its child graphs and bodies. With a schedule, nodes carry their streams and the edges
/// that memory reuse added are drawn. `marks` is called once for each group, in their order.
///
/// ```
/// use phonograph_graph::GraphBuilder;
/// use phonograph_report::{Marks, picture_of, svg};
///
/// let mut b = GraphBuilder::new();
/// let x = b.add_kernel("scale", 4, 256, 0).finish();
/// let y = b.add_barrier("done");
/// b.dep(x, y);
/// let picture = picture_of(&b.build()?, "two nodes", None, &mut |_| Marks::default());
/// assert!(svg(&picture)?.contains("4 blocks of 256"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn picture_of(
    graph: &ComputeGraph,
    title: &str,
    schedule: Option<&Schedule>,
    marks: &mut dyn FnMut(&ComputeGraph) -> Marks,
) -> Picture {
    let mut picture = Picture { title: title.to_owned(), groups: Vec::new() };
    add_group(&mut picture, graph, title, schedule, marks);
    picture
}

/// The class of a node, for its colour.
pub fn class_of(kind: &NodeKind) -> NodeClass {
    match kind {
        NodeKind::Kernel(_) => NodeClass::Kernel,
        NodeKind::Memcpy(_) => NodeClass::Memcpy,
        NodeKind::Memset(_) => NodeClass::Memset,
        NodeKind::Host(_) => NodeClass::Host,
        NodeKind::Empty => NodeClass::Empty,
        NodeKind::EventRecord(_) | NodeKind::EventWait(_) => NodeClass::Event,
        NodeKind::Alloc(_) => NodeClass::Alloc,
        NodeKind::Free(_) => NodeClass::Free,
        NodeKind::Child(_) => NodeClass::Child,
        NodeKind::Conditional(_) => NodeClass::Conditional,
    }
}

/// Adds a graph and, behind it, the graphs inside. Recursive over nesting, which building a graph bounds.
fn add_group(
    picture: &mut Picture,
    graph: &ComputeGraph,
    title: &str,
    schedule: Option<&Schedule>,
    marks: &mut dyn FnMut(&ComputeGraph) -> Marks,
) -> GroupIx {
    let place = GroupIx(picture.groups.len() as u32);
    picture.groups.push(Group::new(title));
    let Marks { redundant, critical, costs } = marks(graph);
    let costs: HashMap<NodeId, u64> = costs.into_iter().collect();
    let on_path: HashSet<NodeId> = critical.iter().copied().collect();
    let path_edges: HashSet<_> = critical.windows(2).map(|pair| (pair[0], pair[1])).collect();
    let redundant: HashSet<ir::Edge> = redundant.into_iter().collect();
    let lanes = schedule.filter(|s| s.streams > 1).map(lanes).unwrap_or_default();
    let sources = sources(graph);
    let mut nodes = Vec::with_capacity(graph.node_count());
    for id in graph.node_ids() {
        let node = graph.node(id);
        let mut drawn = describe(graph, id);
        for (region, from) in sources.get(&id).into_iter().flatten() {
            drawn = drawn
                .fact("reads", format!("{} {}", bytes_of(graph, *region), from_whom(graph, from)));
        }
        drawn.critical = on_path.contains(&id);
        drawn.lane = lanes.get(&id).copied();
        drawn.cost = costs.get(&id).copied();
        for (index, inner) in node.kind.inner_graphs().iter().enumerate() {
            let schedules = schedule.and_then(|s| s.inner.get(&id));
            let inner_schedule = schedules.and_then(|all| all.get(index));
            let title = inner_title(node, index);
            drawn.bodies.push(add_group(picture, inner, &title, inner_schedule, marks));
        }
        nodes.push(drawn);
    }
    let touched: Vec<Effects> = graph.node_ids().map(|id| graph.effects(id)).collect();
    let mut edges = Vec::with_capacity(graph.edge_count());
    for edge in graph.edges() {
        let mut drawn = Edge::new(NodeIx(edge.from.0), NodeIx(edge.to.0));
        drawn.style = match edge.data {
            EdgeData::LAUNCH_ORDER => EdgeStyle::LaunchOrder,
            data if data.is_full() => EdgeStyle::Full,
            _ => EdgeStyle::Programmatic,
        };
        drawn.redundant = redundant.contains(&edge);
        drawn.critical = path_edges.contains(&(edge.from, edge.to));
        drawn.why = why(&touched[edge.from.index()], &touched[edge.to.index()]);
        edges.push(drawn);
    }
    for &(from, to) in schedule.into_iter().flat_map(|s| &s.reuse) {
        edges.push(Edge { reuse: true, ..Edge::new(NodeIx(from.0), NodeIx(to.0)) });
    }
    let group = &mut picture.groups[place.index()];
    (group.nodes, group.edges) = (nodes, edges);
    group.buffers = graph.buffers().iter().map(|buffer| buffer.name.to_string()).collect();
    place
}

/// The strongest reason that the data of two nodes gives for an edge between them.
fn why(first: &Effects, second: &Effects) -> Option<Why> {
    let (first, second) = (first.known()?, second.known()?);
    let mut found: Option<Why> = None;
    for (a, done) in first {
        for (b, does) in second.iter().filter(|(b, _)| a.overlaps(b)) {
            let hazard = match () {
                () if done.writes() && does.reads() => Hazard::ReadAfterWrite,
                () if done.writes() && does.writes() => Hazard::WriteAfterWrite,
                () if does.writes() => Hazard::WriteAfterRead,
                () => continue,
            };
            if found.is_none_or(|found| hazard < found.hazard) {
                found = Some(Why { hazard, buffer: BufferIx(b.buffer.0) });
            }
        }
    }
    found
}

/// The groups of the graphs directly inside one, by node, as [`picture_of`] numbers them where the graph itself is
/// `own`.
pub(crate) fn inner_groups(graph: &ComputeGraph, own: GroupIx) -> HashMap<NodeId, Vec<GroupIx>> {
    let mut next = own.0 + 1;
    let mut groups = HashMap::new();
    for id in graph.node_ids() {
        let inner = graph.node(id).kind.inner_graphs();
        if inner.is_empty() {
            continue;
        }
        let numbers = inner.iter().map(|graph| {
            let number = GroupIx(next);
            next += graphs_in(graph);
            number
        });
        groups.insert(id, numbers.collect());
    }
    groups
}

/// This graph and those inside. Recursive over nesting, which building a graph bounds.
pub(crate) fn graphs_in(graph: &ComputeGraph) -> u32 {
    1 + graph.nodes().iter().flat_map(|n| n.kind.inner_graphs()).map(graphs_in).sum::<u32>()
}

fn lanes(schedule: &Schedule) -> HashMap<NodeId, LaneIx> {
    let runs = schedule.steps.iter().filter_map(|step| match step {
        Step::Run { nodes, stream } => Some((nodes, LaneIx(stream.0))),
        Step::Record { .. } | Step::Wait { .. } => None,
    });
    runs.flat_map(|(nodes, lane)| nodes.iter().map(move |&node| (node, lane))).collect()
}

fn inner_title(node: &ir::Node, index: usize) -> String {
    let name = if node.name.is_empty() { node.kind.name() } else { &*node.name };
    match &node.kind {
        NodeKind::Conditional(conditional) => {
            let part = match (conditional.kind, index) {
                (ir::ConditionalKind::If, 0) => "then".to_owned(),
                (ir::ConditionalKind::If, _) => "else".to_owned(),
                (ir::ConditionalKind::While, _) => "body".to_owned(),
                (ir::ConditionalKind::Switch, case) => format!("case {case}"),
            };
            format!("{name}: {part}")
        }
        _ => name.to_owned(),
    }
}

fn describe(graph: &ComputeGraph, id: NodeId) -> Node {
    let node = graph.node(id);
    let label = match &*node.name {
        "" => node.kind.name().into(),
        name => ir::display_name(name),
    };
    let mut drawn = Node::new(class_of(&node.kind), label).fact("id", id.to_string());
    if let Some(stream) = node.stream {
        drawn = drawn.fact("recorded on", stream.to_string());
    }
    match &node.kind {
        NodeKind::Kernel(kernel) => drawn = describe_kernel(graph, kernel, drawn),
        NodeKind::Memcpy(copy) => {
            drawn = drawn.line(format!("{} {}", copy.dir, bytes(copy.extent.bytes())));
            drawn = drawn.fact("extent", extent(copy.extent));
            drawn = drawn.fact("from", end(graph, &copy.src)).fact("to", end(graph, &copy.dst));
        }
        NodeKind::Memset(set) => {
            drawn = drawn.line(format!("{:#x} over {}", set.value, bytes(set.extent.bytes())));
            let size = match set.element_size {
                0 => "unknown size".to_owned(),
                bytes => format!("{bytes} B"),
            };
            drawn = drawn.fact("pattern", format!("{:#x} of {size}", set.value));
            drawn = drawn.fact("extent", extent(set.extent)).fact("to", end(graph, &set.dst));
        }
        NodeKind::Host(host) => {
            drawn = drawn.fact("function", &*host.function);
            for &(region, access) in &host.effects {
                drawn = drawn.fact(access.name(), bytes_of(graph, region));
            }
        }
        NodeKind::EventRecord(event) => drawn = drawn.line(format!("record {event}")),
        NodeKind::EventWait(event) => drawn = drawn.line(format!("wait {event}")),
        NodeKind::Alloc(buffer) | NodeKind::Free(buffer) => {
            let declared = graph.buffer(*buffer);
            drawn = drawn.line(bytes(declared.bytes));
            drawn = drawn.fact("buffer", format!("{buffer} ({})", declared.name));
        }
        NodeKind::Child(inner) => drawn = drawn.line(count(inner.node_count(), "node")),
        NodeKind::Conditional(conditional) => {
            let by = match conditional.condition {
                Condition::Value(view) => bytes_of(graph, view.region()),
                Condition::Handle(handle) => format!("handle {handle:#x}"),
            };
            drawn = drawn.line(conditional.kind.name()).fact("decides by", by);
        }
        NodeKind::Empty => {}
    }
    drawn = drawn.fact("effects", effects(graph, id));
    match ir::display_name(&node.name) {
        std::borrow::Cow::Owned(_) => drawn.fact("symbol", &*node.name),
        std::borrow::Cow::Borrowed(_) => drawn,
    }
}

fn describe_kernel(graph: &ComputeGraph, kernel: &KernelNode, mut drawn: Node) -> Node {
    let (config, named) = (&kernel.config, matches!(kernel.kernel, KernelRef::Named(_)));
    // The launch of a generated kernel is the backend's choice; its shape says more.
    drawn = drawn.line(match kernel.args.iter().rev().find_map(Arg::view) {
        Some(view) if !named => format!("{} {:?}", kernel.kernel.name(), view.shape()),
        _ => launch(config),
    });
    // A kernel by name is called as its node is, and its line is its launch.
    let called = ir::display_name(kernel.kernel.name());
    if called != drawn.label {
        drawn = drawn.fact("kernel", called);
    }
    if !named {
        drawn = drawn.fact("launch", launch(config));
    }
    if config.cluster != (1, 1, 1) {
        drawn = drawn.fact("cluster", format!("{:?}", config.cluster));
    }
    if config.cooperative {
        drawn = drawn.fact("cooperative", "yes");
    }
    if config.priority != 0 {
        drawn = drawn.fact("priority", config.priority.to_string());
    }
    for (index, arg) in kernel.args.iter().enumerate() {
        drawn = drawn.fact(format!("argument {index}"), argument(graph, arg));
    }
    if kernel.fusible {
        drawn = drawn.fact("fusible", "yes");
    }
    drawn
}

/// How many blocks of how many threads, and what they share.
fn launch(config: &KernelConfig) -> String {
    let dim = |dim: Dim3| match dim {
        (x, 1, 1) => thousands(x),
        (x, y, 1) => format!("{x}×{y}"),
        (x, y, z) => format!("{x}×{y}×{z}"),
    };
    let blocks = if config.grid == (1, 1, 1) { "block" } else { "blocks" };
    match (config.is_known(), config.shared_mem_bytes) {
        (false, _) => config.to_string(),
        (true, 0) => format!("{} {blocks} of {}", dim(config.grid), dim(config.block)),
        (true, shared) => {
            let [grid, block] = [config.grid, config.block].map(dim);
            format!("{grid} {blocks} of {block}, {} B shared", thousands(shared))
        }
    }
}

/// Whose results something is, in words.
fn from_whom(graph: &ComputeGraph, from: &[NodeId]) -> String {
    let named = |id: &NodeId| format!("{id} {}", ir::display_name(&graph.node(*id).name));
    match from {
        [] => "from outside".to_owned(),
        from => format!("from {}", from.iter().map(named).collect::<Vec<_>>().join(", ")),
    }
}

/// What a node may touch, in words.
fn effects(graph: &ComputeGraph, id: NodeId) -> String {
    let (operands, seen) = match graph.effects(id) {
        Effects::Known(operands) => (operands, String::new()),
        Effects::Observed(seen) => (seen.operands, format!(", as seen in {} runs", seen.trials)),
        Effects::Unknown => return "unknown: it may touch anything".to_owned(),
    };
    const SHOWN: usize = 12;
    let mut words: Vec<String> = Vec::new();
    for &(region, access) in operands.iter().take(SHOWN) {
        let buffer = &graph.buffer(region.buffer).name;
        words.push(match access {
            Access::Read => format!("reads {buffer}"),
            Access::Write => format!("writes {buffer}"),
            Access::ReadWrite => format!("reads and writes {buffer}"),
        });
    }
    if operands.len() > SHOWN {
        words.push(format!("… and {} more", operands.len() - SHOWN));
    }
    if words.is_empty() {
        words.push("none".to_owned());
    }
    words.join(", ") + &seen
}

fn argument(graph: &ComputeGraph, arg: &Arg) -> String {
    match arg {
        Arg::Scalar(value) => value.to_string(),
        Arg::Slot(slot) => {
            let declared = graph.slot(*slot);
            format!("slot {} ({})", declared.name, declared.dtype())
        }
        Arg::View(view, access) => {
            let mut text = format!("{} {} {:?}", access.name(), view.dtype, view.shape());
            if !view.is_contiguous() {
                write!(text, " strides {:?}", view.strides()).expect("a String takes all");
            }
            format!("{text} of {}", place(graph, view.buffer, view.offset))
        }
        Arg::Region(region, access) => format!("{} {}", access.name(), bytes_of(graph, *region)),
    }
}

fn bytes_of(graph: &ComputeGraph, region: Region) -> String {
    format!("{} B of {}", thousands(region.bytes), place(graph, region.buffer, region.offset))
}

fn place(graph: &ComputeGraph, buffer: ir::BufferId, offset: u64) -> String {
    let declared = graph.buffer(buffer);
    let role = match declared.role {
        BufferRole::Internal => "",
        BufferRole::External => ", external",
        BufferRole::Slot(_) => ", pointer slot",
        BufferRole::Outer(_) => ", of the graph around",
    };
    let at = if offset > 0 { format!(" + {}", thousands(offset)) } else { String::new() };
    format!("{buffer}{at} ({}{role})", declared.name)
}

fn end(graph: &ComputeGraph, end: &Pitched) -> String {
    let mut text = match end.target {
        Target::Buffer(buffer) => place(graph, buffer, end.offset),
        Target::Address(address) => format!("{:#x}", address.saturating_add(end.offset)),
        Target::Unspecified => "not known".to_owned(),
    };
    if end.pitch > 0 {
        write!(text, ", pitch {} B", thousands(end.pitch)).expect("a String takes all");
    }
    text
}

fn extent(extent: ir::Extent) -> String {
    match (extent.width, extent.height, extent.depth) {
        (width, 1, 1) => format!("{} B", thousands(width)),
        (width, height, 1) => format!("{} rows of {} B", thousands(height), thousands(width)),
        (width, height, depth) => {
            let [width, height, depth] = [width, height, depth].map(thousands);
            format!("{depth} slices of {height} rows of {width} B")
        }
    }
}
