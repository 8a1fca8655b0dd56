//! Graphs that are nothing but their edges.

use std::sync::Arc;

use phonograph_graph::{
    ComputeGraph, GraphBuilder, KernelConfig, KernelNode, KernelRef, Node, NodeId, NodeKind,
};

use super::{GenerateError, Random, SPIN};

/// A builder with `nodes` kernels and no edges.
fn kernels(name: &str, nodes: u32, random: &mut Random) -> GraphBuilder {
    let mut builder = GraphBuilder::new().named(name).with_auto_infer_edges(false);
    let spin: Arc<str> = SPIN.into();
    for _ in 0..nodes {
        // Small ones are as frequent as large ones: a power of two, then a number up to the next.
        let octave = 1 << random.below(7);
        let blocks = (octave + random.below(octave)).min(100);
        let kernel = KernelNode {
            kernel: KernelRef::Named(spin.clone()),
            config: KernelConfig::linear(blocks, 32, 0),
            args: Box::default(),
            fusible: false,
        };
        let kind = NodeKind::Kernel(kernel);
        builder.add_node(Node { name: spin.clone(), kind, stream: None });
    }
    builder
}

/// The side of a square of `nodes`: rounded up.
fn side(nodes: u32) -> u32 {
    let root = nodes.isqrt();
    root + u32::from(root * root < nodes)
}

pub(super) fn chain(nodes: u32, mut random: Random) -> Result<ComputeGraph, GenerateError> {
    let mut b = kernels("chain", nodes, &mut random);
    for node in 1..nodes {
        b.dep(NodeId(node - 1), NodeId(node));
    }
    Ok(b.build()?)
}

pub(super) fn layered(nodes: u32, mut random: Random) -> Result<ComputeGraph, GenerateError> {
    let mut b = kernels("layered", nodes, &mut random);
    let width = side(nodes);
    for node in width..nodes {
        let above = (node / width - 1) * width;
        for _ in 0..=random.below(4) {
            b.dep(NodeId(above + random.below(width)), NodeId(node));
        }
    }
    Ok(b.build()?)
}

pub(super) fn wavefront(nodes: u32, mut random: Random) -> Result<ComputeGraph, GenerateError> {
    let mut b = kernels("wavefront", nodes, &mut random);
    let width = side(nodes);
    for node in 0..nodes {
        if let Some(above) = node.checked_sub(width) {
            b.dep(NodeId(above), NodeId(node));
        }
        if node % width > 0 {
            b.dep(NodeId(node - 1), NodeId(node));
        }
    }
    Ok(b.build()?)
}

/// A heap upside down: the last node is the root, leaves come first.
pub(super) fn tree(nodes: u32, mut random: Random) -> Result<ComputeGraph, GenerateError> {
    let mut b = kernels("tree", nodes, &mut random);
    for place in 1..nodes {
        let parent = (place - 1) / 2;
        b.dep(NodeId(nodes - 1 - place), NodeId(nodes - 1 - parent));
    }
    Ok(b.build()?)
}

pub(super) fn long_edges(nodes: u32, mut random: Random) -> Result<ComputeGraph, GenerateError> {
    let mut b = kernels("long-edges", nodes, &mut random);
    for node in 1..nodes {
        let near = node - 1 - random.below(node.min(64));
        b.dep(NodeId(near), NodeId(node));
        b.dep(NodeId(random.below(node)), NodeId(node));
    }
    Ok(b.build()?)
}
