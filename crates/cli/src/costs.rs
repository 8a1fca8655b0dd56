//! Files of node costs: `run --profile` writes them, `plan --costs` and `run --costs` read them.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use phonograph::graph::{ComputeGraph, NodeId};
use phonograph::plan::cost::Overheads;
use phonograph::runtime::cpu::{Cpu, Exec};
use serde::{Deserialize, Serialize};

use crate::{deliver, input};

/// The version that is written, and the only one that is read.
const VERSION: u64 = 1;
/// The longest a node may take: eleven days. Sums of as many nodes as there can be still fit.
const MAX_NS: u64 = 1_000_000_000_000_000;

/// What nodes cost, by node, and what comes on top.
pub struct Costs {
    pub nodes: Vec<u64>,
    pub overheads: Overheads,
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

/// Reads the costs of every node of `graph`.
pub fn read(path: &Path, graph: &ComputeGraph) -> Result<Costs> {
    let bytes = input::bytes(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&bytes, graph).with_context(|| format!("{} has no costs for it", path.display()))
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
    let FileOverheads { replay_ns, node_ns, handover_ns } = file.overheads;
    let overhead = |ns| within(ns).context("overheads");
    Ok(Costs {
        nodes: nodes.into_iter().flatten().collect(),
        overheads: Overheads {
            replay_ns: overhead(replay_ns)?,
            node_ns: overhead(node_ns)?,
            handover_ns: overhead(handover_ns)?,
        },
    })
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

/// Writes costs so that [`read`] reads them back.
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
