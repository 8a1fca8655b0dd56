//! What the graphs compute in exact arithmetic, nearly: every element in f64 with a bound on how far a device may be from it.
//!
//! A running error analysis: what an operation makes of the errors of its operands, and its own. Operations of f32 are off by
//! ε = 2⁻²⁴ of their result; the f64 arithmetic here is exact beside that.

use phonograph::graph::{
    Arg, BufferId, BufferRole, ComputeGraph, KernelRef, LibraryKernel, NodeKind, ReduceOp, Target,
    View,
};

const EPSILON: f64 = 1.0 / (1 << 24) as f64;
/// Units of ε, of results up to 1: tanh itself with a quotient of 2.5 units of the last place, and the position added to it.
const TANH_AND_POSITION: f64 = 24.0 * EPSILON;

/// A value, and how far from it a device's may be.
#[derive(Clone, Copy, Default, Debug)]
pub struct Bounded {
    pub value: f64,
    pub error: f64,
}

impl Bounded {
    fn new(value: f64, error: f64) -> Self {
        // Past the range of f32 nothing is known.
        let overflows = value.abs() + error > f64::from(f32::MAX) || error.is_nan();
        Self { value, error: if overflows { f64::INFINITY } else { error } }
    }

    fn magnitude(self) -> f64 {
        self.value.abs() + self.error
    }
}

/// One replay. `buffers` has the elements of each buffer of the graph.
pub fn replay(graph: &ComputeGraph, buffers: &mut [Vec<Bounded>]) {
    for &id in graph.topological_order() {
        match &graph.node(id).kind {
            NodeKind::Kernel(kernel) => {
                let views: Vec<View> = kernel
                    .args
                    .iter()
                    .map(|arg| match arg {
                        Arg::View(view, _) => *view,
                        other => panic!("{other:?} is no tensor"),
                    })
                    .collect();
                let read = |at: usize| -> Vec<Bounded> {
                    let view = &views[at];
                    let elements = &buffers[view.buffer.index()];
                    places(view).into_iter().map(|place| elements[place]).collect()
                };
                let extent = |at: usize, axis: usize| views[at].shape().extents()[axis] as usize;
                let results = match &kernel.kernel {
                    KernelRef::Elementwise(_) => mix(&read(0), &read(1), extent(2, 1)),
                    KernelRef::Library(LibraryKernel::MatMul) => {
                        product(&read(0), &read(1), extent(0, 1))
                    }
                    KernelRef::Library(LibraryKernel::Reduce { op, axis }) => {
                        reduce(&read(0), *op, usize::from(*axis), extent(0, 1))
                    }
                    KernelRef::Named(_) => {
                        let half = |x: Bounded| Bounded::new(x.value * 0.5, x.error * 0.5);
                        read(0).into_iter().map(half).collect()
                    }
                    other => panic!("{} is not in the corpus", other.name()),
                };
                let to = views[views.len() - 1];
                for (place, result) in places(&to).into_iter().zip(results) {
                    buffers[to.buffer.index()][place] = result;
                }
            }
            NodeKind::Memcpy(copy) => {
                let element = |bytes: u64| bytes as usize / 4;
                let [from, to] = [copy.src, copy.dst].map(|end| match end.target {
                    Target::Buffer(buffer) => (buffer.index(), element(end.offset)),
                    other => panic!("{other:?} is no buffer"),
                });
                let count = element(copy.extent.width);
                let moved = buffers[from.0][from.1..from.1 + count].to_vec();
                buffers[to.0][to.1..to.1 + count].copy_from_slice(&moved);
            }
            NodeKind::Child(inner) => child(inner, buffers),
            other => panic!("{} is not in the corpus", other.name()),
        }
    }
}

