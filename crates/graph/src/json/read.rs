//! From JSON to a graph.
//!
//! In: parsed members. Out: the graph, or what is wrong and the path to it. O(graph).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::declared::{Declared, Names};
use super::edge::EdgeJson;
use super::path::Path;
use super::value::{Object, Ref};
use super::wire::{
    ArgJson, BufferJson, ConditionalJson, ConditionalKindJson, ExprJson, GraphJson, HostJson,
    KernelJson, KindJson, NodeJson, ObservedJson, Operand, PitchedJson, RoleJson, SlotJson,
    SpaceJson,
};
use super::{JsonError, MAX_INFERRED_OPERANDS, MAX_JSON_NODES, default_launch};
use crate::library::OperandError;
use crate::validate::{Tables, check_node, check_observed, check_tables};
use crate::{
    Access, Arg, Buffer, BufferRole, ComputeGraph, Condition, ConditionalKind, ConditionalNode,
    DType, Dim3, Edge, EventId, Expr, FusedKernel, GraphBuilder, GraphError, HostNode,
    KernelConfig, KernelNode, KernelRef, LibraryKernel, MAX_NESTING, MemcpyNode, MemsetNode, Node,
    NodeId, NodeKind, Observed, Pitched, ReduceOp, Region, Slot, Space, StreamId, Target, View,
};

/// Reads the outermost graph.
pub(super) fn graph_of(json: GraphJson) -> Result<ComputeGraph, JsonError> {
    Reader { nodes: 0, operands: 0, names: BTreeMap::new() }.graph(json, None, 1, &Path::Graph)
}

struct Reader {
    /// Nodes so far, over all graphs.
    nodes: usize,
    /// Operands so far, over all graphs.
    operands: usize,
    /// Names repeat a lot: the same kernel is launched many times.
    names: BTreeMap<Box<str>, Arc<str>>,
}

