//! From a graph to DOT, in the driver's layout.
//!
//! In: a graph. Out: one cluster for each graph, siblings all; labels as the driver's, with rows of our own for
//! what the driver does not have. What a label cannot hold exactly (names) is in attributes that Graphviz passes
//! over: `name`, `function`, `stream`, `edge_kind`, `from_port`, `to_port`. O(graph).

use std::fmt::Write;

use crate::{
    Arg, Buffer, ComputeGraph, Condition, ConditionalKind, ConditionalNode, Dim3, EdgeKind, Expr,
    Extent, KernelNode, KernelRef, MemcpyNode, MemsetNode, Node, NodeId, NodeKind, Pitched, Space,
    Target, View, display_name,
};

/// How many arguments of a kernel a picture shows.
const SHOWN_ARGS: usize = 12;
/// How much of a name a picture shows; the attributes keep all of it.
const SHOWN_NAME: usize = 120;

/// Writes a graph, with those inside it, for Graphviz; the [module's page](super) says what
/// [`from_dot`](super::from_dot) reads back. The same graph gives the same text. O(graph).
///
/// ```
/// use phonograph_graph::{GraphBuilder, from_dot, to_dot};
///
/// let mut b = GraphBuilder::new().named("step");
/// let x = b.alloc_buffer("x", 4096);
/// b.add_kernel("scale", 4, 256, 0).outputs([x]).finish();
/// b.add_kernel("shift", 4, 256, 0).inputs([x]).finish();
/// let graph = b.build()?;
/// let text = to_dot(&graph);
/// assert!(text.contains(r#"scale\<\<\<4,256,0\>\>\>"#));
/// let back = from_dot(text.as_bytes()).unwrap();
/// assert_eq!((back.name(), back.node_count(), back.edge_count()), ("step", 2, 1));
/// # Ok::<(), phonograph_graph::GraphError>(())
/// ```
pub fn to_dot(graph: &ComputeGraph) -> String {
    let mut out = String::from("digraph dot {\n");
    // Numbers are given when a graph is met, so that those inside a node have consecutive ones.
    let mut queue = vec![graph];
    let mut next = 0;
    while next < queue.len() {
        let graph = queue[next];
        next += 1;
        let mut inner = queue.len() + 1;
        queue.extend(graph.nodes().iter().flat_map(|node| node.kind.inner_graphs()));
        let mut cluster = Cluster { out: &mut out, graph, number: next };
        cluster.write(&mut inner);
    }
    out.push_str("}\n");
    out
}

/// The value of an attribute of ours, as [`attribute`] wrote it.
pub(super) fn attribute_value(text: &str) -> String {
    let mut value = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, chars.as_str().chars().next()) {
            ('\\', Some('\\')) => {
                chars.next();
                value.push('\\');
            }
            ('\\', Some('0')) => {
                chars.next();
                value.push('\0');
            }
            _ => value.push(c),
        }
    }
    value
}

