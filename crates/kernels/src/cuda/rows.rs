//! Gather and scatter-add: rows that a list of numbers names.
//!
//! A number that is out of range is noted in the fault record, and its row left out; the replay then reports it. Gather
//! has a thread for each element of the output. Scatter-add has a thread for each column, and blocks for ranges of the
//! destination's rows: each goes through the whole list in order, so that every destination element is summed in the
//! order of the list by one thread.

use phonograph_graph::DType;

use super::params::Params;
use super::space::THREADS;
use super::{CudaKernel, ENTRY, Param, prelude, raw};
use crate::space::{Space, strides};

/// Threads of a block of scatter-add; also the row numbers that it holds in shared memory.
const COLUMNS: u32 = 128;
/// The most ranges that the destination's rows are cut into: each goes through all numbers.
const RANGES: u64 = 64;

const FAULT: &str = "FN void fault(u32 *lock, u64 *record, u64 node, u64 position, i64 value) {
    if (atomicExch(lock, 1u) == 0u) {
        record[0] = node + 1u;
        record[1] = position;
        record[2] = (u64)value;
    }
}
";

pub(super) fn gather(mut params: Params<'_>, id: u32) -> CudaKernel {
    let [table, numbers, output] = [0, 1, 2].map(|at| params.views[at]);
    let shape = output.shape();
    // The row of the table is added by its number; the list has a number for each position along the first axis.
    let (mut in_row, mut in_list) = (strides(&table), vec![0; shape.rank()]);
    let row_stride = std::mem::take(&mut in_row[0]);
    in_list[0] = numbers.strides()[0];
    // Merged axes would hide the position in the list, which a fault names.
    let space = Space::new(shape.extents(), &[in_row, in_list, strides(&output)], true);
    let mut words = space.words();
    let first = words.len();
    let rows = table.shape().extents()[0];
    words.extend([rows, row_stride, u64::from(id)]);
    let (prelude, index) = (prelude::with_words(words.len(), params.enters), space.index());
    let (element, number) = (bits(table.dtype), raw(numbers.dtype));
    let positions = space.positions(true);
    let (in_row, in_list, to) = (space.offset(0), space.offset(1), space.offset(2));
    params.view("table", element, true);
    params.view("numbers", number, true);
    params.view("out", element, false);
    let (declared, start, params) = faults(params).finish(words);
    let source = format!(
        "{prelude}{FAULT}
extern \"C\" __global__ void __launch_bounds__({THREADS}) {ENTRY}({declared}) {{
{start}
    const {index} n = ({index})s.w[0];
    for ({index} i = blockIdx.x * {THREADS}u + threadIdx.x; i < n; i += {THREADS}u * gridDim.x) {{
{positions}        const i64 row = (i64)numbers[{in_list}];
        if (row < 0 || (u64)row >= s.w[{first}]) {{
            fault(lock, record, s.w[{first} + 2], c0, row);
            continue;
        }}
        out[{to}] = table[(u64)row * s.w[{first} + 1] + {in_row}];
    }}
}}
"
    );
    CudaKernel { source, blocks: space.blocks(), threads: THREADS, params }
}

pub(super) fn scatter_add(mut params: Params<'_>, id: u32) -> CudaKernel {
    let [source, numbers, sum] = [0, 1, 2].map(|at| params.views[at]);
    let rows = sum.shape().extents()[0];
    let (mut from, mut to) = (strides(&source), strides(&sum));
    let (from_row, to_row) = (from.remove(0), to.remove(0));
    let space = Space::new(&sum.shape().extents()[1..], &[from, to], false);
    let mut words = space.words();
    let first = words.len();
    words.extend([rows, numbers.elements(), numbers.strides()[0], from_row, to_row, u64::from(id)]);
    let prelude = prelude::with_words(words.len(), params.enters);
    let (element, number) = (raw(sum.dtype), raw(numbers.dtype));
    let index = space.index();
    let (positions, from, to) = (space.positions(false), space.offset(0), space.offset(1));
    let add = match sum.dtype {
        DType::I32 => "(i32)((u32)*to + (u32)*from)",
        DType::I64 => "(i64)((u64)*to + (u64)*from)",
        _ => "*to + *from",
    };
    let blocks_of_columns = space.elements.div_ceil(u64::from(COLUMNS)).max(1);
    let ranges = rows.clamp(1, RANGES);
    params.view("source", element, true);
    params.view("numbers", number, true);
    params.view("sum", element, false);
    let (declared, start, params) = faults(params).finish(words);
    let text = format!(
        "{prelude}{FAULT}
extern \"C\" __global__ void __launch_bounds__({COLUMNS}) {ENTRY}({declared}) {{
{start}
    __shared__ i64 list[{COLUMNS}];
    const {index} n = ({index})s.w[0];
    const u64 rows = s.w[{first}], count = s.w[{first} + 1];
    const u64 ranges = rows < {RANGES}u ? (rows > 0u ? rows : 1u) : {RANGES}u, parts = (n + {COLUMNS}u - 1u) / {COLUMNS}u;
    const u64 jobs = ranges * (parts > 0u ? parts : 1u);
    for (u64 job = blockIdx.x; job < jobs; job += gridDim.x) {{
        const u64 range = job % ranges, low = rows * range / ranges, high = rows * (range + 1u) / ranges;
        const {index} i = ({index})(job / ranges * {COLUMNS}u + threadIdx.x);
        const bool has = i < n;
{positions}        for (u64 start = 0; start < count; start += {COLUMNS}u) {{
            __syncthreads();
            const u64 mine = start + threadIdx.x;
            if (mine < count) {{
                const i64 row = (i64)numbers[mine * s.w[{first} + 2]];
                if (row < 0 || (u64)row >= rows) fault(lock, record, s.w[{first} + 5], mine, row);
                list[threadIdx.x] = row;
            }}
            __syncthreads();
            if (!has) continue;
            for (u32 at = 0; at < {COLUMNS}u && start + at < count; at++) {{
                const i64 row = list[at];
                if (row < (i64)low || row >= (i64)high) continue;
                const {element} *from = source + (start + at) * s.w[{first} + 3] + {from};
                {element} *to = sum + (u64)row * s.w[{first} + 4] + {to};
                *to = {add};
            }}
        }}
    }}
}}
"
    );
    let blocks = (blocks_of_columns * ranges).clamp(1, 1 << 20) as u32;
    CudaKernel { source: text, blocks, threads: COLUMNS, params }
}

/// Declares where faults are noted.
fn faults(mut params: Params<'_>) -> Params<'_> {
    params.plain("u32 *lock", Param::FaultLock);
    params.plain("u64 *record", Param::FaultRecord);
    params
}

/// A type of as many bits: gather moves them without asking what they mean.
fn bits(dtype: DType) -> &'static str {
    match dtype.size() {
        1 => "u8",
        2 => "u16",
        4 => "u32",
        _ => "u64",
    }
}
