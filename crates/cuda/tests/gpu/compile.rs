//! All generated CUDA C compiles, for an Ampere and for a Hopper, and the toolkit's assembler takes it: `PHONOGRAPH_PTXAS` names
//! that; without it this part is left out.

use std::env;
use std::ffi::OsString;
use std::process::Command;
use std::sync::Once;

use phonograph_cuda::{Nvrtc, Program};
use phonograph_graph::{
    Arg, BinaryOp, CompareOp, ComputeGraph, DType, Expr, GraphBuilder, LibraryKernel, Op, ReduceOp,
    Scalar, UnaryOp, ValueId, View,
};
use phonograph_kernels::cuda;

use crate::case::{fused_reduction, packs, place, product_with_bias, tensor_of};

const NUMBERS: [DType; 5] = [DType::F32, DType::F64, DType::I32, DType::I64, DType::U32];

fn nvrtc() -> Option<&'static Nvrtc> {
    match Nvrtc::load() {
        Ok(nvrtc) => Some(nvrtc),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

#[track_caller]
fn compiles(nvrtc: &Nvrtc, name: &str, source: &str) {
    for capability in [(8, 0), (9, 0)] {
        let program = Program { name, source, capability };
        if let Err(error) = nvrtc.compile(&program) {
            panic!("{error}\n{source}");
        }
        let Some(ptxas) = ptxas() else { continue };
        let folder = tempfile::tempdir().unwrap();
        let (ptx, cubin) = (folder.path().join("kernel.ptx"), folder.path().join("kernel.cubin"));
        let text = nvrtc.ptx(&program).unwrap_or_else(|error| panic!("{error}\n{source}"));
        std::fs::write(&ptx, &text).unwrap();
        let (major, minor) = capability;
        let assembled = Command::new(ptxas)
            .arg(format!("-arch=sm_{major}{minor}"))
            .args([ptx.as_os_str(), "-o".as_ref(), cubin.as_os_str()])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&assembled.stderr);
        assert!(assembled.status.success(), "{said}\n{text}");
        assert!(std::fs::metadata(&cubin).unwrap().len() > 0);
    }
}

fn ptxas() -> Option<OsString> {
    static SAID: Once = Once::new();
    let named = env::var_os("PHONOGRAPH_PTXAS");
    if named.is_none() {
        SAID.call_once(|| eprintln!("skipped: the assembler, which PHONOGRAPH_PTXAS names"));
    }
    named
}

/// Every operation of every type that has it, in one expression, with inputs and outputs of every type.
fn everything() -> Expr {
    let mut ops: Vec<Op> = (0..DType::ALL.len() as u16).map(Op::Input).collect();
    ops.extend((0..DType::ALL.len() as u16).map(Op::Param));
    ops.extend([Scalar::F32(0.1), Scalar::F64(f64::NAN), Scalar::I32(i32::MIN)].map(Op::Const));
    ops.extend([Scalar::I64(i64::MIN), Scalar::U32(7), Scalar::Bool(true)].map(Op::Const));
    ops.extend([Op::Index(0), Op::Index(2)]);
    let inputs = || DType::ALL.to_vec();
    let given = ops.len() as u16;
    let fits = |ops: &[Op], op: Op| {
        let mut ops = ops.to_vec();
        ops.push(op);
        Expr::new(inputs(), inputs(), ops, vec![(ValueId(0), DType::F32)]).is_ok()
    };
    let mut candidates = Vec::new();
    use {BinaryOp as B, CompareOp as C, UnaryOp as U};
    for a in (0..given).map(ValueId) {
        for op in [U::Neg, U::Abs, U::Not, U::Exp, U::Log, U::Tanh, U::Erf, U::Sqrt, U::Floor] {
            candidates.push(Op::Unary(op, a));
        }
        candidates.extend(NUMBERS.iter().chain(&[DType::Bool]).map(|&to| Op::Cast(to, a)));
        for b in (0..given).map(ValueId) {
            let binary =
                [B::Add, B::Sub, B::Mul, B::Div, B::Rem, B::Min, B::Max, B::And, B::Or, B::Xor];
            candidates.extend(binary.map(|op| Op::Binary(op, a, b)));
            let compare = [C::Eq, C::Ne, C::Lt, C::Le, C::Gt, C::Ge];
            candidates.extend(compare.map(|op| Op::Compare(op, a, b)));
        }
    }
    let start = ops.clone();
    ops.extend(candidates.into_iter().filter(|&op| fits(&start, op)).step_by(3));
    ops.truncate(3000);
    let outputs = DType::ALL.iter().enumerate().map(|(i, &t)| (ValueId(i as u16), t)).collect();
    Expr::new(inputs(), inputs(), ops, outputs).unwrap()
}

