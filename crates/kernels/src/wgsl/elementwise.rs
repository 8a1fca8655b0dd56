//! Expressions as kernels.
//!
//! A thread loads the inputs of an element, computes the operations in order and stores the outputs. All outputs are
//! stored after all inputs are loaded, so an output may be the very view of an input.

use phonograph_graph::Expr;

use super::code::Code;
use super::index::{Index, THREADS};
use super::{ENTRY, Source, WgslError, WgslKernel};
use crate::code::stores;
use crate::space::{Space, asks_for_positions, strides};

pub(super) fn kernel(mut source: Source<'_>, expr: &Expr) -> Result<WgslKernel, WgslError> {
    let inputs = expr.inputs().len();
    let by_axis = asks_for_positions(expr);
    let places: Vec<Vec<u64>> = source.views.iter().map(strides).collect();
    let space = Space::new(source.views[inputs].shape().extents(), &places, by_axis);
    let index = Index::new(space, &mut source.block);
    let code = Code {
        expr,
        prefix: "v",
        input: &|input| format!("load{input}({})", index.offset(input)),
        params: source.scalars,
        position: &|axis| format!("c{axis}"),
    };
    let values = code.declare(&mut source.block)?;
    let outputs = inputs..inputs + expr.outputs().len();
    let stores = stores(outputs, 0, |view, output| code.store(view, &index.offset(view), output));
    let body = format!(
        "fn element(i: u32) {{
{}{values}{stores}}}
@compute @workgroup_size({THREADS})
fn {ENTRY}(@builtin(global_invocation_id) thread: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {{
    for (var i = thread.x; i < {}; i += groups.x * {THREADS}u) {{ element(i); }}
}}
",
        index.positions(by_axis),
        index.count,
    );
    let groups = index.groups();
    Ok(source.finish(&body, groups, false))
}
