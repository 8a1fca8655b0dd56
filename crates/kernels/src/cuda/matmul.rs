//! Matrix products of f32 and f64 by tiles in shared memory.
//!
//! A block of 256 threads computes a tile of 64 × 64: it brings 64 × 16 of a and 16 × 64 of b into shared memory at a time,
//! and a thread holds 4 × 4 sums. Where such tiles are too few to occupy a device, they are 16 × 16, brought 64 deep, and a
//! thread has one sum. Each sum is one chain of fused multiply-adds along k, so the result does not depend on
//! where in a tile an element lies. Any strides are allowed; an inner axis of no elements gives zeros.
//! Work after it is done to each sum by the thread that has it.

use phonograph_graph::{DType, FusedKernel, View};

use super::code::{self, Code};
use super::params::Params;
use super::{CudaKernel, ENTRY};
use crate::code::{result_and_views, stores};
use crate::space::Product;

const THREADS: u32 = 256;
/// Of fewer tiles than this, each would be most of the time that the whole product takes.
const FEW: u64 = 64;

/// How a product is cut.
struct Cut {
    /// Rows and columns of a tile.
    tile: u64,
    /// How much of the inner axis is in shared memory at a time.
    depth: u64,
}

const LARGE: Cut = Cut { tile: 64, depth: 16 };
const SMALL: Cut = Cut { tile: 16, depth: 64 };

pub(super) fn kernel(fused: &FusedKernel, mut params: Params<'_>) -> CudaKernel {
    let views = params.views;
    let library = fused.library_operands(views).expect("checked when the graph was built");
    let at = fused.operands();
    let product = Product::new(views, &library);
    let (k, space) = (product.k, &product.results);
    let offset = |view: usize| space.offset(view - at.after_inputs.start);
    // 32 bits where they are enough for every place, because division is much faster then.
    let near = |view: &View| view.region().bytes / view.dtype.size() < 1 << 31;
    let near = space.index() == "u32" && views[..2].iter().all(near);
    let index = if near && k < 1 << 31 { "u32" } else { "u64" };
    let mut words = space.words();
    let first = words.len();
    words.extend(product.words.map(|(_, value)| value));
    let finish = match &fused.after {
        None => format!("x2[{}] = sums[y][x];", offset(2)),
        Some(expr) => {
            let code = Code {
                expr,
                prefix: "w",
                input: &result_and_views("sums[y][x]", at.after_inputs.start, |view| {
                    format!("x{view}[{}]", offset(view))
                }),
                first_param: 0,
                position: &|of| format!("c{of}"),
            };
            let stores = stores(at.after_outputs.clone(), 0, |view, output| {
                code.store(view, &offset(view), output)
            });
            format!("\n{}{stores}", code.declare())
        }
    };
    let positions = if space.extents.len() == 3 {
        format!("const {index} c0 = batch, c1 = r, c2 = q;")
    } else {
        format!("const {index} c0 = r, c1 = q;")
    };
    let double = library[0].dtype == DType::F64;
    let (element, fma) = if double { ("f64", "fma") } else { ("f32", "fmaf") };
    let cut = if product.tiles(LARGE.tile) < FEW { SMALL } else { LARGE };
    let mut body = BODY
        .replace("$TILE", &cut.tile.to_string())
        .replace("$DEPTH", &cut.depth.to_string())
        .replace("$EACH", &(cut.tile / 16).to_string())
        .replace("$STEPS", &(cut.tile * cut.depth / u64::from(THREADS)).to_string())
        .replace("$I", index)
        .replace("$T", element)
        .replace("$FMA", fma)
        .replace("$POSITIONS", &positions)
        .replace("$FINISH", &finish);
    for (at, (name, _)) in (first..).zip(product.words) {
        body = body.replace(&format!("${name};"), &format!("s.w[{at}];"));
    }
    let prelude = code::prelude(&fused.after, words.len(), params.enters);
    params.tensors(at.before_outputs.start);
    params.scalars(fused.params());
    let (declared, start, params) = params.finish(words);
    let source = format!(
        "{prelude}extern \"C\" __global__ void __launch_bounds__({THREADS}) {ENTRY}({declared}) {{
{start}
{body}}}
"
    );
    CudaKernel {
        source,
        blocks: product.tiles(cut.tile).clamp(1, 1 << 30) as u32,
        threads: THREADS,
        params,
    }
}

