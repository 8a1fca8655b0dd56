//! A kernel that takes time and does nothing: what generated graphs consist of.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use super::FnKernel;

/// Keeps a core busy for a microsecond a block, by the clock. It has no arguments.
///
/// ```
/// use phonograph_runtime::cpu::kernels::{Registry, spin};
///
/// let mut registry = Registry::new();
/// registry.register("spin", spin());
/// ```
pub fn spin() -> FnKernel {
    FnKernel::blocks(&[], |_| {
        let start = Instant::now();
        while start.elapsed() < Duration::from_micros(1) {
            spin_loop();
        }
        Ok(())
    })
}
