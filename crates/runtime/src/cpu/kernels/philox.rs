//! Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw (SC 2011).
//!
//! Four random words from four counter words and two key words, by ten rounds of multiplications; no state.

use super::simd::BlockOp;

const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];

/// The four words for a counter and a key.
#[inline(always)]
pub(super) fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let (mut x, mut k) = (counter, key);
    for _ in 0..10 {
        let wide = |m: u32, v: u32| u64::from(m) * u64::from(v);
        let (p, q) = (wide(MULTIPLIERS[0], x[0]), wide(MULTIPLIERS[1], x[2]));
        x = [(q >> 32) as u32 ^ x[1] ^ k[0], q as u32, (p >> 32) as u32 ^ x[3] ^ k[1], p as u32];
        k = [k[0].wrapping_add(WEYL[0]), k[1].wrapping_add(WEYL[1])];
    }
    x
}

/// [`phonograph_graph::Op::Philox`] over a block: operands index, counter, key.
pub(super) struct Philox;

impl BlockOp for Philox {
    #[inline(always)]
    unsafe fn block(dst: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize) {
        // SAFETY: the caller's promise: all are u32, valid for `n` elements, and `dst` overlaps none.
        let (dst, index, counter, key) = unsafe {
            (
                std::slice::from_raw_parts_mut(dst.cast::<u32>(), n),
                std::slice::from_raw_parts(a.cast::<u32>(), n),
                std::slice::from_raw_parts(b.cast::<u32>(), n),
                std::slice::from_raw_parts(c.cast::<u32>(), n),
            )
        };
        let words = |i: usize| philox4x32_10([index[i] / 4, counter[i], 0, 0], [key[i], 0]);
        let mut i = 0;
        while i < n {
            // Nearly always four neighbours want the four words of one counter.
            let first = index[i];
            let group = i + 4 <= n
                && first % 4 == 0
                && (1..4).all(|j| {
                    index[i + j] == first + j as u32
                        && counter[i + j] == counter[i]
                        && key[i + j] == key[i]
                });
            if group {
                dst[i..i + 4].copy_from_slice(&words(i));
                i += 4;
            } else {
                dst[i] = words(i)[first as usize % 4];
                i += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known-answer vectors that Random123 publishes for `philox4x32 10`.
    #[test]
    fn known_answers() {
        let check = |counter, key, answer| assert_eq!(philox4x32_10(counter, key), answer);
        check([0; 4], [0; 2], [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
        check([!0; 4], [!0; 2], [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
        check(
            [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
            [0xa4093822, 0x299f31d0],
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
        );
    }
}
