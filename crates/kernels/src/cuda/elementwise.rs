//! Expressions as kernels.
//!
//! A thread loads the inputs of an element, computes the operations in order and stores the outputs. All outputs are
//! stored after all inputs are loaded, so an output may be the very view of an input.
//!
//! Where there are many elements and every view is dense (or one element repeated), a thread treats one pack: as many
//! neighbours as fill 16 bytes of the widest type, moved as one, if all views are aligned for that. The rest, or
//! all elements where a view is not, are treated one by one by the threads without a pack. The operations are the same
//! either way, and so are the bits.
//!
//! The loop is not unrolled, and there is none around a pack: while the data are in the second cache, a kernel takes as long
//! as its instructions take to be issued, and to ask whether the views are aligned takes as long as an eighth of what is done
//! to them. So that is asked only where nobody knows.

use std::fmt::Write;

use phonograph_graph::{Expr, View};

use super::code::{self, Code};
use super::params::Params;
use super::space::THREADS;
use super::{CudaKernel, ENTRY, raw};
use crate::space::{Space, asks_for_positions, strides};

/// Fewer elements leave most of the device idle when a thread takes several.
const MANY: u64 = 1 << 17;
/// The most elements for which there is a thread for each pack.
const MOST: u64 = 1 << 38;
/// The most operations that are put in the source twice.
const SHORT: usize = 256;

/// `aligned` says that all views are known to lie on multiples of 16 bytes.
pub(super) fn kernel(expr: &Expr, mut params: Params<'_>, aligned: bool) -> CudaKernel {
    let views = params.views;
    let inputs = expr.inputs().len();
    let shape = views[inputs].shape();
    let by_axis = asks_for_positions(expr);
    let places: Vec<Vec<u64>> = views.iter().map(strides).collect();
    let space = Space::new(shape.extents(), &places, by_axis);
    let words = space.words();
    let width = width(expr, views, &space, by_axis);
    let one = body(expr, &|view| format!("x{view}[{}]", space.offset(view)), inputs);
    let (index, prelude) = (space.index(), code::prelude([expr], words.len(), params.enters));
    let threads = format!("({index})gridDim.x * {THREADS}u");
    let (pack, packs, first, step) = match width {
        1 => (String::new(), String::new(), "k".to_owned(), threads),
        width => (
            format!(
                "template <typename T> struct alignas(sizeof(T) * {width}) Pack {{ T v[{width}]; }};\n"
            ),
            packs(expr, views, &space, width, aligned),
            // Behind the packs, by the number among the threads without one.
            format!("packs * {}u + k", width - 1),
            format!("{threads} - packs"),
        ),
    };
    params.tensors(inputs);
    params.scalars(expr.params().iter().copied());
    let (declared, start, params) = params.finish(words);
    let source = format!(
        "{prelude}{pack}extern \"C\" __global__ void __launch_bounds__({THREADS}) {ENTRY}({declared}) {{
{start}
    const {index} n = ({index})s.w[0], k = ({index})blockIdx.x * {THREADS}u + threadIdx.x;
{packs}    #pragma unroll 1
    for ({index} i = {first}; i < n; i += {step}) {{
{}{one}    }}
}}
",
        space.positions(by_axis),
    );
    let blocks = match width {
        1 => space.blocks(),
        width => space.elements.div_ceil(width).div_ceil(u64::from(THREADS)) as u32,
    };
    CudaKernel { source, blocks, threads: THREADS, params }
}

/// The operations of one element, which lies at `place` of each view.
fn body(expr: &Expr, place: &dyn Fn(usize) -> String, inputs: usize) -> String {
    let code = Code {
        expr,
        prefix: "v",
        input: place,
        first_param: 0,
        position: &|axis| format!("c{axis}"),
    };
    let mut text = code.declare();
    for output in 0..expr.outputs().len() {
        writeln!(text, "        {} = {};", place(inputs + output), code.output(output))
            .expect("a string takes all");
    }
    text
}

/// How many elements a thread treats as one.
fn width(expr: &Expr, views: &[View], space: &Space, by_axis: bool) -> u64 {
    let flat = (0..views.len()).all(|view| matches!(&*space.offset(view), "i" | "0"));
    let outputs = expr.inputs().len()..views.len();
    let dense = outputs.clone().all(|view| space.offset(view) == "i");
    let few_or_too_many = !(MANY..=MOST).contains(&space.elements);
    if by_axis || !flat || !dense || few_or_too_many || expr.ops().len() > SHORT {
        return 1;
    }
    let widest = views.iter().map(|view| view.dtype.size()).max().unwrap_or(8);
    (16 / widest).clamp(1, 8)
}

/// Declares `packs`, how many there are, and treats the thread's, if it has one.
fn packs(expr: &Expr, views: &[View], space: &Space, width: u64, aligned: bool) -> String {
    let (inputs, index) = (expr.inputs().len(), space.index());
    let dense = |view: &usize| space.offset(*view) == "i";
    let (mut loads, mut stores, mut tests) = (String::new(), String::new(), Vec::new());
    for view in (0..views.len()).filter(dense) {
        let pack = format!("Pack<{}>", raw(views[view].dtype));
        if view < inputs {
            writeln!(loads, "        const {pack} y{view} = ((const {pack} *)x{view})[k];")
        } else {
            writeln!(loads, "        {pack} y{view};")
                .and_then(|()| writeln!(stores, "        (({pack} *)x{view})[k] = y{view};"))
        }
        .expect("a string takes all");
        tests.push(format!("(u64)x{view} % sizeof({pack}) == 0"));
    }
    let place = |view: usize| match space.offset(view) == "i" {
        true => format!("y{view}.v[j]"),
        false => format!("x{view}[0]"),
    };
    let body = body(expr, &place, inputs);
    let count = match aligned {
        true => format!("n / {width}u"),
        false => format!("{} ? n / {width}u : 0", tests.join(" && ")),
    };
    format!(
        "    const {index} packs = {count};
    if (k < packs) {{
{loads}        #pragma unroll
        for (int j = 0; j < {width}; j++) {{
{body}        }}
{stores}        return;
    }}
"
    )
}
