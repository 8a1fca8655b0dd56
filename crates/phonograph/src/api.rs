//! Operations that every program needs: tensors made, filled, copied, multiplied.
//!
//! Nothing runs, and nothing is refused, before an operation is executed; each costs its elements once, a product of matrices
//! `m k n`.
//!
//! ```
//! use phonograph::prelude::*;
//!
//! let device = Device::cpu(1)?;
//! let _entered = device.enter();
//! let mut a = api::upload([1.0f32, 2.0, 3.0, 4.0], [2, 2]).sync()?;
//! let b = api::full([2, 2], 0.5f32).sync()?;
//! let c = api::matmul(&a, &b, api::zeros([2, 2]).sync()?).sync()?;
//! assert_eq!(c.to_vec()?, [1.5, 1.5, 3.5, 3.5]);
//! api::memcpy(&c, &mut a).sync()?;
//! api::store([9.0], a.view_mut().slice(0, 0..1)?.slice(1, 1..2)?).sync()?;
//! assert_eq!(api::dup(&a).sync()?.to_vec()?, [1.5, 9.0, 3.5, 3.5]);
//! let wrong = api::memcpy(&c, &mut api::zeros([4]).sync()?).sync().unwrap_err();
//! assert_eq!(wrong.to_string(), "memcpy: copies [2, 2] to [4]");
//! # Ok::<(), Error>(())
//! ```

use std::borrow::Cow;

use crate::context::ExecutionContext;
use crate::graph::{Arg, LibraryKernel, Scalar};
use crate::kernels::expr;
use crate::op::{DeviceOp, GraphNode};
use crate::operand::{Operand, OperandMut};
use crate::tensor::{Tensor, Window};
use crate::{Element, Error, Result};

/// A number: an element that can be baked into a graph.
pub trait Number: Element + Into<Scalar> {
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
}

macro_rules! numbers {
    ($($number:ty: $zero:literal $one:literal),*) => {$(
        impl Number for $number {
            const ZERO: Self = $zero;
            const ONE: Self = $one;
        }
    )*};
}
numbers!(f32: 0.0 1.0, f64: 0.0 1.0, i32: 0 1, i64: 0 1, u32: 0 1, u8: 0 1);

type Name = Cow<'static, str>;

macro_rules! named {
    ([$($generics:tt)*] $made:ty) => {
        impl<$($generics)*> $made {
            /// Names the tensor, as graphs, their files and their pictures then call it; of several with one name in a graph, all
            /// but the first get a number.
            pub fn named(mut self, name: impl Into<Cow<'static, str>>) -> Self {
                self.name = name.into();
                self
            }
        }
    };
}
named!([T] Full<T>);
named!([S] Dup<S>);
named!([T] Upload<T>);

/// A tensor that is made when the operation is executed; see [`full`].
#[must_use = "operations do nothing until they are executed"]
pub struct Full<T> {
    extents: Vec<u64>,
    value: T,
    name: Name,
}

/// A new tensor of zeros.
pub fn zeros<T: Number>(extents: impl AsRef<[u64]>) -> Full<T> {
    full(extents, T::ZERO)
}

/// A new tensor of ones.
pub fn ones<T: Number>(extents: impl AsRef<[u64]>) -> Full<T> {
    full(extents, T::ONE)
}

/// A new tensor of one value. In a captured graph the tensor is made once, and filled anew by every launch. Its execution refuses
/// extents that are no shape: more than six, or too many elements.
pub fn full<T: Number>(extents: impl AsRef<[u64]>, value: T) -> Full<T> {
    Full { extents: extents.as_ref().to_vec(), value, name: "full".into() }
}

crate::awaitable!([T: Number] Full<T>);

