//! One graph with its data, run on the CPU and on CUDA.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::CUresult;
use phonograph_cuda::{Bindings, Cuda, Exec, Function};
use phonograph_graph::{
    BufferId, BufferRole, ComputeGraph, DType, Expr, FusedKernel, GraphBuilder, LibraryKernel,
    ReduceOp, Schedule, View,
};
use phonograph_kernels::cuda::Place;
use phonograph_runtime::cpu::kernels::Registry;
use phonograph_runtime::cpu::{self, Cpu};

/// Waits until no other test uses the device, and keeps it until the test's thread ends: while one test records, the driver
/// refuses what another one does, and breaks the recording.
pub fn turn() {
    static TURN: Mutex<()> = Mutex::new(());
    thread_local! {
        static HELD: RefCell<Option<MutexGuard<'static, ()>>> = const { RefCell::new(None) };
    }
    HELD.with_borrow_mut(|held| {
        held.get_or_insert_with(|| TURN.lock().unwrap_or_else(PoisonError::into_inner));
    });
}

/// The backend, or the reason why there is none in the output.
pub fn cuda() -> Option<Cuda> {
    turn();
    match Cuda::new() {
        Ok(cuda) => Some(cuda),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// A graph, the contents of its external buffers at first, and the functions that it calls.
pub struct Case {
    pub graph: ComputeGraph,
    pub contents: Vec<(BufferId, Vec<u8>)>,
    /// Kernels by name and host functions for the CPU; the host functions for CUDA, too.
    pub registry: Registry,
    /// Kernels by name for CUDA: name and source.
    pub kernels: Vec<(&'static str, &'static str)>,
    pub replays: usize,
}

impl Case {
    pub fn new(graph: ComputeGraph) -> Self {
        let (contents, kernels) = (Vec::new(), Vec::new());
        Self { graph, contents, registry: Registry::new(), kernels, replays: 3 }
    }

    pub fn with<T: Copy>(mut self, buffer: BufferId, values: &[T]) -> Self {
        // SAFETY: the tests give slices of plain numbers, every byte of which is initialised.
        let bytes = unsafe {
            std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values))
        };
        self.contents.push((buffer, bytes.to_vec()));
        self
    }

    pub fn external(&self) -> Vec<BufferId> {
        let external = |id: &BufferId| self.graph.buffer(*id).role == BufferRole::External;
        (0..self.graph.buffers().len()).map(BufferId::from_index).filter(external).collect()
    }

    /// What a buffer holds at first: what the case says, else numbers that differ.
    pub fn first(&self, buffer: BufferId) -> Vec<u8> {
        if let Some((_, bytes)) = self.contents.iter().find(|(id, _)| *id == buffer) {
            return bytes.clone();
        }
        let count = self.graph.buffer(buffer).bytes as usize;
        let value = |i: usize| ((i + buffer.index() * 7) as f32).sin();
        let mut bytes: Vec<u8> =
            (0..count.div_ceil(4)).flat_map(|i| value(i).to_le_bytes()).collect();
        bytes.truncate(count);
        bytes
    }

    pub fn on_cpu(&self) -> Vec<Vec<u8>> {
        let mut cpu = Cpu::new(2).unwrap();
        let schedule = Schedule::sequential(&self.graph);
        let bindings = cpu::Bindings::new(&self.registry);
        let mut exec = cpu.instantiate(&self.graph, &schedule, &bindings).unwrap();
        for buffer in self.external() {
            let memory = exec.memory(buffer).unwrap().clone();
            cpu.slice_mut::<u8>(&memory).unwrap().copy_from_slice(&self.first(buffer));
        }
        (0..self.replays).for_each(|_| cpu.replay(&mut exec).unwrap());
        let external = self.external();
        let memory = external.iter().map(|&buffer| exec.memory(buffer).unwrap());
        memory.map(|memory| cpu.slice::<u8>(memory).unwrap().to_vec()).collect()
    }

    /// Instantiates on CUDA with the contents in place.
    pub fn instantiate(&self, cuda: &mut Cuda, schedule: &Schedule) -> Exec {
        let compile = |&(name, source): &(&'static str, &str)| {
            (name, cuda.compile(source, name).unwrap_or_else(|error| panic!("{error}")))
        };
        let functions: Vec<(&str, Function)> = self.kernels.iter().map(compile).collect();
        let mut bindings = Bindings::new().hosts(&self.registry);
        for (name, function) in &functions {
            // SAFETY: the kernels of the cases keep to their operands; the check of the results would tell.
            bindings = unsafe { bindings.kernel(name, function) };
        }
        let exec = cuda.instantiate(&self.graph, schedule, &bindings);
        let exec = exec.unwrap_or_else(|error| panic!("{error}"));
        for buffer in self.external() {
            cuda.write(exec.memory(buffer).unwrap(), &self.first(buffer)).unwrap();
        }
        exec
    }

    pub fn on_cuda(&self, cuda: &mut Cuda, schedule: &Schedule) -> Vec<Vec<u8>> {
        let mut exec = self.instantiate(cuda, schedule);
        (0..self.replays).for_each(|_| cuda.replay(&mut exec).unwrap());
        let external = self.external();
        let memory = external.iter().map(|&buffer| exec.memory(buffer).unwrap());
        memory.map(|memory| cuda.read::<u8>(memory).unwrap()).collect()
    }
}

