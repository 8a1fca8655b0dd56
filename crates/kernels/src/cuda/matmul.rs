//! Matrix products of f32 and f64 by tiles in shared memory.
//!
//! A block of 256 threads computes a tile of 64 × 64: it brings 64 × 16 of a and 16 × 64 of b into shared memory at a time,
//! and a thread holds 4 × 4 sums. Each sum is one chain of fused multiply-adds along k, so the result does not depend on
//! where in a tile an element lies. Any strides are allowed; an inner axis of no elements gives zeros.

use phonograph_graph::{DType, View};

use super::{CudaKernel, ENTRY, Param, prelude};

const TILE: u64 = 64;
const THREADS: u32 = 256;

pub(super) fn kernel(views: &[View]) -> CudaKernel {
    let (a, b) = (views[0].shape(), views[1].shape());
    let (a, b) = (a.extents(), b.extents());
    let (m, k, n) = (a[a.len() - 2], a[a.len() - 1], b[b.len() - 1]);
    let batches = if a.len() == 3 { a[0] } else { 1 };
    let mut words = vec![batches, m, n, k];
    for view in views {
        let strides = view.strides();
        let (row, column) = (strides[strides.len() - 2], strides[strides.len() - 1]);
        words.extend([if strides.len() == 3 { strides[0] } else { 0 }, row, column]);
    }
    let double = views[0].dtype == DType::F64;
    let (element, fma) = if double { ("f64", "fma") } else { ("f32", "fmaf") };
    let prelude = prelude::with_words(words.len());
    let body = BODY.replace("$T", element).replace("$FMA", fma);
    let source = format!(
        "{prelude}extern \"C\" __global__ void __launch_bounds__({THREADS}) {ENTRY}(const {element} *a, const {element} *b, {element} *c, Words s) {{
{body}}}
"
    );
    let tiles = batches * m.div_ceil(TILE) * n.div_ceil(TILE);
    let mut params: Vec<Param> = views.iter().map(|view| Param::View(*view)).collect();
    params.push(Param::Words(words));
    CudaKernel { source, blocks: tiles.clamp(1, 1 << 30) as u32, threads: THREADS, params }
}

const BODY: &str = "    enter();
    __shared__ $T as[16][65], bs[16][65];
    const u64 batches = s.w[0], m = s.w[1], n = s.w[2], k = s.w[3];
    const u64 rows = (m + 63u) / 64u, columns = (n + 63u) / 64u;
    const u32 tx = threadIdx.x % 16u, ty = threadIdx.x / 16u;
    for (u64 tile = blockIdx.x; tile < batches * rows * columns; tile += gridDim.x) {
        const u64 batch = tile / (rows * columns), row = tile / columns % rows * 64u, column = tile % columns * 64u;
        const $T *from_a = a + batch * s.w[4], *from_b = b + batch * s.w[7];
        $T sums[4][4] = {};
        for (u64 first = 0; first < k; first += 16u) {
            for (u32 at = threadIdx.x; at < 1024u; at += 256u) {
                // Neighbouring threads read along whichever axis is denser in memory.
                const u32 ia = s.w[6] <= s.w[5] ? at / 16u : at % 64u, ka = s.w[6] <= s.w[5] ? at % 16u : at / 64u;
                const bool in_a = row + ia < m && first + ka < k;
                as[ka][ia] = in_a ? from_a[(row + ia) * s.w[5] + (first + ka) * s.w[6]] : 0;
                const u32 jb = s.w[9] <= s.w[8] ? at % 64u : at / 16u, kb = s.w[9] <= s.w[8] ? at / 64u : at % 16u;
                const bool in_b = column + jb < n && first + kb < k;
                bs[kb][jb] = in_b ? from_b[(first + kb) * s.w[8] + (column + jb) * s.w[9]] : 0;
            }
            __syncthreads();
            // Past the end of k nothing is added: 0 times infinity would be.
            const u32 depth = k - first < 16u ? (u32)(k - first) : 16u;
            for (u32 kk = 0; kk < depth; kk++)
                #pragma unroll
                for (u32 i = 0; i < 4u; i++)
                    #pragma unroll
                    for (u32 j = 0; j < 4u; j++)
                        sums[i][j] = $FMA(as[kk][ty + 16u * i], bs[kk][tx + 16u * j], sums[i][j]);
            __syncthreads();
        }
        for (u32 i = 0; i < 4u; i++)
            for (u32 j = 0; j < 4u; j++) {
                const u64 r = row + ty + 16u * i, q = column + tx + 16u * j;
                if (r < m && q < n) c[batch * s.w[10] + r * s.w[11] + q * s.w[12]] = sums[i][j];
            }
    }
";
