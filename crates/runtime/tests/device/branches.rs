//! Windows of several streams of one owner: BEHAVIOURS D 6, and what E 14 and 15 rest on.

use phonograph_runtime::capture::{CaptureError, Request, Window};
use phonograph_runtime::streams::{Backend, Device, Step};

use crate::modes::in_every_mode;
use crate::shared_device::as_the_driver_allows;
use crate::traced::Shared;
use crate::work::{NEIGHBOUR, OWNER, bytes, filled, id, plus, value};

in_every_mode!(
    d06_one_owner_on_two_pooled_streams_counts_on_both_until_the_end,
    d06_nothing_is_prepared_where_one_of_the_streams_is_busy,
    d03_a_neighbour_of_a_branch_abandons_the_whole_window,
    d14_a_stream_of_the_window_acts_as_its_owner,
    e14_branches_give_what_running_in_the_order_of_submission_gives,
    e15_a_conflict_between_branches_becomes_an_edge_and_readers_need_none,
    an_order_that_the_program_asks_for_is_recorded_and_one_that_leads_out_dooms,
    a_branch_is_served_from_what_its_own_warm_up_primed,
    branches_that_fold_onto_one_pooled_stream_are_recorded_one_after_another,
    eager_work_comes_after_another_stream_where_that_is_asked_for,
);

/// Served by pooled stream 2; so is 6.
const SIDE: u64 = 2;

fn d06_one_owner_on_two_pooled_streams_counts_on_both_until_the_end<B: Backend>(
    device: Device<B>,
    trace: Shared,
) {
    let [owner, side] = [OWNER, SIDE].map(|value| device.stream_of(id(value)));
    let (x, y) = (filled(&owner, "x", 1.0), filled(&side, "y", 1.0));
    let window = owner.prepare_with(&[&side]).unwrap();
    let status = device.status().clone();
    assert!(status.is_capturing(id(OWNER)) && status.any_active() && !status.any_recording());
    window.begin().unwrap();
    assert!(status.any_recording());
    owner.submit(&plus("x", &x, &x, 1.0)).unwrap();
    side.submit(&plus("y", &y, &y, 1.0)).unwrap();
    // A neighbour of either is one.
    for neighbour in [NEIGHBOUR, 6].map(|value| device.stream_of(id(value))) {
        let refused = neighbour.read(&x).unwrap_err();
        let expected = CaptureError::Neighbour {
            request: Request::Read("x".into()),
            owner: id(OWNER),
            caller: neighbour.id(),
        };
        assert_eq!(refused, expected);
    }
    let graph = window.end("both").unwrap();
    assert!(!status.any_active() && !status.is_capturing(id(OWNER)));
    assert!(trace.lock().unwrap().recordings.is_empty());
    side.launch(&graph).unwrap();
    assert_eq!([value(&owner, &x), value(&owner, &y)], [2.0, 2.0]);
    as_the_driver_allows(&trace.lock().unwrap());
}

fn d06_nothing_is_prepared_where_one_of_the_streams_is_busy<B: Backend>(
    device: Device<B>,
    _: Shared,
) {
    let [owner, side, theirs] = [OWNER, SIDE, 6].map(|value| device.stream_of(id(value)));
    let taken = theirs.prepare().unwrap();
    let busy = owner.prepare_with(&[&side]).err();
    let phase = Window::Preparing;
    assert_eq!(busy, Some(CaptureError::Busy { owner: id(6), caller: id(OWNER), phase }));
    assert!(!device.status().is_capturing(id(OWNER)));
    drop(taken);
    drop(owner.prepare_with(&[&side]).unwrap());
    assert!(!device.status().any_active());
}

