//! Where each step of a program with captures may fail on CUDA leaves what it leaves on the CPU.

use phonograph_runtime::cpu::Cpu;
use phonograph_runtime::streams::{Device, DriverCpu};

use crate::faults::check;
use crate::traced::{Shared, Traced};
use crate::work::{STREAMS, registry};

fn driver() -> (Device<Traced<DriverCpu>>, Shared) {
    let (backend, trace) = Traced::new(|t| DriverCpu::new(Cpu::new(1).unwrap(), registry(t)));
    (Device::new(backend, STREAMS).unwrap(), trace)
}

#[test]
fn every_step_fails_once_as_on_the_cpu() {
    if crate::modes::cuda().is_none() {
        return;
    }
    assert_eq!(check(crate::modes::another, "CUDA"), check(driver, "the CPU behind a driver"));
}