/// Any text as a quoted string that Graphviz accepts.
fn attribute(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\0' => quoted.push_str("\\0"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A text inside a label: on one line, of bounded length, nothing in it special to records, labels or strings.
fn shown(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars().take(SHOWN_NAME) {
        match c {
            '\\' | '{' | '}' | '|' | '<' | '>' | '"' => {
                escaped.push('\\');
                escaped.push(c);
            }
            '&' => escaped.push_str("&amp;"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    if text.chars().nth(SHOWN_NAME).is_some() {
        escaped.push('…');
    }
    escaped
}

struct Cluster<'a> {
    out: &'a mut String,
    graph: &'a ComputeGraph,
    number: usize,
}

impl Cluster<'_> {
    /// Writes the cluster; `inner` is the number of the next graph inside one of its nodes.
    fn write(&mut self, inner: &mut usize) {
        let (number, name) = (self.number, self.graph.name());
        let told = name.is_empty() || name == format!("graph_{number}");
        let title = if told { String::new() } else { format!(": {}", shown(name)) };
        self.push(format_args!(
            "subgraph cluster_{number} {{\nlabel=\"graph_{number}{title}\" graph[style=\"dashed\"];\nname={};\n",
            attribute(name)
        ));
        for (index, node) in self.graph.nodes().iter().enumerate() {
            self.node(index, node, *inner);
            *inner += node.kind.inner_graphs().len();
        }
        for edge in self.graph.edges() {
            let (from, to) = (self.id(edge.from), self.id(edge.to));
            self.push(format_args!("{from} -> {to}"));
            let data = edge.data;
            if data != crate::EdgeData::FULL {
                let (kind, style) = match data.kind {
                    EdgeKind::Full => ("full", "solid"),
                    EdgeKind::Programmatic => ("programmatic", "dashed"),
                };
                let (from, to) = (data.from_port, data.to_port);
                self.push(format_args!(
                    " [edge_kind={kind} from_port={from} to_port={to} style=\"{style}\" label=\"{kind} {from}\"]"
                ));
            }
            self.out.push_str(";\n");
        }
        self.out.push_str("}\n");
    }

    fn push(&mut self, text: std::fmt::Arguments) {
        self.out.write_fmt(text).expect("writing to a string cannot fail");
    }

    fn id(&self, node: NodeId) -> String {
        format!("\"graph_{}_node_{}\"", self.number, node.0)
    }

    fn node(&mut self, index: usize, node: &Node, inner: usize) {
        let (style, shape) = match &node.kind {
            NodeKind::Kernel(_) | NodeKind::Conditional(_) => ("bold", "record"),
            NodeKind::Memset(set) if set.element_size == 0 => ("solid", "invtrapezium"),
            NodeKind::Memcpy(_) | NodeKind::Memset(_) | NodeKind::Alloc(_) | NodeKind::Free(_) => {
                ("solid", "record")
            }
            _ => ("solid", "rectangle"),
        };
        let label = self.label(index, node, inner);
        let id = self.id(NodeId::from_index(index));
        self.push(format_args!("{id}[style=\"{style}\" shape=\"{shape}\" label=\"{label}\""));
        self.push(format_args!(" name={}", attribute(&node.name)));
        match &node.kind {
            NodeKind::Kernel(kernel) => {
                self.push(format_args!(" function={}", attribute(kernel.kernel.name())));
            }
            NodeKind::Host(host) => {
                self.push(format_args!(" function={}", attribute(&host.function)))
            }
            _ => {}
        }
        if let Some(stream) = node.stream {
            self.push(format_args!(" stream={}", stream.0));
        }
        if let Some(observed) = self.graph.observed(NodeId::from_index(index)) {
            let touched: Vec<String> = observed
                .operands
                .iter()
                .map(|(region, access)| {
                    let (access, buffer) = (access.name(), self.graph.buffer(region.buffer));
                    let (start, end) = (region.offset, region.end());
                    format!("{access} {} {start}..{end}", buffer.name)
                })
                .collect();
            let touched = attribute(&touched.join("; "));
            self.push(format_args!(" observed={touched} trials={}", observed.trials));
        }
        self.out.push_str("];\n");
    }

    fn label(&self, index: usize, node: &Node, inner: usize) -> String {
        let name = shown(&node.name);
        let line = if name.is_empty() { String::new() } else { format!("{name}\n") };
        let row = if name.is_empty() { String::new() } else { format!("\n| {{name | {name}}}") };
        match &node.kind {
            NodeKind::Kernel(kernel) => self.kernel(index, node, kernel),
            NodeKind::Memset(set) => self.memset(index, set, &line, &row),
            NodeKind::Memcpy(copy) => self.memcpy(index, copy, &row),
            NodeKind::Host(host) => {
                let function = shown(&host.function);
                format!("{index}\nHOST\nfn: {function}\n{line}")
            }
            NodeKind::Empty => format!("{index}\nEMPTY\n{line}"),
            NodeKind::EventRecord(event) => {
                format!("{index}\nEVENT_RECORD\nevent: {event}\n{line}")
            }
            NodeKind::EventWait(event) => format!("{index}\nEVENT_WAIT\nevent: {event}\n{line}"),
            NodeKind::Alloc(buffer) => {
                let declared = self.graph.buffer(*buffer);
                let (bytes, place) = (declared.bytes, self.buffer(*buffer));
                let space = location(declared);
                format!(
                    "{{MEM_ALLOC\n| {{{{ID}} | {{{index}}}}}{row}{space}\n| {{{{bytesize | dptr}} | {{{bytes} | {place}}}}}}}"
                )
            }
            NodeKind::Free(buffer) => {
                let place = self.buffer(*buffer);
                format!(
                    "{{MEM_FREE\n| {{{{ID}} | {{{index}}}}}{row}\n| {{{{dptr}} | {{{place}}}}}}}"
                )
            }
            NodeKind::Child(_) => format!("{index}\ngraph_{inner}\n{line}"),
            NodeKind::Conditional(conditional) => self.conditional(index, conditional, &row, inner),
        }
    }

    fn kernel(&self, index: usize, node: &Node, kernel: &KernelNode) -> String {
        // Three of them in a row start a launch.
        let function = display_name(kernel.kernel.name()).replace("<<<", "< < <");
        let config = &kernel.config;
        let launch = if config.is_known() {
            let (grid, block) = (braced(config.grid), braced(config.block));
            format!("\\<\\<\\<{grid},{block},{}\\>\\>\\>", config.shared_mem_bytes)
        } else {
            String::new()
        };
        let mut label = format!("{{KERNEL\n| {{ID | {index} | {}{launch}}}", shown(&function));
        if *node.name != *kernel.kernel.name() && !node.name.is_empty() {
            append(&mut label, format_args!("\n| {{name | {}}}", shown(&node.name)));
        }
        let operations = |expr: Option<&Expr>| expr.map_or(0, |expr| expr.ops().len());
        match &kernel.kernel {
            KernelRef::Elementwise(expr) => {
                append(&mut label, format_args!("\n| {{operations | {}}}", expr.ops().len()));
            }
            KernelRef::Fused(fused) => {
                let (before, after) = (fused.before.as_ref(), fused.after.as_ref());
                let counts = (operations(before), operations(after));
                append(
                    &mut label,
                    format_args!("\n| {{operations | {} before, {} after}}", counts.0, counts.1),
                );
            }
            KernelRef::Named(_) | KernelRef::Library(_) => {}
        }
        if config.cluster != (1, 1, 1) {
            append(&mut label, format_args!("\n| {{cluster | {}}}", braced(config.cluster)));
        }
        if config.cooperative {
            label.push_str("\n| {cooperative | 1}");
        }
        if config.priority != 0 {
            append(&mut label, format_args!("\n| {{priority | {}}}", config.priority));
        }
        if !kernel.args.is_empty() {
            let mut args: Vec<String> =
                kernel.args.iter().take(SHOWN_ARGS).map(|arg| self.arg(arg)).collect();
            if kernel.args.len() > SHOWN_ARGS {
                args.push(format!("{} more", kernel.args.len() - SHOWN_ARGS));
            }
            append(&mut label, format_args!("\n| {{arguments | {{{}}}}}", args.join(" | ")));
        }
        label.push('}');
        label
    }

    fn arg(&self, arg: &Arg) -> String {
        match arg {
            Arg::Scalar(scalar) => scalar.to_string(),
            Arg::Slot(slot) => format!("slot {}", shown(&self.graph.slot(*slot).name)),
            Arg::View(view, access) => format!("{} {}", access.name(), self.view(view)),
            Arg::Region(region, access) => {
                let (place, bytes) = (self.buffer(region.buffer), region.bytes);
                format!("{} {place} + {} ({bytes} B)", access.name(), region.offset)
            }
        }
    }

    fn view(&self, view: &View) -> String {
        let extents: Vec<String> = view.shape().extents().iter().map(u64::to_string).collect();
        format!("{} {}[{}]", self.buffer(view.buffer), view.dtype, extents.join(","))
    }

    fn buffer(&self, id: crate::BufferId) -> String {
        format!("{id} {}", shown(&self.graph.buffer(id).name)).trim_end().to_owned()
    }

    fn target(&self, end: &Pitched) -> String {
        match end.target {
            Target::Buffer(buffer) => self.buffer(buffer),
            Target::Address(address) => format!("0x{address:016X}"),
            Target::Unspecified => "-".to_owned(),
        }
    }

    fn memset(&self, index: usize, set: &MemsetNode, line: &str, row: &str) -> String {
        let MemsetNode { dst, value, element_size, extent } = set;
        if *element_size == 0 {
            return format!("{index}\nMEMSET\n({value},{})\n{line}", extent.bytes());
        }
        let (place, width) = (self.target(dst), extent.width / u64::from(*element_size));
        let Pitched { offset, pitch, slice_rows, .. } = dst;
        let Extent { height, depth, .. } = extent;
        format!(
            "{{MEMSET\n| {{{{ID | dptr | offset | pitch | rows | value | elementSize | width | height | depth}} | {{{index} | {place} | {offset} | {pitch} | {slice_rows} | {value} | {element_size} | {width} | {height} | {depth}}}}}{row}}}"
        )
    }

    fn memcpy(&self, index: usize, copy: &MemcpyNode, row: &str) -> String {
        let MemcpyNode { dir, src, dst, extent } = copy;
        let ends: Vec<String> = [src, dst]
            .map(|end| format!("{} | {} | 0 | {}", end.pitch, self.target(end), end.slice_rows))
            .into();
        let position =
            |end: &Pitched| format!("{{{{x | {}}} | {{y | 0}} | {{z | 0}}}}", end.offset);
        let Extent { width, height, depth } = extent;
        format!(
            "{{MEMCPY\n| {{{{ID}} | {{{index}}}}}{row}\n| {{kind | {}}}\n| {{{{srcPtr | dstPtr}} | {{pitch | ptr | xsize | ysize | pitch | ptr | xsize | ysize}} | {{{}}}}}\n| {{{{srcPos | {}}} | {{dstPos | {}}} | {{Extent | {{{{Width | {width}}} | {{Height | {height}}} | {{Depth | {depth}}}}}}}}}}}",
            shown(&dir.to_string()),
            ends.join(" | "),
            position(src),
            position(dst),
        )
    }

    fn conditional(
        &self,
        index: usize,
        conditional: &ConditionalNode,
        row: &str,
        inner: usize,
    ) -> String {
        let mut label = format!("{{CONDITIONAL\n| {{ID | {index}}}{row}");
        match &conditional.condition {
            Condition::Handle(0) => {}
            Condition::Handle(handle) => {
                append(&mut label, format_args!("\n| {{Conditional Handle | {handle}}}"));
            }
            Condition::Value(view) => {
                append(&mut label, format_args!("\n| {{decides by | {}}}", self.view(view)));
            }
        }
        let kind = conditional.kind.name().to_uppercase();
        append(&mut label, format_args!("\n| {{Conditional Type | {kind}}}"));
        for body in 0..conditional.bodies.len() {
            let key = match (conditional.kind, body) {
                (ConditionalKind::Switch, number) => number.to_string(),
                (_, 0) => "True".to_owned(),
                (_, _) => "False".to_owned(),
            };
            append(&mut label, format_args!("\n| {{{key} | graph_{}}}", inner + body));
        }
        label.push('}');
        label
    }
}

fn append(label: &mut String, text: std::fmt::Arguments) {
    label.write_fmt(text).expect("writing to a string cannot fail");
}

/// `8` or `{8,8,4}`, braces escaped as in a record.
fn braced(dim: Dim3) -> String {
    match dim {
        (x, 1, 1) => x.to_string(),
        (x, y, 1) => format!("\\{{{x},{y}\\}}"),
        (x, y, z) => format!("\\{{{x},{y},{z}\\}}"),
    }
}

fn location(buffer: &Buffer) -> String {
    match buffer.space {
        Space::Device(id) => format!("\n| {{poolProps | {{type | id}} | {{DEVICE | {id}}}}}"),
        Space::Host { .. } => "\n| {poolProps | {type | id} | {HOST | 0}}".to_owned(),
        Space::Unknown => String::new(),
    }
}
