//! Elementwise kernels with typed signatures.

use std::sync::Arc;

use crate::context::ExecutionContext;
use crate::graph::{Expr, ExprError};
use crate::op::{DeviceOp, GraphNode};
use crate::slot::ScalarArg;
use crate::tensor::Window;
use crate::{Error, Result};

/// A call of a kernel that [`kernel!`](macro@crate::kernel) has declared.
#[doc(hidden)]
#[must_use = "operations do nothing until they are executed"]
pub struct KernelCall<I, O, const R: usize, const W: usize, const S: usize> {
    pub name: &'static str,
    pub expr: std::result::Result<Expr, ExprError>,
    /// What the expression reads, in its order.
    pub reads: [Window; R],
    /// What it writes, in its order.
    pub writes: [Window; W],
    pub scalars: [ScalarArg; S],
    /// Keeps what is read borrowed.
    pub inputs: I,
    /// What is given back.
    pub outputs: O,
}

crate::awaitable!([I: Send, O: Send, const R: usize, const W: usize, const S: usize] KernelCall<I, O, R, W, S>);

impl<I: Send, O: Send, const R: usize, const W: usize, const S: usize> DeviceOp
    for KernelCall<I, O, R, W, S>
{
    type Output = O;

    unsafe fn execute(self, cx: &ExecutionContext<'_>) -> Result<O> {
        let expr = Arc::new(self.expr?);
        let shape = self.writes.first().map(|window| window.view().shape());
        let other = self.writes.iter().find(|window| Some(window.view().shape()) != shape);
        if let (Some(other), Some(shape)) = (other, shape) {
            let problem = format!(
                "writes tensors of {shape:?} and {:?}; a kernel writes tensors of one shape, so make it two",
                other.view().shape()
            );
            return Err(Error::operand(self.name, problem));
        }
        cx.record(|recorder| {
            let reads = self.reads.each_ref().map(|window| recorder.view(window));
            let writes = self.writes.each_ref().map(|window| recorder.view(window));
            let scalars = self.scalars.each_ref().map(|scalar| recorder.scalar(scalar));
            recorder.ops().map_into(self.name, expr, &reads, &scalars, &writes)?;
            Ok(())
        })?;
        Ok(self.outputs)
    }
}

// SAFETY: it records one kernel.
unsafe impl<I: Send, O: Send, const R: usize, const W: usize, const S: usize> GraphNode
    for KernelCall<I, O, R, W, S>
{
}

