//! From a graph to JSON: one row a line, so that files compare well line by line.
//!
//! In: a graph. Out: the text, the same for the same graph. O(graph). Rows are serialised through the types of
//! [`wire`](super::wire); the lines around them are laid out here.

use std::borrow::Cow;
use std::io;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::default_launch;
use super::expr::{OpText, OutputText};
use super::value::{Address, DimJson, Name, Object, Ref, Text};
use super::wire::{
    ArgJson, BufferJson, ExprJson, HostJson, KernelJson, MemcpyJson, MemsetJson, Nothing,
    ObservedJson, Operand, PitchedJson, RoleJson, SlotJson, SpaceJson,
};
use crate::{
    Access, Arg, Buffer, BufferRole, ComputeGraph, Condition, Edge, EdgeData, EdgeKind, Expr,
    KernelNode, KernelRef, LibraryKernel, Node, NodeId, NodeKind, Pitched, Region, Slot, Space,
    Target, View,
};

/// Writes `graph` in the format of the [module's page](super). The same graph gives the same text. O(graph).
///
/// ```
/// use phonograph_graph::{GraphBuilder, to_json};
///
/// let mut b = GraphBuilder::new().named("pair");
/// let x = b.external_buffer("x", 4096);
/// b.add_kernel("scale", 4, 256, 0).outputs([x]).finish();
/// b.add_kernel("shift", 4, 256, 0).inputs([x]).finish();
/// assert_eq!(to_json(&b.build()?), r#"{
/// "phonograph": 1,
/// "graph": {
///   "name": "pair",
///   "buffers": [
///     {"name": "x", "bytes": 4096, "role": "external"}
///   ],
///   "nodes": [
///     {"name": "scale", "kernel": {"grid": 4, "block": 256, "args": [{"buffer": 0, "access": "write"}]}},
///     {"name": "shift", "kernel": {"grid": 4, "block": 256, "args": [{"buffer": 0, "access": "read"}]}}
///   ],
///   "edges": [
///     [0, 1]
///   ]
/// }
/// }
/// "#);
/// # Ok::<(), phonograph_graph::GraphError>(())
/// ```
pub fn to_json(graph: &ComputeGraph) -> String {
    let mut out = Writer { out: Vec::new() };
    out.push("{\n\"phonograph\": ");
    out.push(&super::VERSION.to_string());
    out.push(",\n\"graph\": ");
    out.graph(graph, 0);
    out.push("\n}\n");
    String::from_utf8(out.out).expect("a writer of JSON writes UTF-8")
}

struct Writer {
    out: Vec<u8>,
}

