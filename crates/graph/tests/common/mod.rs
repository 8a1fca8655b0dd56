//! Random valid graphs, made through the builder from the bytes that `arbtest` gives.

use std::sync::Arc;

use arbtest::arbitrary::{Result, Unstructured};
use phonograph_graph::{
    Access, Arg, BinaryOp, Buffer, BufferId, BufferRole, CompareOp, ComputeGraph, Condition,
    ConditionalKind, DType, Edge, EdgeData, EdgeKind, EventId, Expr, Extent, FusedKernel,
    GraphBuilder, HostNode, KernelConfig, KernelNode, KernelRef, LibraryKernel, MemcpyDir,
    MemcpyNode, MemsetNode, Node, NodeId, NodeKind, Observed, Op, Pitched, ReduceOp, Region,
    Scalar, SlotId, Space, StreamId, Target, UnaryOp, ValueId, View,
};

/// A graph with nodes of every kind, up to two levels of graphs inside.
pub fn graph(u: &mut Unstructured) -> Result<ComputeGraph> {
    let mut maker = Maker::new(u, 2)?;
    let count = u.int_in_range(0..=12)?;
    for _ in 0..count {
        maker.node(u)?;
    }
    maker.edges(u)?;
    Ok(maker.builder.build().expect("the generator makes valid graphs"))
}

const NAMES: [&str; 12] = [
    "",
    "scale",
    "_ZN2at6native9vectorizeILi4EfEEvPT0_",
    "a \"quoted\" {record} | <port> \\ end\\",
    "two\nlines\r\n\ttab",
    "nul\0 and \u{1b}[31m escape",
    "größe → 尺寸 🚀",
    "&amp; &lt; <<<1,2,3>>>",
    "srcArray",
    "graph_2",
    "name: event: e9",
    "x",
];

fn name(u: &mut Unstructured) -> Result<String> {
    if u.ratio(1, 8)? {
        return u.arbitrary();
    }
    Ok((*u.choose(&NAMES)?).to_owned())
}

fn scalar(u: &mut Unstructured) -> Result<Scalar> {
    let number = |n: f32| if n.is_nan() { f32::NEG_INFINITY } else { n };
    let wide: f64 = u.arbitrary()?;
    Ok(match u.int_in_range(0..=8)? {
        0 => Scalar::F32(number(u.arbitrary()?)),
        1 => Scalar::F64(if wide.is_nan() { f64::INFINITY } else { wide }),
        2 => Scalar::F16(half::f16::from_f32(number(u.arbitrary()?))),
        3 => Scalar::BF16(half::bf16::from_f32(number(u.arbitrary()?))),
        4 => Scalar::I32(u.arbitrary()?),
        5 => Scalar::I64(u.arbitrary()?),
        6 => Scalar::U32(u.arbitrary()?),
        7 => Scalar::U8(u.arbitrary()?),
        _ => Scalar::Bool(u.arbitrary()?),
    })
}

fn space(u: &mut Unstructured) -> Result<Space> {
    Ok(*u.choose(&[
        Space::Device(0),
        Space::Device(3),
        Space::Host { pageable: false },
        Space::Host { pageable: true },
        Space::Unknown,
    ])?)
}

const ACCESSES: [Access; 3] = [Access::Read, Access::Write, Access::ReadWrite];

struct Maker {
    builder: GraphBuilder,
    /// Buffers, their sizes and how they may be used.
    buffers: Vec<(BufferId, u64, Option<Access>)>,
    slots: Vec<SlotId>,
    kernels: Vec<NodeId>,
    levels: u32,
}

impl Maker {
    fn new(u: &mut Unstructured, levels: u32) -> Result<Self> {
        let infer = u.arbitrary()?;
        let builder = GraphBuilder::new().named(&name(u)?).with_auto_infer_edges(infer);
        let (buffers, slots, kernels) = (Vec::new(), Vec::new(), Vec::new());
        let mut maker = Self { builder, buffers, slots, kernels, levels };
        for _ in 0..u.int_in_range(1..=4)? {
            let role = match u.int_in_range(0..=2)? {
                0 => BufferRole::Internal,
                1 => BufferRole::External,
                _ => BufferRole::Slot(*u.choose(&ACCESSES)?),
            };
            maker.declare(u, role)?;
        }
        for index in 0..u.int_in_range(0..=2)? {
            let default = scalar(u)?;
            maker.slots.push(maker.builder.slot(&format!("slot {index}"), default));
        }
        Ok(maker)
    }