/// Declares an elementwise kernel as a function that gives an operation.
///
/// Parameters are tensors, by type of their elements: `&[f32]` is read (and broadcast to what is written), `&mut [f32]` is read
/// and written, `out [f32]` is written; and scalars: `f32` is baked into a graph, `slot f32` takes a [`Slot`](crate::Slot), or
/// a value. Arguments are tensors, views, or references to them, as [`Operand`](crate::Operand) says. The operation gives
/// back what it writes: one operand by itself, several as a tuple.
///
/// The body assigns to every tensor that is written, with numbers and the operators of [`Value`](crate::graph::Value); the name between
/// the bars is the [`ExprBuilder`](crate::graph::ExprBuilder), for positions and random numbers.
///
/// ```
/// use phonograph::prelude::*;
///
/// kernel! {
///     /// Sum and scaled difference.
///     pub fn butterfly(scale: f32, a: &mut [f32], b: &mut [f32]) |_e| {
///         a = a + b;
///         b = scale * (a - b); // `a` is what it was: all is read before anything is written
///     }
/// }
///
/// let device = Device::cpu(1)?;
/// let _entered = device.enter();
/// let ones = zip!(api::full([2], 5.0f32), api::full([2], 3.0f32));
/// let (a, b) = ones.then(|(a, b)| butterfly(0.5, a, b)).sync()?;
/// assert_eq!((a.to_vec()?, b.to_vec()?), (vec![8.0; 2], vec![1.0; 2]));
/// # Ok::<(), Error>(())
/// ```
///
/// What is written is borrowed alone:
///
/// ```compile_fail,E0502
/// # use phonograph::prelude::*;
/// # kernel! { fn add(x: &[f32], y: &mut [f32]) |_e| { y = x + y; } }
/// # fn main() -> Result<()> {
/// let device = Device::cpu(1)?;
/// let mut x = api::ones::<f32>([2]).sync_on(&device.stream(0))?;
/// let race = add(&x, &mut x);
/// # Ok(()) }
/// ```
#[macro_export]
macro_rules! kernel {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident ( $($params:tt)* ) | $e:ident | { $($out:ident = $value:expr);+ $(;)? })+) => {$(
        $crate::__kernel!(@parse [$(#[$meta])* $vis fn $name |$e| $($out = $value;)+]
            [] [] [] [] [] [] $($params)*);
    )+};
}

/// Whether a kernel's body assigns to each tensor that it writes, once.
#[doc(hidden)]
pub const fn assigns(assigned: &[&str], written: &[&str]) -> bool {
    if assigned.len() != written.len() {
        return false;
    }
    let mut at = 0;
    while at < written.len() {
        let (mut found, mut other) = (0, 0);
        while other < assigned.len() {
            found += same(written[at].as_bytes(), assigned[other].as_bytes()) as usize;
            other += 1;
        }
        if found != 1 {
            return false;
        }
        at += 1;
    }
    true
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Sorts the parameters of a kernel: type parameters, parameters, what the expression reads, what is only read, scalars, and
/// what is written.
#[doc(hidden)]
#[macro_export]
macro_rules! __kernel {
    // &mut [T]: read and written
    (@parse $head:tt [$($g:tt)*] [$($p:tt)*] [$($in:tt)*] [$($ro:tt)*] [$($s:tt)*] [$($w:tt)*]
        $x:ident : & mut [$t:ty] $(, $($rest:tt)*)?) => {
        $crate::__kernel!(@parse $head
            [$($g)* $x: $crate::OperandMut<Element = $t>,] [$($p)* $x: $x,]
            [$($in)* ($x $t)] [$($ro)*] [$($s)*] [$($w)* ($x $t)] $($($rest)*)?);
    };
    // &[T]: read
    (@parse $head:tt [$($g:tt)*] [$($p:tt)*] [$($in:tt)*] [$($ro:tt)*] [$($s:tt)*] [$($w:tt)*]
        $x:ident : & [$t:ty] $(, $($rest:tt)*)?) => {
        $crate::__kernel!(@parse $head
            [$($g)* $x: $crate::Operand<Element = $t>,] [$($p)* $x: $x,]
            [$($in)* ($x $t)] [$($ro)* $x,] [$($s)*] [$($w)*] $($($rest)*)?);
    };
    // out [T]: written
    (@parse $head:tt [$($g:tt)*] [$($p:tt)*] [$($in:tt)*] [$($ro:tt)*] [$($s:tt)*] [$($w:tt)*]
        $x:ident : out [$t:ty] $(, $($rest:tt)*)?) => {
        $crate::__kernel!(@parse $head
            [$($g)* $x: $crate::OperandMut<Element = $t>,] [$($p)* $x: $x,]
            [$($in)*] [$($ro)*] [$($s)*] [$($w)* ($x $t)] $($($rest)*)?);
    };
    // slot T: set by launches
    (@parse $head:tt [$($g:tt)*] [$($p:tt)*] [$($in:tt)*] [$($ro:tt)*] [$($s:tt)*] [$($w:tt)*]
        $x:ident : slot $t:ty $(, $($rest:tt)*)?) => {
        $crate::__kernel!(@parse $head
            [$($g)* $x: $crate::IntoSlot<$t>,] [$($p)* $x: $x,]
            [$($in)*] [$($ro)*] [$($s)* ($x $t [$crate::IntoSlot::into_arg($x)])] [$($w)*]
            $($($rest)*)?);
    };
    // T: baked
    (@parse $head:tt [$($g:tt)*] [$($p:tt)*] [$($in:tt)*] [$($ro:tt)*] [$($s:tt)*] [$($w:tt)*]
        $x:ident : $t:ty $(, $($rest:tt)*)?) => {
        $crate::__kernel!(@parse $head
            [$($g)*] [$($p)* $x: $t,]
            [$($in)*] [$($ro)*] [$($s)* ($x $t [$crate::ScalarArg::baked($x)])] [$($w)*]
            $($($rest)*)?);
    };
    (@parse [$(#[$meta:meta])* $vis:vis fn $name:ident |$e:ident| $($out:ident = $value:expr;)+]
        [$($g:tt)*] [$($p:tt)*] [$(($in:ident $int:ty))*] [$($ro:tt)*]
        [$(($s:ident $st:ty [$arg:expr]))*] [$(($w:ident $wt:ty))*]) => {
        $(#[$meta])*
        // Type parameters are named after what they are of; the output of one is written as if of several; and
        // `GraphNode<Output = ..>` alone would be ambiguous, for futures have an output too.
        #[allow(
            non_camel_case_types,
            unused_parens,
            clippy::implied_bounds_in_impls,
            clippy::too_many_arguments
        )]
        $vis fn $name<$($g)*>($($p)*)
            -> impl $crate::GraphNode + $crate::DeviceOp<Output = ($(<$w as $crate::Operand>::Back),*)>
        {
            const _: () = assert!(
                $crate::kernel::assigns(&[$(stringify!($out)),+], &[$(stringify!($w)),*]),
                "a kernel assigns to each tensor that it writes, once"
            );
            let expr = $crate::graph::Expr::build(|$e| {
                $(let $in = $e.input(<$int as $crate::Element>::DTYPE);)*
                $(let $s = $e.param(<$st as $crate::Element>::DTYPE);)*
                let values = [$((stringify!($out), $value)),+];
                for (name, dtype) in [$((stringify!($w), <$wt as $crate::Element>::DTYPE)),*] {
                    for (_, value) in values.into_iter().filter(|(of, _)| *of == name) {
                        $e.output_as(value, dtype);
                    }
                }
            });
            $crate::kernel::KernelCall {
                name: stringify!($name),
                expr,
                reads: [$($crate::Operand::window(&$in)),*],
                writes: [$($crate::Operand::window(&$w)),*],
                scalars: [$($arg),*],
                inputs: ($($ro)*),
                outputs: ($($crate::Operand::back($w)),*),
            }
        }
    };
}
