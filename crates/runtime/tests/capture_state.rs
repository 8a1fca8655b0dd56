//! The state machine of captures: BEHAVIOURS D 1–6 and 12–14, as far as they are the state's alone.

use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arbtest::arbtest;
use phonograph_runtime::capture::{
    CaptureEnd, CaptureError, DeviceCaptures, LifecycleCall, LogicalStreamId, StreamCaptureState,
    Window,
};

const OWNER: LogicalStreamId = LogicalStreamId { value: 7 };
const OTHER: LogicalStreamId = LogicalStreamId { value: 8 };

#[derive(Clone, Copy, PartialEq, Debug)]
enum Call {
    Prepare(LogicalStreamId),
    Begin,
    BeginAs(LogicalStreamId),
    End(LogicalStreamId),
    Abort,
    AbortAs(LogicalStreamId),
}
use Call::*;

/// What a caller can see of a stream.
type Seen = Option<(Window, LogicalStreamId)>;

fn seen(state: &StreamCaptureState) -> Seen {
    assert_eq!(state.is_active(), state.is_preparing() || state.is_recording());
    assert_eq!(state.is_active(), state.owner().is_some());
    let window = if state.is_preparing() { Window::Preparing } else { Window::Recording };
    state.owner().map(|owner| (window, owner))
}

fn apply(state: &mut StreamCaptureState, call: Call) -> Result<Option<CaptureEnd>, CaptureError> {
    match call {
        Prepare(owner) => state.prepare(owner).map(|()| None),
        Begin => state.begin().map(|()| None),
        BeginAs(caller) => state.begin_as(caller).map(|()| None),
        End(caller) => state.end(caller).map(Some),
        Abort => {
            state.abort();
            Ok(None)
        }
        AbortAs(caller) => state.abort_as(caller).map(|()| None),
    }
}

/// A stream with these calls behind it.
fn after(calls: &[Call]) -> StreamCaptureState {
    let mut state = DeviceCaptures::default().stream();
    for &call in calls {
        apply(&mut state, call).unwrap();
    }
    state
}

const NONE: &[Call] = &[];
const PREPARED: &[Call] = &[Prepare(OWNER)];
const RECORDING: &[Call] = &[Prepare(OWNER), Begin];

#[test]
fn d01_every_call_in_every_state_moves_or_errs_and_an_error_leaves_the_state() {
    let prepared = Ok(Some((Window::Preparing, OWNER)));
    let recording = Ok(Some((Window::Recording, OWNER)));
    let busy = |phase| Err(CaptureError::Busy { owner: OWNER, caller: OTHER, phase });
    let not_recording = Err(CaptureError::NotRecording { caller: OWNER });
    let already = Err(CaptureError::AlreadyRecording { owner: OWNER });
    let not_owner = |call| Err(CaptureError::NotOwner { call, owner: OWNER, caller: OTHER });
    let table: &[(&[Call], Call, Result<Seen, CaptureError>)] = &[
        (NONE, Prepare(OWNER), prepared.clone()),
        (NONE, Begin, Err(CaptureError::NotPrepared)),
        (NONE, BeginAs(OWNER), Err(CaptureError::NotPrepared)),
        (NONE, End(OWNER), not_recording.clone()),
        (NONE, Abort, Ok(None)),
        (NONE, AbortAs(OWNER), Ok(None)),
        (PREPARED, Prepare(OTHER), busy(Window::Preparing)),
        (PREPARED, Begin, recording.clone()),
        (PREPARED, BeginAs(OWNER), recording),
        (PREPARED, BeginAs(OTHER), not_owner(LifecycleCall::Begin)),
        (PREPARED, End(OWNER), not_recording),
        (PREPARED, Abort, Ok(None)),
        (PREPARED, AbortAs(OWNER), Ok(None)),
        (PREPARED, AbortAs(OTHER), not_owner(LifecycleCall::Abort)),
        (RECORDING, Prepare(OTHER), busy(Window::Recording)),
        (RECORDING, Begin, already.clone()),
        (RECORDING, BeginAs(OWNER), already.clone()),
        (RECORDING, BeginAs(OTHER), already),
        (RECORDING, End(OWNER), Ok(None)),
        (RECORDING, End(OTHER), Ok(None)),
        (RECORDING, Abort, Ok(None)),
        (RECORDING, AbortAs(OWNER), Ok(None)),
        (RECORDING, AbortAs(OTHER), not_owner(LifecycleCall::Abort)),
    ];
    for (calls, call, expected) in table {
        let mut state = after(calls);
        let before = seen(&state);
        let result = apply(&mut state, *call);
        assert_eq!(result.clone().map(|_| seen(&state)), *expected, "{call:?} after {calls:?}");
        if result.is_err() {
            assert_eq!(seen(&state), before, "{call:?} after {calls:?}");
        }
    }
}

