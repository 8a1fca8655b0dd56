//! Random graphs of kernels, fused and not fused, on the CPU: the same bits, for any number of workers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;
use phonograph::graph::{
    Access, Arg, BufferId, BufferRole, ComputeGraph, DType, Edge, EdgeData, Expr, ExprBuilder,
    GraphBuilder, KernelRef, LibraryKernel, Node, NodeId, ReduceOp, Scalar, Shape, Value, View,
    check, check_rewrite,
};
use phonograph::plan::ExecutionPlan;
use phonograph::plan::fusion::{FusionOptions, fuse};
use phonograph::plan::passes::Rewritten;
use phonograph::runtime::cpu::kernels::Registry;
use phonograph::runtime::cpu::{Bindings, Cpu};

/// A tensor that holds numbers: all of a view has been written, or is the user's.
#[derive(Clone, Copy)]
struct Tensor {
    view: View,
}

/// A graph under construction.
struct Draft {
    b: GraphBuilder,
    tensors: Vec<Tensor>,
    nodes: Vec<NodeId>,
}

/// The sizes that axes have: few, so that shapes meet again.
const SIDES: [u64; 4] = [1, 3, 4, 40];

fn shape(u: &mut Unstructured) -> Result<Shape> {
    let extents: Vec<u64> = match u.int_in_range(0..=5)? {
        0 => vec![],
        1 => vec![*u.choose(&SIDES)?],
        2 => vec![*u.choose(&[2000, 0, 1])?],
        // Longer than what is reduced at a time, and than what is computed at a time.
        3 if u.ratio(1, 8)? => vec![2, *u.choose(&[5000, 17_000])?],
        3 => vec![2, 3, 4],
        _ => vec![*u.choose(&SIDES)?, *u.choose(&SIDES)?],
    };
    Ok(Shape::new(&extents).unwrap())
}

impl Draft {
    /// A new tensor, not yet written.
    fn declare(&mut self, u: &mut Unstructured, dtype: DType, shape: Shape) -> Result<View> {
        let bytes = (shape.elements() * dtype.size()) as usize;
        let buffer = match u.ratio(1, 4)? {
            true => self.b.external_buffer("e", bytes),
            false => self.b.alloc_buffer("t", bytes),
        };
        Ok(View::contiguous(buffer, dtype, shape.extents()).unwrap())
    }

    /// A view of something written, broadcast to `shape`; most often of what was written last.
    fn input(&mut self, u: &mut Unstructured, shape: Shape) -> Result<View> {
        let fitting: Vec<View> = self
            .tensors
            .iter()
            .flat_map(|t| {
                let mut views = vec![t.view];
                let rank = t.view.shape().rank();
                if rank >= 2 {
                    views.push(t.view.transpose(rank - 2, rank - 1).unwrap());
                }
                if rank >= 1 && t.view.shape().extents()[0] > 1 {
                    views.push(t.view.slice(0, 1, 1).unwrap());
                    let n = t.view.shape().extents()[0];
                    views.push(t.view.slice(0, 1, n - 1).unwrap());
                }
                views
            })
            .filter_map(|view| view.broadcast_to(shape).ok())
            .collect();
        if fitting.is_empty() {
            let dtype = *u.choose(&DType::ALL)?;
            let bytes = (shape.elements() * dtype.size()) as usize;
            let buffer = self.b.external_buffer("x", bytes);
            let view = View::contiguous(buffer, dtype, shape.extents()).unwrap();
            self.tensors.push(Tensor { view });
            return Ok(view);
        }
        let at = u.choose_index(fitting.len())?.max(u.choose_index(fitting.len())?);
        Ok(fitting[at])
    }

