//! The operations of expressions as loops over blocks, one compiled for each operation and type.
//!
//! In: an operation and the type of its operands, as [`Expr`](phonograph_graph::Expr) has checked them. Out: the loop.

use std::marker::PhantomData;

use phonograph_graph::{BinaryOp, CompareOp, DType, UnaryOp};

use super::math::Math;
use super::simd::{BlockFn, BlockOp, Level};

trait Unary<A> {
    type Out: Copy;
    fn apply(a: A) -> Self::Out;
}

trait Binary<A> {
    type Out: Copy;
    fn apply(a: A, b: A) -> Self::Out;
}

struct Map1<A, F>(PhantomData<(A, F)>);
impl<A: Copy, F: Unary<A>> BlockOp for Map1<A, F> {
    #[inline(always)]
    unsafe fn block(dst: *mut u8, a: *const u8, _: *const u8, _: *const u8, n: usize) {
        // SAFETY: the caller's promise: both are valid for `n` elements of their types, and disjoint.
        let (dst, a) = unsafe {
            (
                std::slice::from_raw_parts_mut(dst.cast::<F::Out>(), n),
                std::slice::from_raw_parts(a.cast::<A>(), n),
            )
        };
        for (d, &a) in dst.iter_mut().zip(a) {
            *d = F::apply(a);
        }
    }
}

struct Map2<A, F>(PhantomData<(A, F)>);
impl<A: Copy, F: Binary<A>> BlockOp for Map2<A, F> {
    #[inline(always)]
    unsafe fn block(dst: *mut u8, a: *const u8, b: *const u8, _: *const u8, n: usize) {
        // SAFETY: the caller's promise: all are valid for `n` elements of their types, and `dst` overlaps none.
        let (dst, a, b) = unsafe {
            (
                std::slice::from_raw_parts_mut(dst.cast::<F::Out>(), n),
                std::slice::from_raw_parts(a.cast::<A>(), n),
                std::slice::from_raw_parts(b.cast::<A>(), n),
            )
        };
        for ((d, &a), &b) in dst.iter_mut().zip(a).zip(b) {
            *d = F::apply(a, b);
        }
    }
}

/// Division of u32 by a power of two, the same for all elements: a shift, where a division takes twenty times as long.
struct DivByPower;
impl BlockOp for DivByPower {
    #[inline(always)]
    unsafe fn block(dst: *mut u8, a: *const u8, b: *const u8, _: *const u8, n: usize) {
        // SAFETY: the caller's promise: all are valid for `n` u32, and `dst` overlaps none.
        let (dst, a, b) = unsafe {
            (
                std::slice::from_raw_parts_mut(dst.cast::<u32>(), n),
                std::slice::from_raw_parts(a.cast::<u32>(), n),
                std::slice::from_raw_parts(b.cast::<u32>(), n),
            )
        };
        let shift = b.first().map_or(0, |b| b.trailing_zeros());
        for (d, &a) in dst.iter_mut().zip(a) {
            *d = a >> shift;
        }
    }
}

/// Chooses by masks: of a plain `if`, the compiler makes a choice between two addresses, and a branch.
trait Bits: Copy {
    /// `a` where the bool `c` is 1, `b` where it is 0.
    fn choose(c: u8, a: Self, b: Self) -> Self;
}
macro_rules! bits_of {
    ($($t:ty),*) => {$(
        impl Bits for $t {
            #[inline(always)]
            fn choose(c: u8, a: $t, b: $t) -> $t {
                let mask = <$t>::from(c).wrapping_neg();
                (a & mask) | (b & !mask)
            }
        }
    )*};
}
bits_of!(u8, u32, u64);

struct Choose<A>(PhantomData<A>);
impl<A: Bits> BlockOp for Choose<A> {
    #[inline(always)]
    unsafe fn block(dst: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize) {
        // SAFETY: the caller's promise: the condition is bytes, the others are of one type, `dst` overlaps none.
        let (dst, a, b, c) = unsafe {
            (
                std::slice::from_raw_parts_mut(dst.cast::<A>(), n),
                std::slice::from_raw_parts(a, n),
                std::slice::from_raw_parts(b.cast::<A>(), n),
                std::slice::from_raw_parts(c.cast::<A>(), n),
            )
        };
        for (((d, &a), &b), &c) in dst.iter_mut().zip(a).zip(b).zip(c) {
            *d = A::choose(a, b, c);
        }
    }
}

