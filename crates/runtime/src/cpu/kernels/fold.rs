//! The loops of reductions: a segment of an axis for one output or for some neighbouring ones.
//!
//! The tree is described in [`reduce`](super::reduce).

use phonograph_graph::{DType, ReduceOp};

use super::simd::Level;

/// Elements that are combined lane by lane.
const CHUNK: usize = 1024;
/// Chunks in a segment.
const CHUNKS: usize = 16;
/// Elements of a segment, which one call reduces.
pub(super) const SEGMENT: usize = CHUNK * CHUNKS;
const LANES: usize = 32;
/// The most neighbouring outputs that one call reduces.
pub(super) const COLUMNS: usize = 32;

/// Computes elements of a row when they are wanted.
pub(super) type Source<'a> = dyn Fn(usize, usize) -> *const u8 + 'a;

/// Some neighbouring outputs and a segment of the axis to reduce for each.
pub(super) struct Job<'a> {
    /// The first element, of the first output.
    pub src: *const u8,
    /// Gives the elements of each chunk of the row instead of `src`: `(start within the segment, elements)`, side by side.
    pub source: Option<&'a Source<'a>>,
    /// Elements from one to the next along the axis.
    pub along: usize,
    /// Elements from one output's to the next one's.
    pub across: usize,
    /// Elements along the axis, at most [`SEGMENT`].
    pub len: usize,
    /// Position of the first of them.
    pub first: usize,
    /// How many outputs, at most [`COLUMNS`].
    pub columns: usize,
    /// Where the result of the first output goes.
    pub dst: *mut u8,
    /// Results from one output's to the next one's.
    pub dst_stride: usize,
}

