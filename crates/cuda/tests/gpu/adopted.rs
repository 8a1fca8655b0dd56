//! Memory that others allocate, free and allocate anew, under graphs that use it.

use cudarc::driver::sys;
use phonograph_cuda::{
    AdoptError, Bindings, CaptureMode, Cuda, Identity, LaunchError, MemoryError, ReplayError,
    StaleMemory, Stream,
};
use phonograph_graph::{GraphBuilder, Schedule};

use crate::case::{add_one, cuda, expect, view};

const BYTES: u64 = 1 << 20;

/// How a program may allocate.
#[derive(Clone, Copy, Debug)]
enum How {
    Plain,
    /// From the device's pool, in the order of a stream.
    Pool,
}

impl How {
    fn allocate(self, stream: &Stream) -> u64 {
        let mut address = 0;
        // SAFETY: a context is current; the stream lives.
        unsafe {
            match self {
                How::Plain => expect(sys::cuMemAlloc_v2(&mut address, BYTES as usize)),
                How::Pool => {
                    let bytes = BYTES as usize;
                    expect(sys::cuMemAllocAsync(&mut address, bytes, stream.handle()));
                }
            }
        }
        stream.synchronize().unwrap();
        address
    }

    fn free(self, stream: &Stream, address: u64) {
        // SAFETY: the address is one that `allocate` gave, and nothing runs on it.
        unsafe {
            match self {
                How::Plain => expect(sys::cuMemFree_v2(address)),
                How::Pool => expect(sys::cuMemFreeAsync(address, stream.handle())),
            }
        }
        stream.synchronize().unwrap();
    }
}

/// Makes the device's context current on this thread until the end of the test's.
fn enter(cuda: &Cuda) {
    // SAFETY: the context lives as long as the device.
    expect(unsafe { sys::cuCtxSetCurrent(cuda.devices()[0].context()) });
}

#[test]
fn a_graph_on_memory_of_others_notices_that_it_was_freed() {
    let Some(mut cuda) = cuda() else { return };
    enter(&cuda);
    let stream = Stream::new(&cuda.devices()[0]).unwrap();
    for how in [How::Plain, How::Pool] {
        let address = how.allocate(&stream);
        // SAFETY: nothing else works on it, and it is freed when nothing runs.
        let memory = unsafe { cuda.adopt(address, BYTES) }.unwrap();
        let adopted = memory.identity().unwrap();
        let mut b = GraphBuilder::new();
        let x = b.external_buffer("x", BYTES as usize);
        let xv = view(x, &[BYTES / 4]);
        b.add_elementwise("plus", add_one(), &[xv], &[], &[xv]);
        let graph = b.build().unwrap();
        let bindings = Bindings::new().memory(x, &memory);
        let mut exec = cuda.instantiate(&graph, &Schedule::sequential(&graph), &bindings).unwrap();
        cuda.write(&memory, &vec![1f32; BYTES as usize / 4]).unwrap();
        for _ in 0..3 {
            cuda.replay(&mut exec).unwrap();
        }
        assert!(cuda.read::<f32>(&memory).unwrap().iter().all(|&v| v == 4.0));
        how.free(&stream, address);
        let stale = |found: Result<(), ReplayError>| match found.unwrap_err() {
            ReplayError::Stale { buffer, node, source, .. } => {
                assert_eq!((buffer, node.unwrap().to_string()), (x, "n0 (plus)".to_owned()));
                source
            }
            other => panic!("{other}"),
        };
        let StaleMemory { found: free, .. } = stale(cuda.replay(&mut exec));
        let read = cuda.read::<f32>(&memory);
        assert!(matches!(read, Err(MemoryError::Stale(_))), "{read:?}");
        // Most of the time it lies where the other did; others are kept until it does.
        let mut kept = Vec::new();
        let again = loop {
            let found = how.allocate(&stream);
            kept.push(found);
            if found == address || kept.len() == 64 {
                break found;
            }
        };
        if again == address {
            let StaleMemory { found, .. } = stale(cuda.replay(&mut exec));
            let found = found.unwrap();
            assert_ne!(found.number, adopted.number);
            eprintln!("{how:?}: {adopted}, freed {free:?}, then {found}");
        } else {
            eprintln!("{how:?}: {adopted}, freed {free:?}; nothing was allocated there again");
        }
        kept.into_iter().for_each(|address| how.free(&stream, address));
    }
}

