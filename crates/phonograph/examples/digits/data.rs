//! The digits: loaded, scaled, split by a fixed permutation.

use std::error::Error;
use std::io::Read;

use flate2::read::GzDecoder;

/// Pixels of a digit.
pub const PIXELS: usize = 64;
/// A fifth is held out.
const HELD_OUT: usize = 360;

/// Digits with their labels.
pub struct Set {
    /// `PIXELS` values for each digit, 0 to 1.
    pub pixels: Vec<f32>,
    /// 0 to 9.
    pub labels: Vec<i32>,
}

/// The split data.
pub struct Digits {
    pub train: Set,
    pub test: Set,
}

/// Unpacks and splits the digits.
pub fn load() -> Result<Digits, Box<dyn Error>> {
    let packed = include_bytes!("../../tests/data/digits.u8.gz");
    let mut bytes = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut bytes)?;
    let rows: Vec<&[u8]> = bytes.chunks_exact(PIXELS + 1).collect();
    // The same digits are held out whatever the seed, so that seeds can be compared.
    let order = permutation(rows.len(), 0x5EED);
    let set = |chosen: &[u32]| Set {
        pixels: chosen
            .iter()
            .flat_map(|&row| rows[row as usize][..PIXELS].iter().map(|&p| f32::from(p) / 16.0))
            .collect(),
        labels: chosen.iter().map(|&row| i32::from(rows[row as usize][PIXELS])).collect(),
    };
    let (test, train) = order.split_at(HELD_OUT);
    Ok(Digits { train: set(train), test: set(test) })
}

/// A permutation of `0..n` that depends on the seed alone (Fisher and Yates; SplitMix64).
pub fn permutation(n: usize, seed: u64) -> Vec<u32> {
    let mut state = seed;
    let mut random = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    let mut order: Vec<u32> = (0..n as u32).collect();
    for last in (1..n).rev() {
        order.swap(last, (random() % (last as u64 + 1)) as usize);
    }
    order
}