impl Writer {
    fn push(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn value(&mut self, value: &impl Serialize) {
        let mut serializer = serde_json::Serializer::with_formatter(&mut self.out, Spaced);
        value.serialize(&mut serializer).expect("rows have text as keys and a buffer takes all");
    }

    /// Recursion is bounded: graphs nest [`MAX_NESTING`](crate::MAX_NESTING) deep at most.
    fn graph(&mut self, graph: &ComputeGraph, indent: usize) {
        self.push("{");
        let mut first = true;
        if !graph.name().is_empty() {
            self.member(&mut first, indent, "name");
            self.value(&graph.name());
        }
        if !graph.buffers().is_empty() {
            self.member(&mut first, indent, "buffers");
            self.rows(graph.buffers(), indent, |out, buffer| out.value(&buffer_json(buffer)));
        }
        if !graph.slots().is_empty() {
            self.member(&mut first, indent, "slots");
            self.rows(graph.slots(), indent, |out, slot| out.value(&slot_json(slot)));
        }
        self.member(&mut first, indent, "nodes");
        let ids: Vec<NodeId> = graph.node_ids().collect();
        self.rows(&ids, indent, |out, id| out.node(graph, *id, indent + 4));
        self.member(&mut first, indent, "edges");
        let edges: Vec<Edge> = graph.edges().collect();
        self.rows(&edges, indent, |out, edge| out.value(&EdgeRow(*edge)));
        self.line(indent);
        self.push("}");
    }

    fn member(&mut self, first: &mut bool, indent: usize, name: &str) {
        if !std::mem::take(first) {
            self.push(",");
        }
        self.line(indent + 2);
        self.push("\"");
        self.push(name);
        self.push("\": ");
    }

    fn line(&mut self, indent: usize) {
        self.push("\n");
        self.out.resize(self.out.len() + indent, b' ');
    }

    fn rows<T>(&mut self, rows: &[T], indent: usize, mut row: impl FnMut(&mut Self, &T)) {
        self.push("[");
        for (index, one) in rows.iter().enumerate() {
            if index > 0 {
                self.push(",");
            }
            self.line(indent + 4);
            row(self, one);
        }
        if !rows.is_empty() {
            self.line(indent + 2);
        }
        self.push("]");
    }

    fn node(&mut self, graph: &ComputeGraph, id: NodeId, indent: usize) {
        let node = graph.node(id);
        self.push("{");
        if !node.name.is_empty() {
            self.push("\"name\": ");
            self.value(&node.name.as_ref());
            self.push(", ");
        }
        if let Some(stream) = node.stream {
            self.push("\"stream\": ");
            self.push(&stream.0.to_string());
            self.push(", ");
        }
        if let Some(observed) = graph.observed(id) {
            self.push("\"observed\": ");
            let operands = observed.operands.iter();
            let operands =
                operands.map(|&(region, access)| Object(region_json(graph, region, access)));
            self.value(&ObservedJson { trials: observed.trials, operands: operands.collect() });
            self.push(", ");
        }
        self.push("\"");
        self.push(node.kind.name());
        self.push("\": ");
        match &node.kind {
            NodeKind::Kernel(kernel) => self.value(&kernel_json(graph, node, kernel)),
            NodeKind::Memcpy(copy) => self.value(&MemcpyJson {
                direction: copy.dir.into(),
                src: Object(pitched_json(copy.src)),
                dst: Object(pitched_json(copy.dst)),
                width: copy.extent.width,
                height: copy.extent.height,
                depth: copy.extent.depth,
            }),
            NodeKind::Memset(set) => self.value(&MemsetJson {
                dst: Object(pitched_json(set.dst)),
                value: set.value,
                element_size: set.element_size,
                width: set.extent.width,
                height: set.extent.height,
                depth: set.extent.depth,
            }),
            NodeKind::Host(host) => {
                let own = (*host.function != *node.name).then(|| name_json(&host.function));
                let effects = host.effects.iter();
                let effects =
                    effects.map(|&(region, access)| Object(region_json(graph, region, access)));
                self.value(&HostJson { function: own, effects: effects.collect() });
            }
            NodeKind::Empty => self.value(&Nothing {}),
            NodeKind::EventRecord(event) | NodeKind::EventWait(event) => self.value(&event.0),
            NodeKind::Alloc(buffer) | NodeKind::Free(buffer) => self.value(&buffer.0),
            NodeKind::Child(inner) => self.graph(inner, indent),
            NodeKind::Conditional(conditional) => {
                self.push("{\"kind\": ");
                self.value(&conditional.kind.name());
                match &conditional.condition {
                    Condition::Value(view) => {
                        self.push(", \"condition\": ");
                        self.value(&view_json(view, None));
                    }
                    Condition::Handle(handle) => {
                        self.push(", \"handle\": ");
                        self.value(handle);
                    }
                }
                self.push(", \"bodies\": [");
                for (index, body) in conditional.bodies.iter().enumerate() {
                    if index > 0 {
                        self.push(", ");
                    }
                    self.graph(body, indent);
                }
                self.push("]}");
            }
        }
        self.push("}");
    }
}

/// JSON on one line, with a blank after `:` and `,`.
struct Spaced;

impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, w: &mut W) -> io::Result<()> {
        w.write_all(b": ")
    }
}

/// `[from, to]`, or an object where the edge has data.
struct EdgeRow(Edge);

impl Serialize for EdgeRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Edge { from, to, data } = self.0;
        if data == EdgeData::FULL {
            return [from.0, to.0].serialize(serializer);
        }
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("from", &from.0)?;
        map.serialize_entry("to", &to.0)?;
        if data.kind == EdgeKind::Programmatic {
            map.serialize_entry("kind", "programmatic")?;
        }
        if data.from_port != 0 || data.kind == EdgeKind::Programmatic {
            map.serialize_entry("from_port", &data.from_port)?;
        }
        if data.to_port != 0 {
            map.serialize_entry("to_port", &data.to_port)?;
        }
        map.end()
    }
}

const fn name_json(name: &str) -> Name<'_> {
    Name(Cow::Borrowed(name))
}

fn buffer_json(buffer: &Buffer) -> BufferJson<'_> {
    BufferJson {
        name: Cow::Borrowed(&buffer.name),
        bytes: buffer.bytes,
        align: buffer.align,
        role: match buffer.role {
            BufferRole::Internal => RoleJson::Internal,
            BufferRole::External => RoleJson::External,
            BufferRole::Slot(access) => RoleJson::Slot(access.into()),
            BufferRole::Outer(outer) => RoleJson::Outer(Ref::Id(outer.0)),
        },
        space: match buffer.space {
            Space::Device(device) => SpaceJson::Device(device),
            Space::Host { pageable: false } => SpaceJson::Pinned,
            Space::Host { pageable: true } => SpaceJson::Pageable,
            Space::Unknown => SpaceJson::Unknown,
        },
    }
}