const BODY: &str = "    __shared__ $T as[$DEPTH][$TILE + 1], bs[$DEPTH][$TILE + 1];
    const $I batches = $batches;
    const $I m = $m;
    const $I n = $n;
    const $I k = $k;
    const $I a0 = $a0;
    const $I a1 = $a1;
    const $I a2 = $a2;
    const $I b0 = $b0;
    const $I b1 = $b1;
    const $I b2 = $b2;
    const $I rows = (m + $TILEu - 1u) / $TILEu, columns = (n + $TILEu - 1u) / $TILEu;
    const u32 tx = threadIdx.x % 16u, ty = threadIdx.x / 16u;
    #pragma unroll 1
    for ($I tile = blockIdx.x; tile < batches * rows * columns; tile += gridDim.x) {
        const $I batch = tile / (rows * columns), row = tile / columns % rows * $TILEu, column = tile % columns * $TILEu;
        const $T *from_a = x0 + batch * a0, *from_b = x1 + batch * b0;
        $T sums[$EACH][$EACH] = {};
        // Neighbouring threads read along whichever axis is denser in memory. What comes next is read during the sums.
        $T next_a[$STEPS], next_b[$STEPS];
        auto fetch = [&](const $I first) {
            #pragma unroll
            for (u32 step = 0; step < $STEPSu; step++) {
                const u32 at = step * 256u + threadIdx.x;
                const u32 ia = a2 <= a1 ? at / $DEPTHu : at % $TILEu, ka = a2 <= a1 ? at % $DEPTHu : at / $TILEu;
                const bool in_a = row + ia < m && first + ka < k;
                next_a[step] = in_a ? from_a[(row + ia) * a1 + (first + ka) * a2] : 0;
                const u32 jb = b2 <= b1 ? at % $TILEu : at / $DEPTHu, kb = b2 <= b1 ? at / $TILEu : at % $DEPTHu;
                const bool in_b = column + jb < n && first + kb < k;
                next_b[step] = in_b ? from_b[(first + kb) * b1 + (column + jb) * b2] : 0;
            }
        };
        fetch(0);
        #pragma unroll 1
        for ($I first = 0; first < k; first += $DEPTHu) {
            #pragma unroll
            for (u32 step = 0; step < $STEPSu; step++) {
                const u32 at = step * 256u + threadIdx.x;
                const u32 ia = a2 <= a1 ? at / $DEPTHu : at % $TILEu, ka = a2 <= a1 ? at % $DEPTHu : at / $TILEu;
                const u32 jb = b2 <= b1 ? at % $TILEu : at / $DEPTHu, kb = b2 <= b1 ? at / $TILEu : at % $DEPTHu;
                as[ka][ia] = next_a[step];
                bs[kb][jb] = next_b[step];
            }
            __syncthreads();
            if (k - first > $DEPTHu) fetch(first + $DEPTHu);
            // Past the end of k nothing is added: 0 times infinity would be.
            const u32 depth = k - first < $DEPTHu ? (u32)(k - first) : $DEPTHu;
            #pragma unroll 8
            for (u32 kk = 0; kk < depth; kk++)
                #pragma unroll
                for (u32 y = 0; y < $EACHu; y++)
                    #pragma unroll
                    for (u32 x = 0; x < $EACHu; x++)
                        sums[y][x] = $FMA(as[kk][ty + 16u * y], bs[kk][tx + 16u * x], sums[y][x]);
            __syncthreads();
        }
        #pragma unroll
        for (u32 y = 0; y < $EACHu; y++)
            #pragma unroll
            for (u32 x = 0; x < $EACHu; x++) {
                const $I r = row + ty + 16u * y, q = column + tx + 16u * x;
                if (r >= m || q >= n) continue;
                const $I i = (batch * m + r) * n + q;
                $POSITIONS
                $FINISH
            }
    }
";
