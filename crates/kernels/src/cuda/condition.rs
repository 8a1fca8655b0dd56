//! Kernels that are no node's work: one hands a value in device memory to a conditional node, one changes words in device
//! memory.

use phonograph_graph::DType;

use super::{ENTRY, prelude, raw};

/// How many words [`change_words`] changes at most.
pub const CHANGES: usize = 256;

/// The source of a kernel of two parameters, the address of 64-bit words and a structure of [`CHANGES`] values (64 bits), as
/// many places and how many of them there are (32 bits), which sets the words in these places. Launched as one block of
/// [`CHANGES`] threads.
pub fn change_words() -> String {
    format!(
        "struct Changes {{ unsigned long long values[{CHANGES}]; unsigned places[{CHANGES}], count; }};
extern \"C\" __global__ void {ENTRY}(unsigned long long *words, const Changes changes) {{
    if (threadIdx.x < changes.count) words[changes.places[threadIdx.x]] = changes.values[threadIdx.x];
}}
"
    )
}

/// The source of a kernel of two parameters, the driver's conditional handle (64 bits) and the address of one element of
/// `dtype`, which sets the handle to that element. Launched as one thread.
///
/// A negative number becomes a large one, which chooses no body of a switch.
pub fn set_condition(dtype: DType) -> String {
    let raw = raw(dtype);
    let prelude = prelude::with_words(1, true);
    format!(
        "{prelude}extern \"C\" __device__ void cudaGraphSetConditional(unsigned long long, unsigned);
extern \"C\" __global__ void {ENTRY}(u64 handle, const {raw} *value) {{
    enter();
    cudaGraphSetConditional(handle, (u32)*value);
}}
"
    )
}
