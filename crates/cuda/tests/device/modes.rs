//! CUDA behind a trace; without a device, each test says why it is skipped.

use std::sync::OnceLock;

use phonograph_cuda::{Cuda, CudaBackend};
use phonograph_runtime::streams::Device;

use crate::traced::{Shared, Traced};
use crate::work::{STREAMS, registry};

/// The backend, or the reason why there is none in the output.
pub fn cuda() -> Option<(Device<Traced<CudaBackend>>, Shared)> {
    // The first is kept, and the device's context with it: to make one anew takes longer than a test.
    static KEPT: OnceLock<Option<Cuda>> = OnceLock::new();
    let new = || Cuda::new().map_err(|error| eprintln!("skipped: {error}")).ok();
    KEPT.get_or_init(new).as_ref()?;
    let cuda = new()?;
    let (backend, trace) = Traced::new(|t| CudaBackend::new(cuda).hosts(registry(t)));
    Some((Device::new(backend, STREAMS).unwrap(), trace))
}

/// A device that no other handle is of.
pub fn another() -> (Device<Traced<CudaBackend>>, Shared) {
    cuda().expect("whoever asks for another has one already")
}

/// Tests of `fn name<B: Backend>(device: Device<B>, trace: Shared)`.
macro_rules! in_every_mode {
    ($($name:ident),* $(,)?) => {
        mod cuda {
            $(#[test] fn $name() {
                let Some((device, trace)) = $crate::modes::cuda() else { return };
                super::$name(device, trace)
            })*
        }
    };
}
pub(crate) use in_every_mode;

/// A test of `fn name<B: Backend>(make: impl Fn() -> (Device<Traced<B>>, Shared))`.
macro_rules! with_every_mode {
    ($name:ident) => {
        mod cuda {
            #[test]
            fn $name() {
                if $crate::modes::cuda().is_some() {
                    super::$name($crate::modes::another);
                }
            }
        }
    };
}
pub(crate) use with_every_mode;
