//! Chains of f32 operations, each on the result of the one before, kept in registers.
//!
//! In: a start and links, each an operation with another operand, a block or one number. Out: a block. A strip of
//! elements goes through all links at a time, so that only the operands are read and the last result is written: less than
//! half the time of a loop for each operation. Choosing an operation costs a jump for each strip.
//!
//! Written twice: with the instructions of AVX2, of whose sixteen registers twelve hold the results of a strip, and
//! plainly. Both do the same IEEE operations and give the same bits.

use super::chains::{LinkOp, MAX_LINKS};
use super::simd::Level;

/// Elements that go through all links together where the compiler chooses the registers.
const STRIP: usize = 64;

/// Runs a chain over `n` elements: `(dst, start, links, n)`.
///
/// # Safety
/// `start` and the operands are valid for `n` elements (one, if uniform), `dst` is valid for `n` elements; it may be one
/// of the operands, and overlaps none in part. There are at most [`MAX_LINKS`] links.
pub(super) type ChainFn = unsafe fn(*mut f32, *const f32, &[Link], usize);

/// A link, ready to run.
#[derive(Clone, Copy)]
pub(super) struct Link {
    pub op: LinkOp,
    /// Where its operand is; dangling for an operation of none.
    pub operand: *const f32,
    /// Whether the operand is one number for all elements.
    pub uniform: bool,
}

impl Link {
    /// What is overwritten before it is run.
    pub const NONE: Link = Link { op: LinkOp::Neg, operand: std::ptr::null(), uniform: false };
}

/// The chains of this level.
pub(super) fn runner(level: Level) -> ChainFn {
    match level {
        Level::Base => plain,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2::run,
    }
}

/// See [`ChainFn`].
unsafe fn plain(dst: *mut f32, start: *const f32, links: &[Link], n: usize) {
    let mut r = [0f32; STRIP];
    for at in (0..n).step_by(STRIP) {
        let r = &mut r[..STRIP.min(n - at)];
        // SAFETY: the caller's promise: these elements exist; `r` is memory of its own.
        unsafe {
            std::ptr::copy_nonoverlapping(start.add(at), r.as_mut_ptr(), r.len());
            for link in links {
                apply(link, r, at);
            }
            std::ptr::copy_nonoverlapping(r.as_ptr(), dst.add(at), r.len());
        }
    }
}

