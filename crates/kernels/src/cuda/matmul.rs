//! Matrix products of f32 and f64 by tiles in shared memory.
//!
//! A block of 256 threads computes a tile of 64 × 64: it brings 64 × 16 of a and 16 × 64 of b into shared memory at a time,
//! and a thread holds 4 × 4 sums. Each sum is one chain of fused multiply-adds along k, so the result does not depend on
//! where in a tile an element lies. Any strides are allowed; an inner axis of no elements gives zeros.
//! Work after it is done to each sum by the thread that has it.

use phonograph_graph::{DType, FusedKernel, View};

use super::code::{self, Code};
use super::space::{Space, strides};
use super::{CudaKernel, ENTRY, Param, tensors};

const TILE: u64 = 64;
const THREADS: u32 = 256;

pub(super) fn kernel(fused: &FusedKernel, views: &[View], scalars: &[usize]) -> CudaKernel {
    let library = fused.library_operands(views).expect("checked when the graph was built");
    let (a, b) = (library[0].shape(), library[1].shape());
    let (a, b) = (a.extents(), b.extents());
    let (m, k, n) = (a[a.len() - 2], a[a.len() - 1], b[b.len() - 1]);
    let batches = if a.len() == 3 { a[0] } else { 1 };
    let at = fused.operands();
    // Positions are at hand, so no axis is merged with another.
    let seen: Vec<Vec<u64>> = views[at.after_inputs.start..].iter().map(strides).collect();
    let space = Space::new(library[2].shape().extents(), &seen, true);
    let offset = |view: usize| space.offset(view - at.after_inputs.start);
    let mut words = space.words();
    let first = words.len();
    words.extend([batches, m, n, k]);
    for view in &views[..2] {
        let strides = view.strides();
        let (row, column) = (strides[strides.len() - 2], strides[strides.len() - 1]);
        words.extend([if strides.len() == 3 { strides[0] } else { 0 }, row, column]);
    }
    let finish = match &fused.after {
        None => format!("x2[{}] = sums[y][x];", offset(2)),
        Some(expr) => {
            let code = Code {
                expr,
                prefix: "w",
                input: &|input| match input {
                    0 => "sums[y][x]".to_owned(),
                    other => {
                        let view = at.after_inputs.start + other - 1;
                        format!("x{view}[{}]", offset(view))
                    }
                },
                first_param: 0,
                position: &|of| format!("c{of}"),
            };
            let stores = at.after_outputs.clone().enumerate().map(|(output, view)| {
                format!("        x{view}[{}] = {};\n", offset(view), code.output(output))
            });
            let stores: String = stores.collect();
            format!("\n{}{stores}", code.declare())
        }
    };
    let positions = if a.len() == 3 {
        "const u64 c0 = batch, c1 = r, c2 = q;"
    } else {
        "const u64 c0 = r, c1 = q;"
    };
    let double = library[0].dtype == DType::F64;
    let (element, fma) = if double { ("f64", "fma") } else { ("f32", "fmaf") };
    let mut body = BODY
        .replace("$T", element)
        .replace("$FMA", fma)
        .replace("$POSITIONS", positions)
        .replace("$FINISH", &finish);
    for (at, name) in (first..).zip(["batches", "m", "n", "k", "a0", "a1", "a2", "b0", "b1", "b2"])
    {
        body = body.replace(&format!("${name};"), &format!("s.w[{at}];"));
    }
    let prelude = code::prelude(&fused.after, words.len());
    let (tensors, scalar_list) =
        (tensors(views, at.before_outputs.start), code::scalars(fused.params()));
    let source = format!(
        "{prelude}extern \"C\" __global__ void __launch_bounds__({THREADS}) {ENTRY}({tensors}{scalar_list}Words s) {{
{body}}}
"
    );
    let tiles = batches * m.div_ceil(TILE) * n.div_ceil(TILE);
    let mut params: Vec<Param> = views.iter().map(|view| Param::View(*view)).collect();
    params.extend(fused.params().zip(scalars).map(|(t, &at)| Param::Scalar(at, t)));
    params.push(Param::Words(words));
    CudaKernel { source, blocks: tiles.clamp(1, 1 << 30) as u32, threads: THREADS, params }
}

const BODY: &str = "    enter();
    __shared__ $T as[16][65], bs[16][65];
    const u64 batches = $batches;
    const u64 m = $m;
    const u64 n = $n;
    const u64 k = $k;
    const u64 a0 = $a0;
    const u64 a1 = $a1;
    const u64 a2 = $a2;
    const u64 b0 = $b0;
    const u64 b1 = $b1;
    const u64 b2 = $b2;
    const u64 rows = (m + 63u) / 64u, columns = (n + 63u) / 64u;
    const u32 tx = threadIdx.x % 16u, ty = threadIdx.x / 16u;
    for (u64 tile = blockIdx.x; tile < batches * rows * columns; tile += gridDim.x) {
        const u64 batch = tile / (rows * columns), row = tile / columns % rows * 64u, column = tile % columns * 64u;
        const $T *from_a = x0 + batch * a0, *from_b = x1 + batch * b0;
        $T sums[4][4] = {};
        for (u64 first = 0; first < k; first += 16u) {
            for (u32 at = threadIdx.x; at < 1024u; at += 256u) {
                // Neighbouring threads read along whichever axis is denser in memory.
                const u32 ia = a2 <= a1 ? at / 16u : at % 64u, ka = a2 <= a1 ? at % 16u : at / 64u;
                const bool in_a = row + ia < m && first + ka < k;
                as[ka][ia] = in_a ? from_a[(row + ia) * a1 + (first + ka) * a2] : 0;
                const u32 jb = b2 <= b1 ? at % 64u : at / 16u, kb = b2 <= b1 ? at / 64u : at % 16u;
                const bool in_b = column + jb < n && first + kb < k;
                bs[kb][jb] = in_b ? from_b[(first + kb) * b1 + (column + jb) * b2] : 0;
            }
            __syncthreads();
            // Past the end of k nothing is added: 0 times infinity would be.
            const u32 depth = k - first < 16u ? (u32)(k - first) : 16u;
            for (u32 kk = 0; kk < depth; kk++)
                #pragma unroll
                for (u32 y = 0; y < 4u; y++)
                    #pragma unroll
                    for (u32 x = 0; x < 4u; x++)
                        sums[y][x] = $FMA(as[kk][ty + 16u * y], bs[kk][tx + 16u * x], sums[y][x]);
            __syncthreads();
        }
        #pragma unroll
        for (u32 y = 0; y < 4u; y++)
            #pragma unroll
            for (u32 x = 0; x < 4u; x++) {
                const u64 r = row + ty + 16u * y, q = column + tx + 16u * x;
                if (r >= m || q >= n) continue;
                const u64 i = (batch * m + r) * n + q;
                $POSITIONS
                $FINISH
            }
    }
";
