//! A fixed sequence of numbers that look random, so that a search is the same each time.

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
pub(super) struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.0)
    }

    /// A number below `end`, or 0 if that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % (end as u64).max(1)) as usize
    }
}

/// A bijection whose outputs look random.
pub(super) fn scramble(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
