//! From the graph representation to what an update compares. Linear in nodes and edges.

use phonograph_graph as ir;
use phonograph_graph::{ComputeGraph, NodeKind};

use super::{Conditional, Content, Dependency, Direction, Graph, Node, NodeIndex, Port};

/// Creation order is the order of the ids; dependencies keep the order in which they were given.
impl From<&ComputeGraph> for Graph {
    /// Recursive over nesting, which building a graph bounds.
    fn from(graph: &ComputeGraph) -> Self {
        let node = |id| Node {
            name: graph.node(id).name.clone(),
            content: content(graph, &graph.node(id).kind),
            dependencies: graph.incoming(id).map(dependency).collect(),
        };
        Graph { nodes: graph.node_ids().map(node).collect() }
    }
}

fn dependency(edge: ir::Edge) -> Dependency {
    let port = match edge.data {
        data if data.is_full() => Port::Full,
        ir::EdgeData { from_port: 2, .. } => Port::LaunchOrder,
        _ => Port::Programmatic,
    };
    Dependency { node: NodeIndex(edge.from.0), port }
}

/// The device of the memory at one end of a copy or memset, if the graph tells.
fn device(graph: &ComputeGraph, end: &ir::Pitched) -> Option<u32> {
    match end.target {
        ir::Target::Buffer(buffer) => match graph.buffer(buffer).space {
            ir::Space::Device(device) => Some(device),
            ir::Space::Host { .. } | ir::Space::Unknown => None,
        },
        ir::Target::Address(_) | ir::Target::Unspecified => None,
    }
}

fn content(graph: &ComputeGraph, kind: &NodeKind) -> Content {
    match kind {
        NodeKind::Kernel(kernel) => Content::Kernel { cooperative: kernel.config.cooperative },
        NodeKind::Memcpy(copy) => Content::Memcpy {
            direction: match copy.dir {
                ir::MemcpyDir::HostToHost => Direction::HostToHost,
                ir::MemcpyDir::HostToDevice => Direction::HostToDevice,
                ir::MemcpyDir::DeviceToHost => Direction::DeviceToHost,
                ir::MemcpyDir::DeviceToDevice | ir::MemcpyDir::PeerToPeer { .. } => {
                    Direction::DeviceToDevice
                }
            },
            bytes: copy.extent.width,
            rows: u32::try_from(copy.extent.height).unwrap_or(u32::MAX),
            depth: u32::try_from(copy.extent.depth).unwrap_or(u32::MAX),
            offset: copy.dst.offset,
            devices: [device(graph, &copy.src), device(graph, &copy.dst)],
        },
        NodeKind::Memset(set) => Content::Memset {
            element: set.element_size.into(),
            // The driver counts elements; where their size is not told, bytes are all there is.
            width: set.extent.width / u64::from(set.element_size.max(1)),
            height: set.extent.height,
            pitch: set.dst.pitch,
            device: device(graph, &set.dst),
        },
        NodeKind::Host(_) => Content::Host,
        NodeKind::Empty => Content::Empty,
        NodeKind::EventRecord(_) => Content::EventRecord,
        NodeKind::EventWait(_) => Content::EventWait,
        NodeKind::Alloc(_) => Content::Alloc,
        NodeKind::Free(_) => Content::Free,
        NodeKind::Child(graph) => Content::Child(Graph::from(&**graph)),
        NodeKind::Conditional(conditional) => Content::Conditional {
            kind: match conditional.kind {
                ir::ConditionalKind::If => Conditional::If,
                ir::ConditionalKind::While => Conditional::While,
                ir::ConditionalKind::Switch => Conditional::Switch,
            },
            bodies: conditional.bodies.iter().map(Graph::from).collect(),
        },
    }
}

#[cfg(test)]
mod tests {
    use phonograph_graph::{GraphBuilder, MemcpyDir};

    use super::*;
    use crate::update::{Reason, diff, predict};

    fn graph(height: u64, copy: bool, swapped: bool) -> Graph {
        let mut b = GraphBuilder::new();
        let buffer = b.alloc_buffer("b", 4096);
        let target = ir::Target::Buffer(buffer);
        let dst = ir::Pitched { target, offset: 0, pitch: 512, slice_rows: 0 };
        let extent = ir::Extent { width: 64, height, depth: 1 };
        let second = |b: &mut GraphBuilder| match copy {
            true => b.add_memcpy("second", MemcpyDir::DeviceToHost, 64),
            false => b.add_barrier("second"),
        };
        let early = swapped.then(|| second(&mut b));
        let fill = ir::MemsetNode { dst, value: 0, element_size: 4, extent };
        let first = b.add_fill("first", fill);
        let second = early.unwrap_or_else(|| second(&mut b));
        b.dep(first, second);
        Graph::from(&b.build().unwrap())
    }

    #[test]
    fn graphs_of_the_ir_are_judged_as_recorded_ones_are() {
        let answer = |b: &Graph| predict(&graph(2, true, false), b).reason;
        assert_eq!(answer(&graph(2, true, false)), Reason::Success);
        assert_eq!(answer(&graph(1, true, false)), Reason::ParametersChanged);
        assert_eq!(answer(&graph(2, false, false)), Reason::NodeTypeChanged);
        // Created in another order, but with one sink: pairing follows dependencies.
        assert_eq!(answer(&graph(2, true, true)), Reason::Success);
        assert_eq!(diff(&graph(2, true, false), &graph(2, true, true)).order, None);
    }
}
