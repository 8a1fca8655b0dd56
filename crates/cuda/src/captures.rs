//! What this crate's own calls and open captures owe each other: the one rule, for every capture that is begun here and for those
//! that other libraries begin.
//!
//! While a stream is captured the driver bars some calls, and breaks the capture over them. Allocating, freeing,
//! instantiating, destroying what was instantiated and waiting for another stream are barred unless the calling thread is
//! in relaxed mode (rule R20 of [the model](phonograph_capture::model)): such calls of this crate are made under
//! [`relaxed`], which costs a wait 40 to 140 ns on an H200, so that no capture of anybody's breaks over them. Waiting for a whole
//! device is barred in every mode (R23), so it is kept apart from the captures that are begun here: it waits for those that
//! are open on other threads, a capture that is about to begin waits for it, and where waiting could have no end, because
//! the capture is this thread's own or one that nobody is bound to end, it is refused with the error that the driver has
//! for it, and the capture stays whole.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use cudarc::driver::sys::CUstreamCaptureMode;

use crate::error::{DriverError, call, log_drop};

/// Whether this thread may do what captures bar, for as long as this lives.
pub(crate) struct Relaxed {
    before: CUstreamCaptureMode,
    /// The mode is the thread's.
    _thread: std::marker::PhantomData<*mut ()>,
}

/// Lets this thread do what captures bar, until the guard is dropped.
pub(crate) fn relaxed() -> Result<Relaxed, DriverError> {
    let mut before = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the mode before is written over the one given.
    unsafe { call!(cuThreadExchangeStreamCaptureMode(&mut before)) }?;
    Ok(Relaxed { before, _thread: std::marker::PhantomData })
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        // SAFETY: as above; the mode is the one that the thread had.
        log_drop(unsafe { call!(cuThreadExchangeStreamCaptureMode(&mut self.before)) });
    }
}

static OPEN: Captures = Captures::new();

/// A capture is open until this is dropped. Taken before the capture begins.
pub(crate) struct Capturing {
    among: &'static Captures,
    number: u64,
}

impl Capturing {
    /// A capture that ends before the function that begins it returns.
    pub fn here() -> Self {
        OPEN.begin(Some(thread::current().id()))
    }

    /// A capture that any thread may end, some time.
    pub fn open_ended() -> Self {
        OPEN.begin(None)
    }
}

impl Drop for Capturing {
    fn drop(&mut self) {
        let mut state = self.among.lock();
        state.open.retain(|(number, _)| *number != self.number);
        self.among.changed.notify_all();
    }
}

/// Waits for a whole device by the call that is given, while no capture is open.
///
/// # Errors
/// Refused if a capture is open that this would wait for in vain.
pub(crate) fn wait_for_device(
    wait: impl FnOnce() -> Result<(), DriverError>,
) -> Result<(), DriverError> {
    let _waiting = OPEN.wait()?;
    wait()
}

/// The captures that are open, and who waits for devices.
struct Captures {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// By number: the thread that is bound to end it.
    open: Vec<(u64, Option<ThreadId>)>,
    next: u64,
    /// Waits for devices that are under way.
    waiting: usize,
    /// Captures that are about to begin; no wait starts before them.
    beginning: usize,
}

impl Captures {
    const fn new() -> Self {
        let state = State { open: Vec::new(), next: 0, waiting: 0, beginning: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleep<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&'static self, thread: Option<ThreadId>) -> Capturing {
        let mut state = self.lock();
        state.beginning += 1;
        while state.waiting > 0 {
            state = self.sleep(state);
        }
        state.beginning -= 1;
        let number = state.next;
        state.next += 1;
        state.open.push((number, thread));
        Capturing { among: self, number }
    }

    fn wait(&self) -> Result<Waiting<'_>, DriverError> {
        let here = thread::current().id();
        let mut state = self.lock();
        loop {
            if state.open.iter().any(|(_, thread)| thread.is_none_or(|thread| thread == here)) {
                return Err(refused());
            }
            if state.open.is_empty() && state.beginning == 0 {
                break;
            }
            state = self.sleep(state);
        }
        state.waiting += 1;
        Ok(Waiting(self))
    }
}

struct Waiting<'a>(&'a Captures);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
        self.0.changed.notify_all();
    }
}

/// What the driver would answer, without the harm.
fn refused() -> DriverError {
    DriverError {
        call: "cuCtxSynchronize",
        code: 900,
        name: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED".to_owned(),
        message: "a capture is open that this would break; end it first (the driver was not asked)"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    fn captures() -> &'static Captures {
        Box::leak(Box::new(Captures::new()))
    }

    #[test]
    fn a_wait_that_would_break_a_capture_for_good_is_refused() {
        let all = captures();
        let own = all.begin(Some(thread::current().id()));
        assert_eq!(all.wait().err(), Some(refused()), "this thread would wait for itself");
        drop(own);
        let window = all.begin(None);
        thread::scope(|scope| {
            let other = scope.spawn(|| all.wait().err());
            assert_eq!(other.join().unwrap(), Some(refused()), "nobody is bound to end it");
        });
        drop(window);
        assert!(all.wait().is_ok());
    }

    #[test]
    fn a_wait_of_another_thread_comes_after_the_capture() {
        let all = captures();
        let ended = AtomicBool::new(false);
        let (first, second) = (thread::current().id(), thread::current().id());
        let (outer, inner) = (all.begin(Some(first)), all.begin(Some(second)));
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                let _waiting = all.wait().unwrap();
                ended.load(Ordering::SeqCst)
            });
            drop(inner);
            ended.store(true, Ordering::SeqCst);
            drop(outer);
            assert!(other.join().unwrap(), "both captures had ended");
        });
    }

    #[test]
    fn a_capture_begins_after_the_waits_under_way_and_before_those_to_come() {
        let all = captures();
        let waiting = all.wait().unwrap();
        let (begun, has_begun) = channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                let capturing = all.begin(Some(thread::current().id()));
                begun.send(()).unwrap();
                drop(capturing);
            });
            while all.lock().beginning == 0 {
                thread::yield_now();
            }
            let later = scope.spawn(|| drop(all.wait().unwrap()));
            assert!(has_begun.try_recv().is_err(), "somebody waits for the device");
            drop(waiting);
            has_begun.recv().unwrap();
            later.join().unwrap();
        });
        assert!(all.wait().is_ok());
    }
}
