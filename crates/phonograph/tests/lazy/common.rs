//! What the tests have in common: a device, a few kernels, an executor.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use phonograph::prelude::*;
use phonograph_cuda::{Cuda, CudaBackend};

kernel! {
    /// y ← y + by
    pub fn add(by: f32, y: &mut [f32]) |_e| { y = y + by; }
    /// y ← y + by, by a slot
    pub fn add_slot(by: slot f32, y: &mut [f32]) |_e| { y = y + by; }
    /// y ← 2 x
    pub fn double(x: &[f32], y: out [f32]) |e| { y = x * e.f32(2.0); }
    /// y ← x + y
    pub fn sum(x: &[f32], y: &mut [f32]) |_e| { y = x + y; }
    /// y ← 3 y
    pub fn triple(y: &mut [f32]) |e| { y = y * e.f32(3.0); }
}

/// A device: the CPU, or what `PHONOGRAPH_DEVICE` names.
pub fn device() -> Device {
    match std::env::var("PHONOGRAPH_DEVICE").as_deref() {
        Err(_) | Ok("cpu") => Device::cpu(2).unwrap(),
        Ok("cuda") => {
            // The first is kept, and the device's context with it: to make one anew takes longer than a test.
            static KEPT: OnceLock<Cuda> = OnceLock::new();
            KEPT.get_or_init(|| Cuda::new().unwrap());
            Device::on(CudaBackend::new(Cuda::new().unwrap()), 4).unwrap()
        }
        Ok(other) => panic!("no device is called {other}"),
    }
}

/// A tensor of four, all of one value.
pub fn four(stream: &Stream, value: f32) -> Tensor<f32> {
    api::full([4], value).sync_on(stream).unwrap()
}

/// The value that all elements have.
#[track_caller]
pub fn value_of(tensor: &Tensor<f32>) -> f32 {
    let values = tensor.to_vec().unwrap();
    assert!(values.iter().all(|v| *v == values[0]), "{values:?}");
    values[0]
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor: polls when it was woken, and sleeps else. How often it polled.
pub fn block_on_counting<F: Future>(future: F) -> (F::Output, u32) {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut polls = 0;
    loop {
        polls += 1;
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return (output, polls),
            Poll::Pending => thread::park(),
        }
    }
}

pub fn block_on<F: Future>(future: F) -> F::Output {
    block_on_counting(future).0
}

/// Whether this is the error of something inside a capture.
#[track_caller]
pub fn non_reentrant<T>(result: Result<T>) {
    match result {
        Err(Error::NonReentrant { .. }) => {}
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it went through"),
    }
}
