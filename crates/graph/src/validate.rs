//! What every node of a graph must satisfy, checked once, at build.

use std::collections::BTreeMap;

use crate::graph::{declared_operands, is_opaque};
use crate::library::OperandError;
use crate::{
    Access, Arg, Buffer, BufferId, BufferRole, ComputeGraph, Condition, ConditionalKind, DType,
    Expr, Extent, GraphError, KernelNode, KernelRef, NamedNode, Node, NodeId, NodeKind, Observed,
    Pitched, Region, Slot, SlotId, Target, View,
};

/// How deep child graphs and bodies may nest. A bound, so that walking down them can be recursive.
pub const MAX_NESTING: usize = 16;

/// The tables that nodes refer to.
pub(crate) struct Tables<'a> {
    pub buffers: &'a [Buffer],
    pub slots: &'a [Slot],
}

pub(crate) fn named(id: NodeId, node: &Node) -> NamedNode {
    NamedNode { id, name: node.name.to_string() }
}

/// Checks the declarations themselves.
pub(crate) fn check_tables(tables: &Tables) -> Result<(), GraphError> {
    let mut outer: Vec<(BufferId, BufferId)> = Vec::new();
    for (index, buffer) in tables.buffers.iter().enumerate() {
        let id = BufferId::from_index(index);
        let bad = |problem: String| GraphError::Buffer {
            buffer: id,
            name: buffer.name.to_string(),
            problem,
        };
        if !buffer.align.is_power_of_two() {
            return Err(bad(format!("alignment {} is not a power of two", buffer.align)));
        }
        if buffer.bytes > 1 << 56 {
            return Err(bad(format!("{} bytes are more than can be addressed", buffer.bytes)));
        }
        if let BufferRole::Outer(target) = buffer.role {
            outer.push((target, id));
        }
    }
    outer.sort_unstable();
    if let Some(pair) = outer.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        // Two names for one buffer would hide conflicts from dependency inference.
        let buffer = pair[1].1;
        return Err(GraphError::Buffer {
            buffer,
            name: tables.buffers[buffer.index()].name.to_string(),
            problem: format!("stands for the same outer buffer as {}", pair[0].1),
        });
    }
    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, slot) in tables.slots.iter().enumerate() {
        let id = SlotId::from_index(index);
        if slot.name.is_empty() {
            continue;
        }
        if let Some(twin) = by_name.insert(&slot.name, index) {
            let problem = format!("has the same name as slot{twin}; slots are set by name");
            return Err(GraphError::Slot { slot: id, name: slot.name.to_string(), problem });
        }
    }
    Ok(())
}

/// Checks one node against the tables.
pub(crate) fn check_node(tables: &Tables, id: NodeId, node: &Node) -> Result<(), GraphError> {
    let problem = |problem: String| GraphError::Node { node: named(id, node), problem };
    match &node.kind {
        NodeKind::Kernel(kernel) => check_kernel(tables, id, node, kernel)?,
        NodeKind::Memcpy(copy) => {
            check_extent(copy.extent, &[copy.src, copy.dst]).map_err(problem)?;
        }
        NodeKind::Memset(set) => {
            check_extent(set.extent, &[set.dst]).map_err(problem)?;
            let untold = set.element_size == 0 && set.dst.target == Target::Unspecified;
            if !untold && !matches!(set.element_size, 1 | 2 | 4) {
                let size = set.element_size;
                return Err(problem(format!("a pattern of {size} bytes; 1, 2 or 4 are possible")));
            }
            if !untold && set.extent.width % u64::from(set.element_size) != 0 {
                let (width, size) = (set.extent.width, set.element_size);
                return Err(problem(format!("{width} bytes are not whole patterns of {size}")));
            }
        }
        NodeKind::Child(graph) => check_inner(tables, id, node, graph)?,
        NodeKind::Conditional(conditional) => {
            let (kind, count) = (conditional.kind, conditional.bodies.len());
            let fits = match kind {
                ConditionalKind::If => (1..=2).contains(&count),
                ConditionalKind::While => count == 1,
                ConditionalKind::Switch => count >= 1,
            };
            if !fits {
                return Err(problem(format!("a conditional `{}` of {count} bodies", kind.name())));
            }
            if let Condition::Value(view) = conditional.condition {
                let integral =
                    matches!(view.dtype, DType::I32 | DType::U32 | DType::U8 | DType::Bool);
                if view.elements() != 1 || !integral {
                    let (shape, dtype) = (view.shape(), view.dtype);
                    return Err(problem(format!(
                        "decides by a view of type {dtype} and shape {shape:?}; one i32, u32, u8 or bool is needed"
                    )));
                }
            }
            for body in &conditional.bodies {
                check_inner(tables, id, node, body)?;
            }
        }
        NodeKind::Alloc(buffer) | NodeKind::Free(buffer) => {
            check_buffer(tables, id, node, *buffer)?;
        }
        NodeKind::Host(_) | NodeKind::Empty | NodeKind::EventRecord(_) | NodeKind::EventWait(_) => {
        }
    }
    check_regions(tables, id, node)
}

