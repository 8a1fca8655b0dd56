//! The kernel that hands a value in device memory to a conditional node.

use phonograph_graph::DType;

use super::{ENTRY, prelude, raw};

/// The source of a kernel of two parameters, the driver's conditional handle (64 bits) and the address of one element of
/// `dtype`, which sets the handle to that element. Launched as one thread.
///
/// A negative number becomes a large one, which chooses no body of a switch.
pub fn set_condition(dtype: DType) -> String {
    let raw = raw(dtype);
    let prelude = prelude::with_words(1);
    format!(
        "{prelude}extern \"C\" __device__ void cudaGraphSetConditional(unsigned long long, unsigned);
extern \"C\" __global__ void {ENTRY}(u64 handle, const {raw} *value) {{
    enter();
    cudaGraphSetConditional(handle, (u32)*value);
}}
"
    )
}
