//! Where each step of a program with captures may fail on wgpu leaves what it leaves on the CPU.

use phonograph_runtime::cpu::Cpu;
use phonograph_runtime::streams::{Device, SoftwareCpu};

use crate::faults::check;
use crate::traced::{Shared, Traced};
use crate::work::{STREAMS, registry};

fn software() -> (Device<Traced<SoftwareCpu>>, Shared) {
    let (backend, trace) = Traced::new(|t| SoftwareCpu::new(Cpu::new(1).unwrap(), registry(t)));
    (Device::new(backend, STREAMS).unwrap(), trace)
}

#[test]
fn every_step_fails_once_as_on_the_cpu() {
    if crate::modes::wgpu().is_none() {
        return;
    }
    assert_eq!(
        check(crate::modes::another, "wgpu"),
        check(software, "the CPU with software graphs")
    );
}
