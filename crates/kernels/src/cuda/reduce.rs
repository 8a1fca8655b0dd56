//! Sums, maxima and positions of maxima along one axis, in the tree that the CPU backend's reduction documents.
//!
//! Lane l of 32 combines elements l, l + 32, … of a chunk of 1024 in order; lanes are combined in halves; chunks in
//! pairs, T(n) = T(p) + T(n − p), p the largest power of two below n. The tree depends on the length of the axis alone,
//! so all ways to run it give the same bits:
//!
//! - *rows*, where the axis is denser in memory than its neighbour or outputs are few: a warp reduces a chunk with a lane for each lane; the
//!   warps of a block share the chunks of one output, or, of an axis of one chunk, each have an output of their own; of few
//!   outputs with many chunks several blocks share each, an aligned run of 2ʲ chunks each, which is a subtree, and the block
//!   that is done last combines the runs;
//! - *columns*, else: a thread reduces one output and holds the 32 lanes itself, so neighbours read neighbours.
//!
//! Work before a reduction computes each element where it is wanted, once; work after it is done to a result by the thread
//! that has it.

use phonograph_graph::{DType, FusedKernel, ReduceOp};

use super::code::{self, Code};
use super::params::Params;
use super::space::THREADS;
use super::{CudaError, CudaKernel, ENTRY, Param, raw};
use crate::code::{position_of_element, result_and_views, stores};
use crate::space::{Reduced, Space};

const CHUNK: u64 = 1024;
/// The most warps of a block that share an output.
const MAX_WARPS: u64 = 16;
/// Blocks that keep a device busy, and the most that share an output.
const MAX_SPLITS: u64 = 512;
/// Outputs that give enough threads when each has one of its own.
const MANY_OUTPUTS: u64 = 1 << 13;
/// The fewest chunks for which a block of its own is worth while.
const MIN_RUN: u64 = 4;

pub(super) fn kernel(
    fused: &FusedKernel,
    op: ReduceOp,
    axis: usize,
    mut params: Params<'_>,
) -> Result<CudaKernel, CudaError> {
    let views = params.views;
    let library = fused.library_operands(views).expect("checked when the graph was built");
    let (input, output) = (&library[0], &library[1]);
    let length = input.shape().extents()[axis];
    if op == ReduceOp::ArgMax && length > i32::MAX as u64 {
        return Err(CudaError::TooLong(length));
    }
    let Reduced { results: space, along, by_columns, by_axis } =
        Reduced::new(fused, views, axis, output);
    let mut words = space.words();
    let at_length = words.len();
    words.push(length);
    words.extend(&along);
    let element_at = |view: usize| match along[view] {
        0 => space.offset(view),
        1 => format!("(u64)({}) + at", space.offset(view)),
        _ => format!("(u64)({}) + at * s.w[{}]", space.offset(view), at_length + 1 + view),
    };
    let (element, finish) = (element(fused, axis, &element_at), finish(fused, &space));
    let Way { body, blocks, threads, splits } = way(&space, by_columns, length, &mut words);
    let (positions, element_type) = (space.positions(by_axis), raw(input.dtype));
    let body = body
        .replace(
            "$ELEMENT",
            &format!("{positions}        auto element = [&](const u64 at) -> {element_type} {{ {element} }};\n"),
        )
        .replace("$FINISH", &finish);
    let exprs = [&fused.before, &fused.after].into_iter().flatten();
    let prelude = code::prelude(exprs, words.len(), params.enters);
    let fold = fold(op, input.dtype);
    params.tensors(fused.operands().before_outputs.start);
    params.scalars(fused.params());
    if splits > 1 {
        // A counter and, aligned to 16 bytes, an accumulator of up to 16 for each run.
        let counters = (space.elements * 4).next_multiple_of(16);
        params.plain("u8 *scratch", Param::Scratch(counters + space.elements * splits * 16));
    }
    let (declared, start, params) = params.finish(words);
    let index = space.index();
    let source = format!(
        "{prelude}{fold}{TREE}
extern \"C\" __global__ void __launch_bounds__({threads}) {ENTRY}({declared}) {{
{start}
    typedef {index} Index;
    const Index n = (Index)s.w[0];
    const u64 length = s.w[{at_length}];
{body}}}
"
    );
    Ok(CudaKernel { source, blocks, threads, params })
}

