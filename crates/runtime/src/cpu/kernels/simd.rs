//! Loops over blocks, compiled for the CPU that they run on.
//!
//! A loop is written once, as a [`BlockOp`], and compiled twice: for the oldest CPU of the target, and for AVX2. Which
//! one runs is decided when a kernel is prepared. Both give the same bits, because both do the same IEEE operations.

/// A loop over `n` elements: results to `dst` from up to three operands. Unused operands are dangling.
pub(super) type BlockFn =
    unsafe fn(dst: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize);

/// A loop that reads `n` elements of `src`, `stride` elements apart, and writes them densely to `dst`, or the other way round.
pub(super) type MoveFn = unsafe fn(dst: *mut u8, src: *const u8, stride: usize, n: usize);

/// The body of a [`BlockFn`].
pub(super) trait BlockOp {
    /// # Safety
    /// `dst` and the operands used are aligned for their types and valid for `n` elements, and `dst` overlaps none.
    unsafe fn block(dst: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize);
}

/// The body of a [`MoveFn`].
pub(super) trait MoveOp {
    /// # Safety
    /// Both pointers are aligned for their types, the dense side is valid for `n` elements and the other side for `n`
    /// elements `stride` apart; they do not overlap.
    unsafe fn run(dst: *mut u8, src: *const u8, stride: usize, n: usize);
}

/// What the CPU can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Level {
    /// What every CPU of the target can.
    Base,
    /// AVX2, on x86-64.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Level {
    /// The best that this CPU can.
    pub(super) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            return Level::Avx2;
        }
        Level::Base
    }

    /// The loop of `K`, compiled for this level.
    pub(super) fn block<K: BlockOp>(self) -> BlockFn {
        match self {
            Level::Base => K::block,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => block_avx2::<K>,
        }
    }

    /// The loop of `K`, compiled for this level.
    pub(super) fn mover<K: MoveOp>(self) -> MoveFn {
        match self {
            Level::Base => K::run,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => move_avx2::<K>,
        }
    }
}

// The bodies are `inline(always)`, so they are compiled anew here, with the wider instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn block_avx2<K: BlockOp>(dst: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize) {
    // SAFETY: the caller's promise is that of `BlockOp::block`; the level was detected.
    unsafe { K::block(dst, a, b, c, n) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn move_avx2<K: MoveOp>(dst: *mut u8, src: *const u8, stride: usize, n: usize) {
    // SAFETY: the caller's promise is that of `MoveOp::run`; the level was detected.
    unsafe { K::run(dst, src, stride, n) }
}
