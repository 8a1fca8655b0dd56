//! Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw (SC 2011).
//!
//! Four random words from four counter words and two key words, by ten rounds of multiplications; no state.

use super::simd::BlockOp;

const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];

/// Counters that are worked on side by side.
const LANES: usize = 16;

/// The four words for each of some counters `[index, counter, 0, 0]` and keys `[key, 0]`, lane by lane: loops over lanes
/// become vector instructions.
#[inline(always)]
fn philox4x32_10(counter: [[u32; LANES]; 4], key: [[u32; LANES]; 2]) -> [[u32; LANES]; 4] {
    let (mut x, mut k) = (counter, key);
    for _ in 0..10 {
        let mut next = [[0; LANES]; 4];
        for lane in 0..LANES {
            let wide = |m: u32, v: u32| u64::from(m) * u64::from(v);
            let (p, q) = (wide(MULTIPLIERS[0], x[0][lane]), wide(MULTIPLIERS[1], x[2][lane]));
            next[0][lane] = (q >> 32) as u32 ^ x[1][lane] ^ k[0][lane];
            next[1][lane] = q as u32;
            next[2][lane] = (p >> 32) as u32 ^ x[3][lane] ^ k[1][lane];
            next[3][lane] = p as u32;
        }
        x = next;
        for (k, weyl) in k.iter_mut().zip(WEYL) {
            k.iter_mut().for_each(|k| *k = k.wrapping_add(weyl));
        }
    }
    x
}

/// [`phonograph_graph::Op::Philox`] over a block: operands index, counter, key.
///
/// Neighbours mostly want words of the same counter: each counter of a run of equal ones is worked on once.
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
        let mut start = 0;
        while start < n {
            let (mut counters, mut keys) = ([[0; LANES]; 4], [[0; LANES]; 2]);
            let mut lane_of = [0u8; 4 * LANES];
            let (mut lanes, mut end) = (0, start);
            while end < n && end - start < lane_of.len() {
                let (quad, counter, key) = (index[end] / 4, counter[end], key[end]);
                let known = lanes > 0
                    && counters[0][lanes - 1] == quad
                    && counters[1][lanes - 1] == counter
                    && keys[0][lanes - 1] == key;
                if !known {
                    if lanes == LANES {
                        break;
                    }
                    (counters[0][lanes], counters[1][lanes], keys[0][lanes]) = (quad, counter, key);
                    lanes += 1;
                }
                lane_of[end - start] = lanes as u8 - 1;
                end += 1;
            }
            let words = philox4x32_10(counters, keys);
            for ((d, &i), &lane) in dst[start..end].iter_mut().zip(&index[start..end]).zip(&lane_of)
            {
                *d = words[i as usize % 4][usize::from(lane)];
            }
            start = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known-answer vectors that Random123 publishes for `philox4x32 10`.
    #[test]
    fn known_answers() {
        let check = |counter: [u32; 4], key: [u32; 2], answer: [u32; 4]| {
            let words = philox4x32_10(counter.map(|w| [w; LANES]), key.map(|w| [w; LANES]));
            assert_eq!(words, answer.map(|w| [w; LANES]));
        };
        check([0; 4], [0; 2], [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
        check([!0; 4], [!0; 2], [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
        check(
            [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
            [0xa4093822, 0x299f31d0],
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
        );
    }
}