fn d03_a_neighbour_of_a_branch_abandons_the_whole_window<B: Backend>(
    device: Device<B>,
    trace: Shared,
) {
    let [owner, side, thief] = [OWNER, SIDE, 6].map(|value| device.stream_of(id(value)));
    let (x, y) = (filled(&owner, "x", 1.0), filled(&side, "y", 1.0));
    let window = owner.prepare_with(&[&side]).unwrap();
    window.begin().unwrap();
    owner.submit(&plus("x", &x, &x, 1.0)).unwrap();
    side.submit(&plus("y", &y, &y, 1.0)).unwrap();
    let error = thief.end("stolen").unwrap_err();
    let CaptureError::Several { errors } = &error else { panic!("{error}") };
    assert_eq!(errors[..], [CaptureError::Abandoned { owner: id(OWNER), caller: id(6) }]);
    assert!(!device.status().any_active() && trace.lock().unwrap().recordings.is_empty());
    let late = window.end("late").unwrap_err();
    assert_eq!(late, CaptureError::NotRecording { caller: id(OWNER) });
    for buffer in [&x, &y] {
        assert!(matches!(owner.read(buffer), Err(CaptureError::Tainted { .. })));
        side.write(buffer, &bytes(4.0)).unwrap();
        assert_eq!(value(&side, buffer), 4.0);
    }
    as_the_driver_allows(&trace.lock().unwrap());
}

fn d14_a_stream_of_the_window_acts_as_its_owner<B: Backend>(device: Device<B>, _: Shared) {
    let [owner, side] = [OWNER, SIDE].map(|value| device.stream_of(id(value)));
    let y = filled(&side, "y", 1.0);
    std::mem::forget(owner.prepare_with(&[&side]).unwrap());
    side.begin().unwrap();
    side.submit(&plus("y", &y, &y, 1.0)).unwrap();
    let graph = side.end("ended by a branch").unwrap();
    side.launch(&graph).unwrap();
    assert_eq!(value(&side, &y), 2.0);
    std::mem::forget(owner.prepare_with(&[&side]).unwrap());
    side.abort().unwrap();
    assert!(!device.status().any_active());
}

fn e14_branches_give_what_running_in_the_order_of_submission_gives<B: Backend>(
    device: Device<B>,
    trace: Shared,
) {
    let streams = [OWNER, SIDE, 3].map(|value| device.stream_of(id(value)));
    let x = filled(&streams[0], "x", 1.0);
    let sums = streams.each_ref().map(|stream| filled(stream, "sum", 0.0));
    let body = || {
        for (at, (stream, sum)) in streams.iter().zip(&sums).enumerate() {
            stream.submit(&plus("branch", &x, sum, at as f32)).unwrap();
            stream.submit(&plus("again", sum, sum, 10.0)).unwrap();
        }
        streams[0].submit(&plus("joined", &sums[2], &x, 100.0)).unwrap();
    };
    let window = streams[0].prepare_with(&[&streams[1], &streams[2]]).unwrap();
    body();
    let read = || [&x, &sums[0], &sums[1], &sums[2]].map(|buffer| value(&streams[1], buffer));
    assert_eq!(read(), [113.0, 11.0, 12.0, 13.0]);
    window.begin().unwrap();
    body();
    let graph = window.end("branches").unwrap();
    for launched_on in &streams {
        streams[0].write(&x, &bytes(2.0)).unwrap();
        launched_on.launch(&graph).unwrap();
        assert_eq!(read(), [114.0, 12.0, 13.0, 14.0]);
    }
    as_the_driver_allows(&trace.lock().unwrap());
}

fn e15_a_conflict_between_branches_becomes_an_edge_and_readers_need_none<B: Backend>(
    device: Device<B>,
    trace: Shared,
) {
    let [owner, side] = [OWNER, SIDE].map(|value| device.stream_of(id(value)));
    let [x, y, z] = ["x", "y", "z"].map(|name| filled(&owner, name, 1.0));
    let window = owner.prepare_with(&[&side]).unwrap();
    window.begin().unwrap();
    let orders = |trace: &Shared| trace.lock().unwrap().calls[&Step::Order];
    let at_begin = orders(&trace);
    owner.submit(&plus("reads x", &x, &y, 1.0)).unwrap();
    side.submit(&plus("reads x too", &x, &z, 2.0)).unwrap();
    assert_eq!(orders(&trace), at_begin);
    side.submit(&plus("writes x after both", &z, &x, 10.0)).unwrap();
    assert_eq!(orders(&trace), at_begin + 1);
    owner.submit(&plus("reads the new x", &x, &y, 100.0)).unwrap();
    assert_eq!(orders(&trace), at_begin + 2);
    let graph = window.end("conflicts").unwrap();
    for first in [1.0, 5.0] {
        owner.write(&x, &bytes(first)).unwrap();
        side.launch(&graph).unwrap();
        let found = [&x, &y, &z].map(|buffer| value(&owner, buffer));
        assert_eq!(found, [first + 12.0, first + 112.0, first + 2.0]);
    }
}