fn check_buffer<'a>(
    tables: &Tables<'a>,
    id: NodeId,
    node: &Node,
    buffer: BufferId,
) -> Result<&'a Buffer, GraphError> {
    let unknown = || GraphError::UnknownBuffer { node: named(id, node), buffer };
    tables.buffers.get(buffer.index()).ok_or_else(unknown)
}

/// What was observed is of a node that does not tell itself what it touches, and lies in declared buffers.
pub(crate) fn check_observed(
    tables: &Tables,
    nodes: &[Node],
    id: NodeId,
    observed: &Observed,
) -> Result<(), GraphError> {
    let Some(node) = nodes.get(id.index()) else {
        let (from, to, count) = (id, id, nodes.len());
        return Err(GraphError::UnknownNode { from, to, missing: id, count });
    };
    if !is_opaque(node) || node.kind.has_inner_graphs() {
        let problem =
            "it tells itself what it touches, which cannot be observed as well".to_owned();
        return Err(GraphError::Node { node: named(id, node), problem });
    }
    within(tables, id, node, &observed.operands)
}

/// Every byte that a node touches lies in a declared buffer, and a slot's buffer is used as declared.
fn check_regions(tables: &Tables, id: NodeId, node: &Node) -> Result<(), GraphError> {
    within(tables, id, node, &declared_operands(node))
}

fn within(
    tables: &Tables,
    id: NodeId,
    node: &Node,
    operands: &[(Region, Access)],
) -> Result<(), GraphError> {
    for &(region, access) in operands {
        let buffer = check_buffer(tables, id, node, region.buffer)?;
        let whole = region.bytes == u64::MAX; // allocated or freed
        if region.end() > buffer.bytes && !whole {
            return Err(GraphError::OutOfBounds {
                node: named(id, node),
                buffer: region.buffer,
                name: buffer.name.to_string(),
                start: region.offset,
                end: region.end(),
                bytes: buffer.bytes,
            });
        }
        if let BufferRole::Slot(declared) = buffer.role {
            let beyond =
                (access.reads() && !declared.reads()) || (access.writes() && !declared.writes());
            if beyond {
                let problem = format!(
                    "its access is `{}`, but pointer slot {} ({}) was declared `{}`",
                    access.name(),
                    region.buffer,
                    buffer.name,
                    declared.name(),
                );
                return Err(GraphError::Node { node: named(id, node), problem });
            }
        }
    }
    Ok(())
}