/// The case gives the same bytes on the CPU and on CUDA.
#[track_caller]
pub fn check(cuda: &mut Cuda, case: &Case) {
    let differ = Cell::new(0);
    let (expected, found) = (case.on_cpu(), case.on_cuda(cuda, &Schedule::sequential(&case.graph)));
    for ((buffer, expected), found) in case.external().iter().zip(&expected).zip(&found) {
        let at = expected.iter().zip(found).position(|(a, b)| a != b);
        if let Some(at) = at {
            differ.set(differ.get() + 1);
            let word =
                |bytes: &[u8]| bytes[at / 4 * 4..].iter().take(4).copied().collect::<Vec<_>>();
            let name = &case.graph.buffer(*buffer).name;
            eprintln!(
                "{buffer} ({name}) differs at byte {at}: {:?} on the CPU, {:?} on CUDA",
                word(expected),
                word(found)
            );
        }
    }
    assert_eq!(differ.get(), 0, "buffers differ");
}

/// A place with everything that a source can have, or with nothing; nothing is known of addresses.
pub fn place(all: bool) -> Place<'static> {
    let indirect: &dyn Fn(usize) -> bool = if all { &|_| true } else { &|_| false };
    Place { number: 0, weak_edges: all, indirect, aligned: &|_| false }
}

/// That the driver did it.
#[track_caller]
pub fn expect(result: CUresult) {
    assert_eq!(result, CUresult::CUDA_SUCCESS);
}

/// A dense view of f32 of a whole buffer.
pub fn view(buffer: BufferId, extents: &[u64]) -> View {
    View::contiguous(buffer, DType::F32, extents).unwrap()
}

/// x + 1.
pub fn add_one() -> Arc<Expr> {
    Expr::build(|e| e.output(e.input(DType::F32) + e.f32(1.0))).unwrap().into()
}

/// A tensor of f32 in an external buffer of its own.
pub fn tensor(b: &mut GraphBuilder, name: &str, extents: &[u64]) -> View {
    let buffer = b.external_buffer(name, 4 * extents.iter().product::<u64>() as usize);
    View::contiguous(buffer, DType::F32, extents).unwrap()
}

/// A reduction of `extents` with as much work before and after it as there can be: several inputs and outputs, scalars and
/// positions.
pub fn fused_reduction(op: ReduceOp, extents: &[u64], axis: usize) -> ComputeGraph {
    let mut b = GraphBuilder::new();
    let rank = extents.len() as u8;
    let before = Expr::build(|e| {
        let (x, y, by) = (e.input(DType::F32), e.input(DType::F32), e.param(DType::F32));
        let place = (0..rank).fold(e.constant(0u32), |sum, a| sum + e.index(a));
        let shifted = x * by + y + place.cast(DType::F32) * e.f32(0.01);
        e.output(shifted.tanh());
        e.output_as(shifted, DType::F16);
    });
    let result = if op == ReduceOp::ArgMax { DType::I32 } else { DType::F32 };
    let after = Expr::build(|e| {
        let (sum, bias, by) = (e.input(result), e.input(DType::F32), e.param(DType::F32));
        let value = sum.cast(DType::F32) * by + bias + e.index(0).cast(DType::F32);
        e.output(value);
        e.output(value.exp());
    });
    let library = LibraryKernel::Reduce { op, axis: axis as u8 };
    let fused = FusedKernel { library, before: before.ok(), after: after.ok() };
    let mut rest = extents.to_vec();
    rest.remove(axis);
    let x = tensor(&mut b, "x", extents);
    let y = tensor(&mut b, "y", &extents[extents.len() - 1..]);
    let y = y.broadcast_to(x.shape()).unwrap();
    let bias = tensor(&mut b, "bias", &rest);
    let half = b.external_buffer("half", 2 * x.elements() as usize);
    let half = View::contiguous(half, DType::F16, extents).unwrap();
    let (out, exp) = (tensor(&mut b, "out", &rest), tensor(&mut b, "exp", &rest));
    let scalars = [1.25f32, 0.5].map(|v| phonograph_graph::Arg::Scalar(v.into()));
    b.add_fused("fused", fused.into(), &[x, y, bias, half, out, exp], &scalars);
    b.build().unwrap()
}