#[test]
fn a_captured_graph_notices_that_what_it_copies_was_freed() {
    let Some(cuda) = cuda() else { return };
    enter(&cuda);
    let stream = Stream::new(&cuda.devices()[0]).unwrap();
    let how = How::Plain;
    let (address, kept) = (how.allocate(&stream), how.allocate(&stream));
    let captured = stream.capture(CaptureMode::Global, |raw| {
        // SAFETY: both are memory of that size.
        unsafe {
            expect(sys::cuMemsetD8Async(kept, 1, BYTES as usize, raw));
            expect(sys::cuMemcpyDtoDAsync_v2(address, kept, BYTES as usize, raw));
        }
        Ok::<_, String>(())
    });
    let mut exec = captured.unwrap().0.instantiate().unwrap();
    for _ in 0..2 {
        // SAFETY: both are there, and nothing else works on them.
        unsafe { exec.launch(&stream) }.unwrap();
    }
    stream.synchronize().unwrap();
    how.free(&stream, address);
    // SAFETY: what is gone is noticed before anything runs.
    let refused = unsafe { exec.launch(&stream) }.unwrap_err();
    let LaunchError::Stale { node, source } = refused else { panic!("{refused}") };
    assert_eq!((node.to_string().as_str(), source.address), ("n1 (memcpy)", address));
    how.free(&stream, kept);
}

#[test]
fn only_memory_of_these_devices_is_adopted_and_only_as_far_as_it_reaches() {
    let Some(cuda) = cuda() else { return };
    enter(&cuda);
    let stream = Stream::new(&cuda.devices()[0]).unwrap();
    // SAFETY: what is not refused is not used.
    let adopt = |address, bytes| unsafe { cuda.adopt(address, bytes) }.map(drop);
    let local = 0u64;
    let address = (&raw const local).expose_provenance() as u64;
    assert_eq!(adopt(address, 8), Err(AdoptError::NotDevice { address }));
    let host = cuda.alloc_host(64).unwrap();
    let address = host.address();
    assert_eq!(adopt(address, 8), Err(AdoptError::NotDevice { address }));
    let address = How::Plain.allocate(&stream);
    assert_eq!(adopt(address, BYTES), Ok(()));
    assert_eq!(adopt(address + BYTES / 2, BYTES / 2), Ok(()));
    let past = adopt(address + BYTES / 2, BYTES);
    let Err(AdoptError::Range { allocation: Identity { start, bytes, .. }, .. }) = past else {
        panic!("{past:?}")
    };
    assert_eq!((start, bytes), (address, BYTES));
    How::Plain.free(&stream, address);
    assert_eq!(adopt(address, 8), Err(AdoptError::NotDevice { address }));
}

/// What asking costs, for the log.
#[test]
fn asking_about_adopted_memory_takes_a_time_that_is_printed() {
    let Some(mut cuda) = cuda() else { return };
    enter(&cuda);
    let stream = Stream::new(&cuda.devices()[0]).unwrap();
    for count in [1, 8] {
        let addresses: Vec<u64> = (0..count).map(|_| How::Plain.allocate(&stream)).collect();
        let mut b = GraphBuilder::new();
        let buffers: Vec<_> =
            (0..count).map(|i| b.external_buffer(format!("x{i}").as_str(), 64)).collect();
        for &x in &buffers {
            b.add_elementwise("plus", add_one(), &[view(x, &[16])], &[], &[view(x, &[16])]);
        }
        let graph = b.build().unwrap();
        // SAFETY: nothing else works on it, and it is freed when nothing runs.
        let adopt = |&address: &u64| unsafe { cuda.adopt(address, 64) }.unwrap();
        let memory: Vec<_> = addresses.iter().map(adopt).collect();
        let bound = buffers.iter().zip(&memory);
        let bindings = bound.fold(Bindings::new(), |all, (&x, memory)| all.memory(x, memory));
        let mut exec = cuda.instantiate(&graph, &Schedule::sequential(&graph), &bindings).unwrap();
        let mut per_launch = |checked: bool| {
            exec.set_checked(checked);
            let mut times: Vec<u128> = (0..2000)
                .map(|_| {
                    let start = std::time::Instant::now();
                    cuda.launch(&mut exec, &stream).unwrap();
                    let time = start.elapsed().as_nanos();
                    cuda.finish(&mut exec).unwrap();
                    time
                })
                .collect();
            times.sort_unstable();
            times[times.len() / 2]
        };
        per_launch(true);
        let (with, without) = (per_launch(true), per_launch(false));
        eprintln!("{count} adopted: a launch takes {with} ns with the check, {without} ns without");
        drop(exec);
        addresses.into_iter().for_each(|address| How::Plain.free(&stream, address));
    }
}