macro_rules! unary {
    ($($op:ident($a:ident: $($t:ty),+) = $body:expr;)*) => {$(
        struct $op;
        $(impl Unary<$t> for $op {
            type Out = $t;
            #[inline(always)]
            fn apply($a: $t) -> $t {
                $body
            }
        })+
    )*};
}
struct Neg;
struct Abs;
struct Not;
macro_rules! signs {
    ($($t:ty: $neg:ident $abs:ident),*) => {$(
        impl Unary<$t> for Neg {
            type Out = $t;
            #[inline(always)]
            fn apply(a: $t) -> $t {
                a.$neg()
            }
        }
        impl Unary<$t> for Abs {
            type Out = $t;
            #[inline(always)]
            fn apply(a: $t) -> $t {
                a.$abs()
            }
        }
    )*};
}
use std::ops::Neg as _;
signs!(f32: neg abs, f64: neg abs, i32: wrapping_neg wrapping_abs, i64: wrapping_neg wrapping_abs);
macro_rules! complements {
    ($($t:ty: |$a:ident| $body:expr),*) => {$(
        impl Unary<$t> for Not {
            type Out = $t;
            #[inline(always)]
            fn apply($a: $t) -> $t {
                $body
            }
        }
    )*};
}
complements!(i32: |a| !a, i64: |a| !a, u32: |a| !a, u8: |a| a ^ 1);
unary! {
    Exp(a: f32, f64) = Math::exp(a);
    Log(a: f32, f64) = Math::log(a);
    Tanh(a: f32, f64) = Math::tanh(a);
    Erf(a: f32, f64) = Math::erf(a);
    Sqrt(a: f32, f64) = a.sqrt();
    Floor(a: f32, f64) = Math::floor(a);
}

macro_rules! binary {
    ($($op:ident { $($($t:ty),+ => |$a:ident, $b:ident| $body:expr;)+ })*) => {$(
        struct $op;
        $($(impl Binary<$t> for $op {
            type Out = $t;
            #[inline(always)]
            fn apply($a: $t, $b: $t) -> $t {
                $body
            }
        })+)+
    )*};
}
binary! {
    Add { f32, f64 => |a, b| a + b; i32, i64, u32 => |a, b| a.wrapping_add(b); }
    Sub { f32, f64 => |a, b| a - b; i32, i64, u32 => |a, b| a.wrapping_sub(b); }
    Mul { f32, f64 => |a, b| a * b; i32, i64, u32 => |a, b| a.wrapping_mul(b); }
    Div { f32, f64 => |a, b| a / b; i32, i64, u32 => |a, b| if b == 0 { 0 } else { a.wrapping_div(b) }; }
    Rem { f32, f64 => |a, b| a % b; i32, i64, u32 => |a, b| if b == 0 { 0 } else { a.wrapping_rem(b) }; }
    // A comparison with NaN is false: the second test takes `a` where `b` is NaN, the first `b` where `a` is.
    Min { f32, f64 => |a, b| if a < b || b.is_nan() { a } else { b }; i32, i64, u32 => |a, b| a.min(b); }
    Max { f32, f64 => |a, b| if a > b || b.is_nan() { a } else { b }; i32, i64, u32 => |a, b| a.max(b); }
    And { i32, i64, u32, u8 => |a, b| a & b; }
    Or { i32, i64, u32, u8 => |a, b| a | b; }
    Xor { i32, i64, u32, u8 => |a, b| a ^ b; }
}

macro_rules! compare {
    ($($op:ident $method:ident),*) => {$(
        struct $op;
        impl<A: PartialOrd> Binary<A> for $op {
            type Out = u8;
            #[inline(always)]
            fn apply(a: A, b: A) -> u8 {
                u8::from(a.$method(&b))
            }
        }
    )*};
}
compare!(Eq eq, Ne ne, Lt lt, Le le, Gt gt, Ge ge);