impl Reader {
    fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        let shared: Arc<str> = name.into();
        self.names.insert(name.into(), shared.clone());
        shared
    }

    /// Reads one graph. Recursion is bounded by [`MAX_NESTING`].
    fn graph(
        &mut self,
        json: GraphJson,
        around: Option<&Declared>,
        depth: usize,
        path: &Path,
    ) -> Result<ComputeGraph, JsonError> {
        if depth > MAX_NESTING {
            return Err(path.wrong(format!("graphs nested more than {MAX_NESTING} deep")));
        }
        self.nodes += json.nodes.len();
        if self.nodes > MAX_JSON_NODES {
            let path = path.member("nodes");
            return Err(path.wrong(format!("more than {MAX_JSON_NODES} nodes in all")));
        }
        let declared = self.declared(json.buffers, json.slots, around, path)?;
        let tables = Tables { buffers: &declared.buffers, slots: &declared.slots };
        check_tables(&tables).map_err(|source| refused(path, None, source))?;
        let infer = json.edges.is_none();
        let mut builder = GraphBuilder::new().named(&json.name).with_auto_infer_edges(infer);
        let (mut nodes, mut observed) = (Vec::with_capacity(json.nodes.len()), Vec::new());
        let list = path.member("nodes");
        for (index, node) in json.nodes.into_iter().enumerate() {
            let path = list.item(index);
            if let Some(seen) = &node.observed {
                let seen = self.observed(seen, &declared, &path.member("observed"))?;
                observed.push((NodeId::from_index(index), seen));
            }
            let node = self.node(node, &declared, depth, &path)?;
            // The builder checks the same; here the operands at fault are still at hand, and their paths.
            check_node(&tables, NodeId::from_index(index), &node)
                .map_err(|source| refused(&path, Some(&node), source))?;
            nodes.push(node);
            if let Some((id, seen)) = observed.last().filter(|(id, _)| id.index() == index) {
                check_observed(&tables, &nodes, *id, seen)
                    .map_err(|source| refused(&path.member("observed"), None, source))?;
            }
        }
        if infer && self.operands > MAX_INFERRED_OPERANDS {
            return Err(path.wrong(format!(
                "`edges` must be given in a file of more than {MAX_INFERRED_OPERANDS} operands"
            )));
        }
        let edges = edges(json.edges.unwrap_or_default(), &nodes, path)?;
        edges.iter().for_each(|&edge| {
            builder.add_edge(edge);
        });
        let Declared { buffers, slots, .. } = declared;
        buffers.into_iter().for_each(|buffer| {
            builder.declare(buffer);
        });
        slots.into_iter().for_each(|slot| {
            builder.declare_slot(slot);
        });
        nodes.into_iter().for_each(|node| {
            builder.add_node(node);
        });
        observed.into_iter().for_each(|(node, seen)| {
            builder.observe(node, seen);
        });
        builder.build().map_err(|source| {
            let ends = match &source {
                GraphError::SelfEdge { node } => Some((node.id, node.id)),
                GraphError::WeakEdge { from, to } => Some((from.id, to.id)),
                _ => None,
            };
            let list = path.member("edges");
            let at = ends.and_then(|ends| edges.iter().position(|e| (e.from, e.to) == ends));
            let path = at.map_or_else(|| list.to_string(), |at| list.item(at).to_string());
            JsonError::Graph { path, source: Box::new(source) }
        })
    }

    fn declared(
        &mut self,
        buffers: Vec<Object<BufferJson>>,
        slots: Vec<Object<SlotJson>>,
        around: Option<&Declared>,
        path: &Path,
    ) -> Result<Declared, JsonError> {
        const OUTERMOST: &str = "the outermost graph has none around it";
        let list = path.member("buffers");
        let buffers = buffers.into_iter().enumerate().map(|(index, Object(buffer))| {
            let path = list.item(index);
            let role = match buffer.role {
                RoleJson::Internal => BufferRole::Internal,
                RoleJson::External => BufferRole::External,
                RoleJson::Slot(access) => BufferRole::Slot(access.into()),
                RoleJson::Outer(outer) => {
                    let path = path.member("role");
                    let around = around.ok_or_else(|| path.wrong(OUTERMOST))?;
                    BufferRole::Outer(around.buffer(&outer, &path)?)
                }
            };
            let space = match buffer.space {
                SpaceJson::Device(device) => Space::Device(device),
                SpaceJson::Pinned => Space::Host { pageable: false },
                SpaceJson::Pageable => Space::Host { pageable: true },
                SpaceJson::Unknown => Space::Unknown,
            };
            let (name, bytes, align) = (buffer.name.into(), buffer.bytes, buffer.align);
            Ok(Buffer { name, bytes, align, role, space })
        });
        let buffers = buffers.collect::<Result<_, JsonError>>()?;
        let list = path.member("slots");
        let slots = slots.into_iter().enumerate().map(|(index, Object(slot))| {
            let path = list.item(index);
            let path = path.member("outer");
            let outer = slot.outer.map(|outer| match around {
                Some(around) => around.slot(&outer, &path),
                None => Err(path.wrong(OUTERMOST)),
            });
            let outer = outer.transpose()?;
            Ok(Slot { name: slot.name.into(), default: slot.default.0, outer })
        });
        let slots = slots.collect::<Result<_, JsonError>>()?;
        Ok(Declared { buffers, slots, buffer_names: Names::new(), slot_names: Names::new() })
    }

    fn node(
        &mut self,
        json: NodeJson,
        declared: &Declared,
        depth: usize,
        path: &Path,
    ) -> Result<Node, JsonError> {
        let name = self.shared(&json.name);
        let kind = match json.kind {
            KindJson::Kernel(kernel) => {
                NodeKind::Kernel(self.kernel(*kernel, &name, declared, &path.member("kernel"))?)
            }
            KindJson::Memcpy(copy) => {
                let path = path.member("memcpy");
                let extent = copy.extent();
                let src = self.pitched(&copy.src.0, declared, &path.member("src"))?;
                let dst = self.pitched(&copy.dst.0, declared, &path.member("dst"))?;
                NodeKind::Memcpy(Box::new(MemcpyNode {
                    dir: copy.direction.into(),
                    src,
                    dst,
                    extent,
                }))
            }
            KindJson::Memset(set) => {
                let extent = set.extent();
                let path = path.member("memset");
                let dst = self.pitched(&set.dst.0, declared, &path.member("dst"))?;
                let (value, element_size) = (set.value, set.element_size);
                NodeKind::Memset(Box::new(MemsetNode { dst, value, element_size, extent }))
            }
            KindJson::Host(host) => {
                let host = self.host(*host, &name, declared, &path.member("host"))?;
                NodeKind::Host(Box::new(host))
            }
            KindJson::Empty(_) => NodeKind::Empty,
            KindJson::EventRecord(event) => NodeKind::EventRecord(EventId(event)),
            KindJson::EventWait(event) => NodeKind::EventWait(EventId(event)),
            KindJson::MemAlloc(buffer) => {
                NodeKind::Alloc(declared.buffer(&buffer, &path.member("mem_alloc"))?)
            }
            KindJson::MemFree(buffer) => {
                NodeKind::Free(declared.buffer(&buffer, &path.member("mem_free"))?)
            }
            KindJson::ChildGraph(graph) => {
                let path = path.member("child_graph");
                let graph = self.graph(*graph, Some(declared), depth + 1, &path)?;
                NodeKind::Child(Box::new(graph))
            }
            KindJson::Conditional(conditional) => {
                let path = path.member("conditional");
                let conditional = self.conditional(*conditional, declared, depth, &path)?;
                NodeKind::Conditional(Box::new(conditional))
            }
        };
        Ok(Node { name, kind, stream: json.stream.map(StreamId) })
    }

    fn kernel(
        &mut self,
        json: KernelJson,
        name: &Arc<str>,
        declared: &Declared,
        path: &Path,
    ) -> Result<KernelNode, JsonError> {
        let list = path.member("args");
        let args = json.args.iter().enumerate().map(|(index, arg)| {
            let path = list.item(index);
            match arg {
                ArgJson::Scalar(scalar) => Ok(Arg::Scalar(*scalar)),
                ArgJson::Slot(slot) => declared.slot(slot, &path.member("slot")).map(Arg::Slot),
                ArgJson::Operand(operand) => self.argument(operand, declared, &path),
            }
        });
        let args = args.collect::<Result<Box<[Arg]>, JsonError>>()?;
        let kernel = match (json.function, json.elementwise, json.library) {
            (_, _, None) if json.before.is_some() || json.after.is_some() => {
                return Err(path.wrong("only a `library` kernel has a `before` or `after`"));
            }
            (None, None, None) => KernelRef::Named(name.clone()),
            (Some(function), None, None) => KernelRef::Named(self.shared(&function.0)),
            (None, Some(Object(expr)), None) => {
                KernelRef::Elementwise(Arc::new(expression(expr, &path.member("elementwise"))?))
            }
            (None, None, Some(library)) => {
                let library = library_kernel(&library.0, json.axis, path)?;
                let part = |expr: Option<Object<ExprJson>>, name: &'static str| {
                    expr.map(|Object(expr)| expression(expr, &path.member(name))).transpose()
                };
                let (before, after) = (part(json.before, "before")?, part(json.after, "after")?);
                match (&before, &after) {
                    (None, None) => KernelRef::Library(library),
                    _ => KernelRef::Fused(Arc::new(FusedKernel { library, before, after })),
                }
            }
            _ => {
                let problem = "one of `function`, `elementwise` and `library` says what it runs";
                return Err(path.wrong(problem));
            }
        };
        let of_library = matches!(kernel, KernelRef::Library(_) | KernelRef::Fused(_));
        if json.axis.is_some() && !of_library {
            return Err(path.member("axis").wrong("only a reduction has an axis"));
        }
        let usual = default_launch(&kernel, &args);
        let (grid, block): (Dim3, Dim3) = match (json.grid, json.block) {
            (None, None) => (usual.grid, usual.block),
            (Some(grid), Some(block)) => (grid.0, block.0),
            _ => return Err(path.wrong("a launch needs both `grid` and `block`")),
        };
        let config = KernelConfig {
            grid,
            block,
            shared_mem_bytes: json.shared_mem_bytes,
            cluster: json.cluster.map_or((1, 1, 1), |cluster| cluster.0),
            cooperative: json.cooperative,
            priority: json.priority,
        };
        Ok(KernelNode { kernel, config, args, fusible: json.fusible })
    }

    fn argument(
        &mut self,
        operand: &Operand,
        declared: &Declared,
        path: &Path,
    ) -> Result<Arg, JsonError> {
        let access = access(operand, path)?;
        match view(operand, declared, path)? {
            Some(view) => {
                self.operands += 1;
                Ok(Arg::View(view, access))
            }
            None => self.region(operand, declared, path).map(|r| Arg::Region(r, access)),
        }
    }

    fn region(
        &mut self,
        operand: &Operand,
        declared: &Declared,
        path: &Path,
    ) -> Result<Region, JsonError> {
        self.operands += 1;
        let buffer = declared.buffer(&operand.buffer, &path.member("buffer"))?;
        let (offset, whole) = (operand.offset, declared.buffers[buffer.index()].bytes);
        let bytes = match operand.bytes {
            Some(bytes) => bytes,
            None => whole.checked_sub(offset).ok_or_else(|| {
                let problem = format!("begins past the {whole} bytes of the buffer");
                path.member("offset").wrong(problem)
            })?,
        };
        Ok(Region { buffer, offset, bytes })
    }

    fn pitched(
        &mut self,
        json: &PitchedJson,
        declared: &Declared,
        path: &Path,
    ) -> Result<Pitched, JsonError> {
        self.operands += 1;
        let target = match (&json.buffer, &json.address) {
            (None, None) => Target::Unspecified,
            (Some(buffer), None) => {
                Target::Buffer(declared.buffer(buffer, &path.member("buffer"))?)
            }
            (None, Some(address)) => Target::Address(address.0.0),
            (Some(_), Some(_)) => {
                return Err(path.wrong("either `buffer` or `address`, not both"));
            }
        };
        let PitchedJson { offset, pitch, slice_rows, .. } = *json;
        Ok(Pitched { target, offset, pitch, slice_rows })
    }

    fn host(
        &mut self,
        json: HostJson,
        name: &Arc<str>,
        declared: &Declared,
        path: &Path,
    ) -> Result<HostNode, JsonError> {
        let function =
            json.function.map_or_else(|| name.clone(), |function| self.shared(&function.0));
        let effects = self.touched(&json.effects, declared, &path.member("effects"))?;
        Ok(HostNode { function, effects: effects.into_iter().collect() })
    }

    fn observed(
        &mut self,
        json: &ObservedJson,
        declared: &Declared,
        path: &Path,
    ) -> Result<Observed, JsonError> {
        let operands = self.touched(&json.operands, declared, &path.member("operands"))?;
        Ok(Observed::new(&operands, json.trials))
    }

    /// Bytes with their access.
    fn touched(
        &mut self,
        operands: &[Object<Operand>],
        declared: &Declared,
        list: &Path,
    ) -> Result<Vec<(Region, Access)>, JsonError> {
        let touched = operands.iter().enumerate().map(|(index, Object(operand))| {
            let path = list.item(index);
            if operand.dtype.is_some() || operand.shape.is_some() || operand.strides.is_some() {
                return Err(path.wrong("what is touched are bytes, which have no type or shape"));
            }
            let access = access(operand, &path)?;
            Ok((self.region(operand, declared, &path)?, access))
        });
        touched.collect()
    }

    fn conditional(
        &mut self,
        json: ConditionalJson,
        declared: &Declared,
        depth: usize,
        path: &Path,
    ) -> Result<ConditionalNode, JsonError> {
        let kind = match json.kind {
            ConditionalKindJson::If => ConditionalKind::If,
            ConditionalKindJson::While => ConditionalKind::While,
            ConditionalKindJson::Switch => ConditionalKind::Switch,
        };
        let condition = match (json.condition, json.handle) {
            (Some(Object(operand)), None) => {
                self.operands += 1;
                let path = path.member("condition");
                if operand.access.is_some() {
                    return Err(path.member("access").wrong("a condition is always read"));
                }
                let view = view(&operand, declared, &path)?;
                Condition::Value(view.ok_or_else(|| path.wrong("a condition needs a `dtype`"))?)
            }
            (None, Some(handle)) => Condition::Handle(handle),
            _ => return Err(path.wrong("either `condition` or `handle` says what decides")),
        };
        let list = path.member("bodies");
        let bodies = json.bodies.into_iter().enumerate();
        let bodies = bodies
            .map(|(index, body)| self.graph(body.0, Some(declared), depth + 1, &list.item(index)));
        let bodies = bodies.collect::<Result<_, JsonError>>()?;
        Ok(ConditionalNode { kind, condition, bodies })
    }
}