#[test]
fn d01_a_window_that_fails_to_open_is_aborted_and_end_leaves_capture_before_sealing() {
    let mut state = after(PREPARED);
    let mut ran = false;
    let refused = state.beginning(OTHER).map(|_| ran = true);
    assert!(refused.is_err() && !ran, "a refused call runs none of the backend's work");
    assert!(state.is_preparing());
    drop(state.beginning(OWNER).unwrap()); // the backend failed
    assert!(!state.is_active() && !state.device().any_active());
    let mut state = after(RECORDING);
    state.end(OWNER).unwrap();
    // Sealing would be here; whatever it does, the stream can be prepared already.
    state.prepare(OTHER).unwrap();
}

#[test]
fn d02_the_window_carries_its_owner_from_prepare_on_and_end_reports_it() {
    let mut state = after(NONE);
    assert_eq!(state.owner(), None);
    state.prepare(OWNER).unwrap();
    assert_eq!(state.owner(), Some(OWNER));
    state.begin().unwrap();
    assert_eq!(state.owner(), Some(OWNER));
    assert_eq!(state.end(OWNER).unwrap(), CaptureEnd::Owned { owner: OWNER });
    assert_eq!(state.owner(), None);
}

#[test]
fn d03_only_the_owner_seals_and_a_late_owner_abandons_the_neighbours_window() {
    let mut state = after(RECORDING);
    let end = state.end(OTHER).unwrap();
    assert_eq!(end, CaptureEnd::Abandoned { owner: OWNER });
    assert!(end.is_abandoned() && end.owner() == OWNER);
    assert_eq!(state.end(OWNER), Err(CaptureError::NotRecording { caller: OWNER }));
    state.prepare(OTHER).unwrap();
    state.begin().unwrap();
    assert_eq!(state.end(OWNER).unwrap(), CaptureEnd::Abandoned { owner: OTHER });
    assert!(!state.is_active());
}

#[test]
fn d04_the_abandonment_error_is_several_and_names_owner_caller_and_then_the_doom() {
    let end = CaptureEnd::Abandoned { owner: OWNER };
    for doom in [None, Some(CaptureError::graph_state("a write was refused"))] {
        let error = end.abandoned_error(OTHER, doom.clone());
        let CaptureError::Several { errors, .. } = &error else { panic!("{error:?}") };
        let abandoned = CaptureError::Abandoned { owner: OWNER, caller: OTHER };
        assert_eq!(errors[..], Vec::from_iter([abandoned].into_iter().chain(doom)));
        let text = error.to_string();
        let mut rest = &text[..];
        for part in errors.iter().map(ToString::to_string) {
            let at = rest.find(&part).unwrap_or_else(|| panic!("{part} in {text}"));
            rest = &rest[at + part.len()..];
        }
        assert!(text.contains("LogicalStreamId { value: 7 }"), "{text}");
        assert!(text.contains("LogicalStreamId { value: 8 }"), "{text}");
    }
}

#[test]
fn d05_abort_returns_from_both_phases_and_the_stream_can_be_prepared_again() {
    for calls in [NONE, PREPARED, RECORDING] {
        let mut state = after(calls);
        state.abort();
        assert_eq!(seen(&state), None);
        assert!(!state.device().any_active());
        state.prepare(OTHER).unwrap();
        state.begin().unwrap();
        assert_eq!(state.end(OTHER).unwrap(), CaptureEnd::Owned { owner: OTHER });
    }
}

#[test]
fn d06_the_record_counts_every_stream_and_one_owner_on_two() {
    let device = DeviceCaptures::default();
    let status = device.status();
    let (mut a, mut b) = (device.stream(), device.stream());
    a.prepare(OWNER).unwrap();
    assert!(status.any_active() && !status.any_recording() && status.is_capturing(OWNER));
    b.prepare(OWNER).unwrap();
    b.begin().unwrap();
    assert!(status.any_recording());
    b.end(OWNER).unwrap();
    assert!(
        status.is_capturing(OWNER) && !status.any_recording(),
        "the other stream's window is open"
    );
    a.abort();
    assert!(!status.is_capturing(OWNER) && !status.any_active());
    a.prepare(OWNER).unwrap();
    a.begin().unwrap();
    drop(a);
    assert!(
        !status.is_capturing(OWNER) && !status.any_recording(),
        "dropping a stream ends its window"
    );
}