struct To<B>(PhantomData<B>);
macro_rules! casts {
    ($($from:ty => $($to:ty),+;)*) => {$($(
        impl Unary<$from> for To<$to> {
            type Out = $to;
            #[inline(always)]
            fn apply(a: $from) -> $to {
                a as $to
            }
        }
    )+)*};
}
// Rust's `as` between these types is the documented conversion: it saturates from floats and wraps between integers.
casts! {
    f32 => f32, f64, i32, i64, u32;
    f64 => f32, f64, i32, i64, u32;
    i32 => f32, f64, i32, i64, u32;
    i64 => f32, f64, i32, i64, u32;
    u32 => f32, f64, i32, i64, u32;
    u8 => f32, f64, i32, i64, u32;
}
struct Truth;
macro_rules! truths {
    ($($from:ty: $zero:literal),*) => {$(
        impl Unary<$from> for Truth {
            type Out = u8;
            #[inline(always)]
            fn apply(a: $from) -> u8 {
                u8::from(a != $zero)
            }
        }
    )*};
}
truths!(f32: 0.0, f64: 0.0, i32: 0, i64: 0, u32: 0, u8: 0);

/// What [`Expr::new`](phonograph_graph::Expr::new) rules out; reaching it means that its checks changed.
macro_rules! ill_typed {
    ($op:expr, $dtype:expr) => {
        unreachable!("expressions have no {:?} of {}", $op, $dtype)
    };
}

/// Selects by type, among the types that an operation has.
macro_rules! by_type {
    ($dtype:expr, $what:expr, $level:expr, [$($variant:ident = $t:ty),+] => $Map:ident<$F:ty>) => {
        match $dtype {
            $(DType::$variant => $level.block::<$Map<$t, $F>>(),)+
            other => ill_typed!($what, other),
        }
    };
}
macro_rules! floats {
    ($d:expr, $w:expr, $l:expr, $M:ident<$F:ty>) => { by_type!($d, $w, $l, [F32 = f32, F64 = f64] => $M<$F>) };
}
macro_rules! signed {
    ($d:expr, $w:expr, $l:expr, $M:ident<$F:ty>) => { by_type!($d, $w, $l, [F32 = f32, F64 = f64, I32 = i32, I64 = i64] => $M<$F>) };
}
macro_rules! numbers {
    ($d:expr, $w:expr, $l:expr, $M:ident<$F:ty>) => { by_type!($d, $w, $l, [F32 = f32, F64 = f64, I32 = i32, I64 = i64, U32 = u32] => $M<$F>) };
}
macro_rules! bits {
    ($d:expr, $w:expr, $l:expr, $M:ident<$F:ty>) => { by_type!($d, $w, $l, [I32 = i32, I64 = i64, U32 = u32, Bool = u8] => $M<$F>) };
}
macro_rules! all {
    ($d:expr, $w:expr, $l:expr, $M:ident<$F:ty>) => { by_type!($d, $w, $l, [F32 = f32, F64 = f64, I32 = i32, I64 = i64, U32 = u32, Bool = u8] => $M<$F>) };
}

/// The loop of a unary operation on `dtype`.
pub(super) fn unary(level: Level, op: UnaryOp, dtype: DType) -> BlockFn {
    match op {
        UnaryOp::Neg => signed!(dtype, op, level, Map1<Neg>),
        UnaryOp::Abs => signed!(dtype, op, level, Map1<Abs>),
        UnaryOp::Not => bits!(dtype, op, level, Map1<Not>),
        UnaryOp::Exp => floats!(dtype, op, level, Map1<Exp>),
        UnaryOp::Log => floats!(dtype, op, level, Map1<Log>),
        UnaryOp::Tanh => floats!(dtype, op, level, Map1<Tanh>),
        UnaryOp::Erf => floats!(dtype, op, level, Map1<Erf>),
        UnaryOp::Sqrt => floats!(dtype, op, level, Map1<Sqrt>),
        UnaryOp::Floor => floats!(dtype, op, level, Map1<Floor>),
    }
}

