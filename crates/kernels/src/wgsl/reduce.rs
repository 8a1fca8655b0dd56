//! Sums, maxima and positions of maxima along one axis, in the tree that the CPU backend's reduction documents.
//!
//! Lane l of 32 combines elements l, l + 32, … of a chunk of 1024 in order; lanes are combined in halves; chunks in
//! pairs, T(n) = T(p) + T(n − p), p the largest power of two below n. The tree depends on the length of the axis alone,
//! so both ways to run it add in the same order:
//!
//! - *rows*, where the axis is denser in memory than its neighbour: a workgroup for each output, whose teams of 32 threads
//!   take chunks in turn and meet in workgroup memory;
//! - *columns*, else: a thread for each output, so neighbours read neighbours. It takes the lanes of a chunk in the order
//!   of their numbers' reversed bits, in which combining neighbours is combining halves.
//!
//! Work before a reduction computes each element where it is wanted, once; work after it is done to a result by the thread
//! that has it.

use phonograph_graph::{DType, FusedKernel, ReduceOp};

use super::code::Code;
use super::index::{Index, THREADS, groups};
use super::{ENTRY, MAX_ELEMENTS, Source, WgslError, WgslKernel, value};
use crate::code::{position_of_element, result_and_views, stores};
use crate::space::Reduced;

const CHUNK: u64 = 1024;
/// The most teams that share an output: as many as a workgroup of 256 threads has.
const MAX_TEAMS: u64 = 8;

pub(super) fn kernel(
    mut source: Source<'_>,
    fused: &FusedKernel,
    op: ReduceOp,
    axis: usize,
) -> Result<WgslKernel, WgslError> {
    let views = source.views;
    let library = fused.library_operands(views).expect("checked when the graph was built");
    let (input, output) = (&library[0], &library[1]);
    let length = input.shape().extents()[axis];
    if input.elements() >= MAX_ELEMENTS {
        return Err(WgslError::TooLarge(input.elements()));
    }
    let element_type = value(input.dtype)?;
    let at = fused.operands();
    let Reduced { results, along, by_columns, by_axis } = Reduced::new(fused, views, axis, output);
    let block = &mut source.block;
    let index = Index::new(results, block);
    let length_word = block.value(length);
    let steps: Vec<String> = along.iter().map(|&step| block.value(step)).collect();
    let element_at = |view: usize| match along[view] {
        0 => index.offset(view),
        1 => format!("{} + at", index.offset(view)),
        _ => format!("{} + at * {}", index.offset(view), steps[view]),
    };
    let positions = index.positions(by_axis);
    let before_params = fused.before.as_ref().map_or(0, |before| before.params().len());
    let (params_before, params_after) = source.scalars.split_at(before_params);
    // The element of output `i` at position `at` along the axis.
    let element = match &fused.before {
        None => format!("    return load0({});\n", element_at(0)),
        Some(expr) => {
            let code = Code {
                expr,
                prefix: "v",
                input: &|input| format!("load{input}({})", element_at(input)),
                params: params_before,
                position: &position_of_element(axis),
            };
            let values = code.declare(block)?;
            let stores = stores(at.before_outputs.clone(), 1, |view, output| {
                code.store(view, &element_at(view), output)
            });
            format!("{values}{stores}    return {};\n", code.output(0))
        }
    };
    // What is done to the result of output `i`.
    let finish = match &fused.after {
        None => {
            let to = at.after_outputs.start;
            format!("    store{to}({}, result(a));\n", index.offset(to))
        }
        Some(expr) => {
            let code = Code {
                expr,
                prefix: "w",
                input: &result_and_views("result(a)", at.after_inputs.start, |view| {
                    format!("load{view}({})", index.offset(view))
                }),
                params: params_after,
                position: &|of| format!("c{of}"),
            };
            let values = code.declare(block)?;
            let stores = stores(at.after_outputs.clone(), 0, |view, output| {
                code.store(view, &index.offset(view), output)
            });
            format!("{values}{stores}")
        }
    };
    let teams = length.div_ceil(CHUNK).next_power_of_two().clamp(1, MAX_TEAMS);
    let (run, groups) = if by_columns {
        (COLUMNS.replace("$THREADS", &THREADS.to_string()), index.groups())
    } else {
        let rows = ROWS
            .replace("$TEAMS", &teams.to_string())
            .replace("$THREADS", &(32 * teams).to_string());
        (rows, groups(index.space.elements))
    };
    let run = run.replace("$ENTRY", ENTRY).replace("$COUNT", &index.count);
    let run = run.replace("$LENGTH", &length_word);
    let fold = fold(op, input.dtype);
    let body = format!(
        "{fold}{TREE}
fn element(i: u32, at: u32) -> {element_type} {{
{positions}{element}}}
fn finish(i: u32, a: Acc) {{
{positions}{finish}}}
{run}"
    );
    Ok(source.finish(&body, groups, false))
}

