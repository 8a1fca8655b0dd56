//! Kernels by name: their arguments and attributes.

use phonograph_cuda::{Bindings, InstantiateError};
use phonograph_graph::{Access, Arg, BufferId, GraphBuilder, KernelConfig, Region, Schedule};

use crate::case::{check, cuda, view};
use crate::samples::axpy_case;

const AXPY: &str = r#"
extern "C" __global__ void axpy(const float *x, float *y, float a, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = y[i] + a * x[i];
}
"#;

#[test]
fn kernels_by_name_take_arguments_and_attributes() {
    let Some(mut cuda) = cuda() else { return };
    let plain = KernelConfig::linear(8, 128, 0);
    let least = cuda.devices()[0].priorities().unwrap();
    for config in [
        plain,
        KernelConfig { priority: least.1, ..plain },
        KernelConfig { cluster: (2, 1, 1), ..plain },
        KernelConfig { cooperative: true, ..plain },
        KernelConfig { shared_mem_bytes: 100 << 10, ..plain },
    ] {
        if config.cluster.0 > 1 && cuda.devices()[0].capability() < (9, 0) {
            continue;
        }
        let mut b = GraphBuilder::new();
        let (x, y) = (b.external_buffer("x", 4000), b.external_buffer("y", 4000));
        let a = b.slot("a", 0.5f32);
        b.add_kernel("axpy", 8, 128, 0)
            .config(config)
            .arg(Arg::View(view(x, &[1000]), Access::Read))
            .arg(Arg::Region(Region { buffer: y, offset: 0, bytes: 4000 }, Access::ReadWrite))
            .arg(Arg::Slot(a))
            .arg(Arg::Scalar(1000u32.into()))
            .finish();
        let case = axpy_case(b.build().unwrap(), AXPY);
        check(&mut cuda, &case);
    }
}

#[test]
fn kernels_by_name_are_checked_against_their_parameters() {
    let Some(mut cuda) = cuda() else { return };
    let function = cuda.compile(AXPY, "axpy").unwrap();
    let mut check = |args: &[Arg], threads: u32, expected: &str| {
        let mut b = GraphBuilder::new();
        b.external_buffer("x", 64);
        let mut kernel = b.add_kernel("axpy", 1, threads, 0);
        for &arg in args {
            kernel = kernel.arg(arg);
        }
        kernel.finish();
        let graph = b.build().unwrap();
        // SAFETY: every graph with it is refused.
        let bindings = unsafe { Bindings::new().kernel("axpy", &function) };
        let made = cuda.instantiate(&graph, &Schedule::sequential(&graph), &bindings);
        let error = made.map(|_| ()).unwrap_err();
        assert!(matches!(error, InstantiateError::Arguments { .. }), "{error}");
        assert_eq!(error.to_string(), format!("node n0 (axpy): {expected}"));
    };
    let x = Arg::View(view(BufferId(0), &[16]), Access::Read);
    let (a, n) = (Arg::Scalar(1f32.into()), Arg::Scalar(16u32.into()));
    check(&[x, x, a], 32, "`axpy` has 4 parameters, the node 3 arguments");
    let double = Arg::Scalar(1f64.into());
    check(&[x, x, double, n], 32, "parameter 2 of `axpy` has 4 bytes, the argument 8");
    check(&[x, x, a, n], 2048, "blocks of 2048 threads; `axpy` can have 1024 on this device");
}
