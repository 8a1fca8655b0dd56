//! The kernel that only takes time: generated graphs are made of it.

use crate::cuda::{CompileError, Cuda};
use crate::module::Function;

const NAME: &str = "spin";
const SOURCE: &str = r#"extern "C" __global__ void spin() {
    unsigned long long start, now;
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - start < 1000ull * gridDim.x);
}"#;

/// A kernel without arguments that takes a microsecond for each block along x, by the device's clock, as
/// [`spin`](phonograph_runtime::cpu::kernels::spin) does on the CPU. It is bound with [`Bindings::spin`](crate::Bindings::spin).
#[derive(Debug)]
pub struct Spin(pub(crate) Function);

impl Spin {
    /// Compiles it.
    ///
    /// # Errors
    /// [`CompileError`] without a compiler.
    pub fn new(cuda: &mut Cuda) -> Result<Self, CompileError> {
        cuda.compile(SOURCE, NAME).map(Self)
    }
}