fn check_kernel(
    tables: &Tables,
    id: NodeId,
    node: &Node,
    kernel: &KernelNode,
) -> Result<(), GraphError> {
    for arg in &kernel.args {
        if let Arg::Slot(slot) = *arg
            && slot.index() >= tables.slots.len()
        {
            return Err(GraphError::UnknownSlot { node: named(id, node), slot });
        }
    }
    let config = &kernel.config;
    if config.is_known() && (config.blocks() == 0 || config.threads() == 0) {
        let problem = format!("a launch of {config}; every extent must be at least 1");
        return Err(GraphError::Node { node: named(id, node), problem });
    }
    let views: Vec<(View, Access)> = kernel
        .args
        .iter()
        .filter_map(|arg| match *arg {
            Arg::View(view, access) => Some((view, access)),
            _ => None,
        })
        .collect();
    let checked = match &kernel.kernel {
        KernelRef::Named(_) => Ok(()),
        KernelRef::Elementwise(expr) => {
            let scalars: Vec<DType> =
                kernel.args.iter().filter_map(|a| scalar_type(tables, a)).collect();
            check_elementwise(expr, &views, &scalars, kernel.args.len())
        }
        KernelRef::Fused(fused) => {
            let scalars: Vec<DType> =
                kernel.args.iter().filter_map(|a| scalar_type(tables, a)).collect();
            fused.check(&views, &scalars, kernel.args.len())
        }
        KernelRef::Library(library) => library.check(&views).and_then(|()| {
            if views.len() == kernel.args.len() {
                check_aliasing(&views, false)
            } else {
                Err(OperandError::Count { expected: views.len(), given: kernel.args.len() })
            }
        }),
    };
    checked.map_err(|source| GraphError::Operands {
        node: named(id, node),
        kernel: kernel.kernel.name().to_owned(),
        source: Box::new(source),
    })
}

fn scalar_type(tables: &Tables, arg: &Arg) -> Option<DType> {
    match arg {
        Arg::Scalar(scalar) => Some(scalar.dtype()),
        Arg::Slot(slot) => Some(tables.slots[slot.index()].dtype()),
        _ => None,
    }
}

pub(crate) fn check_elementwise(
    expr: &Expr,
    views: &[(View, Access)],
    scalars: &[DType],
    args: usize,
) -> Result<(), OperandError> {
    let (inputs, outputs) = (expr.inputs().len(), expr.outputs().len());
    if views.len() != inputs + outputs {
        return Err(OperandError::Count { expected: inputs + outputs, given: views.len() });
    }
    if scalars != expr.params() || views.len() + scalars.len() != args {
        let problem = format!("is one of the scalars {scalars:?}, not {:?}", expr.params());
        return Err(OperandError::at(views.len(), problem));
    }
    let shape = views[inputs].0.shape();
    for (index, (view, access)) in views.iter().enumerate() {
        let (dtype, wanted) = match index.checked_sub(inputs) {
            None => (expr.inputs()[index], Access::Read),
            Some(output) => (expr.outputs()[output].1, Access::Write),
        };
        if view.dtype != dtype {
            let problem = format!("is of type {}, not {dtype}", view.dtype);
            return Err(OperandError::at(index, problem));
        }
        if *access != wanted {
            let problem = format!("is for {}, not {}", wanted.name(), access.name());
            return Err(OperandError::at(index, problem));
        }
        if view.shape() != shape {
            let problem = format!(
                "has shape {:?}, not {shape:?} of the output; broadcast it first",
                view.shape()
            );
            return Err(OperandError::at(index, problem));
        }
    }
    let axes = expr.ops().iter().filter_map(|op| match op {
        crate::Op::Index(axis) => Some(*axis as usize),
        _ => None,
    });
    if let Some(axis) = axes.max().filter(|&axis| axis >= shape.rank()) {
        return Err(OperandError::View(crate::ViewError::Axis { axis, rank: shape.rank() }));
    }
    check_aliasing(views, true)
}