impl<T: Number> DeviceOp for Full<T> {
    type Output = Tensor<T>;

    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<Tensor<T>> {
        let tensor = cx.alloc::<T>(&self.name, &self.extents)?;
        cx.record(|recorder| {
            let view = recorder.view(&Operand::window(&tensor));
            // The value is an argument: as a constant it would make a kernel of its own, to be compiled.
            let (dtype, value) = (view.dtype, Arg::Scalar(self.value.into()));
            recorder.ops().map_into("fill", expr::scalar(dtype), &[], &[value], &[view])?;
            Ok(())
        })?;
        Ok(tensor)
    }
}

/// See [`dup`].
#[must_use = "operations do nothing until they are executed"]
pub struct Dup<S> {
    of: S,
    name: Name,
}

/// A new tensor with the contents of another, dense.
pub fn dup<S: Operand>(of: S) -> Dup<S> {
    Dup { of, name: "dup".into() }
}

crate::awaitable!([S: Operand] Dup<S>);

impl<S: Operand> DeviceOp for Dup<S> {
    type Output = Tensor<S::Element>;

    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<Tensor<S::Element>> {
        let shape = self.of.window().view().shape();
        let tensor = cx.alloc::<S::Element>(&self.name, shape.extents())?;
        copy(cx, "dup", &self.of.window(), &Operand::window(&tensor))?;
        Ok(tensor)
    }
}

/// See [`memcpy`].
#[must_use = "operations do nothing until they are executed"]
pub struct Memcpy<S, D> {
    from: S,
    to: D,
}

/// Copies the contents of a tensor, or a part, to another of the same shape and type. Its execution refuses
/// ([`Error::Operand`]) one of another shape.
pub fn memcpy<S, D>(from: S, to: D) -> Memcpy<S, D>
where
    S: Operand,
    D: OperandMut<Element = S::Element>,
{
    Memcpy { from, to }
}

crate::awaitable!([S: Operand, D: OperandMut<Element = S::Element>] Memcpy<S, D>);

impl<S: Operand, D: OperandMut<Element = S::Element>> DeviceOp for Memcpy<S, D> {
    type Output = ();

    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<()> {
        let (from, to) = (self.from.window(), self.to.window());
        let (of, into) = (from.view().shape(), to.view().shape());
        if of != into {
            return Err(Error::operand("memcpy", format!("copies {of:?} to {into:?}")));
        }
        copy(cx, "memcpy", &from, &to)
    }
}

// SAFETY: it records one copy.
unsafe impl<S: Operand, D: OperandMut<Element = S::Element>> GraphNode for Memcpy<S, D> {}

/// A copy of bytes where both are dense, else of elements.
fn copy(cx: &ExecutionContext<'_>, name: &str, from: &Window, to: &Window) -> Result<()> {
    cx.record(|recorder| {
        let (src, dst) = (recorder.view(from), recorder.view(to));
        if src.is_contiguous() && dst.is_contiguous() {
            recorder.builder().add_region_copy(name, src.region(), dst.region());
        } else {
            recorder.ops().map_into(name, expr::identity(src.dtype), &[src], &[], &[dst])?;
        }
        Ok(())
    })
}

/// See [`upload`].
#[must_use = "operations do nothing until they are executed"]
pub struct Upload<T> {
    data: Vec<T>,
    extents: Vec<u64>,
    name: Name,
}

/// A new tensor with these contents. A captured graph owns them and writes them anew on every launch. Its execution refuses
/// ([`Error::Operand`]) more or fewer elements than the extents have.
pub fn upload<T: Element>(data: impl Into<Vec<T>>, extents: impl AsRef<[u64]>) -> Upload<T> {
    let extents = extents.as_ref().to_vec();
    Upload { data: data.into(), extents, name: "upload".into() }
}

crate::awaitable!([T: Element] Upload<T>);

impl<T: Element> DeviceOp for Upload<T> {
    type Output = Tensor<T>;

    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<Tensor<T>> {
        let tensor = cx.alloc::<T>(&self.name, &self.extents)?;
        write(cx, "upload", self.data, &Operand::window(&tensor))?;
        Ok(tensor)
    }
}