/// A matrix product and what is done to it, in one node or in two.
pub fn product_with_bias(extents: [u64; 4], in_one: bool) -> ComputeGraph {
    let [batch, m, k, n] = extents;
    let shape = |rows: u64, columns: u64| match batch {
        0 => vec![rows, columns],
        _ => vec![batch, rows, columns],
    };
    let mut b = GraphBuilder::new();
    let (x, y) = (tensor(&mut b, "x", &shape(m, k)), tensor(&mut b, "y", &shape(k, n)));
    let (bias, out) = (tensor(&mut b, "bias", &[n]), tensor(&mut b, "out", &shape(m, n)));
    let product = tensor(&mut b, "product", &shape(m, n));
    let bias = bias.broadcast_to(out.shape()).unwrap();
    let after = Expr::build(|e| {
        let (sum, bias) = (e.input(DType::F32), e.input(DType::F32));
        let (row, by) = (e.index(out.shape().rank() as u8 - 2), e.param(DType::F32));
        e.output((sum + bias + row.cast(DType::F32) * by).tanh());
    });
    let after = after.unwrap();
    let by = [phonograph_graph::Arg::Scalar(0.125f32.into())];
    if in_one {
        let fused =
            FusedKernel { library: LibraryKernel::MatMul, before: None, after: Some(after) };
        b.add_fused("fused", fused.into(), &[x, y, bias, out], &by);
    } else {
        b.add_library("product", LibraryKernel::MatMul, &[x, y, product]);
        b.add_elementwise("after", after.into(), &[product, bias], &by, &[out]);
    }
    b.build().unwrap()
}

/// An expression over many dense elements of mixed types, which lie `skip` elements into their buffers, and one that is
/// repeated; with the types of the buffers.
pub fn packs(elements: u64, skip: u64) -> (Case, Vec<(BufferId, DType)>) {
    let mut b = GraphBuilder::new();
    let mut types = Vec::new();
    let mut view = |name: &str, dtype: DType| {
        let bytes = ((elements + skip) * dtype.size()) as usize;
        let whole = b.external_buffer(name, bytes);
        types.push((whole, dtype));
        let whole = View::contiguous(whole, dtype, &[elements + skip]).unwrap();
        whole.slice(0, skip, elements).unwrap()
    };
    let (x, half) = (view("x", DType::F32), view("half", DType::F16));
    let (y, z) = (view("y", DType::F32), view("z", DType::F16));
    let one = tensor(&mut b, "one", &[1]);
    types.push((one.buffer, DType::F32));
    let expr = Expr::build(|e| {
        let (x, half, one) = (e.input(DType::F32), e.input(DType::F16), e.input(DType::F32));
        let sum = x * e.f32(3.0) + half + one;
        e.output(sum);
        e.output_as(sum * half, DType::F16);
    });
    let one = one.broadcast_to(x.shape()).unwrap();
    b.add_elementwise("mixed", expr.unwrap().into(), &[x, half, one], &[], &[y, z]);
    let mut case = Case::new(b.build().unwrap());
    case.replays = 1;
    let count = (elements + skip) as usize;
    let halves = (0..count).flat_map(|i| (0x3c00 + i as u16 % 64).to_le_bytes()).collect();
    case.contents.push((half.buffer, halves));
    (case, types)
}