/// Applies a link to results that are those of elements from `at` on.
///
/// # Safety
/// As for [`ChainFn`], and these elements exist.
#[inline(always)]
unsafe fn apply(link: &Link, r: &mut [f32], at: usize) {
    let each = |r: &mut [f32], f: fn(f32, f32) -> f32| {
        if link.uniform {
            // SAFETY: the caller's promise.
            let x = unsafe { *link.operand };
            r.iter_mut().for_each(|r| *r = f(*r, x));
        } else {
            for (i, r) in r.iter_mut().enumerate() {
                // SAFETY: the caller's promise.
                *r = f(*r, unsafe { *link.operand.add(at + i) });
            }
        }
    };
    let min = |a: f32, b: f32| if a < b || b.is_nan() { a } else { b };
    let max = |a: f32, b: f32| if a > b || b.is_nan() { a } else { b };
    match link.op {
        LinkOp::Add => each(r, |r, x| r + x),
        LinkOp::Sub => each(r, |r, x| r - x),
        LinkOp::SubFrom => each(r, |r, x| x - r),
        LinkOp::Mul => each(r, |r, x| r * x),
        LinkOp::Div => each(r, |r, x| r / x),
        LinkOp::DivFrom => each(r, |r, x| x / r),
        LinkOp::Min => each(r, min),
        LinkOp::MinFrom => each(r, |r, x| if x < r || r.is_nan() { x } else { r }),
        LinkOp::Max => each(r, max),
        LinkOp::MaxFrom => each(r, |r, x| if x > r || r.is_nan() { x } else { r }),
        LinkOp::Neg => r.iter_mut().for_each(|r| *r = -*r),
        LinkOp::Abs => r.iter_mut().for_each(|r| *r = r.abs()),
        LinkOp::Sqrt => r.iter_mut().for_each(|r| *r = r.sqrt()),
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Link, LinkOp, MAX_LINKS};

    /// Elements of a vector.
    const LANES: usize = 8;
    /// Vectors of a strip: what is left of the registers holds operands. Eight take a quarter longer, since each link then
    /// waits for the one before; with sixteen the compiler moves some to memory.
    const WIDE: usize = 12;
    /// Vectors of a shorter strip, for what is left of a block.
    const NARROW: usize = 4;

    /// See [`ChainFn`](super::ChainFn); the CPU has AVX2.
    #[target_feature(enable = "avx2")]
    pub unsafe fn run(dst: *mut f32, start: *const f32, links: &[Link], n: usize) {
        let mut at = 0;
        // SAFETY: the caller's promise: all parts are within the `n` elements.
        unsafe {
            while at + WIDE * LANES <= n {
                strip::<WIDE>(dst, start, links, at);
                at += WIDE * LANES;
            }
            while at + NARROW * LANES <= n {
                strip::<NARROW>(dst, start, links, at);
                at += NARROW * LANES;
            }
            while at + LANES <= n {
                strip::<1>(dst, start, links, at);
                at += LANES;
            }
            if at < n {
                rest(dst, start, links, at, n - at);
            }
        }
    }

    /// `W` vectors from element `at` on.
    ///
    /// # Safety
    /// As for [`run`], and these elements exist.
    #[target_feature(enable = "avx2")]
    unsafe fn strip<const W: usize>(dst: *mut f32, start: *const f32, links: &[Link], at: usize) {
        // SAFETY: the caller's promise; unaligned loads and stores are used.
        unsafe {
            let mut r: [__m256; W] =
                std::array::from_fn(|i| _mm256_loadu_ps(start.add(at + i * LANES)));
            for link in links {
                let from = link.operand.wrapping_add(at);
                macro_rules! each {
                    (|$r:ident, $x:ident| $vector:expr) => {
                        each!(|$r, $x| $vector, $vector)
                    };
                    (|$r:ident, $x:ident| $vector:expr, $uniform:expr) => {
                        if link.uniform {
                            let $x = _mm256_broadcast_ss(&*link.operand);
                            for $r in &mut r {
                                *$r = {
                                    let $r = *$r;
                                    $uniform
                                };
                            }
                        } else {
                            for (i, $r) in r.iter_mut().enumerate() {
                                let $x = _mm256_loadu_ps(from.add(i * LANES));
                                *$r = {
                                    let $r = *$r;
                                    $vector
                                };
                            }
                        }
                    };
                }
                match link.op {
                    // Of a NaN and a number, the number: the result so far.
                    LinkOp::Min | LinkOp::Max if link.uniform && (*link.operand).is_nan() => {}
                    LinkOp::Add => each!(|r, x| _mm256_add_ps(r, x)),
                    LinkOp::Sub => each!(|r, x| _mm256_sub_ps(r, x)),
                    LinkOp::SubFrom => each!(|r, x| _mm256_sub_ps(x, r)),
                    LinkOp::Mul => each!(|r, x| _mm256_mul_ps(r, x)),
                    LinkOp::Div => each!(|r, x| _mm256_div_ps(r, x)),
                    LinkOp::DivFrom => each!(|r, x| _mm256_div_ps(x, r)),
                    LinkOp::Min => {
                        each!(|r, x| or_if_nan(_mm256_min_ps(r, x), r, x), _mm256_min_ps(r, x))
                    }
                    LinkOp::MinFrom => each!(|r, x| or_if_nan(_mm256_min_ps(x, r), x, r)),
                    LinkOp::Max => {
                        each!(|r, x| or_if_nan(_mm256_max_ps(r, x), r, x), _mm256_max_ps(r, x))
                    }
                    LinkOp::MaxFrom => each!(|r, x| or_if_nan(_mm256_max_ps(x, r), x, r)),
                    // Not by `map`, which puts long arrays into memory.
                    LinkOp::Neg => {
                        r.iter_mut().for_each(|r| *r = _mm256_xor_ps(*r, _mm256_set1_ps(-0.0)));
                    }
                    LinkOp::Abs => {
                        r.iter_mut().for_each(|r| *r = _mm256_andnot_ps(_mm256_set1_ps(-0.0), *r));
                    }
                    LinkOp::Sqrt => r.iter_mut().for_each(|r| *r = _mm256_sqrt_ps(*r)),
                }
            }
            for (i, r) in r.into_iter().enumerate() {
                _mm256_storeu_ps(dst.add(at + i * LANES), r);
            }
        }
    }

    /// `value`, but `a` where `b` is NaN. The instructions for the smaller and the larger give `b` if either is NaN.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn or_if_nan(value: __m256, a: __m256, b: __m256) -> __m256 {
        _mm256_blendv_ps(value, a, _mm256_cmp_ps::<_CMP_UNORD_Q>(b, b))
    }

    /// The last `n` elements, fewer than a vector, from `at` on: padded to one.
    ///
    /// # Safety
    /// As for [`run`], and these elements exist.
    #[target_feature(enable = "avx2")]
    unsafe fn rest(dst: *mut f32, start: *const f32, links: &[Link], at: usize, n: usize) {
        let mut operands = [[0f32; LANES]; MAX_LINKS];
        let mut padded = [Link::NONE; MAX_LINKS];
        let mut r = [0f32; LANES];
        // SAFETY: the caller's promise: `n` elements from `at` on exist; the copies are as long as a vector.
        unsafe {
            std::ptr::copy_nonoverlapping(start.add(at), r.as_mut_ptr(), n);
            for ((padded, own), link) in padded.iter_mut().zip(&mut operands).zip(links) {
                *padded = *link;
                let unary = matches!(link.op, LinkOp::Neg | LinkOp::Abs | LinkOp::Sqrt);
                if !link.uniform && !unary {
                    std::ptr::copy_nonoverlapping(link.operand.add(at), own.as_mut_ptr(), n);
                    padded.operand = own.as_ptr();
                }
            }
            let (to, from) = (r.as_mut_ptr(), r.as_ptr());
            strip::<1>(to, from, &padded[..links.len()], 0);
            std::ptr::copy_nonoverlapping(r.as_ptr(), dst.add(at), n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_give_the_same_bits() {
        use LinkOp::*;
        let all =
            [Add, Sub, SubFrom, Mul, Div, DivFrom, Min, MinFrom, Max, MaxFrom, Neg, Abs, Sqrt];
        arbtest::arbtest(|u| {
            let n = u.int_in_range(0..=200)?;
            let number = |i: usize, k: usize| match (i * 31 + k * 17) % 23 {
                0 => f32::NAN,
                1 => f32::INFINITY,
                2 => -0.0,
                3 => 0.0,
                v => v as f32 - 11.5,
            };
            let blocks: Vec<Vec<f32>> =
                (0..4).map(|k| (0..n + 1).map(|i| number(i, k)).collect()).collect();
            let links: Vec<Link> = (0..u.int_in_range(0..=MAX_LINKS)?)
                .map(|_| {
                    let (op, uniform) = (*u.choose(&all)?, u.arbitrary()?);
                    let operand = blocks[u.choose_index(4)?].as_ptr();
                    Ok(Link { op, operand, uniform })
                })
                .collect::<Result<_, arbtest::arbitrary::Error>>()?;
            let mut results = [Level::Base, Level::detect()].map(|level| {
                let mut to = vec![7f32; n + 1];
                // SAFETY: all blocks hold more than `n` elements; the level was detected.
                unsafe { runner(level)(to.as_mut_ptr(), blocks[0].as_ptr(), &links, n) };
                to
            });
            for value in results.iter_mut().flatten() {
                *value = if value.is_nan() { f32::NAN } else { *value };
            }
            let bits = results.map(|r| r.into_iter().map(f32::to_bits).collect::<Vec<_>>());
            assert_eq!(bits[0], bits[1]);
            Ok(())
        })
        .budget_ms(300);
    }
}