/// Gives the element at position `at` along the axis, which lies at `place` of each view.
fn element(fused: &FusedKernel, axis: usize, place: &dyn Fn(usize) -> String) -> String {
    let Some(expr) = &fused.before else { return format!("return x0[{}];", place(0)) };
    let code = Code {
        expr,
        prefix: "v",
        input: &|input| format!("x{input}[{}]", place(input)),
        first_param: 0,
        position: &position_of_element(axis),
    };
    let stores = stores(fused.operands().before_outputs, 1, |view, output| {
        code.store(view, &place(view), output)
    });
    format!("\n{}{stores}        return {};", code.declare(), code.output(0))
}

/// What is done to the result of an output.
fn finish(fused: &FusedKernel, space: &Space) -> String {
    let at = fused.operands();
    let place = |view: usize| format!("x{view}[{}]", space.offset(view));
    let Some(expr) = &fused.after else {
        return format!("{} = result(a);", place(at.after_outputs.start));
    };
    let code = Code {
        expr,
        prefix: "w",
        input: &result_and_views("result(a)", at.after_inputs.start, place),
        first_param: fused.before.as_ref().map_or(0, |before| before.params().len()),
        position: &|of| format!("c{of}"),
    };
    let stores =
        stores(at.after_outputs, 0, |view, output| code.store(view, &space.offset(view), output));
    format!("{{\n{}{stores}        }}", code.declare())
}

/// How outputs are spread over blocks of threads.
struct Way {
    body: String,
    blocks: u32,
    threads: u32,
    /// How many blocks share an output.
    splits: u64,
}

fn way(space: &Space, by_columns: bool, length: u64, words: &mut Vec<u64>) -> Way {
    let chunks = length.div_ceil(CHUNK);
    let warps = |chunks: u64| chunks.next_power_of_two().clamp(1, MAX_WARPS);
    // Chunks of a run; one run is the whole axis.
    let run = (chunks.saturating_mul(space.elements)).div_ceil(MAX_SPLITS);
    let run = run.next_power_of_two().max(MIN_RUN);
    let splits = chunks.div_ceil(run);
    if by_columns && space.elements >= MANY_OUTPUTS {
        Way { body: COLUMNS.to_owned(), blocks: space.blocks(), threads: THREADS, splits: 1 }
    } else if splits > 1 {
        let (at_run, warps) = (words.len(), warps(run));
        words.push(run);
        let body = SPLIT
            .replace("$WARPS", &warps.to_string())
            .replace("$RUN", &format!("s.w[{at_run}]"))
            .replace("$SPLITS", &MAX_SPLITS.to_string());
        let blocks = (space.elements * splits).max(1) as u32;
        Way { body, blocks, threads: 32 * warps as u32, splits }
    } else if warps(chunks) == 1 {
        let outputs_of_block = u64::from(THREADS / 32);
        let blocks = space.elements.div_ceil(outputs_of_block).clamp(1, 1 << 20) as u32;
        Way { body: ROW.to_owned(), blocks, threads: THREADS, splits: 1 }
    } else {
        let (blocks, warps) = (space.elements.clamp(1, 1 << 20) as u32, warps(chunks));
        let body = ROWS.replace("$WARPS", &warps.to_string());
        Way { body, blocks, threads: 32 * warps as u32, splits: 1 }
    }
}