fn an_order_that_the_program_asks_for_is_recorded_and_one_that_leads_out_dooms<B: Backend>(
    device: Device<B>,
    trace: Shared,
) {
    let [owner, side, far] = [OWNER, SIDE, 3].map(|value| device.stream_of(id(value)));
    let (x, y) = (filled(&owner, "x", 1.0), filled(&side, "y", 1.0));
    let window = owner.prepare_with(&[&side]).unwrap();
    window.begin().unwrap();
    let orders = |trace: &Shared| trace.lock().unwrap().calls[&Step::Order];
    let before = orders(&trace);
    owner.submit(&plus("x", &x, &x, 1.0)).unwrap();
    side.after(&owner).unwrap();
    side.after(&owner).unwrap(); // it is already
    side.after(&side).unwrap();
    assert_eq!(orders(&trace), before + 1);
    side.submit(&plus("y", &y, &y, 1.0)).unwrap();
    drop(window.end("ordered").unwrap());
    let window = owner.prepare_with(&[&side]).unwrap();
    window.begin().unwrap();
    let refused = side.after(&far).unwrap_err();
    let request = Request::Order(id(3));
    assert_eq!(refused, CaptureError::Unrecordable { request, owner: id(OWNER) });
    far.after(&side).unwrap(); // what it had submitted is done
    let doomed = window.end("leads out").unwrap_err();
    assert!(matches!(&doomed, CaptureError::Doomed { cause, .. } if **cause == refused));
}

fn a_branch_is_served_from_what_its_own_warm_up_primed<B: Backend>(
    device: Device<B>,
    trace: Shared,
) {
    let [owner, side] = [OWNER, SIDE].map(|value| device.stream_of(id(value)));
    let window = owner.prepare_with(&[&side]).unwrap();
    drop(side.alloc("scratch", 3 << 20).unwrap());
    window.begin().unwrap();
    let before = trace.lock().unwrap().calls[&Step::Allocate];
    drop(side.alloc("scratch", 3 << 20).unwrap());
    assert_eq!(trace.lock().unwrap().calls[&Step::Allocate], before);
    let CaptureError::Unowned(report) = owner.alloc("scratch", 3 << 20).unwrap_err() else {
        panic!("the owner's own stream had none in the warm-up")
    };
    assert_eq!((report.number, report.warm_up.len()), (1, 0));
    assert!(window.end("doomed").is_err());
}

fn branches_that_fold_onto_one_pooled_stream_are_recorded_one_after_another<B: Backend>(
    device: Device<B>,
    trace: Shared,
) {
    let [owner, same] = [OWNER, NEIGHBOUR].map(|value| device.stream_of(id(value)));
    let x = filled(&owner, "x", 1.0);
    let window = owner.prepare_with(&[&same]).unwrap();
    window.begin().unwrap();
    owner.submit(&plus("x", &x, &x, 1.0)).unwrap();
    same.submit(&plus("x", &x, &x, 1.0)).unwrap(); // a neighbour no more
    let graph = window.end("folded").unwrap();
    assert_eq!(trace.lock().unwrap().calls.get(&Step::Order), None);
    same.launch(&graph).unwrap();
    assert_eq!(value(&owner, &x), 3.0);
}

fn eager_work_comes_after_another_stream_where_that_is_asked_for<B: Backend>(
    device: Device<B>,
    trace: Shared,
) {
    let [one, two] = [OWNER, SIDE].map(|value| device.stream_of(id(value)));
    let (x, y) = (filled(&one, "x", 1.0), filled(&two, "y", 1.0));
    one.submit(&plus("x", &x, &x, 1.0)).unwrap();
    two.after(&one).unwrap();
    two.submit(&plus("y", &y, &y, 1.0)).unwrap();
    assert_eq!(value(&two, &y), 2.0);
    let orders: Vec<_> = trace
        .lock()
        .unwrap()
        .log
        .iter()
        .filter(|(step, _)| *step == Step::Order)
        .copied()
        .collect();
    assert_eq!(orders, [(Step::Order, two.pooled())]);
}
