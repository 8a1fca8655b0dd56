//! Random graphs for passes: fills, copies, kernels, empty nodes, graphs inside graphs; layered, with long edges, in place,
//! on shared buffers, with weak edges, in any order of creation.

use std::sync::Arc;

use arbtest::arbitrary::{Result, Unstructured};
use phonograph_graph::{
    Access, Arg, BufferId, ComputeGraph, Condition, ConditionalKind, DType, Edge, EdgeData,
    EventId, Expr, Extent, GraphBuilder, KernelConfig, KernelNode, KernelRef, LibraryKernel,
    MemcpyDir, MemcpyNode, MemsetNode, NodeId, NodeKind, Pitched, ReduceOp, Region, Target, View,
};

/// Calls `case` with as many streams of random bytes as the variable `PHONOGRAPH_CASES` says (1000 if it is not set), and
/// prints the seed of one that panics, and now and then how many are done.
pub fn soak(mut case: impl FnMut(&mut Unstructured) -> Result<()>) {
    let cases = std::env::var("PHONOGRAPH_CASES").map_or(1000, |cases| cases.parse().unwrap());
    let first = std::env::var("PHONOGRAPH_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut bytes = vec![0u8; 16 << 10];
    for seed in first..first + cases {
        let mut state: u64 = seed;
        for chunk in bytes.chunks_exact_mut(8) {
            // SplitMix64.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            chunk.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes());
        }
        let run = std::panic::AssertUnwindSafe(|| case(&mut Unstructured::new(&bytes)));
        match std::panic::catch_unwind(run) {
            // A case that wants more bytes than there are is none.
            Ok(Ok(()) | Err(_)) => {}
            Err(panic) => {
                println!("PHONOGRAPH_SEED={seed} PHONOGRAPH_CASES=1 shows it alone");
                std::panic::resume_unwind(panic);
            }
        }
        let done = seed - first + 1;
        if done.is_multiple_of(10_000) {
            println!("{done} cases so far");
        }
    }
    println!("{cases} cases from seed {first} on");
}

/// Which graphs to make.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only what the CPU runs, and nothing read before it is written.
    Runnable,
    /// Anything: unknown effects, events, memory read before it is written.
    Any,
}

/// The external buffer whose first element decides conditionals.
pub const FLAG: &str = "flag";

pub fn graph(u: &mut Unstructured, kind: Kind) -> Result<ComputeGraph> {
    let mut maker = Maker::new(kind, 2);
    let flag = maker.b.external_buffer(FLAG, 16);
    maker.flag = Some(View::strided(flag, DType::U32, 0, &[1], &[1]).unwrap());
    for i in 0..u.int_in_range(2..=6)? {
        let elements = 4 * u.int_in_range(1..=6)?;
        let (name, bytes) = (format!("b{i}"), elements as usize * 4);
        let buffer = match u.int_in_range(0..=8)? {
            0 | 1 => maker.b.external_buffer(&name, bytes),
            2 if kind == Kind::Any => maker.b.slot_buffer(&name, bytes, Access::ReadWrite),
            3 => maker.b.host_buffer(&name, bytes),
            _ => maker.b.alloc_buffer(&name, bytes),
        };
        maker.buffers.push((buffer, elements));
    }
    maker.nodes(u, 14)?;
    let graph = maker.finish(u)?;
    if u.ratio(1, 3)? { permuted(u, &graph) } else { Ok(graph) }
}

/// The same graph, its nodes created in another order.
fn permuted(u: &mut Unstructured, graph: &ComputeGraph) -> Result<ComputeGraph> {
    let mut places: Vec<NodeId> = graph.node_ids().collect();
    for last in (1..places.len()).rev() {
        places.swap(last, u.int_in_range(0..=last)?);
    }
    let mut b = GraphBuilder::new().with_auto_infer_edges(false);
    for buffer in graph.buffers() {
        b.declare(buffer.clone());
    }
    let mut to = vec![NodeId(0); places.len()];
    for &node in &places {
        to[node.index()] = b.add_node(graph.node(node).clone());
    }
    for edge in graph.edges() {
        b.add_edge(Edge { from: to[edge.from.index()], to: to[edge.to.index()], ..edge });
    }
    Ok(b.build().unwrap())
}

