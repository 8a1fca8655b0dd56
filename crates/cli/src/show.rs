//! `phonograph show`: what a graph is made of, as text with a small drawing, JSON, DOT, a picture, a page or a trace.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use phonograph::graph::{ComputeGraph, NodeId, Region, display_name, to_dot};
use phonograph::plan::analysis::{RedundantEdge, Summary, critical_path, summary};
use phonograph::report::html::html;
use phonograph::report::picture::Picture;
use phonograph::report::terminal::{WIDTH, terminal};
use phonograph::report::text::{columns, count, elide, thousands};
use phonograph::report::{picture_of, sources, svg};
use serde_json::json;

use crate::costs::Source;
use crate::view::page::{Look, STREAMS, marks_by};
use crate::{Answer, GraphFile, deliver, input, print, print_json, short, terminal_width, title};

const EXAMPLES: &str = "\
Examples:
    phonograph show graph.dot                          figures, and the graph as a tree
    phonograph show graph.json --svg -o graph.svg      a drawing
    phonograph show graph.dot.gz --html -o graph.html  a page to zoom and search in
    phonograph show graph.dot --costs trace.json       with what nodes cost, from a trace of PyTorch's profiler
    phonograph generate tree --nodes 100 | phonograph show -";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    input: GraphFile,
    #[command(flatten)]
    form: Form,
    /// Write to this file instead of standard output.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// What nodes cost: a trace of PyTorch's profiler, or a file that `run --profile` wrote.
    #[arg(long, value_name = "FILE", conflicts_with = "dot")]
    costs: Option<PathBuf>,
}

#[derive(clap::Args)]
#[group(multiple = false)]
struct Form {
    /// The figures as JSON.
    #[arg(long)]
    json: bool,
    /// The graph in Graphviz's language.
    #[arg(long)]
    dot: bool,
    /// A drawing.
    #[arg(long)]
    svg: bool,
    /// A page to zoom, pan and search in.
    #[arg(long)]
    html: bool,
    /// When a schedule would run what, with dependencies as arrows, for Perfetto and `chrome://tracing`.
    #[arg(long)]
    trace: bool,
}

pub fn run(args: &Args) -> Result<Answer> {
    let read = [Some(&args.input.file), args.costs.as_ref()].into_iter().flatten();
    input::keep(read.map(PathBuf::as_path), args.output.as_deref())?;
    let graph = input::graph(&args.input.file)?;
    let title = title(&args.input.file);
    let output = args.output.as_deref();
    let costs = args.costs.as_deref().map(|path| Source::read(path, &graph)).transpose()?;
    if args.form.dot {
        deliver(to_dot(&graph).as_bytes(), output)?;
    } else if args.form.svg {
        let picture = picture(&graph, &title, costs.as_ref());
        deliver(svg(&picture)?.as_bytes(), output)?;
    } else if args.form.html {
        let look = Look::new(graph, title, STREAMS, costs)?;
        deliver(html(&look.page()?)?.as_bytes(), output)?;
    } else if args.form.trace {
        let look = Look::new(graph, title, STREAMS, costs)?;
        deliver(look.trace()?.as_bytes(), output)?;
    } else {
        let found = summary(&graph);
        if args.form.json {
            let report = report(&found, costs.as_ref());
            match output {
                None => print_json(&report)?,
                Some(_) => deliver(format!("{report:#}\n").as_bytes(), output)?,
            }
        } else {
            let width = if output.is_some() { WIDTH } else { terminal_width() };
            let mut text = text(&graph, &found, &title, costs.as_ref(), width);
            let drawn = terminal(&picture(&graph, &title, costs.as_ref()), width)?;
            if !drawn.is_empty() {
                text += "\n";
                text += &drawn;
            }
            output.map_or_else(|| print(text.as_bytes()), |_| deliver(text.as_bytes(), output))?;
        }
    }
    Ok(Answer::Yes)
}

/// The picture without a schedule: what the file says and no more.
fn picture(graph: &ComputeGraph, title: &str, costs: Option<&Source>) -> Picture {
    picture_of(graph, title, None, &mut marks_by(costs))
}

fn report(found: &Summary, costs: Option<&Source>) -> serde_json::Value {
    let inside = |edge: &RedundantEdge| {
        edge.inside.iter().map(|(node, graph)| json!([node.0, graph])).collect::<Vec<_>>()
    };
    let redundant = found.redundant.iter().map(
        |edge| json!({ "from": edge.edge.from.0, "to": edge.edge.to.0, "inside": inside(edge) }),
    );
    json!({
        "graphs": found.graphs,
        "nodes": found.nodes,
        "edges": found.edges,
        "redundant_edges": found.redundant.len(),
        "redundant": redundant.collect::<Vec<_>>(),
        "critical_path_nodes": found.critical_path_nodes,
        "max_width": found.max_width,
        "kinds": found.kinds,
        "internal_bytes": found.internal_bytes,
        "costs": costs.map(Source::report),
    })
}

/// Names and values, one below the other, no wider than a terminal.
struct Lines {
    text: String,
    width: usize,
}

impl Lines {
    const INDENT: usize = 19;

    fn room(&self) -> usize {
        self.width.saturating_sub(Self::INDENT).max(20)
    }