/// See [`store`].
#[must_use = "operations do nothing until they are executed"]
pub struct Store<T, D> {
    data: Vec<T>,
    to: D,
}

/// Writes contents of the host's to a tensor, or a dense part. A captured graph owns them, and writes the same on every
/// launch; what changes between launches is for [`update`](crate::CapturedGraph::update). Its execution refuses
/// ([`Error::Operand`]) another number of elements than the tensor has, and a part whose elements are not dense.
pub fn store<T, D>(data: impl Into<Vec<T>>, to: D) -> Store<T, D>
where
    T: Element,
    D: OperandMut<Element = T>,
{
    Store { data: data.into(), to }
}

crate::awaitable!([T: Element, D: OperandMut<Element = T>] Store<T, D>);

impl<T: Element, D: OperandMut<Element = T>> DeviceOp for Store<T, D> {
    type Output = ();

    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<()> {
        write(cx, "store", self.data, &self.to.window())
    }
}

// SAFETY: it records one copy, from memory of the host that has its contents before the graph exists and that the graph keeps.
unsafe impl<T: Element, D: OperandMut<Element = T>> GraphNode for Store<T, D> {}

/// Writes elements to a dense window: at once to a whole tensor, else by a copy from memory of the host.
fn write<T: Element>(
    cx: &ExecutionContext<'_>,
    name: &str,
    data: Vec<T>,
    to: &Window,
) -> Result<()> {
    let (given, takes) = (data.len() as u64, to.view().elements());
    if given != takes {
        return Err(Error::operand(name, format!("{given} elements for a tensor of {takes}")));
    }
    if !to.view().is_contiguous() {
        return Err(Error::operand(name, "the elements are not dense"));
    }
    if !cx.is_recording() && to.view().region().bytes == to.buffer().bytes() {
        return cx.run().write(to.buffer(), T::bytes(&data));
    }
    copy(cx, name, &cx.staged(name, &data)?, to)
}

/// See [`matmul`].
#[must_use = "operations do nothing until they are executed"]
pub struct MatMul<A, B, C> {
    a: A,
    b: B,
    c: C,
}

/// c = a b, matrices `[m, k]`, `[k, n]` and `[m, n]` of f32 or f64, or batches of them; gives `c` back. Its execution refuses
/// ([`Error::Operand`]) shapes and types that cannot be multiplied so.
pub fn matmul<A, B, C>(a: A, b: B, c: C) -> MatMul<A, B, C>
where
    A: Operand,
    B: Operand<Element = A::Element>,
    C: OperandMut<Element = A::Element>,
{
    MatMul { a, b, c }
}

crate::awaitable!([A: Operand, B: Operand<Element = A::Element>, C: OperandMut<Element = A::Element>] MatMul<A, B, C>);

impl<A, B, C> DeviceOp for MatMul<A, B, C>
where
    A: Operand,
    B: Operand<Element = A::Element>,
    C: OperandMut<Element = A::Element>,
{
    type Output = C::Back;

    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<C::Back> {
        let kernel = LibraryKernel::MatMul;
        cx.record(|recorder| {
            let operands = [self.a.window(), self.b.window(), self.c.window()];
            let views = operands.map(|window| recorder.view(&window));
            let checked: Vec<_> =
                views.iter().copied().zip(kernel.accesses().iter().copied()).collect();
            kernel.check(&checked).map_err(|e| Error::operand("matmul", e.to_string()))?;
            recorder.builder().add_library("matmul", kernel, &views);
            Ok(())
        })?;
        Ok(self.c.back())
    }
}

// SAFETY: it records one kernel.
unsafe impl<A, B, C> GraphNode for MatMul<A, B, C>
where
    A: Operand,
    B: Operand<Element = A::Element>,
    C: OperandMut<Element = A::Element>,
{
}