struct Maker {
    b: GraphBuilder,
    kind: Kind,
    levels: u32,
    /// Buffers with their f32 elements.
    buffers: Vec<(BufferId, u64)>,
    flag: Option<View>,
    last_fill: Option<(Region, u32, u8)>,
    last_copy: Option<(Region, Region)>,
    names: u32,
}

impl Maker {
    fn new(kind: Kind, levels: u32) -> Self {
        let (buffers, flag, last_fill, last_copy) = (Vec::new(), None, None, None);
        let b = GraphBuilder::new();
        Self { b, kind, levels, buffers, flag, last_fill, last_copy, names: 0 }
    }

    fn name(&mut self, what: &str) -> String {
        self.names += 1;
        format!("{what} {}", self.names)
    }

    fn nodes(&mut self, u: &mut Unstructured, most: u32) -> Result<()> {
        if self.kind == Kind::Runnable || u.ratio(3, 4)? {
            for (buffer, elements) in self.buffers.clone() {
                let region = Region { buffer, offset: 0, bytes: elements * 4 };
                self.fill(region, 0x3f80_0000, 4);
            }
        }
        for _ in 0..u.int_in_range(1..=most)? {
            self.node(u)?;
        }
        Ok(())
    }

    /// Some elements of some buffer.
    fn part(&self, u: &mut Unstructured) -> Result<Region> {
        let (buffer, elements) = *u.choose(&self.buffers)?;
        let from = u.int_in_range(0..=elements - 1)?;
        let (from, to) = match u.ratio(2, 3)? {
            true => (0, elements),
            false => (from, u.int_in_range(from + 1..=elements)?),
        };
        Ok(Region { buffer, offset: from * 4, bytes: (to - from) * 4 })
    }

    /// As many bytes of some buffer.
    fn part_of(&self, u: &mut Unstructured, bytes: u64) -> Result<Option<Region>> {
        let (buffer, elements) = *u.choose(&self.buffers)?;
        let Some(room) = (elements * 4).checked_sub(bytes) else { return Ok(None) };
        Ok(Some(Region { buffer, offset: u.int_in_range(0..=room / 4)? * 4, bytes }))
    }

    fn fill(&mut self, region: Region, value: u32, element_size: u8) {
        let dst = Pitched::linear(Target::Buffer(region.buffer), region.offset);
        let extent = Extent::linear(region.bytes);
        let name = self.name("fill");
        self.b.add_fill(&name, MemsetNode { dst, value, element_size, extent });
        self.last_fill = Some((region, value, element_size));
    }

    fn copy(&mut self, from: Region, to: Region) {
        if !from.overlaps(&to) && from.bytes == to.bytes {
            let name = self.name("copy");
            self.b.add_region_copy(&name, from, to);
            self.last_copy = Some((from, to));
        }
    }

    /// The bytes right behind, if there are any.
    fn behind(&self, u: &mut Unstructured, region: Region) -> Result<Option<Region>> {
        let room = self.b.buffer(region.buffer).bytes - region.end();
        if room < 4 {
            return Ok(None);
        }
        let bytes = u.int_in_range(1..=room / 4)? * 4;
        Ok(Some(Region { offset: region.end(), bytes, ..region }))
    }

    fn view(region: Region) -> View {
        View::strided(region.buffer, DType::F32, region.offset, &[region.bytes / 4], &[1]).unwrap()
    }

    fn node(&mut self, u: &mut Unstructured) -> Result<()> {
        match u.int_in_range(0..=27)? {
            26 | 27 => self.repeated(u)?,
            22 | 23 => self.staged(u)?,
            24 | 25 => self.in_turn(u)?,
            0..=2 => {
                let (value, size) =
                    *u.choose(&[(0, 1), (0, 4), (0x3f00_3f00, 2), (0x4048_f5c3, 4)])?;
                let region = self.part(u)?;
                self.fill(region, value, size);
            }
            3 => {
                if let Some((region, value, size)) = self.last_fill
                    && let Some(next) = self.behind(u, region)?
                {
                    self.fill(next, value, size);
                }
            }
            4..=6 => {
                let from = self.part(u)?;
                if let Some(to) = self.part_of(u, from.bytes)? {
                    self.copy(from, to);
                }
            }
            7 => {
                if let Some((from, to)) = self.last_copy {
                    match u.int_in_range(0..=2)? {
                        0 => self.copy(from, to),
                        1 => self.copy(to, from),
                        _ => {
                            if let (Some(from), Some(to)) =
                                (self.behind(u, from)?, self.behind(u, to)?)
                            {
                                let bytes = from.bytes.min(to.bytes);
                                self.copy(Region { bytes, ..from }, Region { bytes, ..to });
                            }
                        }
                    }
                }
            }
            8..=12 => self.elementwise(u)?,
            13 => self.stir(u)?,
            14 => self.reduce(u)?,
            15 | 16 => {
                let name = self.name("empty");
                self.b.add_barrier(&name);
            }
            17 => self.pitched(u)?,
            18 => self.host(u)?,
            19 if self.levels > 0 => self.child(u)?,
            20 if self.levels > 0 => self.conditional(u)?,
            _ if self.kind == Kind::Any => self.odd(u)?,
            _ => self.elementwise(u)?,
        }
        Ok(())
    }

