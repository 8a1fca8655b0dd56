//! Both modes of the CPU behind a trace, and the second one as a device that tells failures late.

use phonograph_runtime::capture::CaptureError;
use phonograph_runtime::cpu::Cpu;
use phonograph_runtime::cpu::kernels::Registry;
use phonograph_runtime::streams::{Device, DriverCpu, GraphKind, MAX_STREAMS, SoftwareCpu};

use crate::traced::{Shared, Traced};
use crate::work::{STREAMS, registry};

pub fn software() -> (Device<Traced<SoftwareCpu>>, Shared) {
    let (backend, trace) = Traced::new(|t| SoftwareCpu::new(Cpu::new(1).unwrap(), registry(t)));
    (Device::new(backend, STREAMS).unwrap(), trace)
}

pub fn driver() -> (Device<Traced<DriverCpu>>, Shared) {
    let (backend, trace) = Traced::new(|t| DriverCpu::new(Cpu::new(1).unwrap(), registry(t)));
    (Device::new(backend, STREAMS).unwrap(), trace)
}

pub fn late() -> (Device<Traced<DriverCpu>>, Shared) {
    let (device, trace) = driver();
    trace.lock().unwrap().late = true;
    (device, trace)
}

/// A device that no other handle is of.
pub fn another() -> (Device<Traced<SoftwareCpu>>, Shared) {
    software()
}

/// Tests of `fn name<B: Backend>(device: Device<B>, trace: Shared)`.
macro_rules! in_every_mode {
    ($($name:ident),* $(,)?) => {
        mod software {
            $(#[test] fn $name() { let (device, trace) = $crate::modes::software(); super::$name(device, trace) })*
        }
        mod driver {
            $(#[test] fn $name() { let (device, trace) = $crate::modes::driver(); super::$name(device, trace) })*
        }
        mod late {
            $(#[test] fn $name() { let (device, trace) = $crate::modes::late(); super::$name(device, trace) })*
        }
    };
}
pub(crate) use in_every_mode;

/// A test of `fn name<B: Backend>(make: impl Fn() -> (Device<Traced<B>>, Shared))`.
macro_rules! with_every_mode {
    ($name:ident) => {
        mod software {
            #[test]
            fn $name() {
                super::$name($crate::modes::software);
            }
        }
        mod driver {
            #[test]
            fn $name() {
                super::$name($crate::modes::driver);
            }
        }
        mod late {
            #[test]
            fn $name() {
                super::$name($crate::modes::late);
            }
        }
    };
}
pub(crate) use with_every_mode;

#[test]
fn a_device_has_a_number_of_streams_that_makes_sense() {
    for (given, served) in [(0, false), (1, true), (MAX_STREAMS, true), (MAX_STREAMS + 1, false)] {
        let backend = SoftwareCpu::new(Cpu::new(1).unwrap(), Registry::new());
        let error = Device::new(backend, given).map(|device| device.max_streams());
        let expected = if served { Ok(given) } else { Err(CaptureError::StreamCount { given }) };
        assert_eq!(error, expected);
    }
}

#[test]
fn the_modes_are_what_they_say() {
    let kinds = [GraphKind::Software, GraphKind::Hardware];
    let (software, driver) = (software().0, driver().0);
    assert_eq!([software.graph_kind(), driver.graph_kind()], kinds);
}