    /// A value that may go on in further lines, at spaces that may break.
    fn add(&mut self, name: &str, value: &str) {
        let room = self.room();
        let mut line = String::new();
        let mut name = name;
        for word in value.split(' ') {
            if !line.is_empty() && columns(&line) + 1 + columns(word) > room {
                self.push(name, &line);
                (name, line) = ("", String::new());
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.push(name, &line);
    }

    /// A value of one line, shortened in the middle if it must be.
    fn push(&mut self, name: &str, value: &str) {
        let value = elide(value, self.room()).replace('\u{a0}', " ");
        writeln!(self.text, "  {name:<16} {value}").expect("a String takes all");
    }
}

fn text(
    graph: &ComputeGraph,
    found: &Summary,
    title: &str,
    costs: Option<&Source>,
    width: usize,
) -> String {
    let mut lines = Lines { text: String::new(), width };
    let inner = match found.graphs {
        1 => String::new(),
        graphs => format!(" (in {} graphs)", thousands(graphs)),
    };
    let kinds = found.kinds.iter().map(|(kind, &n)| format!("{kind}\u{a0}{}", thousands(n)));
    lines.add("kinds", &kinds.collect::<Vec<_>>().join(", "));
    let path = critical_path(graph, |_| 1).nodes;
    let shown = if path.len() == found.critical_path_nodes {
        format!("{}: {}", count(path.len(), "node"), chain(&path))
    } else {
        format!("{}, in an inner graph", count(found.critical_path_nodes, "node"))
    };
    lines.add("critical path", &shown);
    if let Some(known) = costs.map(Source::known) {
        let cost = |node: NodeId| known.get(node.index()).copied().flatten().unwrap_or(0);
        let path = critical_path(graph, cost);
        let (micros, nodes) = (path.cost as f64 / 1e3, count(path.nodes.len(), "node"));
        lines.add("by cost", &format!("{micros:.1} µs over {nodes}: {}", chain(&path.nodes)));
    }
    lines.add("widest level", &count(found.max_width, "node"));
    lines.add("redundant edges", &thousands(found.redundant.len()));
    const SHOWN: usize = 8;
    for edge in found.redundant.iter().take(SHOWN) {
        let way: String =
            edge.inside.iter().map(|(node, index)| format!("{node}[{index}] ")).collect();
        lines.add("", &format!("{way}{} → {}", edge.edge.from, edge.edge.to));
    }
    if found.redundant.len() > SHOWN {
        lines.add("", &format!("… and {} more", thousands(found.redundant.len() - SHOWN)));
    }
    if found.internal_bytes > 0 {
        let bytes = thousands(found.internal_bytes);
        lines.add("internal memory", &format!("{bytes} B in buffers of their own"));
    }
    for (index, said) in costs.map(Source::says).unwrap_or_default().iter().enumerate() {
        lines.add(if index == 0 { "costs" } else { "" }, said);
    }
    let kernels = kernels(graph);
    for (index, (name, count)) in kernels.iter().take(SHOWN).enumerate() {
        let heading = if index == 0 { "kernels" } else { "" };
        lines.push(heading, &format!("{:>5} × {name}", thousands(*count)));
    }
    if kernels.len() > SHOWN {
        lines.add("", &format!("… and {} more names", thousands(kernels.len() - SHOWN)));
    }
    let flow = sources(graph);
    const FLOW: usize = 24;
    for (index, (&node, read)) in flow.iter().take(FLOW).enumerate() {
        lines.push(if index == 0 { "data flow" } else { "" }, &flow_line(graph, node, read));
    }
    if flow.len() > FLOW {
        let more = thousands(flow.len() - FLOW);
        lines.add("", &format!("… and {more} more nodes; --html has all"));
    }
    let (nodes, edges) = (count(found.nodes, "node"), count(found.edges, "edge"));
    format!("{}\n{}", elide(&format!("{title}: {nodes}, {edges}{inner}"), width), lines.text)
}

/// What an observed node reads from whom, and what it writes.
fn flow_line(graph: &ComputeGraph, node: NodeId, read: &[(Region, Vec<NodeId>)]) -> String {
    let name = |region: &Region| &graph.buffer(region.buffer).name;
    let read: Vec<String> = read
        .iter()
        .map(|(region, from)| match from[..] {
            [] => name(region).to_string(),
            _ => format!(
                "{} of {}",
                name(region),
                from.iter().map(NodeId::to_string).collect::<Vec<_>>().join(" and ")
            ),
        })
        .collect();
    let operands = graph.operands(node);
    let written = operands.iter().filter(|(_, access)| access.writes());
    let written: Vec<&str> = written.map(|(region, _)| &**name(region)).collect();
    let label = short(&display_name(&graph.node(node).name));
    format!("{node} {label}: {} → {}", read.join(", "), written.join(", "))
}

fn chain(nodes: &[NodeId]) -> String {
    let names = |nodes: &[NodeId]| nodes.iter().map(NodeId::to_string).collect::<Vec<_>>();
    match nodes {
        [first @ .., _, _, last] if nodes.len() > 8 => {
            format!("{} → … → {last}", names(&first[..4]).join(" → "))
        }
        nodes => names(nodes).join(" → "),
    }
}

/// Kernels by name, the most frequent first.
fn kernels(graph: &ComputeGraph) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut graphs = vec![graph];
    while let Some(graph) = graphs.pop() {
        for node in graph.nodes() {
            if let Some(kernel) = node.kernel() {
                *counts.entry(short(&display_name(kernel.kernel.name()))).or_default() += 1;
            }
            graphs.extend(node.kind.inner_graphs());
        }
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    counts
}