/// The accumulator of a reduction and how two are merged.
fn fold(op: ReduceOp, dtype: DType) -> String {
    let t = raw(dtype);
    let float = dtype.is_float();
    let lowest = match dtype {
        DType::F32 => "f32_of(0x7fc00000u)",
        DType::F64 => "f64_of(0x7ff8000000000000ull)",
        DType::I32 => "(i32)0x80000000u",
        DType::I64 => "(i64)0x8000000000000000ull",
        _ => "0u",
    };
    // NaN is below every number.
    let above = if float { "a > b || (b != b && a == a)" } else { "a > b" };
    let unsigned = match dtype {
        DType::I32 => "(u32)",
        DType::I64 => "(u64)",
        _ => "",
    };
    match op {
        ReduceOp::Sum => format!(
            "typedef {t} Acc;
FN Acc identity() {{ return 0; }}
FN Acc lift({t} value, u64 position) {{ return value; }}
FN Acc merge(Acc a, Acc b) {{ return ({t})({unsigned}a + {unsigned}b); }}
FN {t} result(Acc a) {{ return a; }}
FN Acc down(Acc a, int by) {{ return __shfl_down_sync(0xffffffffu, a, by); }}
"
        ),
        ReduceOp::Max => format!(
            "typedef {t} Acc;
FN Acc identity() {{ return {lowest}; }}
FN Acc lift({t} value, u64 position) {{ return value; }}
FN Acc merge(Acc a, Acc b) {{ return {above} ? a : b; }}
FN {t} result(Acc a) {{ return a; }}
FN Acc down(Acc a, int by) {{ return __shfl_down_sync(0xffffffffu, a, by); }}
"
        ),
        ReduceOp::ArgMax => format!(
            "struct Acc {{ {t} value; i32 position; }};
FN Acc identity() {{ Acc a; a.value = {lowest}; a.position = 0x7fffffff; return a; }}
FN Acc lift({t} value, u64 position) {{ Acc a; a.value = value; a.position = (i32)position; return a; }}
FN bool above({t} a, {t} b) {{ return {above}; }}
FN Acc merge(Acc a, Acc b) {{
    const bool first = above(a.value, b.value), second = above(b.value, a.value);
    const bool take = first == second ? a.position < b.position : first;
    return take ? a : b;
}}
FN i32 result(Acc a) {{ return a.position; }}
FN Acc down(Acc a, int by) {{
    Acc b;
    b.value = __shfl_down_sync(0xffffffffu, a.value, by);
    b.position = __shfl_down_sync(0xffffffffu, a.position, by);
    return b;
}}
"
        ),
    }
}

/// Combines chunks that come in order, like a binary counter: place k holds the result of 2^k neighbours.
const TREE: &str = "struct Tree { Acc places[48]; u64 count; };
FN void push(Tree *tree, Acc a) {
    int place = 0;
    for (; tree->count >> place & 1; place++) a = merge(tree->places[place], a);
    tree->places[place] = a;
    tree->count++;
}
FN Acc total(const Tree *tree) {
    Acc a = identity();
    bool any = false;
    for (int place = 0; tree->count >> place; place++) {
        if (!(tree->count >> place & 1)) continue;
        a = any ? merge(tree->places[place], a) : tree->places[place];
        any = true;
    }
    return a;
}
template <typename E> FN Acc chunk_of_warp(E element, u64 chunk, u64 length, u32 lane) {
    Acc a = identity();
    #pragma unroll 16
    for (u32 k = 0; k < 32u; k++) {
        const u64 at = chunk * 1024u + k * 32u + lane;
        if (at < length) a = merge(a, lift(element(at), at));
    }
    for (int half = 16; half > 0; half >>= 1) {
        const Acc b = down(a, half);
        if (lane < half) a = merge(a, b);
    }
    return a;
}
";

/// A warp for each output; the axis is one chunk at most.
const ROW: &str = "    const u32 lane = threadIdx.x % 32u;
    #pragma unroll 1
    for (Index i = blockIdx.x * (blockDim.x / 32u) + threadIdx.x / 32u; i < n; i += gridDim.x * (blockDim.x / 32u)) {
$ELEMENT        const Acc a = chunk_of_warp(element, 0, length, lane);
        if (lane == 0) $FINISH
    }
";

/// A block for each output, whose warps take chunks in turn.
const ROWS: &str = "    __shared__ Acc shared[$WARPS];
    const u32 lane = threadIdx.x % 32u, warp = threadIdx.x / 32u;
    const u64 chunks = (length + 1023u) / 1024u;
    for (Index i = blockIdx.x; i < n; i += gridDim.x) {
$ELEMENT        Tree tree;
        tree.count = 0;
        for (u64 first = 0; first < chunks; first += $WARPS) {
            if (first + warp < chunks) {
                const Acc a = chunk_of_warp(element, first + warp, length, lane);
                if (lane == 0) shared[warp] = a;
            }
            __syncthreads();
            if (threadIdx.x == 0)
                for (u64 w = 0; w < $WARPS && first + w < chunks; w++) push(&tree, shared[w]);
            __syncthreads();
        }
        if (threadIdx.x == 0) {
            const Acc a = total(&tree);
            $FINISH
        }
    }