/// The loops for one operation and type.
#[derive(Clone, Copy)]
pub(super) struct FoldFns {
    /// Reduces one output; writes the result.
    pub row: unsafe fn(&Job<'_>),
    /// Reduces one output; writes a partial result.
    pub row_partial: unsafe fn(&Job<'_>),
    /// Reduces some outputs; writes the results.
    pub columns: unsafe fn(&Job<'_>),
    /// Reduces some outputs; writes partial results.
    pub columns_partial: unsafe fn(&Job<'_>),
    /// Combines the `len` dense partial results at `src`; writes the result.
    pub combine: unsafe fn(&Job<'_>),
    /// Bytes of a partial result.
    pub partial_bytes: usize,
}

trait Fold {
    type In: Copy;
    type Acc: Copy;
    type Out: Copy;
    const IDENTITY: Self::Acc;
    fn lift(value: Self::In, position: usize) -> Self::Acc;
    fn merge(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    fn result(acc: Self::Acc) -> Self::Out;
}

struct Sum<T>(std::marker::PhantomData<T>);
struct Max<T>(std::marker::PhantomData<T>);
struct ArgMax<T>(std::marker::PhantomData<T>);

/// The largest so far and the first place where it is.
#[derive(Clone, Copy)]
#[repr(C)]
struct Best<T> {
    value: T,
    position: i32,
}

macro_rules! folds {
    ($($t:ty: zero $zero:expr, lowest $lowest:expr, |$a:ident, $b:ident| add $add:expr, above $above:expr;)*) => {$(
        impl Fold for Sum<$t> {
            type In = $t;
            type Acc = $t;
            type Out = $t;
            const IDENTITY: $t = $zero;
            #[inline(always)]
            fn lift(value: $t, _: usize) -> $t {
                value
            }
            #[inline(always)]
            fn merge($a: $t, $b: $t) -> $t {
                $add
            }
            #[inline(always)]
            fn result(acc: $t) -> $t {
                acc
            }
        }
        impl Fold for Max<$t> {
            type In = $t;
            type Acc = $t;
            type Out = $t;
            const IDENTITY: $t = $lowest;
            #[inline(always)]
            fn lift(value: $t, _: usize) -> $t {
                value
            }
            #[inline(always)]
            fn merge($a: $t, $b: $t) -> $t {
                if $above { $a } else { $b }
            }
            #[inline(always)]
            fn result(acc: $t) -> $t {
                acc
            }
        }
        impl Fold for ArgMax<$t> {
            type In = $t;
            type Acc = Best<$t>;
            type Out = i32;
            const IDENTITY: Best<$t> = Best { value: $lowest, position: i32::MAX };
            #[inline(always)]
            fn lift(value: $t, position: usize) -> Best<$t> {
                Best { value, position: position as i32 }
            }
            #[inline(always)]
            fn merge(x: Best<$t>, y: Best<$t>) -> Best<$t> {
                let above = |$a: $t, $b: $t| $above;
                // Neither is above the other where they are equal, and where both are NaN.
                let (first, second) = (above(x.value, y.value), above(y.value, x.value));
                if first == second {
                    if x.position < y.position { x } else { y }
                } else if first { x } else { y }
            }
            #[inline(always)]
            fn result(acc: Best<$t>) -> i32 {
                acc.position
            }
        }
    )*};
}
// NaN is below every number, so that it is ignored unless there is nothing else.
folds! {
    f32: zero 0.0, lowest f32::NAN, |a, b| add a + b, above a > b || (b.is_nan() && !a.is_nan());
    f64: zero 0.0, lowest f64::NAN, |a, b| add a + b, above a > b || (b.is_nan() && !a.is_nan());
    i32: zero 0, lowest i32::MIN, |a, b| add a.wrapping_add(b), above a > b;
    i64: zero 0, lowest i64::MIN, |a, b| add a.wrapping_add(b), above a > b;
    u32: zero 0, lowest 0, |a, b| add a.wrapping_add(b), above a > b;
}

/// Combines results that come in order, in the tree T(n) = T(p) + T(n − p), p the largest power of two below n.
///
/// Works like a binary counter: place k holds the result of 2^k neighbours.
struct Tree<A, const PLACES: usize> {
    places: [A; PLACES],
    count: usize,
}

impl<A: Copy, const PLACES: usize> Tree<A, PLACES> {
    #[inline(always)]
    fn new(identity: A) -> Self {
        Self { places: [identity; PLACES], count: 0 }
    }

    #[inline(always)]
    fn push(&mut self, mut value: A, merge: impl Fn(A, A) -> A) {
        let carries = self.count.trailing_ones() as usize;
        for place in 0..carries {
            value = merge(self.places[place], value);
        }
        self.places[carries] = value;
        self.count += 1;
    }

    #[inline(always)]
    fn total(&self, identity: A, merge: impl Fn(A, A) -> A) -> A {
        let mut held = (0..PLACES).filter(|place| self.count >> place & 1 == 1);
        let Some(first) = held.next() else { return identity };
        held.fold(self.places[first], |total, place| merge(self.places[place], total))
    }
}

#[inline(always)]
fn combine_lanes<A: Copy>(lanes: &mut [A; LANES], merge: impl Fn(A, A) -> A) -> A {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] = merge(lanes[i], lanes[i + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// # Safety
/// The job's memory is valid and aligned for `F`; `dst` overlaps nothing that is read.
#[inline(always)]
unsafe fn row<F: Fold>(job: &Job<'_>) -> F::Acc {
    let src = job.src.cast::<F::In>();
    let mut tree = Tree::<F::Acc, 5>::new(F::IDENTITY);
    for start in (0..job.len).step_by(CHUNK) {
        let n = CHUNK.min(job.len - start);
        let mut lanes = [F::IDENTITY; LANES];
        let from = match job.source {
            Some(source) => source(start, n).cast::<F::In>(),
            None => src.wrapping_add(start * job.along),
        };
        if job.along == 1 {
            // SAFETY: the caller's promise, at stride 1.
            let chunk = unsafe { std::slice::from_raw_parts(from, n) };
            let groups = chunk.chunks_exact(LANES);
            let rest = groups.remainder();
            let mut position = job.first + start;
            for group in groups {
                for (lane, &value) in lanes.iter_mut().zip(group) {
                    *lane = F::merge(*lane, F::lift(value, position));
                    position += 1;
                }
            }
            for (lane, &value) in lanes.iter_mut().zip(rest) {
                *lane = F::merge(*lane, F::lift(value, position));
                position += 1;
            }
        } else {
            for i in 0..n {
                // SAFETY: the caller's promise covers every element of the segment.
                let value = unsafe { *from.add(i * job.along) };
                let lane = &mut lanes[i % LANES];
                *lane = F::merge(*lane, F::lift(value, job.first + start + i));
            }
        }
        tree.push(combine_lanes(&mut lanes, F::merge), F::merge);
    }
    tree.total(F::IDENTITY, F::merge)
}

/// As [`row`], for some outputs: `emit(column, accumulator)`.
///
/// # Safety
/// As for [`row`].
#[inline(always)]
unsafe fn columns<F: Fold>(job: &Job, mut emit: impl FnMut(usize, F::Acc)) {
    let src = job.src.cast::<F::In>();
    let mut trees: [Tree<F::Acc, 5>; COLUMNS] =
        std::array::from_fn(|_| Tree::<F::Acc, 5>::new(F::IDENTITY));
    for start in (0..job.len).step_by(CHUNK) {
        let n = CHUNK.min(job.len - start);
        let mut lanes = [[F::IDENTITY; COLUMNS]; LANES];
        for i in start..start + n {
            let lane = &mut lanes[(i - start) % LANES][..job.columns];
            let position = job.first + i;
            // SAFETY: the caller's promise covers every element of the segment, for each output.
            let from = unsafe { src.add(i * job.along) };
            if job.across == 1 {
                // SAFETY: likewise, at stride 1.
                let values = unsafe { std::slice::from_raw_parts(from, job.columns) };
                for (acc, &value) in lane.iter_mut().zip(values) {
                    *acc = F::merge(*acc, F::lift(value, position));
                }
            } else {
                for (column, acc) in lane.iter_mut().enumerate() {
                    // SAFETY: likewise.
                    let value = unsafe { *from.add(column * job.across) };
                    *acc = F::merge(*acc, F::lift(value, position));
                }
            }
        }
        let mut half = LANES / 2;
        while half > 0 {
            let (low, high) = lanes.split_at_mut(half);
            for (low, high) in low.iter_mut().zip(high) {
                for (a, &b) in low.iter_mut().zip(&*high) {
                    *a = F::merge(*a, b);
                }
            }
            half /= 2;
        }
        for (tree, &acc) in trees.iter_mut().zip(&lanes[0]).take(job.columns) {
            tree.push(acc, F::merge);
        }
    }
    for (column, tree) in trees.iter().enumerate().take(job.columns) {
        emit(column, tree.total(F::IDENTITY, F::merge));
    }
}

/// # Safety
/// `src` holds `len` partial results; `dst` is as for [`row`].
unsafe fn combine<F: Fold>(job: &Job<'_>) {
    let mut tree = Tree::<F::Acc, 48>::new(F::IDENTITY);
    for i in 0..job.len {
        // SAFETY: the caller's promise; partial results were written by the loops of the same `F`.
        tree.push(unsafe { *job.src.cast::<F::Acc>().add(i) }, F::merge);
    }
    // SAFETY: the caller's promise.
    unsafe { *job.dst.cast() = F::result(tree.total(F::IDENTITY, F::merge)) }
}

/// # Safety
/// As for [`row`].
#[inline(always)]
unsafe fn run<F: Fold, const ROW: bool, const PARTIAL: bool>(job: &Job<'_>) {
    let emit = |column: usize, acc: F::Acc| {
        let at = column * job.dst_stride;
        // SAFETY: the caller's promise: `dst` holds a result, partial or not, for each output.
        unsafe {
            if PARTIAL {
                *job.dst.cast::<F::Acc>().add(at) = acc;
            } else {
                *job.dst.cast::<F::Out>().add(at) = F::result(acc);
            }
        }
    };
    // SAFETY: the caller's promise.
    unsafe { if ROW { emit(0, row::<F>(job)) } else { columns::<F>(job, emit) } }
}

unsafe fn run_base<F: Fold, const ROW: bool, const PARTIAL: bool>(job: &Job<'_>) {
    // SAFETY: the caller's promise.
    unsafe { run::<F, ROW, PARTIAL>(job) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn run_avx2<F: Fold, const ROW: bool, const PARTIAL: bool>(job: &Job<'_>) {
    // SAFETY: the caller's promise; the level was detected.
    unsafe { run::<F, ROW, PARTIAL>(job) }
}

fn fns<F: Fold>(level: Level) -> FoldFns {
    let (combine, partial_bytes) = (combine::<F> as unsafe fn(&Job<'_>), size_of::<F::Acc>());
    match level {
        Level::Base => FoldFns {
            row: run_base::<F, true, false>,
            row_partial: run_base::<F, true, true>,
            columns: run_base::<F, false, false>,
            columns_partial: run_base::<F, false, true>,
            combine,
            partial_bytes,
        },
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => FoldFns {
            row: run_avx2::<F, true, false>,
            row_partial: run_avx2::<F, true, true>,
            columns: run_avx2::<F, false, false>,
            columns_partial: run_avx2::<F, false, true>,
            combine,
            partial_bytes,
        },
    }
}

/// The loops for `op` on `dtype`, one of the types that the graph lets be reduced.
pub(super) fn fold_fns(level: Level, op: ReduceOp, dtype: DType) -> FoldFns {
    macro_rules! of {
        ($Fold:ident) => {
            match dtype {
                DType::F32 => fns::<$Fold<f32>>(level),
                DType::F64 => fns::<$Fold<f64>>(level),
                DType::I32 => fns::<$Fold<i32>>(level),
                DType::I64 => fns::<$Fold<i64>>(level),
                DType::U32 => fns::<$Fold<u32>>(level),
                other => unreachable!("graphs have no reduction of {other}"),
            }
        };
    }
    match op {
        ReduceOp::Sum => of!(Sum),
        ReduceOp::Max => of!(Max),
        ReduceOp::ArgMax => of!(ArgMax),
    }
}
