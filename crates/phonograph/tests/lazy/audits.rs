//! Replays that have gone stale, found and explained.

use phonograph::audit::{Audit, Cause};
use phonograph::prelude::*;

use crate::common::*;

/// Three kernels on a tensor, one of which can be left out.
fn program(to: &impl Issue, by: f32, twice: bool, y: &mut Tensor<f32>) -> Result<()> {
    to.issue(add(by, &mut *y))?;
    if twice {
        to.issue(triple(&mut *y))?;
    }
    to.issue(add(1.0, y)).map(drop)
}

fn audited(
    captured: (f32, bool),
    now: impl FnOnce(&phonograph::audit::Auditor<'_>, &mut Tensor<f32>) -> Result<()>,
) -> Audit {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 1.0);
    let graph = CapturedGraph::scope(&stream, |s| program(s, captured.0, captured.1, &mut y));
    let graph = graph.unwrap();
    let audit = graph.launch().audit(&stream, |to| now(to, &mut y)).unwrap();
    // The buffers are left as the launch leaves them.
    let before = if captured.1 { (1.0 + captured.0) * 3.0 } else { 1.0 + captured.0 };
    assert_eq!(value_of(&y), before + 1.0);
    audit
}

#[test]
fn a_replay_that_does_what_the_program_does_passes() {
    let audit = audited((2.0, true), |to, y| program(to, 2.0, true, y));
    assert_eq!(audit, Audit { executed: 3, captured: 3, first: None });
}

#[test]
fn a_frozen_scalar_is_named() {
    let first = audited((2.0, true), |to, y| program(to, 5.0, true, y)).first.unwrap();
    assert_eq!((first.node.0, &*first.name), (0, "add"));
    assert_eq!(
        first.to_string(),
        "n0 (add): scalar 0 is f32 2.0 in the replay, the program gives f32 5.0; make it a slot, or set it; first seen in byte 2 of full"
    );
}

#[test]
fn missed_and_extra_work_are_told_apart() {
    let missed = audited((2.0, false), |to, y| program(to, 2.0, true, y)).first.unwrap();
    assert_eq!((&*missed.name, missed.cause), ("triple", Cause::MissedWork));
    let other = audited((2.0, true), |to, y| program(to, 2.0, false, y)).first.unwrap();
    assert_eq!(other.cause, Cause::OtherWork { executed: "add".into() });
    let extra = audited((2.0, true), |to, y| to.issue(add(2.0, y)).map(drop)).first.unwrap();
    assert_eq!((&*extra.name, extra.cause), ("triple", Cause::ExtraWork));
}

#[test]
fn a_tensor_that_was_replaced_after_the_capture_is_found() {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 1.0);
    let graph = triple(&mut y).map(drop).graph_on(&stream).unwrap();
    let mut y = api::dup(&y).sync_on(&stream).unwrap();
    let audit = graph.launch().audit(&stream, |to| to.issue(triple(&mut y)).map(drop));
    let first = audit.unwrap().first.unwrap();
    assert_eq!(first.cause, Cause::OtherMemory { executed: "dup".into() });
    assert_eq!(first.buffer.as_deref(), Some("full"));
}

#[test]
fn a_write_that_was_not_recorded_is_found() {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 1.0);
    let graph = CapturedGraph::scope(&stream, |s| program(s, 2.0, false, &mut y)).unwrap();
    let audit = graph.launch().audit(&stream, |to| {
        to.issue(add(2.0, &mut y))?;
        api::store(vec![9.0; 4], &mut y).sync_on(&stream)?; // past the auditor
        to.issue(add(1.0, &mut y)).map(drop)
    });
    let first = audit.unwrap().first.unwrap();
    assert_eq!((first.node.0, first.cause), (1, Cause::UnrecordedWrite));
}

#[test]
fn contents_that_were_baked_are_told_from_the_same_contents_again() {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 1.0);
    let graph = api::store(vec![2.0; 4], &mut y).graph_on(&stream).unwrap();
    let mut audit = |now: f32| {
        let stored =
            |to: &phonograph::audit::Auditor<'_>| to.issue(api::store(vec![now; 4], &mut y));
        graph.launch().audit(&stream, stored).unwrap()
    };
    assert_eq!(audit(2.0), Audit { executed: 1, captured: 1, first: None });
    let first = audit(3.0).first.unwrap();
    assert_eq!((&*first.name, first.cause), ("store", Cause::FrozenContents));
}

#[test]
fn a_function_with_a_state_of_its_own_is_found() {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 1.0);
    let calls = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    fn counting(
        to: &impl Issue,
        calls: &std::sync::Arc<std::sync::atomic::AtomicU32>,
        y: &mut Tensor<f32>,
    ) -> Result<()> {
        let calls = calls.clone();
        to.issue(host("count", (y,), move |args| -> Result<(), String> {
            let calls = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            args.write::<f32>(0).map_err(|e| e.to_string())?.fill(calls as f32);
            Ok(())
        }))
        .map(drop)
    }
    let graph = CapturedGraph::scope(&stream, |s| counting(s, &calls, &mut y)).unwrap();
    let audit = graph.launch().audit(&stream, |to| counting(to, &calls, &mut y));
    let first = audit.unwrap().first.unwrap();
    assert_eq!((&*first.name, first.cause), ("count", Cause::Result));
}

#[test]
fn slots_are_audited_with_the_values_of_the_launch() {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 1.0);
    let by = Slot::new("by", 1.0f32);
    let graph = add_slot(&by, &mut y).map(drop).graph_on(&stream).unwrap();
    let launch = || graph.launch().with(&by, 4.0);
    let same = launch().audit(&stream, |to| to.issue(add_slot(4.0, &mut y)).map(drop)).unwrap();
    assert_eq!(same.first, None);
    let other = launch().audit(&stream, |to| to.issue(add_slot(5.0, &mut y)).map(drop)).unwrap();
    let Some(Cause::FrozenScalar { .. }) = other.first.as_ref().map(|first| &first.cause) else {
        panic!("{other:?}")
    };
}

#[test]
fn a_zero_that_froze_with_another_sign_is_named() {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, -0.0);
    let graph = add(0.0, &mut y).map(drop).graph_on(&stream).unwrap();
    let audit = graph.launch().audit(&stream, |to| to.issue(add(-0.0, &mut y)).map(drop));
    let (executed, captured) = ((-0.0f32).into(), 0.0f32.into());
    let cause = Cause::FrozenScalar { index: 0, executed, captured };
    assert_eq!(audit.unwrap().first.unwrap().cause, cause);
}