    fn declare(&mut self, u: &mut Unstructured, role: BufferRole) -> Result<()> {
        let bytes = *u.choose(&[0, 16, 4096, 1 << 40])?;
        let align = *u.choose(&[1, 256, 4096])?;
        let (name, space) = (name(u)?.into(), space(u)?);
        let id = self.builder.declare(Buffer { name, bytes, align, role, space });
        let allowed = if let BufferRole::Slot(access) = role { Some(access) } else { None };
        self.buffers.push((id, bytes, allowed));
        Ok(())
    }

    /// A buffer of its own for an operand that must not overlap another.
    fn fresh(&mut self, dtype: DType, extents: &[u64]) -> View {
        let bytes = extents.iter().product::<u64>() * dtype.size();
        let buffer = self.builder.alloc_buffer("", bytes as usize);
        View::contiguous(buffer, dtype, extents).expect("a small shape")
    }

    fn operand(&self, u: &mut Unstructured) -> Result<(Region, Access)> {
        let (buffer, size, allowed) = *u.choose(&self.buffers)?;
        let offset = u.int_in_range(0..=size)?;
        let bytes = u.int_in_range(0..=size - offset)?;
        let access = match allowed {
            Some(Access::ReadWrite) | None => *u.choose(&ACCESSES)?,
            Some(access) => access,
        };
        Ok((Region { buffer, offset, bytes }, access))
    }

    fn arg(&mut self, u: &mut Unstructured) -> Result<Arg> {
        Ok(match u.int_in_range(0..=3)? {
            0 => Arg::Scalar(scalar(u)?),
            1 if !self.slots.is_empty() => Arg::Slot(*u.choose(&self.slots)?),
            2 => {
                let view = self.fresh(*u.choose(&DType::ALL)?, &[2, 3, 4]);
                let view = match u.int_in_range(0..=3)? {
                    0 => view,
                    1 => view.transpose(0, 2).expect("axes exist"),
                    2 => view.slice(1, 1, 2).expect("a part of an axis"),
                    _ => view.reshape(&[]).unwrap_or(view),
                };
                Arg::View(view, *u.choose(&ACCESSES)?)
            }
            _ => {
                let (region, access) = self.operand(u)?;
                Arg::Region(region, access)
            }
        })
    }

    fn config(&self, u: &mut Unstructured) -> Result<KernelConfig> {
        let mut dim = || -> Result<_> {
            let mut extent = || u.int_in_range(1..=9);
            Ok((extent()?, extent()?, extent()?))
        };
        let (grid, block, cluster) = (dim()?, dim()?, dim()?);
        let mut config = KernelConfig::new(grid, block, u.arbitrary()?);
        match u.int_in_range(0..=2)? {
            0 => config = KernelConfig::unknown(),
            1 => config = KernelConfig::linear(grid.0, 256, 0),
            _ => {
                config.cluster = cluster;
                config.cooperative = u.arbitrary()?;
                config.priority = u.arbitrary()?;
            }
        }
        Ok(config)
    }