";

/// Several blocks for each output, with a run of chunks each.
const SPLIT: &str = "    __shared__ Acc shared[$WARPS], runs[$SPLITS];
    __shared__ bool last;
    const u32 lane = threadIdx.x % 32u, warp = threadIdx.x / 32u;
    const u64 chunks = (length + 1023u) / 1024u, run = $RUN;
    const u32 splits = (u32)((chunks + run - 1u) / run);
    u32 *counters = (u32 *)scratch;
    Acc *partial = (Acc *)(scratch + (n * 4u + 15u) / 16u * 16u);
    for (u64 job = blockIdx.x; job < (u64)n * splits; job += gridDim.x) {
        const Index i = (Index)(job / splits);
        const u64 split = job % splits, begin = split * run;
        const u64 end = begin + run < chunks ? begin + run : chunks;
        // A warp has an aligned run of its own within the block's, and waits for nobody before its end.
        const u64 own = run / $WARPS, first = begin + warp * own;
$ELEMENT        Tree tree;
        tree.count = 0;
        #pragma unroll 1
        for (u64 chunk = first; chunk < first + own && chunk < end; chunk++) {
            const Acc a = chunk_of_warp(element, chunk, length, lane);
            if (lane == 0) push(&tree, a);
        }
        if (lane == 0 && tree.count > 0) shared[warp] = total(&tree);
        __syncthreads();
        if (threadIdx.x == 0) {
            const u32 used = (u32)((end - begin + own - 1u) / own);
            for (u32 by = 1; by < used; by *= 2u)
                for (u32 at = 0; at + by < used; at += 2u * by) shared[at] = merge(shared[at], shared[at + by]);
            partial[(u64)i * splits + split] = shared[0];
            __threadfence();
            // The counter is 0 again after the last.
            last = atomicInc(counters + i, splits - 1u) == splits - 1u;
            __threadfence();
        }
        __syncthreads();
        if (last) {
            for (u32 at = threadIdx.x; at < splits; at += blockDim.x) {
                // Past the first cache, which does not see what other multiprocessors write.
                const u32 *from = (const u32 *)(partial + (u64)i * splits + at);
                u32 *to = (u32 *)(runs + at);
                for (u32 word = 0; word < sizeof(Acc) / 4u; word++) to[word] = __ldcg(from + word);
            }
            // Neighbours in pairs, the odd one as it is: the tree of the chunks, from here up.
            for (u32 by = 1; by < splits; by *= 2u) {
                __syncthreads();
                for (u32 at = threadIdx.x * 2u * by; at + by < splits; at += blockDim.x * 2u * by)
                    runs[at] = merge(runs[at], runs[at + by]);
            }
            __syncthreads();
            if (threadIdx.x == 0) {
                const Acc a = runs[0];
                $FINISH
            }
        }
        __syncthreads();
    }
";

/// A thread for each output.
const COLUMNS: &str = "    for (Index i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
$ELEMENT        Tree tree;
        tree.count = 0;
        for (u64 chunk = 0; chunk < length; chunk += 1024u) {
            Acc lanes[32];
            #pragma unroll
            for (int l = 0; l < 32; l++) lanes[l] = identity();
            for (u64 first = chunk; first < chunk + 1024u && first < length; first += 32u) {
                #pragma unroll
                for (int l = 0; l < 32; l++)
                    if (first + l < length) lanes[l] = merge(lanes[l], lift(element(first + l), first + l));
            }
            #pragma unroll
            for (int half = 16; half > 0; half >>= 1) {
                #pragma unroll
                for (int l = 0; l < half; l++) lanes[l] = merge(lanes[l], lanes[l + half]);
            }
            push(&tree, lanes[0]);
        }
        const Acc a = total(&tree);
        $FINISH
    }
";