    fn elementwise(&mut self, u: &mut Unstructured) -> Result<()> {
        let shape = match self.tensors.last() {
            Some(last) if u.ratio(3, 4)? => last.view.shape(),
            _ => shape(u)?,
        };
        let mut inputs = Vec::new();
        for _ in 0..u.int_in_range(0..=3)? {
            inputs.push(self.input(u, shape)?);
        }
        let mut outputs: Vec<View> = Vec::new();
        let overlaps = |view: &View, others: &[View]| {
            others.iter().any(|o| o != view && o.region().overlaps(&view.region()))
        };
        for _ in 0..u.int_in_range(1..=2)? {
            // In place, over something that was written before, or into something new.
            let old: Vec<View> = self
                .tensors
                .iter()
                .map(|t| t.view)
                .filter(|v| v.shape() == shape && !overlaps(v, &inputs))
                .filter(|v| outputs.iter().all(|o| !o.region().overlaps(&v.region())))
                .filter(|v| !outputs.contains(v))
                .collect();
            let view = match u.ratio(1, 3)? && !old.is_empty() {
                true => old[u.choose_index(old.len())?],
                false => {
                    let any = *u.choose(&DType::ALL)?;
                    let dtype = if u.arbitrary()? { DType::F32 } else { any };
                    self.declare(u, dtype, shape)?
                }
            };
            outputs.push(view);
        }
        let slot = self.b.slot("", Scalar::F32(0.75));
        let with_param = u.ratio(1, 4)?;
        let expr = expr(u, &inputs, &outputs, with_param, shape.rank())?;
        let params: &[Arg] = match (with_param, u.ratio(1, 2)?) {
            (false, _) => &[],
            (true, false) => &[Arg::Scalar(Scalar::F32(0.75))],
            (true, true) => &[Arg::Slot(slot)],
        };
        let node = self.b.add_elementwise("map", expr, &inputs, params, &outputs);
        if u.ratio(1, 12)? {
            self.b.set_fusible(node, false);
        }
        self.nodes.push(node);
        for view in outputs {
            self.tensors.retain(|t| t.view != view);
            self.tensors.push(Tensor { view });
        }
        Ok(())
    }

    /// A tensor that is shorter along some axes, and a kernel that repeats it along these.
    fn repeated(&mut self, u: &mut Unstructured) -> Result<()> {
        let all = match self.tensors.last() {
            Some(last) if u.arbitrary()? => last.view.shape(),
            _ => shape(u)?,
        };
        let mut extents = all.extents().to_vec();
        for extent in &mut extents {
            *extent = if u.ratio(2, 3)? { 1 } else { *extent };
        }
        let short = Shape::new(&extents).unwrap();
        let dtype = *u.choose(&[DType::F32, DType::F32, DType::F16, DType::I64])?;
        let once = self.input(u, short)?;
        let result = self.declare(u, dtype, short)?;
        let kernel = expr(u, &[once], &[result], false, short.rank())?;
        self.nodes.push(self.b.add_elementwise("short", kernel, &[once], &[], &[result]));
        let inputs = [self.input(u, all)?, result.broadcast_to(all).unwrap()];
        let output = self.declare(u, DType::F32, all)?;
        let kernel = expr(u, &inputs, &[output], false, all.rank())?;
        self.nodes.push(self.b.add_elementwise("repeat", kernel, &inputs, &[], &[output]));
        if u.ratio(1, 4)? {
            self.tensors.push(Tensor { view: result });
        }
        self.tensors.push(Tensor { view: output });
        Ok(())
    }