    fn kernel(&mut self, u: &mut Unstructured) -> Result<NodeKind> {
        let mut config = self.config(u)?;
        let fusible = u.arbitrary()?;
        let views = |kernel: &LibraryKernel, views: &[View]| {
            let all = views.iter().zip(kernel.accesses());
            all.map(|(&view, &access)| Arg::View(view, access)).collect()
        };
        let (kernel, args): (KernelRef, Vec<Arg>) = match u.int_in_range(0..=6)? {
            6 => {
                let double = Expr::build(|e| {
                    let x = e.input(DType::F32);
                    e.output(x + x);
                });
                let scale = Expr::build(|e| e.output(e.input(DType::F32) * e.param(DType::F32)));
                let (double, scale) = (double.unwrap(), scale.unwrap());
                let before: bool = u.arbitrary()?;
                let fused = FusedKernel {
                    library: LibraryKernel::Reduce { op: ReduceOp::Sum, axis: 0 },
                    before: before.then_some(double),
                    after: (!before || u.arbitrary()?).then_some(scale),
                };
                let reads = [self.fresh(DType::F32, &[7, 5]), self.fresh(DType::F32, &[5])];
                let mut args =
                    vec![Arg::View(reads[0], Access::Read), Arg::View(reads[1], Access::Write)];
                args.extend(fused.after.is_some().then_some(Arg::Scalar(Scalar::F32(0.5))));
                (KernelRef::Fused(fused.into()), args)
            }
            0 => {
                let (expr, args) = self.expression(u)?;
                (KernelRef::Elementwise(expr), args)
            }
            1 => {
                let of = [([2, 3], [3, 4]), ([5, 1], [1, 2])];
                let (a, b) = *u.choose(&of)?;
                let dtype = *u.choose(&[DType::F32, DType::F64])?;
                let all = [&a, &b, &[a[0], b[1]]].map(|extents| self.fresh(dtype, extents));
                let kernel = LibraryKernel::MatMul;
                (KernelRef::Library(kernel), views(&kernel, &all))
            }
            2 => {
                let op = *u.choose(&[ReduceOp::Sum, ReduceOp::Max, ReduceOp::ArgMax])?;
                let result = if op == ReduceOp::ArgMax { DType::I32 } else { DType::F32 };
                let kernel = LibraryKernel::Reduce { op, axis: 1 };
                let all = [self.fresh(DType::F32, &[7, 5]), self.fresh(result, &[7])];
                (KernelRef::Library(kernel), views(&kernel, &all))
            }
            3 => {
                let (table, rows, picked) = (
                    self.fresh(DType::F32, &[9, 4]),
                    self.fresh(DType::U32, &[3]),
                    self.fresh(DType::F32, &[3, 4]),
                );
                let (kernel, all) = if u.arbitrary()? {
                    (LibraryKernel::Gather, [table, rows, picked])
                } else {
                    (LibraryKernel::ScatterAdd, [picked, rows, table])
                };
                (KernelRef::Library(kernel), views(&kernel, &all))
            }
            _ => {
                let mut args = Vec::new();
                for _ in 0..u.int_in_range(0..=4)? {
                    args.push(self.arg(u)?);
                }
                (KernelRef::Named(name(u)?.as_str().into()), args)
            }
        };
        if !matches!(kernel, KernelRef::Named(_)) && u.arbitrary()? {
            config = KernelConfig::linear(1, 256, 0); // what is suggested, and so left out of files
        }
        Ok(NodeKind::Kernel(KernelNode { kernel, config, args: args.into(), fusible }))
    }

    fn expression(&mut self, u: &mut Unstructured) -> Result<(Arc<Expr>, Vec<Arg>)> {
        let extents = *u.choose(&[[4, 8], [1, 3]])?;
        let input = *u.choose(&[DType::F32, DType::F16, DType::BF16])?;
        let output = *u.choose(&[DType::F32, DType::BF16])?;
        let constant = u.int_in_range(-1000..=1000)? as f32 / 7.0;
        let v = ValueId;
        let ops = vec![
            Op::Input(0),
            Op::Const(Scalar::F32(constant)),
            Op::Binary(*u.choose(&[BinaryOp::Add, BinaryOp::Rem, BinaryOp::Max])?, v(0), v(1)),
            Op::Unary(*u.choose(&[UnaryOp::Exp, UnaryOp::Erf, UnaryOp::Neg])?, v(2)),
            Op::Compare(*u.choose(&[CompareOp::Lt, CompareOp::Ne])?, v(2), v(3)),
            Op::Select(v(4), v(2), v(3)),
            Op::Index(1),
            Op::Param(0),
            Op::Philox { index: v(6), counter: v(7), key: v(6) },
            Op::Cast(DType::F32, v(8)),
            Op::Binary(BinaryOp::Mul, v(5), v(9)),
        ];
        let expr = Expr::new(vec![input], vec![DType::U32], ops, vec![(v(10), output)]);
        let from = self.fresh(input, &extents);
        let into = self.fresh(output, &extents);
        let args = vec![
            Arg::View(from, Access::Read),
            Arg::View(into, Access::Write),
            Arg::Scalar(Scalar::U32(u.arbitrary()?)),
        ];
        Ok((Arc::new(expr.expect("a well-typed expression")), args))
    }