fn access(operand: &Operand, path: &Path) -> Result<Access, JsonError> {
    let access = operand.access.map(Access::from);
    access.ok_or_else(|| path.wrong("needs an `access`: `read`, `write` or `both`"))
}

/// The tensor that an operand describes, if it gives a type.
fn view(operand: &Operand, declared: &Declared, path: &Path) -> Result<Option<View>, JsonError> {
    let Some(dtype) = &operand.dtype else {
        if operand.shape.is_some() || operand.strides.is_some() {
            return Err(path.wrong("a `shape` or `strides` without a `dtype`"));
        }
        return Ok(None);
    };
    if operand.bytes.is_some() {
        return Err(path.member("bytes").wrong("a tensor's size follows from `dtype` and `shape`"));
    }
    let buffer = declared.buffer(&operand.buffer, &path.member("buffer"))?;
    let shape =
        operand.shape.as_deref().ok_or_else(|| path.wrong("a `dtype` without a `shape`"))?;
    let (dtype, offset): (DType, u64) = (dtype.0, operand.offset);
    let packed = View::contiguous(buffer, dtype, shape);
    let view = packed.and_then(|packed| {
        let strides = operand.strides.as_deref().unwrap_or(packed.strides());
        View::strided(buffer, dtype, offset, shape, strides)
    });
    view.map(Some).map_err(|error| path.wrong(error.to_string()))
}