/// The loop of a binary operation on two of `dtype`.
pub(super) fn binary(level: Level, op: BinaryOp, dtype: DType) -> BlockFn {
    match op {
        BinaryOp::Add => numbers!(dtype, op, level, Map2<Add>),
        BinaryOp::Sub => numbers!(dtype, op, level, Map2<Sub>),
        BinaryOp::Mul => numbers!(dtype, op, level, Map2<Mul>),
        BinaryOp::Div => numbers!(dtype, op, level, Map2<Div>),
        BinaryOp::Rem => numbers!(dtype, op, level, Map2<Rem>),
        BinaryOp::Min => numbers!(dtype, op, level, Map2<Min>),
        BinaryOp::Max => numbers!(dtype, op, level, Map2<Max>),
        BinaryOp::And => bits!(dtype, op, level, Map2<And>),
        BinaryOp::Or => bits!(dtype, op, level, Map2<Or>),
        BinaryOp::Xor => bits!(dtype, op, level, Map2<Xor>),
    }
}

/// The loop of a division of u32 by a power of two that is the same for all elements.
pub(super) fn div_by_power(level: Level) -> BlockFn {
    level.block::<DivByPower>()
}

/// The loop of a comparison of two of `dtype`.
pub(super) fn compare(level: Level, op: CompareOp, dtype: DType) -> BlockFn {
    match op {
        CompareOp::Eq => all!(dtype, op, level, Map2<Eq>),
        CompareOp::Ne => all!(dtype, op, level, Map2<Ne>),
        CompareOp::Lt => all!(dtype, op, level, Map2<Lt>),
        CompareOp::Le => all!(dtype, op, level, Map2<Le>),
        CompareOp::Gt => all!(dtype, op, level, Map2<Gt>),
        CompareOp::Ge => all!(dtype, op, level, Map2<Ge>),
    }
}

/// The loop that chooses between two of `dtype` by a bool.
pub(super) fn select(level: Level, dtype: DType) -> BlockFn {
    // Which bits are moved does not depend on what they mean.
    match dtype.size() {
        1 => level.block::<Choose<u8>>(),
        4 => level.block::<Choose<u32>>(),
        8 => level.block::<Choose<u64>>(),
        _ => ill_typed!("Select", dtype),
    }
}

/// The loop of a conversion.
pub(super) fn cast(level: Level, from: DType, to: DType) -> BlockFn {
    match to {
        DType::F32 => all!(from, "Cast", level, Map1<To<f32>>),
        DType::F64 => all!(from, "Cast", level, Map1<To<f64>>),
        DType::I32 => all!(from, "Cast", level, Map1<To<i32>>),
        DType::I64 => all!(from, "Cast", level, Map1<To<i64>>),
        DType::U32 => all!(from, "Cast", level, Map1<To<u32>>),
        DType::Bool => all!(from, "Cast", level, Map1<Truth>),
        DType::F16 | DType::BF16 | DType::U8 => ill_typed!("Cast", to),
    }
}

/// About how long one element takes, in picoseconds, operands in the first-level cache.
pub(super) fn unary_cost_ps(op: UnaryOp, dtype: DType) -> u64 {
    let cost = match op {
        UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Not => 60,
        UnaryOp::Floor => 150,
        UnaryOp::Sqrt => 300,
        UnaryOp::Exp => 800,
        UnaryOp::Log => 1000,
        UnaryOp::Tanh => 1100,
        UnaryOp::Erf => 1600,
    };
    cost * dtype.size().max(4) / 4
}

/// See [`unary_cost_ps`].
pub(super) fn binary_cost_ps(op: BinaryOp, dtype: DType) -> u64 {
    let cost = match op {
        BinaryOp::Div if dtype.is_float() => 300,
        BinaryOp::Div | BinaryOp::Rem => 3000,
        _ => 80,
    };
    cost * dtype.size().max(4) / 4
}
