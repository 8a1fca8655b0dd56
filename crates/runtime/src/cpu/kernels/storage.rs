//! How elements lie in memory and what they are in registers.
//!
//! Registers hold f32, f64, i32, i64, u32 and, for bool, a byte that is 0 or 1. Half-precision conversions are
//! integer arithmetic without branches, so that loops over them vectorise; rounding is to nearest, ties to even.

use std::marker::PhantomData;

use phonograph_graph::{DType, Scalar};

use super::simd::{BlockFn, BlockOp, Level, MoveFn, MoveOp};

/// A storage type: raw bits in memory, a value in a register.
pub(super) trait Storage {
    /// What memory holds. Any bits are valid.
    type Raw: Copy;
    /// What a register holds.
    type Value: Copy;
    fn load(raw: Self::Raw) -> Self::Value;
    fn store(value: Self::Value) -> Self::Raw;
}

macro_rules! plain {
    ($($name:ident: $t:ty),*) => {$(
        pub(super) struct $name;
        impl Storage for $name {
            type Raw = $t;
            type Value = $t;
            #[inline(always)]
            fn load(raw: $t) -> $t {
                raw
            }
            #[inline(always)]
            fn store(value: $t) -> $t {
                value
            }
        }
    )*};
}
plain!(F32: f32, F64: f64, I32: i32, I64: i64, U32: u32);

pub(super) struct U8;
impl Storage for U8 {
    type Raw = u8;
    type Value = u32;
    #[inline(always)]
    fn load(raw: u8) -> u32 {
        raw.into()
    }
    #[inline(always)]
    fn store(value: u32) -> u8 {
        value as u8
    }
}

pub(super) struct Bool;
impl Storage for Bool {
    type Raw = u8;
    type Value = u8;
    #[inline(always)]
    fn load(raw: u8) -> u8 {
        // Memory may hold any byte; registers hold 0 or 1.
        u8::from(raw != 0)
    }
    #[inline(always)]
    fn store(value: u8) -> u8 {
        value
    }
}

pub(super) struct F16;
impl Storage for F16 {
    type Raw = u16;
    type Value = f32;
    #[inline(always)]
    fn load(raw: u16) -> f32 {
        let magnitude = u32::from(raw & 0x7fff);
        let sign = u32::from(raw & 0x8000) << 16;
        // The bits moved to their place in an f32 stand for 2^-112 of the value, subnormals included.
        let finite = f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23);
        let special = (magnitude << 13) | 0x7f80_0000;
        let bits = if magnitude >= 0x7c00 { special } else { finite.to_bits() };
        f32::from_bits(bits | sign)
    }
    #[inline(always)]
    fn store(value: f32) -> u16 {
        let bits = value.to_bits();
        let sign = (bits >> 16) & 0x8000;
        let magnitude = bits & 0x7fff_ffff;
        // Adding half the last place, a little less where the result would be odd, rounds ties to even.
        let odd = (magnitude >> 13) & 1;
        let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
        // In the subnormal range one half has its last place where theirs is, so adding it rounds there.
        let shifted = f32::from_bits(magnitude) + 0.5;
        let subnormal = shifted.to_bits().wrapping_sub(0.5f32.to_bits());
        let special = if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
        let finite = if magnitude < 0x3880_0000 { subnormal } else { normal };
        let half = if magnitude >= 0x4780_0000 { special } else { finite };
        (half | sign) as u16
    }
}

pub(super) struct BF16;
impl Storage for BF16 {
    type Raw = u16;
    type Value = f32;
    #[inline(always)]
    fn load(raw: u16) -> f32 {
        f32::from_bits(u32::from(raw) << 16)
    }
    #[inline(always)]
    fn store(value: f32) -> u16 {
        let bits = value.to_bits();
        let odd = (bits >> 16) & 1;
        let rounded = bits.wrapping_add(0x7fff + odd) >> 16;
        let nan = (bits >> 16) | 0x40;
        (if bits & 0x7fff_ffff > 0x7f80_0000 { nan } else { rounded }) as u16
    }
}

struct Load<S>(PhantomData<S>);
impl<S: Storage> MoveOp for Load<S> {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, src: *const u8, stride: usize, n: usize) {
        let src = src.cast::<S::Raw>();
        // SAFETY: the caller's promise: `dst` is dense, valid and disjoint from `src`.
        let dst = unsafe { std::slice::from_raw_parts_mut(dst.cast::<S::Value>(), n) };
        match stride {
            1 => {
                // SAFETY: likewise, at stride 1.
                let src = unsafe { std::slice::from_raw_parts(src, n) };
                for (d, &s) in dst.iter_mut().zip(src) {
                    *d = S::load(s);
                }
            }
            // SAFETY: the caller's promise covers every index below `n`; there is an element if `n` is not 0.
            0 if n > 0 => dst.fill(S::load(unsafe { *src })),
            _ => {
                for (i, d) in dst.iter_mut().enumerate() {
                    // SAFETY: as above.
                    *d = S::load(unsafe { *src.add(i * stride) });
                }
            }
        }
    }
}