    fn reduce(&mut self, u: &mut Unstructured) -> Result<()> {
        let fitting: Vec<View> = self
            .tensors
            .iter()
            .map(|t| t.view)
            .filter(|v| v.shape().rank() > 0 && v.elements() > 0)
            .filter(|v| !matches!(v.dtype, DType::F16 | DType::BF16 | DType::U8 | DType::Bool))
            .collect();
        let Some(&input) = fitting.last() else { return Ok(()) };
        let axis = u.choose_index(input.shape().rank())?;
        let op = *u.choose(&[ReduceOp::Sum, ReduceOp::Max, ReduceOp::ArgMax])?;
        let dtype = if op == ReduceOp::ArgMax { DType::I32 } else { input.dtype };
        let output = self.declare(u, dtype, input.shape().without(axis).unwrap())?;
        let kernel = LibraryKernel::Reduce { op, axis: axis as u8 };
        self.nodes.push(self.b.add_library("reduce", kernel, &[input, output]));
        let view = match u.arbitrary()? {
            true => output.unsqueeze(axis).unwrap(),
            false => output,
        };
        self.tensors.push(Tensor { view });
        Ok(())
    }

    fn matmul(&mut self, u: &mut Unstructured) -> Result<()> {
        let fitting: Vec<View> = self
            .tensors
            .iter()
            .map(|t| t.view)
            .filter(|v| v.shape().rank() == 2 && v.dtype == DType::F32)
            .collect();
        let a = match fitting.last() {
            Some(&a) => a,
            None => {
                let extents = [*u.choose(&SIDES)?, *u.choose(&SIDES)?];
                let bytes = (extents[0] * extents[1] * 4) as usize;
                View::contiguous(self.b.external_buffer("a", bytes), DType::F32, &extents).unwrap()
            }
        };
        let (m, k) = (a.shape().extents()[0], a.shape().extents()[1]);
        let n = *u.choose(&SIDES)?;
        let known = fitting.iter().find(|b| b.shape().extents() == [k, n]);
        let b = match known {
            Some(&b) => b,
            None => {
                let bytes = (k * n * 4) as usize;
                let buffer = self.b.external_buffer("w", bytes);
                View::contiguous(buffer, DType::F32, &[k, n]).unwrap()
            }
        };
        let product = self.declare(u, DType::F32, Shape::new(&[m, n]).unwrap())?;
        self.nodes.push(self.b.add_library("matmul", LibraryKernel::MatMul, &[a, b, product]));
        self.tensors.push(Tensor { view: product });
        Ok(())
    }
}

/// An expression of these inputs and outputs: everything is mixed, as f32, and stored as the outputs' types.
fn expr(
    u: &mut Unstructured,
    inputs: &[View],
    outputs: &[View],
    with_param: bool,
    rank: usize,
) -> Result<Arc<Expr>> {
    let choices: Vec<u32> = (0..24).map(|_| u.arbitrary()).collect::<Result<_>>()?;
    let built = Expr::build(|e| {
        let mut values: Vec<Value> = inputs.iter().map(|v| e.input(v.dtype)).collect();
        if with_param {
            values.push(e.param(DType::F32));
        }
        let mut choices = choices.iter().copied().cycle();
        let mut next = |n: usize| choices.next().unwrap_or(0) as usize % n;
        if values.is_empty() || next(4) == 0 {
            values.push(match rank {
                0 => e.constant(1.5f32),
                _ => e.index(next(rank) as u8),
            });
        }
        let mut values: Vec<Value> = values.iter().map(|v| v.cast(DType::F32)).collect();
        for _ in 0..next(5) {
            let (a, b) = (values[next(values.len())], values[values.len() - 1]);
            values.push(mix(e, next(12), a, b));
        }
        for output in outputs {
            let value = values[values.len() - 1 - next(values.len().min(2))];
            e.output_as(value.cast(output.dtype.computed()), output.dtype);
        }
    });
    Ok(Arc::new(built.unwrap()))
}

fn mix<'e>(e: &'e ExprBuilder, which: usize, a: Value<'e>, b: Value<'e>) -> Value<'e> {
    match which {
        0 => a + b,
        1 => a - b,
        2 => a * b,
        3 => a / b,
        4 => a.min(b),
        5 => a.less(b).select(a, b * e.f32(0.5)),
        6 => (a * e.f32(0.1)).exp(),
        7 => (a * a + e.f32(1.0)).log(),
        8 => a.tanh() + b,
        9 => (-a).max(b),
        10 => e.philox(a.cast(DType::U32), b.cast(DType::U32), e.constant(7u32)).cast(DType::F32),
        _ => b.floor() * e.f32(1.0 / 3.0),
    }
}

