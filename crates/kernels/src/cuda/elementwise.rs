//! Expressions as kernels.
//!
//! A thread loads the inputs of an element, computes the operations in order and stores the outputs. All outputs are
//! stored after all inputs are loaded, so an output may be the very view of an input.

use phonograph_graph::{Expr, View};

use super::code::{self, Code, asks_for_positions};
use super::space::{Space, THREADS, strides};
use super::{CudaKernel, ENTRY, Param, tensors};

pub(super) fn kernel(expr: &Expr, views: &[View], scalars: &[usize]) -> CudaKernel {
    let inputs = expr.inputs().len();
    let shape = views[inputs].shape();
    let by_axis = asks_for_positions(expr);
    let places: Vec<Vec<u64>> = views.iter().map(strides).collect();
    let space = Space::new(shape.extents(), &places, by_axis);
    let words = space.words();
    let code = Code {
        expr,
        prefix: "v",
        input: &|input| format!("x{input}[{}]", space.offset(input)),
        first_param: 0,
        position: &|axis| format!("c{axis}"),
    };
    let stores: String = (0..expr.outputs().len())
        .map(|output| {
            let at = inputs + output;
            format!("        x{at}[{}] = {};\n", space.offset(at), code.output(output))
        })
        .collect();
    let (index, prelude) = (space.index, code::prelude([expr], words.len()));
    let (tensors, scalar_list) =
        (tensors(views, inputs), code::scalars(expr.params().iter().copied()));
    let source = format!(
        "{prelude}extern \"C\" __global__ void __launch_bounds__({THREADS}) {ENTRY}({tensors}{scalar_list}Words s) {{
    enter();
    const {index} n = ({index})s.w[0];
    for ({index} i = blockIdx.x * {THREADS}u + threadIdx.x; i < n; i += {THREADS}u * gridDim.x) {{
{}{}{stores}    }}
}}
",
        space.positions(by_axis),
        code.declare(),
    );
    let mut params: Vec<Param> = views.iter().map(|view| Param::View(*view)).collect();
    params.extend(expr.params().iter().zip(scalars).map(|(&t, &at)| Param::Scalar(at, t)));
    params.push(Param::Words(words));
    CudaKernel { source, blocks: space.blocks(), threads: THREADS, params }
}
