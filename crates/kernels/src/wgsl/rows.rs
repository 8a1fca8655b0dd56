//! Gather and scatter-add: rows that a list of numbers names.
//!
//! A number that is out of range is noted in the fault record, and its row left out; the replay then reports it. Gather
//! has a thread for each element of the output. Scatter-add has a thread for each column and range of the destination's
//! rows, which goes through the whole list, so that every destination element is summed in the order of the list by one
//! thread.

use phonograph_graph::DType;

use super::block::Word;
use super::index::{Index, THREADS, groups};
use super::{ENTRY, Source, WgslKernel};
use crate::space::{Space, strides};

/// The most ranges that the destination's rows are cut into: each goes through all numbers.
const RANGES: u64 = 64;

pub(super) fn gather(mut source: Source<'_>) -> WgslKernel {
    let [table, numbers, output] = [&source.views[0], &source.views[1], &source.views[2]];
    let shape = output.shape();
    // The row of the table is added by its number; the list has a number for each position along the first axis.
    let (mut in_row, mut in_list) = (strides(table), vec![0; shape.rank()]);
    let row_stride = std::mem::take(&mut in_row[0]);
    in_list[0] = numbers.strides()[0];
    // Merged axes would hide the position in the list, which a fault names.
    let space = Space::new(shape.extents(), &[in_row, in_list, strides(output)], true);
    let block = &mut source.block;
    let index = Index::new(space, block);
    let (rows, step) = (block.value(table.shape().extents()[0]), block.value(row_stride));
    let (node, in_range) = (block.word(Word::Node), in_range(numbers.dtype, &rows));
    let positions = index.positions(true);
    let (in_row, in_list, to) = (index.offset(0), index.offset(1), index.offset(2));
    let count = &index.count;
    let body = format!(
        "fn element(i: u32) {{
{positions}    let row = load1({in_list});
    if !({in_range}) {{
        note_fault({node}, c0, bitcast<u32>(row));
        return;
    }}
    store2({to}, load0(u32(row) * {step} + {in_row}));
}}
@compute @workgroup_size({THREADS})
fn {ENTRY}(@builtin(global_invocation_id) thread: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {{
    for (var i = thread.x; i < {count}; i += groups.x * {THREADS}u) {{ element(i); }}
}}
"
    );
    let groups = index.groups();
    source.finish(&body, groups, true)
}

pub(super) fn scatter_add(mut source: Source<'_>) -> WgslKernel {
    let [from, numbers, sum] = [&source.views[0], &source.views[1], &source.views[2]];
    let rows = sum.shape().extents()[0];
    let (mut in_from, mut in_sum) = (strides(from), strides(sum));
    let (from_row, sum_row) = (in_from.remove(0), in_sum.remove(0));
    let space = Space::new(&sum.shape().extents()[1..], &[in_from, in_sum], false);
    let block = &mut source.block;
    let index = Index::new(space, block);
    let [row_count, length, list_step, from_step, sum_step] =
        [rows, numbers.elements(), numbers.strides()[0], from_row, sum_row]
            .map(|value| block.value(value));
    let ranges = rows.clamp(1, RANGES);
    let range_count = block.value(ranges);
    let (node, in_range) = (block.word(Word::Node), in_range(numbers.dtype, &row_count));
    let (positions, in_from, in_sum) = (index.positions(false), index.offset(0), index.offset(1));
    let count = &index.count;
    let body = format!(
        "fn column(i: u32, low: u32, high: u32, first: bool) {{
{positions}    for (var at = 0u; at < {length}; at++) {{
        let row = load1(at * {list_step});
        if !({in_range}) {{
            if first {{ note_fault({node}, at, bitcast<u32>(row)); }}
            continue;
        }}
        let number = u32(row);
        if number < low || number >= high {{ continue; }}
        let place = number * {sum_step} + {in_sum};
        store2(place, load2(place) + load0(at * {from_step} + {in_from}));
    }}
}}
@compute @workgroup_size({THREADS})
fn {ENTRY}(@builtin(global_invocation_id) thread: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {{
    let columns = {count};
    let ranges = {range_count};
    // Rows spread evenly: the first ranges have one more.
    let least = {row_count} / ranges;
    let longer = {row_count} % ranges;
    for (var job = thread.x; job < columns * ranges; job += groups.x * {THREADS}u) {{
        let range = job / columns;
        let low = range * least + min(range, longer);
        let high = low + least + select(0u, 1u, range < longer);
        column(job % columns, low, high, job == 0u);
    }}
}}
"
    );
    let jobs = index.space.elements * ranges;
    source.finish(&body, groups(jobs.div_ceil(u64::from(THREADS))), true)
}

/// Whether `row` is the number of one of so many rows.
fn in_range(dtype: DType, rows: &str) -> String {
    match dtype {
        DType::I32 => format!("row >= 0 && u32(row) < {rows}"),
        _ => format!("row < {rows}"),
    }
}