#[test]
fn expressions_compile() {
    let Some(nvrtc) = nvrtc() else { return };
    let mut b = GraphBuilder::new();
    let mut view = |dtype: DType, extents: &[u64]| tensor_of(&mut b, "x", dtype, extents);
    let extents = [4, 3, 5];
    let inputs = DType::ALL.map(|t| view(t, &extents));
    let outputs = DType::ALL.map(|t| view(t, &[5, 3, 4]).transpose(0, 2).unwrap());
    let params = DType::ALL.map(|t| Arg::Scalar(Scalar::zero(t)));
    let expr = everything();
    assert!(expr.ops().len() > 300);
    let node = b.add_elementwise("all", expr.into(), &inputs, &params, &outputs);
    let graph = b.build().unwrap();
    for indirect in [false, true] {
        let node = graph.node(node).kernel().unwrap();
        let kernel = cuda::kernel_in(node, &place(indirect)).unwrap();
        compiles(nvrtc, "all", &kernel.source);
    }
    compiles(nvrtc, "packs", &only_source(&packs(1 << 18, 0).0.graph));
}

#[test]
fn library_kernels_compile() {
    let Some(nvrtc) = nvrtc() else { return };
    let mut b = GraphBuilder::new();
    let mut view = |dtype: DType, extents: &[u64]| tensor_of(&mut b, "x", dtype, extents);
    let mut nodes = Vec::new();
    for dtype in NUMBERS {
        for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::ArgMax] {
            let out = if op == ReduceOp::ArgMax { DType::I32 } else { dtype };
            for (extents, axis, kept) in
                [([6, 9000], 0, 9000), ([6, 5], 1, 6), ([2, 40_000], 1, 2), ([40_000, 2], 0, 2)]
            {
                let operands = vec![view(dtype, &extents), view(out, &[kept])];
                nodes.push((LibraryKernel::Reduce { op, axis }, operands));
            }
        }
        for numbers in [DType::I32, DType::U32] {
            let (rows, table) = (view(numbers, &[7]), view(dtype, &[4, 3]));
            let picked = view(dtype, &[7, 3]);
            nodes.push((LibraryKernel::Gather, vec![table, rows, picked]));
            nodes.push((LibraryKernel::ScatterAdd, vec![picked, rows, table]));
        }
    }
    for dtype in [DType::F16, DType::U8] {
        let (rows, table) = (view(DType::I32, &[7]), view(dtype, &[4, 3]));
        nodes.push((LibraryKernel::Gather, vec![table, rows, view(dtype, &[7, 3])]));
    }
    for dtype in [DType::F32, DType::F64] {
        for size in [1, 1000] {
            let extents = [[2, 3, 4], [2, 4, 5], [2, 3, 5]];
            let operands = extents.map(|[b, r, c]| view(dtype, &[b, r * size, c * size]));
            nodes.push((LibraryKernel::MatMul, operands.to_vec()));
        }
    }
    let ids: Vec<_> = nodes.iter().map(|(k, v)| b.add_library(k.name(), *k, v)).collect();
    let graph = b.build().unwrap();
    let mut sources: Vec<(String, String)> = Vec::new();
    for id in ids {
        let kernel = graph.node(id).kernel().unwrap();
        // Compiling takes long, and what is indirect is the same for all types.
        let of_f32 = matches!(kernel.args[0], Arg::View(View { dtype: DType::F32, .. }, _));
        for indirect in [false, true].into_iter().take(1 + usize::from(of_f32)) {
            let kernel = cuda::kernel_in(kernel, &place(indirect)).unwrap();
            sources.push((graph.node(id).name.to_string(), kernel.source));
        }
    }
    sources.sort();
    sources.dedup();
    for extents in [[0, 70, 33, 65], [3, 5, 64, 130]] {
        sources.push(("product".to_owned(), only_source(&product_with_bias(extents, true))));
    }
    for (extents, axis) in [(&[3, 9000][..], 0), (&[3, 5], 1), (&[2, 40_000], 1), (&[3, 70, 4], 1)]
    {
        let graph = fused_reduction(ReduceOp::ArgMax, extents, axis);
        sources.push(("reduction".to_owned(), only_source(&graph)));
    }
    for dtype in [DType::I32, DType::U32, DType::U8, DType::Bool] {
        sources.push(("condition".to_owned(), cuda::set_condition(dtype)));
    }
    sources.push(("changes".to_owned(), cuda::change_words()));
    for (name, source) in sources {
        compiles(nvrtc, &name, &source);
    }
}

/// The source of a graph of one kernel.
fn only_source(graph: &ComputeGraph) -> String {
    cuda::kernel(graph.nodes()[0].kernel().unwrap()).unwrap().source
}