fn slot_json(slot: &Slot) -> SlotJson<'_> {
    SlotJson {
        name: Cow::Borrowed(&slot.name),
        default: Text(slot.default),
        outer: slot.outer.map(|outer| Ref::Id(outer.0)),
    }
}

fn kernel_json<'a>(graph: &ComputeGraph, node: &'a Node, kernel: &'a KernelNode) -> KernelJson<'a> {
    let config = &kernel.config;
    let usual = default_launch(&kernel.kernel, &kernel.args);
    let told = (config.grid, config.block) != (usual.grid, usual.block);
    let (mut function, mut elementwise, mut library, mut axis) = (None, None, None, None);
    let (mut before, mut after) = (None, None);
    let axis_of = |kernel: &LibraryKernel| match kernel {
        LibraryKernel::Reduce { axis, .. } => Some(*axis),
        _ => None,
    };
    match &kernel.kernel {
        KernelRef::Named(name) if **name == *node.name => {}
        KernelRef::Named(name) => function = Some(name_json(name)),
        KernelRef::Elementwise(expr) => elementwise = Some(Object(expr_json(expr))),
        KernelRef::Library(kernel) => {
            library = Some(name_json(kernel.name()));
            axis = axis_of(kernel);
        }
        KernelRef::Fused(fused) => {
            library = Some(name_json(fused.library.name()));
            axis = axis_of(&fused.library);
            before = fused.before.as_ref().map(|expr| Object(expr_json(expr)));
            after = fused.after.as_ref().map(|expr| Object(expr_json(expr)));
        }
    }
    KernelJson {
        function,
        elementwise,
        library,
        axis,
        before,
        after,
        grid: told.then_some(DimJson(config.grid)),
        block: told.then_some(DimJson(config.block)),
        shared_mem_bytes: config.shared_mem_bytes,
        cluster: (config.cluster != (1, 1, 1)).then_some(DimJson(config.cluster)),
        cooperative: config.cooperative,
        priority: config.priority,
        fusible: kernel.fusible,
        args: kernel.args.iter().map(|arg| arg_json(graph, arg)).collect(),
    }
}

fn arg_json<'a>(graph: &ComputeGraph, arg: &Arg) -> ArgJson<'a> {
    match *arg {
        Arg::Scalar(scalar) => ArgJson::Scalar(scalar),
        Arg::Slot(slot) => ArgJson::Slot(Ref::Id(slot.0)),
        Arg::View(view, access) => ArgJson::Operand(view_json(&view, Some(access))),
        Arg::Region(region, access) => ArgJson::Operand(region_json(graph, region, access)),
    }
}

fn region_json<'a>(graph: &ComputeGraph, region: Region, access: Access) -> Operand<'a> {
    // What is left out is the rest of the buffer.
    let rest = graph.buffer(region.buffer).bytes.checked_sub(region.offset);
    Operand {
        buffer: Ref::Id(region.buffer.0),
        access: Some(access.into()),
        offset: region.offset,
        bytes: (rest != Some(region.bytes)).then_some(region.bytes),
        dtype: None,
        shape: None,
        strides: None,
    }
}

fn view_json<'a>(view: &View, access: Option<Access>) -> Operand<'a> {
    let shape = view.shape();
    let packed = View::contiguous(view.buffer, view.dtype, shape.extents());
    let is_packed = packed.is_ok_and(|packed| packed.strides() == view.strides());
    Operand {
        buffer: Ref::Id(view.buffer.0),
        access: access.map(Into::into),
        offset: view.offset,
        bytes: None,
        dtype: Some(Text(view.dtype)),
        shape: Some(shape.extents().to_vec()),
        strides: (!is_packed).then(|| view.strides().to_vec()),
    }
}

fn expr_json(expr: &Expr) -> ExprJson {
    ExprJson {
        inputs: expr.inputs().iter().copied().map(Text).collect(),
        params: expr.params().iter().copied().map(Text).collect(),
        ops: expr.ops().iter().map(|&op| Text(OpText(op))).collect(),
        outputs: expr.outputs().iter().map(|&(v, dtype)| Text(OutputText(v, dtype))).collect(),
    }
}

fn pitched_json<'a>(end: Pitched) -> PitchedJson<'a> {
    let (buffer, address) = match end.target {
        Target::Buffer(buffer) => (Some(Ref::Id(buffer.0)), None),
        Target::Address(address) => (None, Some(Text(Address(address)))),
        Target::Unspecified => (None, None),
    };
    let Pitched { offset, pitch, slice_rows, .. } = end;
    PitchedJson { buffer, address, offset, pitch, slice_rows }
}