    /// A copy into scratch of its own, and a reader of that.
    fn staged(&mut self, u: &mut Unstructured) -> Result<()> {
        let from = self.part(u)?;
        let name = self.name("scratch");
        let scratch = self.b.alloc_buffer(&name, from.bytes as usize);
        self.copy(from, Region { buffer: scratch, offset: 0, bytes: from.bytes });
        // Before its reader anything can happen to what was copied.
        self.buffers.push((scratch, from.bytes / 4));
        if u.ratio(1, 3)? {
            self.node(u)?;
        }
        let staged = Region { buffer: scratch, offset: 0, bytes: from.bytes };
        self.mix(u, staged)
    }

    /// Expressions that hand scratch of their own to one another, with perhaps something else in between.
    fn in_turn(&mut self, u: &mut Unstructured) -> Result<()> {
        let expr = Expr::build(|e| {
            let (x, y) = (e.input(DType::F32), e.input(DType::F32));
            e.output((x * e.f32(0.75) - y).tanh());
        });
        let expr = Arc::new(expr.unwrap());
        let mut from = self.part(u)?;
        for _ in 0..u.int_in_range(2..=4)? {
            let also = self.part_of(u, from.bytes)?.unwrap_or(from);
            let name = self.name("scratch");
            let buffer = self.b.alloc_buffer(&name, from.bytes as usize);
            let to = Region { buffer, offset: 0, bytes: from.bytes };
            let name = self.name("turn");
            let [x, y, z] = [from, also, to].map(Self::view);
            self.b.add_elementwise(&name, expr.clone(), &[x, y], &[], &[z]);
            // Anybody may use it now, before or after the next in turn.
            if u.ratio(1, 4)? {
                self.buffers.push((buffer, to.bytes / 4));
                self.node(u)?;
            }
            from = to;
        }
        self.mix(u, from)
    }

    /// A row of its own, which the next expression reads for each of its rows, with perhaps something else in between.
    fn repeated(&mut self, u: &mut Unstructured) -> Result<()> {
        let expr = Expr::build(|e| {
            let (x, y) = (e.input(DType::F32), e.input(DType::F32));
            e.output(x * e.f32(0.25) - y);
        });
        let expr = Arc::new(expr.unwrap());
        let to = self.part(u)?;
        let elements = to.bytes / 4;
        let rows = u.int_in_range(1..=4)?;
        let rows = if elements.is_multiple_of(rows) { rows } else { elements };
        let columns = elements / rows;
        let Some(from) = self.part_of(u, columns * 4)? else { return Ok(()) };
        let name = self.name("scratch");
        let buffer = self.b.alloc_buffer(&name, columns as usize * 4);
        let row = Region { buffer, offset: 0, bytes: columns * 4 };
        let name = self.name("row");
        let [x, y] = [from, row].map(Self::view);
        self.b.add_elementwise(&name, expr.clone(), &[x, x], &[], &[y]);
        // Anybody may use it now, before or after who repeats it.
        if u.ratio(1, 4)? {
            self.buffers.push((buffer, columns));
            self.node(u)?;
        }
        let also = self.part_of(u, to.bytes)?.unwrap_or(to);
        let seen = |region: Region, stride: u64| {
            let (shape, strides) = ([rows, columns], [stride, 1]);
            View::strided(region.buffer, DType::F32, region.offset, &shape, &strides).unwrap()
        };
        if also == to || !also.overlaps(&to) {
            let name = self.name("rows");
            let inputs = [seen(also, columns), seen(row, 0)];
            self.b.add_elementwise(&name, expr, &inputs, &[], &[seen(to, columns)]);
        }
        Ok(())
    }