fn graph(u: &mut Unstructured) -> Result<ComputeGraph> {
    let mut draft = Draft { b: GraphBuilder::new(), tensors: Vec::new(), nodes: Vec::new() };
    for _ in 0..u.int_in_range(2..=12)? {
        match u.int_in_range(0..=10)? {
            10 => draft.repeated(u)?,
            0 | 1 => draft.reduce(u)?,
            2 | 3 => draft.matmul(u)?,
            _ => draft.elementwise(u)?,
        }
    }
    let (mut b, nodes) = (draft.b, draft.nodes);
    // More order than data asks for, weak at times.
    if nodes.len() > 2 && u.ratio(1, 3)? {
        for _ in 0..u.int_in_range(1..=3)? {
            let to = u.int_in_range(1..=nodes.len() - 1)?;
            let from = u.int_in_range(0..=to - 1)?;
            let data = if u.ratio(1, 4)? { EdgeData::PROGRAMMATIC } else { EdgeData::FULL };
            b.add_edge(Edge { from: nodes[from], to: nodes[to], data });
        }
    }
    Ok(b.build().unwrap())
}

/// What every buffer of the user's holds after two replays, NaN made one.
fn run(cpu: &mut Cpu, graph: &ComputeGraph, lanes: usize) -> Vec<(BufferId, Vec<u8>)> {
    let plan = ExecutionPlan::build(graph, lanes).unwrap();
    let schedule = plan.schedule().unwrap();
    assert_eq!(check(graph, schedule), []);
    let registry = Registry::new();
    let mut exec = cpu.instantiate(graph, schedule, &Bindings::new(&registry)).unwrap();
    let external: Vec<BufferId> = (0..graph.buffers().len())
        .map(BufferId::from_index)
        .filter(|&b| graph.buffer(b).role == BufferRole::External)
        .collect();
    for &buffer in &external {
        let memory = exec.memory(buffer).unwrap().clone();
        let mut state = u64::from(buffer.0) + 1;
        for byte in cpu.slice_mut::<u8>(&memory).unwrap() {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            // Exponents near those of 1 in every float type, so that numbers stay numbers.
            *byte = if state >> 60 < 9 { 0x3c } else { (state >> 40) as u8 };
        }
    }
    cpu.replay(&mut exec).unwrap();
    cpu.replay(&mut exec).unwrap();
    let bytes = |&buffer: &BufferId| {
        let memory = exec.memory(buffer).unwrap();
        (buffer, cpu.slice::<u8>(memory).unwrap().to_vec())
    };
    external.iter().map(bytes).collect()
}

/// The types that a buffer is seen as.
fn dtype_of(graph: &ComputeGraph, buffer: BufferId) -> Option<DType> {
    graph.nodes().iter().filter_map(|n| n.kernel()).flat_map(|k| &k.args).find_map(
        |arg| match arg {
            Arg::View(view, _) if view.buffer == buffer => Some(view.dtype),
            _ => None,
        },
    )
}

/// All NaN made one.
fn numbers(dtype: Option<DType>, bytes: &[u8]) -> Vec<u64> {
    let Some(dtype) = dtype else { return Vec::new() };
    bytes
        .chunks(dtype.size() as usize)
        .map(|chunk| {
            let scalar = Scalar::from_le_bytes(dtype, chunk).unwrap();
            let nan = match scalar {
                Scalar::F32(v) => v.is_nan(),
                Scalar::F64(v) => v.is_nan(),
                Scalar::F16(v) => v.is_nan(),
                Scalar::BF16(v) => v.is_nan(),
                _ => false,
            };
            if nan { u64::MAX } else { scalar.to_bits() }
        })
        .collect()
}

