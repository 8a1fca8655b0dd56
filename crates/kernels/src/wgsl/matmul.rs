//! Matrix products of f32 by tiles in workgroup memory.
//!
//! A workgroup of 256 threads computes a tile of 64 × 64: it brings 64 × 16 of a and 16 × 64 of b into workgroup memory
//! at a time, and a thread holds 4 × 4 sums. Each sum is one chain along k, so the result does not depend on where in a
//! tile an element lies. Any strides are allowed; an inner axis of no elements gives zeros. An element is within
//! (k + 1) ε Σ |aᵢ bᵢ| of the exact value (ε = 2⁻²⁴). Work after it is done to each sum by the thread that has it.

use phonograph_graph::FusedKernel;

use super::code::Code;
use super::index::{Index, groups};
use super::{ENTRY, MAX_ELEMENTS, Source, WgslError, WgslKernel, value};
use crate::code::{result_and_views, stores};
use crate::space::Product;

const TILE: u64 = 64;

pub(super) fn kernel(mut source: Source<'_>, fused: &FusedKernel) -> Result<WgslKernel, WgslError> {
    let views = source.views;
    let library = fused.library_operands(views).expect("checked when the graph was built");
    value(library[0].dtype)?;
    if library[2].elements() >= MAX_ELEMENTS {
        return Err(WgslError::TooLarge(library[2].elements()));
    }
    let at = fused.operands();
    let product = Product::new(views, &library);
    let tiles = product.tiles(TILE);
    let block = &mut source.block;
    let index = Index::new(product.results, block);
    let offset = |view: usize| index.offset(view - at.after_inputs.start);
    let mut body = BODY.replace("$ENTRY", ENTRY);
    for (name, value) in product.words {
        body = body.replace(&format!("${name};"), &format!("{};", block.value(value)));
    }
    let finish = match &fused.after {
        None => format!("    store2({}, sum);\n", offset(2)),
        Some(expr) => {
            let code = Code {
                expr,
                prefix: "w",
                input: &result_and_views("sum", at.after_inputs.start, |view| {
                    format!("load{view}({})", offset(view))
                }),
                params: source.scalars,
                position: &|of| format!("c{of}"),
            };
            let values = code.declare(block)?;
            let stores = stores(at.after_outputs.clone(), 0, |view, output| {
                code.store(view, &offset(view), output)
            });
            format!("{values}{stores}")
        }
    };
    let positions = if index.space.extents.len() == 3 {
        "    let c0 = batch;\n    let c1 = row;\n    let c2 = column;\n"
    } else {
        "    let c0 = row;\n    let c1 = column;\n"
    };
    let body = format!(
        "fn finish(batch: u32, row: u32, column: u32, i: u32, sum: f32) {{
{positions}{finish}}}
{body}"
    );
    Ok(source.finish(&body, groups(tiles), false))
}

const BODY: &str = "var<workgroup> tile_a: array<array<f32, 65>, 16>;
var<workgroup> tile_b: array<array<f32, 65>, 16>;
@compute @workgroup_size(256)
fn $ENTRY(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let batches = $batches;
    let m = $m;
    let n = $n;
    let k = $k;
    let a0 = $a0;
    let a1 = $a1;
    let a2 = $a2;
    let b0 = $b0;
    let b1 = $b1;
    let b2 = $b2;
    let rows = (m + 63u) / 64u;
    let columns = (n + 63u) / 64u;
    let tx = thread % 16u;
    let ty = thread / 16u;
    // Neighbouring threads read along whichever axis is denser in memory.
    let a_by_rows = a2 <= a1;
    let b_by_rows = b2 <= b1;
    for (var tile = group.x; tile < batches * rows * columns; tile += groups.x) {
        let batch = tile / (rows * columns);
        let row = tile / columns % rows * 64u;
        let column = tile % columns * 64u;
        var sums: array<array<f32, 4>, 4>;
        for (var y = 0u; y < 4u; y++) { for (var x = 0u; x < 4u; x++) { sums[y][x] = 0.0f; } }
        for (var first = 0u; first < k; first += 16u) {
            for (var at = thread; at < 1024u; at += 256u) {
                let ia = select(at % 64u, at / 16u, a_by_rows);
                let ka = select(at / 64u, at % 16u, a_by_rows);
                var value = 0.0f;
                if row + ia < m && first + ka < k { value = load0(batch * a0 + (row + ia) * a1 + (first + ka) * a2); }
                tile_a[ka][ia] = value;
                let jb = select(at / 16u, at % 64u, b_by_rows);
                let kb = select(at % 16u, at / 64u, b_by_rows);
                value = 0.0f;
                if column + jb < n && first + kb < k { value = load1(batch * b0 + (first + kb) * b1 + (column + jb) * b2); }
                tile_b[kb][jb] = value;
            }
            workgroupBarrier();
            // Past the end of k nothing is added: 0 times infinity would be.
            let depth = min(k - first, 16u);
            for (var kk = 0u; kk < depth; kk++) {
                for (var y = 0u; y < 4u; y++) {
                    let factor = tile_a[kk][ty + 16u * y];
                    for (var x = 0u; x < 4u; x++) {
                        sums[y][x] = fma(factor, tile_b[kk][tx + 16u * x], sums[y][x]);
                    }
                }
            }
            workgroupBarrier();
        }
        for (var y = 0u; y < 4u; y++) {
            for (var x = 0u; x < 4u; x++) {
                let r = row + ty + 16u * y;
                let q = column + tx + 16u * x;
                if r < m && q < n { finish(batch, r, q, (batch * m + r) * n + q, sums[y][x]); }
            }
        }
    }
}
";
