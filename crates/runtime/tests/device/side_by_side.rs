//! Branches of a window really run at the same time, by the schedule they were recorded by or one of the user's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use phonograph_graph::{ComputeGraph, HostNode, NodeKind, Schedule};
use phonograph_runtime::capture::CaptureError;
use phonograph_runtime::cpu::Cpu;
use phonograph_runtime::cpu::kernels::{KernelError, Registry};
use phonograph_runtime::streams::{Device, Operation, SoftwareCpu, Step};

use crate::work::id;

/// Two functions, each of which waits for the other one to have begun.
fn meeting(patience: Duration) -> Registry {
    let begun = [Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false))];
    let mut registry = Registry::new();
    for (at, name) in ["here", "there"].into_iter().enumerate() {
        let [mine, theirs] = [begun[at].clone(), begun[1 - at].clone()];
        registry.host(name, &[], move |_| {
            mine.store(true, Ordering::Release);
            let start = Instant::now();
            while !theirs.load(Ordering::Acquire) {
                if start.elapsed() > patience {
                    return Err(KernelError::Failed("the other branch never began".into()));
                }
                std::thread::yield_now();
            }
            Ok(())
        });
    }
    registry
}

/// Records one function on each of two streams and replays that.
fn replayed(backend: SoftwareCpu) -> Result<(), CaptureError> {
    let device = Device::new(backend, 2)?;
    let [here, there] = [0, 1].map(|value| device.stream_of(id(value)));
    let window = here.prepare_with(&[&there])?;
    window.begin()?;
    for (stream, function) in [(&here, "here"), (&there, "there")] {
        let host = HostNode { function: function.into(), effects: Default::default() };
        stream.submit(&Operation::new(function, NodeKind::Host(Box::new(host)), &[])?)?;
    }
    let graph = window.end("a meeting")?;
    here.launch(&graph)?;
    here.sync().map(|synced| assert!(synced.is_done()))
}

#[test]
fn branches_meet() {
    let registry = meeting(Duration::from_secs(30));
    replayed(SoftwareCpu::new(Cpu::new(2).unwrap(), registry)).unwrap();
}

#[test]
fn a_schedule_of_the_users_is_the_one_that_runs_and_a_wrong_one_fails_the_seal() {
    let cpu = || SoftwareCpu::new(Cpu::new(2).unwrap(), meeting(Duration::from_millis(20)));
    // In sequence, they cannot meet.
    let apart = replayed(cpu().planned_by(Schedule::sequential)).unwrap_err();
    assert!(apart.to_string().contains("never began"), "{apart}");
    let wrong = |graph: &ComputeGraph| {
        let mut schedule = Schedule::sequential(graph);
        schedule.steps.pop();
        schedule
    };
    let refused = replayed(cpu().planned_by(wrong)).unwrap_err();
    assert!(
        matches!(&refused, CaptureError::Backend(e) if e.step == Step::Instantiate),
        "{refused}"
    );
}