struct Store<S>(PhantomData<S>);
impl<S: Storage> MoveOp for Store<S> {
    #[inline(always)]
    unsafe fn run(dst: *mut u8, src: *const u8, stride: usize, n: usize) {
        let dst = dst.cast::<S::Raw>();
        // SAFETY: the caller's promise: `src` is dense, valid and disjoint from `dst`.
        let src = unsafe { std::slice::from_raw_parts(src.cast::<S::Value>(), n) };
        if stride == 1 {
            // SAFETY: likewise, at stride 1; raw memory holds initialised bytes.
            let dst = unsafe { std::slice::from_raw_parts_mut(dst, n) };
            for (d, &s) in dst.iter_mut().zip(src) {
                *d = S::store(s);
            }
        } else {
            for (i, &s) in src.iter().enumerate() {
                // SAFETY: the caller's promise covers every index below `n`.
                unsafe { *dst.add(i * stride) = S::store(s) };
            }
        }
    }
}

struct Round<S>(PhantomData<S>);
impl<S: Storage> BlockOp for Round<S> {
    #[inline(always)]
    unsafe fn block(dst: *mut u8, a: *const u8, _: *const u8, _: *const u8, n: usize) {
        // SAFETY: the caller's promise: both are valid for `n` values, and disjoint.
        let (dst, a) = unsafe {
            (
                std::slice::from_raw_parts_mut(dst.cast::<S::Value>(), n),
                std::slice::from_raw_parts(a.cast::<S::Value>(), n),
            )
        };
        for (d, &a) in dst.iter_mut().zip(a) {
            *d = S::load(S::store(a));
        }
    }
}

/// Calls `$f::<S>` for the storage type `S` of a [`DType`].
macro_rules! with_storage {
    ($dtype:expr, $S:ident => $body:expr) => {{
        macro_rules! arm {
            ($t:ident) => {{
                type $S = $crate::cpu::kernels::storage::$t;
                $body
            }};
        }
        match $dtype {
            DType::F32 => arm!(F32),
            DType::F64 => arm!(F64),
            DType::F16 => arm!(F16),
            DType::BF16 => arm!(BF16),
            DType::I32 => arm!(I32),
            DType::I64 => arm!(I64),
            DType::U32 => arm!(U32),
            DType::U8 => arm!(U8),
            DType::Bool => arm!(Bool),
        }
    }};
}

/// The loop that loads and converts elements of `dtype`.
pub(super) fn loader(level: Level, dtype: DType) -> MoveFn {
    with_storage!(dtype, S => level.mover::<Load<S>>())
}

/// The loop that converts and stores elements of `dtype`.
pub(super) fn storer(level: Level, dtype: DType) -> MoveFn {
    with_storage!(dtype, S => level.mover::<Store<S>>())
}

/// The loop that gives values as they are after being stored as `dtype` and loaded again.
pub(super) fn rounder(level: Level, dtype: DType) -> BlockFn {
    with_storage!(dtype, S => level.block::<Round<S>>())
}

/// The bits that a scalar has in a register.
pub(super) fn register_bits(scalar: Scalar) -> u64 {
    match scalar {
        Scalar::F32(v) => v.to_bits().into(),
        Scalar::F64(v) => v.to_bits(),
        Scalar::F16(v) => F16::load(v.to_bits()).to_bits().into(),
        Scalar::BF16(v) => BF16::load(v.to_bits()).to_bits().into(),
        Scalar::I32(v) => (v as u32).into(),
        Scalar::I64(v) => v as u64,
        Scalar::U32(v) => v.into(),
        Scalar::U8(v) => v.into(),
        Scalar::Bool(v) => v.into(),
    }
}

/// Bytes of a register's element.
pub(super) fn register_size(dtype: DType) -> usize {
    dtype.computed().size() as usize
}

/// Whether memory of this type can be used as a register: nothing to convert.
pub(super) fn is_plain(dtype: DType) -> bool {
    dtype == dtype.computed() && dtype != DType::Bool
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    #[cfg_attr(miri, ignore = "too many elements to interpret")]
    fn every_half_converts_as_its_reference_does() {
        for raw in 0..=u16::MAX {
            let (ours, theirs) = (F16::load(raw), f16::from_bits(raw).to_f32());
            assert!(
                ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(),
                "{raw:#x}"
            );
            let (ours, theirs) = (BF16::load(raw), bf16::from_bits(raw).to_f32());
            assert!(
                ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(),
                "{raw:#x}"
            );
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many elements to interpret")]
    fn stores_round_to_nearest_even() {
        let check = |value: f32| {
            let (ours, theirs) = (f16::from_bits(F16::store(value)), f16::from_f32(value));
            assert!(
                ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(),
                "{value:e}"
            );
            let (ours, theirs) = (bf16::from_bits(BF16::store(value)), bf16::from_f32(value));
            assert!(
                ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(),
                "{value:e}"
            );
        };
        // Every sign, exponent and top of the mantissa, with the low bits around ties.
        for high in 0..=u16::MAX {
            for low in [0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff] {
                check(f32::from_bits(u32::from(high) << 16 | low));
            }
        }
    }
}
