//! Every interleaving of completions and those who wait for them, by a model checker. This includes the table's own source,
//! with loom's primitives in place of the standard library's.

#[path = "../src/completion/table.rs"]
mod table;

/// What `table.rs` imports.
mod sync {
    pub(crate) use loom::sync::{Arc, Mutex};
}

use std::sync::Arc;
use std::task::{Poll, Wake, Waker};

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use table::Table;

/// Counts how often it was woken.
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn waker() -> (Arc<Woken>, Waker) {
    let woken = Arc::new(Woken(AtomicU32::new(0)));
    (woken.clone(), woken.into())
}

#[test]
fn whoever_finds_nothing_yet_is_woken_once() {
    loom::model(|| {
        let table = Table::<u32>::default();
        let (mut ticket, promise) = table.register();
        let completer = thread::spawn(move || promise.complete(7));
        let (woken, waker) = waker();
        let early = ticket.poll(&waker);
        completer.join().unwrap();
        let times = woken.0.load(Ordering::Relaxed);
        match early {
            Poll::Ready(result) => assert_eq!((result, times), (7, 0)),
            Poll::Pending => {
                assert_eq!(times, 1, "nobody would poll again");
                assert_eq!(ticket.poll(&waker), Poll::Ready(7));
            }
        }
        assert_eq!(ticket.poll(&waker), Poll::Pending, "the result is given once");
        assert_eq!(table.in_use(), 0);
    });
}

#[test]
fn the_last_waker_is_the_one_that_is_woken() {
    loom::model(|| {
        let table = Table::<u32>::default();
        let (mut ticket, promise) = table.register();
        let completer = thread::spawn(move || promise.complete(7));
        let ((old, first), (new, second)) = (waker(), waker());
        let early = ticket.poll(&first).is_ready() || ticket.poll(&second).is_ready();
        completer.join().unwrap();
        let woken = [&old, &new].map(|woken| woken.0.load(Ordering::Relaxed));
        assert!(early || woken == [0, 1], "{woken:?}: the task had moved on to the second");
    });
}

#[test]
fn a_slot_is_free_once_both_halves_are_gone_whichever_goes_first() {
    loom::model(|| {
        let table = Table::<u32>::default();
        let (ticket, promise) = table.register();
        let completer = thread::spawn(move || promise.complete(7));
        drop(ticket);
        completer.join().unwrap();
        assert_eq!(table.in_use(), 0);
    });
}

#[test]
fn a_slot_that_is_used_again_mixes_nothing_up() {
    loom::model(|| {
        let table = Table::<u32>::default();
        let (first, promise) = table.register();
        let completer = thread::spawn(move || promise.complete(1));
        drop(first);
        // Takes the slot of the first if that is free by now, else another.
        let (mut second, promise) = table.register();
        promise.complete(2);
        let (_, waker) = waker();
        assert_eq!(second.poll(&waker), Poll::Ready(2));
        completer.join().unwrap();
        assert_eq!(table.in_use(), 0);
    });
}