/// The accumulator of a reduction and how two are merged.
fn fold(op: ReduceOp, dtype: DType) -> String {
    let t = dtype.name();
    let float = dtype.is_float();
    let lowest = match dtype {
        DType::F32 => "f32_of(0x7fc00000u)",
        DType::I32 => "bitcast<i32>(0x80000000u)",
        _ => "0u",
    };
    // NaN is below every number.
    let above = if float { "a > b || (is_nan(b) && !is_nan(a))" } else { "a > b" };
    match op {
        ReduceOp::Sum => format!(
            "alias Acc = {t};
fn identity() -> Acc {{ return {t}(0); }}
fn lift(value: {t}, position: u32) -> Acc {{ return value; }}
fn merge(a: Acc, b: Acc) -> Acc {{ return a + b; }}
fn result(a: Acc) -> {t} {{ return a; }}
"
        ),
        ReduceOp::Max => format!(
            "alias Acc = {t};
fn identity() -> Acc {{ return {lowest}; }}
fn lift(value: {t}, position: u32) -> Acc {{ return value; }}
fn merge(a: Acc, b: Acc) -> Acc {{ return select(b, a, {above}); }}
fn result(a: Acc) -> {t} {{ return a; }}
"
        ),
        ReduceOp::ArgMax => format!(
            "struct Acc {{ value: {t}, position: i32 }}
fn identity() -> Acc {{ return Acc({lowest}, 2147483647); }}
fn lift(value: {t}, position: u32) -> Acc {{ return Acc(value, i32(position)); }}
fn above(a: {t}, b: {t}) -> bool {{ return {above}; }}
fn merge(a: Acc, b: Acc) -> Acc {{
    let first = above(a.value, b.value);
    let second = above(b.value, a.value);
    if first == second {{
        if a.position < b.position {{ return a; }}
        return b;
    }}
    if first {{ return a; }}
    return b;
}}
fn result(a: Acc) -> i32 {{ return a.position; }}
"
        ),
    }
}

/// Combines what comes in order, like a binary counter: place k holds the result of 2^k neighbours.
const TREE: &str = "struct Tree { places: array<Acc, 32>, count: u32 }
fn push(tree: ptr<function, Tree>, next: Acc) {
    var a = next;
    var place = 0u;
    while (((*tree).count >> place) & 1u) == 1u {
        a = merge((*tree).places[place], a);
        place++;
    }
    (*tree).places[place] = a;
    (*tree).count++;
}
fn total(tree: ptr<function, Tree>) -> Acc {
    var a = identity();
    var any = false;
    for (var place = 0u; place < 32u; place++) {
        if (((*tree).count >> place) & 1u) == 1u {
            if any { a = merge((*tree).places[place], a); } else { a = (*tree).places[place]; }
            any = true;
        }
    }
    return a;
}
";

/// A workgroup for each output.
const ROWS: &str = "var<workgroup> lanes: array<Acc, $THREADS>;
@compute @workgroup_size($THREADS)
fn $ENTRY(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let lane = thread % 32u;
    let team = thread / 32u;
    let length = $LENGTH;
    let chunks = (length + 1023u) / 1024u;
    for (var i = group.x; i < $COUNT; i += groups.x) {
        var tree: Tree;
        for (var first = 0u; first < chunks; first += $TEAMSu) {
            var a = identity();
            let chunk = first + team;
            for (var k = 0u; k < 32u; k++) {
                let at = chunk * 1024u + k * 32u + lane;
                if at < length { a = merge(a, lift(element(i, at), at)); }
            }
            lanes[thread] = a;
            workgroupBarrier();
            for (var half = 16u; half > 0u; half >>= 1u) {
                if lane < half { lanes[thread] = merge(lanes[thread], lanes[thread + half]); }
                workgroupBarrier();
            }
            if thread == 0u {
                for (var t = 0u; t < $TEAMSu; t++) {
                    if first + t < chunks { push(&tree, lanes[t * 32u]); }
                }
            }
            workgroupBarrier();
        }
        if thread == 0u { finish(i, total(&tree)); }
    }
}
";

/// A thread for each output.
const COLUMNS: &str = "@compute @workgroup_size($THREADS)
fn $ENTRY(@builtin(global_invocation_id) thread: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let length = $LENGTH;
    for (var i = thread.x; i < $COUNT; i += groups.x * $THREADSu) {
        var tree: Tree;
        for (var chunk = 0u; chunk < length; chunk += 1024u) {
            for (var l = 0u; l < 32u; l++) {
                let lane = reverseBits(l) >> 27u;
                var a = identity();
                for (var k = 0u; k < 32u; k++) {
                    let at = chunk + k * 32u + lane;
                    if at < length { a = merge(a, lift(element(i, at), at)); }
                }
                push(&tree, a);
            }
        }
        finish(i, total(&tree));
    }
}
";