    fn end(&self, u: &mut Unstructured, extent: Extent, write: bool) -> Result<Pitched> {
        let pitch = extent.width + u.int_in_range(0..=3)?;
        let slice_rows = extent.height + u.int_in_range(0..=3)?;
        let target = match u.int_in_range(0..=2)? {
            0 => Target::Unspecified,
            1 => Target::Address(u.int_in_range(1..=u64::MAX)?),
            _ => {
                let wanted = if write { Access::Write } else { Access::Read };
                let fits = |allowed: Option<Access>| {
                    allowed.is_none_or(|a| if write { a.writes() } else { a.reads() })
                };
                let all = self.buffers.iter();
                let big: Vec<_> =
                    all.filter(|&&(_, size, ok)| size >= 1 << 40 && fits(ok)).collect();
                // A pitched write leaves gaps, which counts as reading: only what may be both is used.
                match big.first() {
                    Some(&&(buffer, ..)) if wanted == Access::Read => Target::Buffer(buffer),
                    Some(&&(buffer, _, None)) => Target::Buffer(buffer),
                    _ => Target::Unspecified,
                }
            }
        };
        Ok(Pitched { target, offset: u.int_in_range(0..=100)?, pitch, slice_rows })
    }

    fn extent(&self, u: &mut Unstructured) -> Result<Extent> {
        let mut side = || u.int_in_range(1..=5);
        Ok(Extent { width: side()? * 4, height: side()?, depth: side()? })
    }

    fn node(&mut self, u: &mut Unstructured) -> Result<()> {
        let event = EventId(u.int_in_range(0..=3)?);
        let kind = match u.int_in_range(0..=13)? {
            0 => {
                let extent = self.extent(u)?;
                let dir = *u.choose(&[
                    MemcpyDir::HostToDevice,
                    MemcpyDir::DeviceToHost,
                    MemcpyDir::DeviceToDevice,
                    MemcpyDir::HostToHost,
                    MemcpyDir::PeerToPeer { src_device: 1, dst_device: 7 },
                ])?;
                let (src, dst) = (self.end(u, extent, false)?, self.end(u, extent, true)?);
                NodeKind::Memcpy(Box::new(MemcpyNode { dir, src, dst, extent }))
            }
            1 => {
                let extent = self.extent(u)?;
                let (dst, value) = (self.end(u, extent, true)?, u.arbitrary()?);
                let element_size = *u.choose(&[1, 2, 4])?;
                NodeKind::Memset(Box::new(MemsetNode { dst, value, element_size, extent }))
            }
            2 => {
                let dst = Pitched::linear(Target::Unspecified, 0);
                let (value, extent) = (u.arbitrary()?, Extent::linear(u.int_in_range(0..=999)?));
                NodeKind::Memset(Box::new(MemsetNode { dst, value, element_size: 0, extent }))
            }
            3 => {
                let mut effects = smallvec::SmallVec::new();
                for _ in 0..u.int_in_range(0..=2)? {
                    effects.push(self.operand(u)?);
                }
                NodeKind::Host(Box::new(HostNode { function: name(u)?.as_str().into(), effects }))
            }
            4 => NodeKind::Empty,
            5 => NodeKind::EventRecord(event),
            6 => NodeKind::EventWait(event),
            7 | 8 => {
                // Allocating and freeing write, and nothing that is bound by the user is either.
                let own: Vec<BufferId> =
                    self.buffers.iter().filter(|b| b.2.is_none()).map(|b| b.0).collect();
                match own.first() {
                    Some(&buffer) if u.arbitrary()? => NodeKind::Alloc(buffer),
                    Some(&buffer) => NodeKind::Free(buffer),
                    None => NodeKind::Empty,
                }
            }
            9 if self.levels > 0 => NodeKind::Child(Box::new(self.inner(u)?)),
            10 if self.levels > 0 => {
                let (kind, most) = *u.choose(&[
                    (ConditionalKind::If, 2),
                    (ConditionalKind::While, 1),
                    (ConditionalKind::Switch, 3),
                ])?;
                let mut bodies = Vec::new();
                for _ in 0..u.int_in_range(1..=most)? {
                    bodies.push(self.inner(u)?);
                }
                let condition = if u.arbitrary()? {
                    Condition::Handle(u.arbitrary()?)
                } else {
                    let dtype = *u.choose(&[DType::I32, DType::U32, DType::U8, DType::Bool])?;
                    Condition::Value(self.fresh(dtype, &[]))
                };
                let conditional = phonograph_graph::ConditionalNode { kind, condition, bodies };
                NodeKind::Conditional(Box::new(conditional))
            }
            _ => self.kernel(u)?,
        };
        let is_kernel = matches!(kind, NodeKind::Kernel(_));
        let stream = if u.arbitrary()? { Some(StreamId(u.int_in_range(0..=4)?)) } else { None };
        // Half of the kernels are named as their function is.
        let name = match &kind {
            NodeKind::Kernel(kernel) if u.arbitrary()? => kernel.kernel.name().to_owned(),
            _ => name(u)?,
        };
        let id = self.builder.add_node(Node { name: name.as_str().into(), kind, stream });
        if is_kernel {
            self.kernels.push(id);
        }
        let tells_nothing = match &self.builder.node(id).kind {
            NodeKind::Kernel(kernel) => {
                matches!(kernel.kernel, KernelRef::Named(_))
                    && kernel.args.iter().all(|arg| arg.effect().is_none())
            }
            NodeKind::Host(host) => host.effects.is_empty(),
            NodeKind::EventRecord(_) | NodeKind::EventWait(_) => true,
            _ => false,
        };
        if tells_nothing && u.arbitrary()? {
            let operands: Vec<_> =
                (0..u.int_in_range(0..=2)?).map(|_| self.operand(u)).collect::<Result<_>>()?;
            self.builder.observe(id, Observed::new(&operands, u.arbitrary()?));
        }
        Ok(())
    }

