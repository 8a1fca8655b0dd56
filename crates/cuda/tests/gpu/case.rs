//! Cases on CUDA.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::CUresult;
use phonograph_cuda::{Bindings, Cuda, Exec, Function};
use phonograph_graph::{
    BufferId, ComputeGraph, DType, Expr, FusedKernel, GraphBuilder, LibraryKernel, ReduceOp,
    Schedule, View,
};
use phonograph_kernels::cuda::Place;

pub use self::cuda as device;
pub use crate::shared_case::{Case, Machine, add_one, check, tensor, tensor_of, view};

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

impl Case {
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

impl Machine for Cuda {
    fn replayed(&mut self, case: &Case) -> Vec<Vec<u8>> {
        case.on_cuda(self, &Schedule::sequential(&case.graph))
    }

    fn takes_weak_edges(&self) -> bool {
        self.devices()[0].capability() >= (9, 0)
    }
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
