//! Dead nodes: those whose every result is overwritten or left unread, and that nobody can see in any other way.
//!
//! One pass against the topological order keeps the bytes that somebody still reads (liveness, as compilers have it); the
//! user's buffers, allocated ones and those that carry something over are live at the end. What stays: nodes with
//! unknown effects, host functions, events, allocations, conditionals, kernels that can fail by what data says,
//! kernels that declare no result, and whoever writes a buffer for which nodes race. Dead nodes that many others are
//! ordered through stay as empty nodes. O(nodes + edges + operands · log intervals).

use phonograph_graph::{
    ComputeGraph, Effects, KernelRef, LibraryKernel, Node, NodeId, NodeKind, Rebuild,
};

use super::contract::contract;
use super::{Change, Left, PassError, PassReport, Reason, Rewritten, on_every_graph};
use crate::analysis::bytes::Bytes;
use crate::analysis::{Outlasts, Watch, outlasting, raced_buffers};

const PASS: &str = "drop dead nodes";

/// Drops the nodes whose results nobody reads.
///
/// ```
/// use phonograph_graph::GraphBuilder;
/// use phonograph_plan::passes::drop_dead;
///
/// let mut b = GraphBuilder::new();
/// let [scratch, unread] = ["scratch", "unread"].map(|name| b.alloc_buffer(name, 1024));
/// let result = b.external_buffer("result", 1024);
/// b.add_kernel("first", 1, 32, 0).outputs([scratch]).finish();
/// b.add_kernel("aside", 1, 32, 0).inputs([scratch]).outputs([unread]).finish();
/// b.add_kernel("last", 1, 32, 0).inputs([scratch]).outputs([result]).finish();
/// let rewritten = drop_dead(&b.build()?)?;
/// assert_eq!(rewritten.report.to_string(), "drop dead nodes: 1 dropped\n  n1 dropped");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`PassError`], if the graph that comes out is not valid.
pub fn drop_dead(graph: &ComputeGraph) -> Result<Rewritten, PassError> {
    on_every_graph(graph, &|graph| {
        let mut report = PassReport::new(PASS);
        let dead = dead(graph, &mut report.left);
        take_out(graph, &dead, report)
    })
}

/// Takes nodes out, or empties them where edges would multiply; reports it.
pub(super) fn take_out(
    graph: &ComputeGraph,
    goes: &[bool],
    mut report: PassReport,
) -> Result<Rewritten, PassError> {
    if !goes.contains(&true) {
        return Ok(Rewritten::unchanged(graph, report));
    }
    let contracted = contract(graph, |node| goes[node.index()]);
    let mut rebuild = Rebuild::new(graph);
    let mut stay = contracted.stay.iter().map(|&(node, ..)| node).collect::<Vec<_>>();
    stay.sort_unstable();
    for node in graph.node_ids().filter(|node| goes[node.index()]) {
        if stay.binary_search(&node).is_ok() {
            let Node { name, stream, .. } = graph.node(node).clone();
            rebuild.replace(node, Node { name, kind: NodeKind::Empty, stream });
            report.changed.push(Change::Emptied { node });
        } else {
            rebuild.drop_node(node);
            report.changed.push(Change::Dropped { node });
        }
    }
    rebuild.edges(contracted.edges);
    Rewritten::rebuilt(rebuild, report)
}

/// Which nodes are dead; why those stay whose results nobody reads.
fn dead(graph: &ComputeGraph, left: &mut Vec<Left>) -> Vec<bool> {
    let mut dead = vec![false; graph.node_count()];
    let outlasting = outlasting(graph);
    let watch = Watch::of(graph);
    let mut live = Bytes::none(graph);
    for (index, outlasts) in (0u32..).zip(&outlasting) {
        if outlasts.is_some() {
            live.add_whole(graph, index.into());
        }
    }
    let raced = raced_buffers(graph);
    for &node in graph.topological_order().iter().rev() {
        let operands = graph.operands(node);
        let mut written = operands.iter().filter(|(_, access)| access.writes()).map(|(r, _)| *r);
        // The first reason to keep it, if any.
        let read = written.clone().find(|&region| live.meets(region));
        let why = if let Some(read) = read {
            match outlasting[read.buffer.index()] {
                Some(Outlasts::Carried) => Some(Reason::Carried(read.buffer)),
                Some(Outlasts::Exported) => Some(Reason::Exported(read.buffer)),
                None => Some(Reason::Read(read.buffer)),
            }
        } else if let Some(race) = written.clone().find(|r| raced.contains(&r.buffer)) {
            Some(Reason::Raced(race.buffer))
        } else if let Some(watched) = written.find(|r| watch.sees(r.buffer)) {
            Some(Reason::Watched(watched.buffer))
        } else {
            why_it_stays(graph, node)
        };
        match why {
            None => dead[node.index()] = true,
            Some(why) => {
                // That results are read is what nodes are for: no news.
                let ordinary = matches!(why, Reason::Read(_) | Reason::Exported(_));
                if !ordinary && !matches!(graph.node(node).kind, NodeKind::Empty) {
                    left.push(Left { node, why });
                }
                let writes = operands.iter().filter(|(_, a)| a.writes() && !a.reads());
                writes.for_each(|(region, _)| live.remove(*region));
                let reads = operands.iter().filter(|(_, a)| a.reads());
                reads.for_each(|(region, _)| live.add(*region));
            }
        }
    }
    left.reverse();
    dead
}

/// Why a node must stay although nobody reads what it leaves in memory.
fn why_it_stays(graph: &ComputeGraph, node: NodeId) -> Option<Reason> {
    let why = why_kind_stays(&graph.node(node).kind);
    why.or_else(|| (graph.effects(node) == Effects::Unknown).then_some(Reason::UnknownEffects))
}

fn why_kind_stays(kind: &NodeKind) -> Option<Reason> {
    match kind {
        NodeKind::Kernel(kernel) => match kernel.kernel {
            KernelRef::Library(LibraryKernel::Gather | LibraryKernel::ScatterAdd) => {
                Some(Reason::CanFail)
            }
            KernelRef::Named(_) => {
                let writes = |arg: &phonograph_graph::Arg| {
                    arg.effect().is_some_and(|(_, access)| access.writes())
                };
                (!kernel.args.iter().any(writes)).then_some(Reason::NoResult)
            }
            KernelRef::Elementwise(_) | KernelRef::Library(_) | KernelRef::Fused(_) => None,
        },
        NodeKind::Host(_) => Some(Reason::HostFunction),
        NodeKind::EventRecord(_) | NodeKind::EventWait(_) => Some(Reason::Event),
        NodeKind::Alloc(_) | NodeKind::Free(_) => Some(Reason::Allocation),
        NodeKind::Conditional(_) => Some(Reason::CanFail),
        // Empty nodes are for another pass.
        NodeKind::Empty => Some(Reason::NoResult),
        NodeKind::Child(inner) => inner.nodes().iter().find_map(|node| match &node.kind {
            NodeKind::Empty => None,
            kind => why_kind_stays(kind),
        }),
        NodeKind::Memcpy(_) | NodeKind::Memset(_) => None,
    }
}