fn expression(json: ExprJson, path: &Path) -> Result<Expr, JsonError> {
    let inputs = json.inputs.into_iter().map(|dtype| dtype.0).collect();
    let params = json.params.into_iter().map(|dtype| dtype.0).collect();
    let ops = json.ops.into_iter().map(|op| op.0.0).collect();
    let outputs = json.outputs.into_iter().map(|output| (output.0.0, output.0.1)).collect();
    Expr::new(inputs, params, ops, outputs).map_err(|error| path.wrong(error.to_string()))
}

fn library_kernel(name: &str, axis: Option<u8>, path: &Path) -> Result<LibraryKernel, JsonError> {
    let along = |op: ReduceOp| match axis {
        Some(axis) => Ok(LibraryKernel::Reduce { op, axis }),
        None => Err(path.wrong(format!("`{name}` needs an `axis`"))),
    };
    let kernel = match name {
        "reduce_sum" => return along(ReduceOp::Sum),
        "reduce_max" => return along(ReduceOp::Max),
        "argmax" => return along(ReduceOp::ArgMax),
        "matmul" => LibraryKernel::MatMul,
        "gather" => LibraryKernel::Gather,
        "scatter_add" => LibraryKernel::ScatterAdd,
        other => {
            let other: String = other.chars().take(60).collect();
            let problem = format!(
                "no kernel `{other}`; there are reduce_sum, reduce_max, argmax, matmul, gather, scatter_add"
            );
            return Err(path.member("library").wrong(problem));
        }
    };
    match axis {
        None => Ok(kernel),
        Some(_) => Err(path.member("axis").wrong("only a reduction has an axis")),
    }
}

