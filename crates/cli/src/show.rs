//! `phonograph show`: what a graph is made of, as text with a small drawing, JSON, DOT, a picture, a page or a trace.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use phonograph::graph::{ComputeGraph, NodeId, display_name, to_dot};
use phonograph::plan::analysis::{RedundantEdge, Summary, critical_path, summary};
use phonograph::report::html::html;
use phonograph::report::picture::Picture;
use phonograph::report::terminal::terminal;
use phonograph::report::{picture_of, svg};
use serde_json::json;

use crate::costs::Source;
use crate::view::page::{Look, STREAMS, marks_by};
use crate::{Answer, GraphFile, deliver, input, print, print_json, short, title};

#[derive(clap::Args)]
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
            let mut text = text(&graph, &found, &title, costs.as_ref());
            let drawn = terminal(&picture(&graph, &title, costs.as_ref()))?;
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

fn text(graph: &ComputeGraph, found: &Summary, title: &str, costs: Option<&Source>) -> String {
    let mut text = String::new();
    let inner = match found.graphs {
        1 => String::new(),
        graphs => format!(" (in {graphs} graphs)"),
    };
    let mut line = |name: &str, value: &str| {
        writeln!(text, "  {name:<16} {value}").expect("a String takes all");
    };
    let kinds: Vec<String> = found.kinds.iter().map(|(kind, n)| format!("{kind} {n}")).collect();
    line("kinds", &kinds.join(", "));
    let path = critical_path(graph, |_| 1).nodes;
    let shown = if path.len() == found.critical_path_nodes {
        format!("{} nodes: {}", path.len(), chain(&path))
    } else {
        format!("{} nodes, in an inner graph", found.critical_path_nodes)
    };
    line("critical path", &shown);
    if let Some(known) = costs.map(Source::known) {
        let cost = |node: NodeId| known.get(node.index()).copied().flatten().unwrap_or(0);
        let path = critical_path(graph, cost);
        let (micros, nodes) = (path.cost as f64 / 1e3, path.nodes.len());
        line("by cost", &format!("{micros:.1} µs over {nodes} nodes: {}", chain(&path.nodes)));
    }
    line("widest level", &format!("{} nodes", found.max_width));
    line("redundant edges", &found.redundant.len().to_string());
    const SHOWN: usize = 8;
    for edge in found.redundant.iter().take(SHOWN) {
        let way: String =
            edge.inside.iter().map(|(node, index)| format!("{node}[{index}] ")).collect();
        line("", &format!("{way}{} → {}", edge.edge.from, edge.edge.to));
    }
    if found.redundant.len() > SHOWN {
        line("", &format!("… and {} more", found.redundant.len() - SHOWN));
    }
    if found.internal_bytes > 0 {
        line("internal memory", &format!("{} B in buffers of their own", found.internal_bytes));
    }
    for (index, said) in costs.map(Source::says).unwrap_or_default().iter().enumerate() {
        line(if index == 0 { "costs" } else { "" }, said);
    }
    let kernels = kernels(graph);
    for (index, (name, count)) in kernels.iter().take(SHOWN).enumerate() {
        let heading = if index == 0 { "kernels" } else { "" };
        line(heading, &format!("{count:>4} × {name}"));
    }
    if kernels.len() > SHOWN {
        line("", &format!("  … and {} more", kernels.len() - SHOWN));
    }
    format!("{title}: {} nodes, {} edges{inner}\n{text}", found.nodes, found.edges)
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
