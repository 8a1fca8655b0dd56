//! wgpu behind a trace; without an adapter, each test says why it is skipped.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use phonograph_runtime::streams::{Device, Step};
use phonograph_wgpu::{OpenError, Wgpu, WgpuBackend};

use crate::traced::{Shared, Traced};
use crate::work::{STREAMS, tick};

/// Waits until no other test uses a device, and keeps the turn until the test's thread ends. With NVIDIA's driver 580 five tests
/// at a time, beside another process on the same GPU, once stood still for as long as was waited; one after another they pass.
fn turn() {
    static TURN: Mutex<()> = Mutex::new(());
    thread_local! {
        static HELD: RefCell<Option<MutexGuard<'static, ()>>> = const { RefCell::new(None) };
    }
    HELD.with_borrow_mut(|held| {
        held.get_or_insert_with(|| TURN.lock().unwrap_or_else(PoisonError::into_inner));
    });
}

/// A device of its own, or the reason why there is none in the output.
pub fn gpu() -> Option<Wgpu> {
    turn();
    // The first is kept, and its driver with it: to load that anew takes longer than a test.
    static KEPT: OnceLock<Result<Wgpu, OpenError>> = OnceLock::new();
    match KEPT.get_or_init(Wgpu::new) {
        Ok(kept) => Some(Wgpu::on(kept.adapter()).unwrap()),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// The backend.
pub fn wgpu() -> Option<(Device<Traced<WgpuBackend>>, Shared)> {
    let gpu = gpu()?;
    let (backend, trace) = Traced::new(|_| WgpuBackend::new(gpu));
    Some((Device::new(backend, STREAMS).unwrap(), trace))
}

/// A device that no other handle is of.
pub fn another() -> (Device<Traced<WgpuBackend>>, Shared) {
    wgpu().expect("whoever asks for another has one already")
}

/// Tests of `fn name<B: Backend>(device: Device<B>, trace: Shared)`.
macro_rules! in_every_mode {
    ($($name:ident),* $(,)?) => {
        mod wgpu {
            $(#[test] fn $name() {
                let Some((device, trace)) = $crate::modes::wgpu() else { return };
                super::$name(device, trace)
            })*
        }
    };
}
pub(crate) use in_every_mode;

#[test]
fn host_functions_are_refused_and_nothing_has_run() {
    let Some((device, trace)) = wgpu() else { return };
    let stream = device.stream();
    stream.submit(&tick("tick")).unwrap();
    let error = stream.sync().unwrap_err();
    assert!(error.to_string().contains("cannot call the host"), "{error}");
    assert_eq!(trace.lock().unwrap().calls.get(&Step::Run), None);
}
