//! What nodes cost: from a file that `run --profile` writes, or from a trace of PyTorch's profiler.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use phonograph::graph::{ComputeGraph, NodeId};
use phonograph::plan::cost::{Overheads, assumed};
use phonograph::report::picture::GroupIx;
use phonograph::runtime::cpu::{Cpu, Exec};
use serde::{Deserialize, Serialize};

use crate::view::trace::Trace;
use crate::{deliver, input, title};

/// The version that is written, and the only one that is read.
const VERSION: u64 = 1;
/// The longest a node may take: eleven days.
const MAX_NS: u64 = 1_000_000_000_000_000;
/// The longest all nodes may take together, with what comes on top of each: thirty years. What is computed from that fits.
const MAX_TOTAL_NS: u128 = 1_000_000_000_000_000_000;

/// What nodes cost in nanoseconds, by node, and what comes on top.
pub struct Costs {
    pub nodes: Vec<u64>,
    pub overheads: Overheads,
}

impl Costs {
    /// Where nothing is known: [`assumed`].
    pub fn assumed(graph: &ComputeGraph) -> Self {
        Self { nodes: assumed(graph), overheads: Overheads::default() }
    }
}

/// Where costs come from.
pub enum Source {
    /// Every node was measured.
    Measured { name: String, costs: Costs },
    /// A profiler saw some of them.
    Trace(Trace),
}

impl Source {
    /// Reads either kind of file, plain or gzip.
    pub fn read(path: &Path, graph: &ComputeGraph) -> Result<Self> {
        let bytes = input::bytes(path)?;
        if !is_own(&bytes) {
            return Ok(Self::Trace(Trace::new(&bytes, path, graph)?));
        }
        let costs = parse(&bytes, graph)
            .with_context(|| format!("{} has no costs for it", input::shown(path)))?;
        Ok(Self::Measured { name: title(path), costs })
    }

    /// Nanoseconds by node of the outermost graph, where known.
    pub fn known(&self) -> Vec<Option<u64>> {
        match self {
            Self::Measured { costs, .. } => costs.nodes.iter().copied().map(Some).collect(),
            Self::Trace(trace) => trace.costs().to_vec(),
        }
    }

    /// Nanoseconds by node of a graph inside, as a picture numbers it, where known.
    pub fn known_in(&self, group: GroupIx, nodes: usize) -> Vec<Option<u64>> {
        match self {
            Self::Trace(trace) => trace.costs_in(group, nodes),
            // Profiles tell of the outermost graph only.
            Self::Measured { .. } => Vec::new(),
        }
    }

    /// The costs of all nodes; those that a trace does not tell are assumed.
    pub fn costs(&self, graph: &ComputeGraph) -> Costs {
        match self {
            Self::Measured { costs: Costs { nodes, overheads }, .. } => {
                Costs { nodes: nodes.clone(), overheads: *overheads }
            }
            Self::Trace(trace) => {
                let Costs { nodes, overheads } = Costs::assumed(graph);
                let nodes = trace.costs().iter().zip(nodes).map(|(known, ns)| known.unwrap_or(ns));
                Costs { nodes: nodes.collect(), overheads }
            }
        }
    }

    /// Where they come from and what did not match, a line each.
    pub fn says(&self) -> Vec<String> {
        match self {
            Self::Measured { name, costs } => {
                vec![format!("of {} nodes from {name}", costs.nodes.len())]
            }
            Self::Trace(trace) => trace.says(),
        }
    }

    /// The figures.
    pub fn report(&self) -> serde_json::Value {
        match self {
            Self::Measured { name, costs } => {
                serde_json::json!({ "profile": name, "nanoseconds": costs.nodes })
            }
            Self::Trace(trace) => trace.report(),
        }
    }

    /// What a profiler recorded.
    pub const fn trace(&self) -> Option<&Trace> {
        match self {
            Self::Measured { .. } => None,
            Self::Trace(trace) => Some(trace),
        }
    }
}