/// Ids that share a word of the record, and ids at both ends of their range.
const IDS: [u64; 8] = [0, 1, 64, 65, 128, 1 << 58, u64::MAX - 64, u64::MAX];

#[test]
fn d06_the_record_is_true_after_any_calls_on_any_streams() {
    arbtest(|u| {
        let folded = *u.choose(&[1, 2, 3, 5, 64, 100])?;
        let device = DeviceCaptures::folding(NonZeroU32::new(folded).unwrap());
        let status = device.status();
        let mut streams: Vec<_> = (0..3).map(|_| device.stream()).collect();
        for _ in 0..u.int_in_range(0..=40)? {
            let id = LogicalStreamId { value: *u.choose(&IDS)? };
            let calls = [Prepare(id), Prepare(id), Begin, BeginAs(id), End(id), Abort, AbortAs(id)];
            let call = *u.choose(&calls)?;
            let at = u.choose_index(streams.len())?;
            let before = seen(&streams[at]);
            if apply(&mut streams[at], call).is_err() {
                assert_eq!(seen(&streams[at]), before);
            }
            if u.ratio(1, 16)? {
                streams[at] = device.stream();
            }
            assert_eq!(status.any_active(), streams.iter().any(StreamCaptureState::is_active));
            assert_eq!(
                status.any_recording(),
                streams.iter().any(StreamCaptureState::is_recording)
            );
            for id in IDS.map(|value| LogicalStreamId { value }) {
                let owns = streams.iter().any(|stream| stream.owner() == Some(id));
                assert_eq!(status.is_capturing(id), owns, "{id:?}");
            }
        }
        Ok(())
    })
    .budget_ms(500);
}

#[test]
fn d11_what_a_recording_may_use_is_released_only_while_none_records() {
    let device = DeviceCaptures::default();
    let status = device.status();
    let mut stream = device.stream();
    stream.prepare(OWNER).unwrap();
    assert_eq!(status.unless_recording(|| "released"), Some("released"));
    stream.begin().unwrap();
    assert_eq!(status.unless_recording(|| "released"), None);
    stream.end(OTHER).unwrap();
    assert_eq!(status.unless_recording(|| "released"), Some("released"));
}

#[test]
fn d12_errors_are_typed_and_name_both_streams() {
    let errors = [
        after(PREPARED).prepare(OTHER).unwrap_err(),
        after(RECORDING).prepare(OTHER).unwrap_err(),
        after(PREPARED).begin_as(OTHER).unwrap_err(),
        after(RECORDING).abort_as(OTHER).unwrap_err(),
        CaptureEnd::Abandoned { owner: OWNER }.abandoned_error(OTHER, None),
    ];
    for error in errors {
        let text = error.to_string();
        for id in [OWNER, OTHER] {
            assert!(text.contains(&format!("{id:?}")), "{text}");
        }
    }
}

#[test]
fn d13_guards_end_the_window_on_error_and_panic() {
    for prepared in [false, true] {
        for panics in [false, true] {
            let mut state = after(if prepared { PREPARED } else { NONE });
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let guard = if prepared { state.beginning(OWNER) } else { state.preparing(OWNER) };
                let guard = guard.unwrap();
                if panics {
                    panic!("in the backend");
                }
                Err::<(), _>(CaptureError::graph_state("no"))?;
                guard.keep();
                Ok::<(), CaptureError>(())
            }));
            assert_eq!(outcome.is_err(), panics);
            assert!(!state.is_active() && !state.device().any_active());
            state.preparing(OTHER).unwrap().keep();
            state.beginning(OTHER).unwrap().keep();
            assert!(state.is_recording());
        }
    }
}

#[test]
fn d14_begin_and_abort_check_the_caller() {
    let mut state = after(PREPARED);
    assert!(state.begin_as(OTHER).is_err());
    assert!(state.abort_as(OTHER).is_err());
    state.begin_as(OWNER).unwrap();
    assert!(state.abort_as(OTHER).is_err());
    assert!(state.is_recording());
    state.abort_as(OWNER).unwrap();
    assert!(!state.is_active());
}
