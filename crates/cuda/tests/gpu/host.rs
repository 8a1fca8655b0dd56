//! Generated expressions, compiled for the host: their bits are checked where there is no GPU. A few definitions stand for
//! what a device adds to C++.

use std::ffi::c_void;
use std::process::Command;

use phonograph_graph::{Arg, View};
use phonograph_kernels::cuda::{self, Param, Place};

use crate::bits::{compare, operations};
use crate::case::{Case, packs, place};

const BEFORE: &str = r#"#include <math.h>
#define __device__
#define __forceinline__ inline
#define __global__
#define __launch_bounds__(threads)
static struct { unsigned x; } blockIdx, threadIdx, gridDim;
"#;

/// Launches the kernel with its parameters given as the driver takes them.
const AFTER: &str = r#"
template <unsigned... I> struct Numbers {};
template <unsigned N, unsigned... I> struct Count : Count<N - 1, N - 1, I...> {};
template <unsigned... I> struct Count<0, I...> { typedef Numbers<I...> Type; };
template <typename... A, unsigned... I> void call(void (*kernel)(A...), void **params, Numbers<I...>) {
    kernel(*(A *)params[I]...);
}
template <typename... A> void launch(void (*kernel)(A...), void **params) {
    call(kernel, params, typename Count<sizeof...(A)>::Type());
}
extern "C" void run(void **params, unsigned blocks, unsigned threads) {
    gridDim.x = blocks;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) launch(phonograph_kernel, params);
}
"#;

/// Runs the case's one kernel on the host; with all of its parameters indirect, or none; compiled for the addresses, or for any.
#[track_caller]
fn on_host(case: &Case, indirect: bool, knows: bool) -> Option<Vec<Vec<u8>>> {
    let node = case.graph.nodes()[0].kernel().unwrap();
    let external = case.external();
    let mut memory: Vec<Vec<u64>> = Vec::new();
    for &buffer in &external {
        let bytes = case.first(buffer);
        // Aligned as a device's memory is.
        let mut words = vec![0u64; bytes.len().div_ceil(8) + 2];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks(8)) {
            *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        memory.push(words);
    }
    let first = |words: &mut Vec<u64>| words.as_mut_ptr() as usize as u64;
    let addresses: Vec<u64> = memory.iter_mut().map(first).collect();
    let address = |view: &View| {
        let at = external.iter().position(|&buffer| buffer == view.buffer).unwrap();
        addresses[at] + view.offset
    };
    let aligned = |at: usize| match &node.args[at] {
        Arg::View(view, _) => knows && address(view).is_multiple_of(16),
        _ => false,
    };
    let kernel = cuda::kernel_in(node, &Place { aligned: &aligned, ..place(indirect) }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("kernel.cc"), folder.path().join("libkernel.so"));
    std::fs::write(&source, [BEFORE, &kernel.source, AFTER].concat()).unwrap();
    // As on the device, nothing is contracted.
    let options = ["-x", "c++", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-o"];
    let built = Command::new("cc").args(options).args([&library, &source]).status();
    if !built.is_ok_and(|status| status.success()) {
        eprintln!("skipped: `cc -x c++` does not compile here");
        return None;
    }
    let values: Vec<Vec<u64>> = kernel
        .params
        .iter()
        .map(|param| match param {
            Param::View(view) => vec![address(view)],
            Param::Words(words) => words.clone(),
            Param::Scalar(..) | Param::Scratch(_) | Param::FaultLock | Param::FaultRecord => {
                unreachable!("these expressions have no other parameters")
            }
        })
        .collect();
    let of_words = |value: &Vec<u64>| vec![value.as_ptr() as usize as u64];
    let (last, views) = values.split_last().unwrap();
    let mut given: Vec<Vec<u64>> = match indirect {
        true => views.iter().map(of_words).collect(),
        false => views.to_vec(),
    };
    given.push(last.clone());
    let mut params: Vec<*mut c_void> =
        given.iter().map(|value| value.as_ptr().cast_mut().cast()).collect();
    // SAFETY: the library was just built from the source above, whose `run` has this type; the parameters are those of the
    // kernel, and the buffers they point to are alive and large enough.
    unsafe {
        let library = libloading::Library::new(&library).unwrap();
        type Run = unsafe extern "C" fn(*mut *mut c_void, u32, u32);
        let run = library.get::<Run>(b"run").unwrap();
        run(params.as_mut_ptr(), kernel.blocks, kernel.threads);
    }
    let bytes = |words: &Vec<u64>| words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut found: Vec<Vec<u8>> = memory.iter().map(bytes).collect();
    for (found, &buffer) in found.iter_mut().zip(&external) {
        found.truncate(case.graph.buffer(buffer).bytes as usize);
    }
    Some(found)
}

#[test]
fn expressions_give_the_bits_of_the_cpu_backend() {
    let (case, types) = operations();
    for indirect in [false, true] {
        let Some(found) = on_host(&case, indirect, false) else { return };
        compare(&case, &types, &found);
    }
}

#[test]
fn packs_and_their_rest_give_the_bits_of_the_cpu_backend() {
    for (skip, knows) in [(0, false), (0, true), (4, false), (4, true), (1, false)] {
        let (case, types) = packs((1 << 17) + 3, skip);
        let Some(found) = on_host(&case, false, knows) else { return };
        compare(&case, &types, &found);
    }
}