/// Whether a file is one that [`write`] wrote: its first key tells.
fn is_own(bytes: &[u8]) -> bool {
    let mut rest = bytes.iter().filter(|byte| !byte.is_ascii_whitespace());
    b"{\"phonograph_costs\"".iter().all(|wanted| rest.next() == Some(wanted))
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    phonograph_costs: u64,
    overheads: FileOverheads,
    nodes: Vec<Row>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileOverheads {
    replay_ns: u64,
    node_ns: u64,
    handover_ns: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: u32,
    name: String,
    ns: u64,
}

fn parse(bytes: &[u8], graph: &ComputeGraph) -> Result<Costs> {
    let file: File = serde_json::from_slice(bytes)?;
    let found = file.phonograph_costs;
    ensure!(found == VERSION, "version {found} of the format; this reads version {VERSION}");
    let mut nodes: Vec<Option<u64>> = vec![None; graph.node_count()];
    for (place, row) in file.nodes.iter().enumerate() {
        let id = NodeId(row.id);
        let Some(node) = graph.get(id) else {
            bail!("nodes[{place}]: the graph has {} nodes, no {id}", graph.node_count());
        };
        ensure!(
            *node.name == *row.name,
            "nodes[{place}]: {id} is called `{}` in the graph, not `{}`",
            node.name,
            row.name
        );
        let ns = within(row.ns).with_context(|| format!("nodes[{place}]"))?;
        ensure!(nodes[id.index()].replace(ns).is_none(), "nodes[{place}]: {id} occurs twice");
    }
    if let Some(missing) = nodes.iter().position(Option::is_none) {
        bail!("{} is missing", NodeId::from_index(missing));
    }
    let nodes: Vec<u64> = nodes.into_iter().flatten().collect();
    let FileOverheads { replay_ns, node_ns, handover_ns } = file.overheads;
    for ns in [replay_ns, node_ns, handover_ns] {
        within(ns).context("overheads")?;
    }
    let sum: u128 = nodes.iter().map(|&ns| u128::from(ns)).sum();
    let (on_nodes, on_edges) = (graph.node_count() as u128, graph.edge_count() as u128);
    let total = sum + on_nodes * u128::from(node_ns) + on_edges * u128::from(handover_ns);
    ensure!(
        total <= MAX_TOTAL_NS,
        "all nodes together take {total} ns, longer than {MAX_TOTAL_NS} ns, the longest that is believed"
    );
    Ok(Costs { nodes, overheads: Overheads { replay_ns, node_ns, handover_ns } })
}

fn within(ns: u64) -> Result<u64> {
    ensure!(ns <= MAX_NS, "{ns} ns is longer than {MAX_NS} ns, the longest that is believed");
    Ok(ns)
}

/// Measures what the nodes of a graph cost, and what comes on top.
pub fn measure(cpu: &mut Cpu, exec: &mut Exec, replays: u64) -> Result<Costs> {
    let nodes = cpu.node_costs(exec, replays)?;
    let measured = cpu.overheads();
    let overheads = Overheads {
        replay_ns: measured.replay_ns,
        node_ns: measured.node_ns,
        handover_ns: measured.handover_ns,
    };
    Ok(Costs { nodes, overheads })
}

/// Writes costs so that [`Source::read`] reads them back.
pub fn write(path: &Path, graph: &ComputeGraph, costs: &Costs) -> Result<()> {
    let Overheads { replay_ns, node_ns, handover_ns } = costs.overheads;
    let rows = graph.nodes().iter().zip(&costs.nodes).zip(0..);
    let file = File {
        phonograph_costs: VERSION,
        overheads: FileOverheads { replay_ns, node_ns, handover_ns },
        nodes: rows.map(|((node, &ns), id)| Row { id, name: node.name.to_string(), ns }).collect(),
    };
    let mut text = serde_json::to_vec(&file)?;
    text.push(b'\n');
    deliver(&text, Some(path))
}