/// What was merged with what in a node.
fn kinds_of(node: &Node) -> Vec<&'static str> {
    let Some(kernel) = node.kernel() else { return Vec::new() };
    match &kernel.kernel {
        KernelRef::Elementwise(_) if node.name.contains('+') => vec!["elementwise"],
        KernelRef::Fused(fused) => {
            let product = fused.library == LibraryKernel::MatMul;
            let after = if product { "after product" } else { "after reduction" };
            let before = fused.before.iter().map(|_| "before reduction");
            before.chain(fused.after.iter().map(|_| after)).collect()
        }
        _ => Vec::new(),
    }
}

/// Expressions that are computed for more elements than they were.
fn repeated(before: &ComputeGraph, fused: &Rewritten) -> u32 {
    let result = |graph: &ComputeGraph, node: NodeId| {
        let kernel = graph.node(node).kernel()?;
        let expression = matches!(kernel.kernel, KernelRef::Elementwise(_));
        let written = kernel.args.iter().find_map(|arg| match arg {
            Arg::View(view, Access::Write) => Some(view.elements()),
            _ => None,
        });
        written.filter(|_| expression)
    };
    let more = |node: &NodeId| {
        let after = fused.image.of(*node).and_then(|image| result(&fused.graph, image));
        result(before, *node).zip(after).is_some_and(|(before, after)| before < after)
    };
    before.node_ids().filter(more).count() as u32
}

#[test]
fn fused_graphs_give_the_same_bits() {
    let cpus: RefCell<Vec<Cpu>> = RefCell::new((1..=3).map(|w| Cpu::new(w).unwrap()).collect());
    let (mut before, mut after, mut graphs) = (0, 0, 0);
    let mut kinds: BTreeMap<&str, u32> = BTreeMap::new();
    arbtest(|u| {
        let graph = graph(u)?;
        let options = FusionOptions {
            independent_elements: *u.choose(&[0, 64, 1 << 20])?,
            library: u.ratio(3, 4)?,
            max_operands: *u.choose(&[2, 4, 32])?,
            max_ops: *u.choose(&[30, 1000])?,
            repeated_ops: *u.choose(&[0, 4096, u64::MAX])?,
        };
        let fused = fuse(&graph, &options).unwrap();
        let violations = check_rewrite(&graph, &fused.graph, &fused.image);
        assert_eq!(violations, [], "{graph:#?}\nfused: {:#?}\n{}", fused.graph, fused.report);
        graphs += 1;
        for node in fused.graph.nodes() {
            for kind in kinds_of(node) {
                *kinds.entry(kind).or_default() += 1;
            }
        }
        let repeated = repeated(&graph, &fused);
        if repeated > 0 {
            *kinds.entry("repeated").or_default() += repeated;
        }
        before += graph.node_count();
        after += fused.graph.node_count();
        let cpus = &mut *cpus.borrow_mut();
        let at = u.choose_index(cpus.len())?;
        let lanes = u.int_in_range(1..=3)?;
        let expected = run(&mut cpus[0], &graph, 1);
        let actual = run(&mut cpus[at], &fused.graph, lanes);
        for ((buffer, expected), (_, actual)) in expected.iter().zip(&actual) {
            let dtype = dtype_of(&graph, *buffer);
            assert_eq!(
                numbers(dtype, expected),
                numbers(dtype, actual),
                "{buffer} of {graph:#?}\nfused: {:#?}\n{}",
                fused.graph,
                fused.report
            );
        }
        Ok(())
    })
    .budget_ms(2000);
    println!("{graphs} graphs, {before} nodes before, {after} after, {kinds:?}");
    // Nothing is shown by graphs that are left as they are. A slow machine tries too few to have all kinds.
    let common = kinds.len() == 5 && kinds.values().all(|&count| count > graphs / 200);
    assert!(common || graphs < 500, "{kinds:?}");
}