fn edges(json: Vec<EdgeJson>, nodes: &[Node], path: &Path) -> Result<Vec<Edge>, JsonError> {
    let names = Names::new();
    let list = path.member("edges");
    let edges = json.into_iter().enumerate().map(|(index, edge)| {
        let path = list.item(index);
        let end = |reference: &Ref| {
            let all = nodes.iter().map(|node| &node.name);
            names.find(reference, "node", nodes.len(), all, &path).map(NodeId)
        };
        let (from, to) = (end(&edge.from)?, end(&edge.to)?);
        Ok(Edge { from, to, data: edge.data })
    });
    edges.collect()
}

/// What the representation refuses, with the way to the operand where it is an operand.
fn refused(path: &Path, node: Option<&Node>, source: GraphError) -> JsonError {
    let kernel = node.and_then(Node::kernel);
    let args = |wanted: &dyn Fn(usize, &Arg) -> bool| {
        let args = kernel.map(|kernel| &*kernel.args).unwrap_or_default();
        args.iter().enumerate().position(|(index, arg)| wanted(index, arg))
    };
    let arg = match &source {
        GraphError::OutOfBounds { buffer, start, end, .. } => args(&|_, arg| {
            arg.effect().is_some_and(|(region, _)| {
                (region.buffer, region.offset, region.end()) == (*buffer, *start, *end)
            })
        }),
        GraphError::Operands { source, .. } => match &**source {
            // Operands are counted among the tensors.
            OperandError::Operand { index, .. } => {
                let seen = std::cell::Cell::new(0);
                args(&|_, arg| {
                    let is_view = matches!(arg, Arg::View(..));
                    let number = seen.get();
                    seen.set(number + usize::from(is_view));
                    is_view && number == *index
                })
            }
            _ => None,
        },
        _ => None,
    };
    let path = match (&source, arg) {
        (_, Some(arg)) => path.member("kernel").member("args").item(arg).to_string(),
        (GraphError::Buffer { buffer, .. }, _) if node.is_none() => {
            path.member("buffers").item(buffer.index()).to_string()
        }
        (GraphError::Slot { slot, .. }, _) if node.is_none() => {
            path.member("slots").item(slot.index()).to_string()
        }
        _ => path.to_string(),
    };
    JsonError::Graph { path, source: Box::new(source) }
}