    /// A graph inside this one, with stand-ins for some of its buffers and slots.
    fn inner(&mut self, u: &mut Unstructured) -> Result<ComputeGraph> {
        let builder = GraphBuilder::new().named(&name(u)?);
        let (buffers, slots, kernels) = (Vec::new(), Vec::new(), Vec::new());
        let mut inner = Maker { builder, buffers, slots, kernels, levels: self.levels - 1 };
        inner.declare(u, BufferRole::Internal)?;
        for &(outer, bytes, allowed) in &self.buffers {
            // A stand-in forgets how a pointer slot may be used; the graph around would still refuse.
            if allowed.is_none() && u.arbitrary()? {
                let id = inner.builder.outer_buffer(&self.builder, outer);
                inner.buffers.push((id, bytes, None));
            }
        }
        for &outer in &self.slots {
            if u.arbitrary()? {
                inner.slots.push(inner.builder.outer_slot(&self.builder, outer));
            }
        }
        for _ in 0..u.int_in_range(0..=4)? {
            inner.node(u)?;
        }
        inner.edges(u)?;
        Ok(inner.builder.build().expect("the generator makes valid graphs"))
    }

    fn edges(&mut self, u: &mut Unstructured) -> Result<()> {
        let count = self.builder.node_count() as u32;
        if count < 2 {
            return Ok(());
        }
        for _ in 0..u.int_in_range(0..=2 * count)? {
            let to = u.int_in_range(1..=count - 1)?;
            let from = u.int_in_range(0..=to - 1)?;
            let (from, to) = (NodeId(from), NodeId(to));
            let mut data = EdgeData::FULL;
            if self.kernels.contains(&from) && self.kernels.contains(&to) && u.arbitrary()? {
                let kind = *u.choose(&[EdgeKind::Full, EdgeKind::Programmatic])?;
                data = EdgeData { from_port: u.arbitrary()?, to_port: u.arbitrary()?, kind };
            }
            self.builder.add_edge(Edge { from, to, data });
        }
        Ok(())
    }
}

/// A chain of kernels, each of which reads what the one before it wrote.
pub fn chain(nodes: usize) -> ComputeGraph {
    let mut builder = GraphBuilder::new();
    let buffers: Vec<BufferId> =
        (0..16).map(|index| builder.alloc_buffer(&format!("buffer {index}"), 4096)).collect();
    for index in 0..nodes {
        let (from, to) = (buffers[index % 16], buffers[(index + 1) % 16]);
        builder.add_kernel("step", 16, 256, 0).inputs([from]).outputs([to]).finish();
    }
    builder.build().expect("a chain")
}