    fn elementwise(&mut self, u: &mut Unstructured) -> Result<()> {
        let x = self.part(u)?;
        self.mix(u, x)
    }

    fn mix(&mut self, u: &mut Unstructured, x: Region) -> Result<()> {
        let y = self.part_of(u, x.bytes)?.unwrap_or(x);
        let z = if u.ratio(1, 4)? { Some(x) } else { self.part_of(u, x.bytes)? };
        let Some(z) = z else { return Ok(()) };
        let [x, y, z] = [x, y, z].map(Self::view);
        let apart = |a: &View| *a == z || !a.region().overlaps(&z.region());
        if !apart(&x) || !apart(&y) {
            return Ok(());
        }
        let which = u.int_in_range(0..=2)?;
        let expr = Expr::build(|e| {
            let (x, y) = (e.input(DType::F32), e.input(DType::F32));
            let value = match which {
                0 => x * e.f32(0.5) + y,
                1 => (x - y).tanh(),
                _ => x * y + e.index(0).cast(DType::F32) * e.f32(0.25),
            };
            e.output(value);
        });
        let name = self.name("mix");
        self.b.add_elementwise(&name, Arc::new(expr.unwrap()), &[x, y], &[], &[z]);
        Ok(())
    }

    /// A kernel known by name, with everything it touches declared: it reads one operand and updates another.
    fn stir(&mut self, u: &mut Unstructured) -> Result<()> {
        let (x, y) = (self.part(u)?, self.part(u)?);
        if !x.overlaps(&y) {
            let [x, y] = [x, y].map(Self::view);
            let kernel = KernelNode {
                kernel: KernelRef::Named("stir".into()),
                config: KernelConfig::linear(1, 32, 0),
                args: [Arg::View(x, Access::Read), Arg::View(y, Access::ReadWrite)].into(),
                fusible: false,
            };
            let name = self.name("stir");
            self.b.add(&name, NodeKind::Kernel(kernel));
        }
        Ok(())
    }

    fn reduce(&mut self, u: &mut Unstructured) -> Result<()> {
        let x = self.part(u)?;
        let rows = x.bytes / 8;
        let to = self.part_of(u, rows * 4)?.filter(|to| rows > 0 && !to.overlaps(&x));
        if let Some(to) = to {
            let shape = [rows, 2];
            let from = View::strided(x.buffer, DType::F32, x.offset, &shape, &[2, 1]).unwrap();
            let reduce = LibraryKernel::Reduce { op: ReduceOp::Sum, axis: 1 };
            let name = self.name("sum");
            self.b.add_library(&name, reduce, &[from, Self::view(to)]);
        }
        Ok(())
    }

    /// A fill or copy with gaps between its rows.
    fn pitched(&mut self, u: &mut Unstructured) -> Result<()> {
        let (a, b) = (self.part(u)?, self.part(u)?);
        if a.bytes < 12 || b.bytes < 12 || a.overlaps(&b) {
            return Ok(());
        }
        let end = |r: Region| Pitched {
            target: Target::Buffer(r.buffer),
            offset: r.offset,
            pitch: 8,
            slice_rows: 2,
        };
        let extent = Extent { width: *u.choose(&[4, 8])?, height: 2, depth: 1 };
        let name = self.name("pitched");
        if a.bytes < 16 || b.bytes < 16 {
            return Ok(());
        }
        if u.arbitrary()? {
            let (dst, value, element_size) = (end(a), 0, 4);
            self.b.add_fill(&name, MemsetNode { dst, value, element_size, extent });
        } else {
            let host = |r: Region| {
                matches!(self.b.buffer(r.buffer).space, phonograph_graph::Space::Host { .. })
            };
            let dir = match (host(a), host(b)) {
                (true, true) => MemcpyDir::HostToHost,
                (true, false) => MemcpyDir::HostToDevice,
                (false, true) => MemcpyDir::DeviceToHost,
                (false, false) => MemcpyDir::DeviceToDevice,
            };
            self.b.add_copy(&name, MemcpyNode { dir, src: end(a), dst: end(b), extent });
        }
        Ok(())
    }