/// A written view names each element once and shares bytes with no other operand, except (for elementwise
/// kernels) an input that is the very same view: then each element is read before it is written.
pub(crate) fn check_aliasing(views: &[(View, Access)], in_place: bool) -> Result<(), OperandError> {
    for (index, (written, access)) in views.iter().enumerate() {
        if !access.writes() {
            continue;
        }
        if !names_each_element_once(written) {
            return Err(OperandError::at(index, "is written but names one element twice"));
        }
        for (other_index, (other, other_access)) in views.iter().enumerate() {
            let same = in_place && other == written && !other_access.writes();
            if other_index != index && !same && written.region().overlaps(&other.region()) {
                let problem = format!("is written but overlaps operand {other_index}");
                return Err(OperandError::at(index, problem));
            }
        }
    }
    Ok(())
}

/// Sorted by stride, each axis steps over all that the finer ones reach. (Sufficient, and all that real views need.)
fn names_each_element_once(view: &View) -> bool {
    let shape = view.shape();
    let mut axes: Vec<(u64, u64)> =
        view.strides().iter().copied().zip(shape.extents().iter().copied()).collect();
    axes.retain(|&(_, extent)| extent != 1);
    axes.sort_unstable();
    let mut reach = 0;
    axes.iter().all(|&(stride, extent)| {
        let clear = stride > reach;
        reach += stride * extent.saturating_sub(1);
        clear || extent == 0
    })
}

fn check_extent(extent: Extent, ends: &[Pitched]) -> Result<(), String> {
    if extent.height == 0 || extent.depth == 0 {
        return Err("an extent of no rows or no slices; use a width of 0 for nothing".to_owned());
    }
    for end in ends {
        let known = end.target != Target::Unspecified;
        if known && extent.height > 1 && end.pitch < extent.width {
            return Err(format!("rows of {} bytes at a pitch of {}", extent.width, end.pitch));
        }
        if known && extent.depth > 1 && end.slice_rows < extent.height {
            return Err(format!("slices of {} rows, {} apart", extent.height, end.slice_rows));
        }
    }
    Ok(())
}

/// An inner graph refers to the graph around it by declared stand-ins that fit.
fn check_inner(
    tables: &Tables,
    id: NodeId,
    node: &Node,
    inner: &ComputeGraph,
) -> Result<(), GraphError> {
    let inside = |source| GraphError::Inner { node: named(id, node), source: Box::new(source) };
    for (index, buffer) in inner.buffers().iter().enumerate() {
        let bad = |problem: String| {
            let (id, name) = (BufferId::from_index(index), buffer.name.to_string());
            inside(GraphError::Buffer { buffer: id, name, problem })
        };
        match buffer.role {
            BufferRole::Internal => {}
            BufferRole::Outer(outer) => {
                let target = check_buffer(tables, id, node, outer)?;
                if target.bytes < buffer.bytes {
                    let (inner, outer) = (buffer.bytes, target.bytes);
                    return Err(bad(format!(
                        "{inner} bytes stand for {outer} of the graph around"
                    )));
                }
            }
            BufferRole::External | BufferRole::Slot(_) => {
                let problem =
                    "is bound by the user, which only a buffer of the outermost graph can be";
                return Err(bad(problem.to_owned()));
            }
        }
    }
    for (index, slot) in inner.slots().iter().enumerate() {
        let outer = slot.outer.and_then(|outer| tables.slots.get(outer.index()));
        if outer.is_none_or(|outer| outer.dtype() != slot.dtype()) {
            return Err(inside(GraphError::Slot {
                slot: SlotId::from_index(index),
                name: slot.name.to_string(),
                problem: "stands for no slot of its type in the graph around it".to_owned(),
            }));
        }
    }
    if depth(inner) >= MAX_NESTING {
        let (what, limit) = ("nested graphs", MAX_NESTING);
        return Err(GraphError::TooMany { what, count: depth(inner) + 1, limit });
    }
    Ok(())
}

/// How many levels of graphs a graph holds, itself included; each level was bounded when it was built.
fn depth(graph: &ComputeGraph) -> usize {
    let inner = graph.nodes().iter().flat_map(|node| node.kind.inner_graphs());
    1 + inner.map(depth).max().unwrap_or(0)
}