fn child(inner: &ComputeGraph, around: &mut [Vec<Bounded>]) {
    let outer = |declared: &phonograph::graph::Buffer| match declared.role {
        BufferRole::Outer(BufferId(outer)) => Some(outer as usize),
        _ => None,
    };
    let mut buffers: Vec<Vec<Bounded>> = inner
        .buffers()
        .iter()
        .map(|declared| match outer(declared) {
            Some(at) => around[at].clone(),
            None => vec![Bounded::default(); declared.bytes as usize / 4],
        })
        .collect();
    // Two stand-ins of one buffer would be two copies here; the corpus names a buffer once for each use, so they share.
    let stand_ins: Vec<Option<usize>> = inner.buffers().iter().map(outer).collect();
    for &id in inner.topological_order() {
        let NodeKind::Kernel(kernel) = &inner.node(id).kind else { panic!("only kernels") };
        let [x, y, z] = [0, 1, 2].map(|at| match kernel.args[at] {
            Arg::View(view, _) => view,
            other => panic!("{other:?} is no tensor"),
        });
        let results = mix(
            &buffers[x.buffer.index()],
            &buffers[y.buffer.index()],
            z.shape().extents()[1] as usize,
        );
        let written = stand_ins[z.buffer.index()];
        for (buffer, stands_for) in buffers.iter_mut().zip(&stand_ins) {
            if written.is_some() && *stands_for == written {
                buffer.clone_from(&results);
            }
        }
        buffers[z.buffer.index()] = results;
    }
    for (buffer, stands_for) in buffers.into_iter().zip(stand_ins) {
        if let Some(at) = stands_for {
            around[at] = buffer;
        }
    }
}

/// tanh(x / 2 - y) plus a hundredth of the column. tanh brings nothing further apart.
fn mix(x: &[Bounded], y: &[Bounded], columns: usize) -> Vec<Bounded> {
    let element = |(at, (x, y)): (usize, (&Bounded, &Bounded))| {
        let t = x.value * 0.5 - y.value;
        let rounding = EPSILON * (0.5 * x.magnitude() + y.magnitude());
        let error = 0.5 * x.error + y.error + rounding;
        let place = f64::from((at % columns) as f32) * f64::from(0.01f32);
        // However wrong its argument, tanh is between -1 and 1.
        let error = if error.is_nan() { f64::INFINITY } else { error.min(2.0) };
        Bounded::new(t.tanh() + place, error + TANH_AND_POSITION)
    };
    x.iter().zip(y).enumerate().map(element).collect()
}

/// A chain of so many products and sums.
fn product(x: &[Bounded], y: &[Bounded], inner: usize) -> Vec<Bounded> {
    let (rows, columns) = (x.len() / inner, y.len() / inner);
    let element = |at: usize| {
        let (row, column) = (at / columns, at % columns);
        let terms = (0..inner).map(|k| (x[row * inner + k], y[k * columns + column]));
        let (value, error, size) = terms.fold((0.0, 0.0, 0.0), |(value, error, size), (a, b)| {
            let apart = a.error * b.magnitude() + b.error * a.value.abs();
            (value + a.value * b.value, error + apart, size + a.magnitude() * b.magnitude())
        });
        Bounded::new(value, error + (inner + 1) as f64 * EPSILON * size)
    };
    (0..rows * columns).map(element).collect()
}

fn reduce(x: &[Bounded], op: ReduceOp, axis: usize, columns: usize) -> Vec<Bounded> {
    let rows = x.len() / columns;
    let (count, length) = if axis == 0 { (columns, rows) } else { (rows, columns) };
    let element = |at: usize| {
        let all =
            (0..length).map(|k| if axis == 0 { x[k * columns + at] } else { x[at * columns + k] });
        match op {
            ReduceOp::Sum => {
                let (value, error, size) = all.fold((0.0, 0.0, 0.0), |(value, error, size), x| {
                    (value + x.value, error + x.error, size + x.magnitude())
                });
                Bounded::new(value, error + length as f64 * EPSILON * size)
            }
            ReduceOp::Max => {
                let most = |(value, error), x: Bounded| {
                    (f64::max(value, x.value), f64::max(error, x.error))
                };
                let (value, error) = all.fold((f64::NEG_INFINITY, 0.0), most);
                Bounded::new(value, error)
            }
            ReduceOp::ArgMax => panic!("argmax is not in the corpus"),
        }
    };
    (0..count).map(element).collect()
}

/// The elements of a view, last axis fastest, as places in its buffer.
fn places(view: &View) -> Vec<usize> {
    let (shape, strides) = (view.shape(), view.strides());
    let first = view.offset as usize / 4;
    shape.extents().iter().zip(strides).fold(vec![first], |places, (&extent, &stride)| {
        let along = |&place: &usize| (0..extent).map(move |k| place + (k * stride) as usize);
        places.iter().flat_map(along).collect()
    })
}