    fn host(&mut self, u: &mut Unstructured) -> Result<()> {
        let region = self.part(u)?;
        let name = self.name("note");
        self.b.add_host(&name, "note", &[(region, Access::ReadWrite)]);
        Ok(())
    }

    /// A graph around some of the buffers, with one of its own.
    fn inner(&mut self, u: &mut Unstructured) -> Result<ComputeGraph> {
        let mut inner = Maker::new(self.kind, self.levels - 1);
        inner.names = 1000 * (self.names + 1);
        let own = inner.b.alloc_buffer("own", 32);
        inner.buffers.push((own, 8));
        if self.kind == Kind::Runnable {
            inner.fill(Region { buffer: own, offset: 0, bytes: 32 }, 0x3f80_0000, 4);
        }
        for &(buffer, elements) in &self.buffers {
            if u.arbitrary()? {
                inner.buffers.push((inner.b.outer_buffer(&self.b, buffer), elements));
            }
        }
        if let Some(flag) = self.flag {
            inner.flag = Some(inner.b.outer_view(&self.b, flag));
        }
        for _ in 0..u.int_in_range(1..=5)? {
            inner.node(u)?;
        }
        inner.finish(u)
    }

    fn child(&mut self, u: &mut Unstructured) -> Result<()> {
        let graph = self.inner(u)?;
        let name = self.name("child");
        self.b.add_child(&name, graph);
        Ok(())
    }

    fn conditional(&mut self, u: &mut Unstructured) -> Result<()> {
        let Some(flag) = self.flag else { return Ok(()) };
        let mut bodies = vec![self.inner(u)?];
        if u.arbitrary()? {
            bodies.push(self.inner(u)?);
        }
        // Nothing in a body changes the flag: only a graph that nobody runs can have a loop.
        let loops = self.kind == Kind::Any && bodies.len() == 1 && u.arbitrary()?;
        let kind = if loops { ConditionalKind::While } else { ConditionalKind::If };
        let name = self.name("conditional");
        self.b.add_conditional(&name, kind, Condition::Value(flag), bodies);
        Ok(())
    }

    /// What no backend needs to know: effects that nobody declares.
    fn odd(&mut self, u: &mut Unstructured) -> Result<()> {
        match u.int_in_range(0..=4)? {
            0 => {
                self.b.add_host_callback("anything");
            }
            1 => {
                self.b.add_kernel("anything", 1, 32, 0).finish();
            }
            2 => {
                self.b.add_event_record("record", EventId(0));
            }
            3 => {
                let (buffer, _) = *u.choose(&self.buffers)?;
                let name = self.name("reads only");
                self.b.add_kernel(&name, 1, 32, 0).inputs([buffer]).finish();
            }
            _ => {
                let region = self.part(u)?;
                let src = Pitched::linear(Target::Address(4096), 0);
                let dst = Pitched::linear(Target::Buffer(region.buffer), region.offset);
                let (dir, extent) = (MemcpyDir::DeviceToDevice, Extent::linear(region.bytes));
                let name = self.name("from elsewhere");
                self.b.add_copy(&name, MemcpyNode { dir, src, dst, extent });
            }
        }
        Ok(())
    }

    /// Adds explicit edges: a chain, layers, long ones, or anything; some of them weak where that is safe.
    fn finish(mut self, u: &mut Unstructured) -> Result<ComputeGraph> {
        let count = self.b.node_count() as u32;
        let shape = u.int_in_range(0..=5)?;
        for to in 1..count {
            for _ in 0..u.int_in_range(0..=2)? {
                let from = match shape {
                    0 => break,
                    1 => to - 1,
                    2 => to.saturating_sub(u.int_in_range(1..=4)?),
                    3 => u.int_in_range(0..=to / 2)?,
                    _ => u.int_in_range(0..=to - 1)?,
                };
                if from == to {
                    continue;
                }
                let (from, to) = (NodeId(from), NodeId(to));
                let generated = |kernel: &KernelNode| !matches!(kernel.kernel, KernelRef::Named(_));
                let may = self.b.node(from).kernel().is_some()
                    && self.b.node(to).kernel().is_some_and(generated);
                let data = match may && u.ratio(1, 3)? {
                    true => EdgeData::PROGRAMMATIC,
                    false => EdgeData::FULL,
                };
                self.b.add_edge(Edge { from, to, data });
            }
        }
        Ok(self.b.build().unwrap())
    }
}
