//! The state machine of a capture, one a backend stream, and the device's record of all of them.
//!
//! ```text
//!                 prepare(owner)                begin
//!    NoCapture ──────────────────▶ Prepare ──────────────▶ Capture
//!        ▲                            │                       │
//!        ├──────────── abort ─────────┤                       │
//!        └──────────── abort, end(anybody), drop ─────────────┘
//! ```
//!
//! | call | NoCapture | Prepare {owner} | Capture {owner} |
//! | --- | --- | --- | --- |
//! | `prepare(o)` | → Prepare {o} | `Busy` | `Busy` |
//! | `begin` | `NotPrepared` | → Capture {owner} | `AlreadyRecording` |
//! | `begin_as(c)` | `NotPrepared` | c = owner → Capture, else `NotOwner` | `AlreadyRecording` |
//! | `end(c)` | `NotRecording` | `NotRecording` | → NoCapture; `Owned` if c = owner, else `Abandoned` |
//! | `abort` | nothing | → NoCapture | → NoCapture |
//! | `abort_as(c)` | nothing | c = owner → NoCapture, else `NotOwner` | c = owner → NoCapture, else `NotOwner` |
//!
//! An error leaves the state as it was. The state moves *before* the backend works, so that a call that is refused runs
//! none of that work; whoever then fails takes the move back ([`PhaseGuard`] does it on every path out, panics included).
//! `end` moves before sealing, so that a seal that fails leaves a stream that serves. Anybody may end a recording, because
//! an owner that never comes back must not hold a stream that others share; only the owner's end is worth a graph.
//!
//! The record is written here and nowhere else, under a lock, and read without it. The counts of both phases are one word.
//! Whether a logical stream captures is one word too, picked by its id modulo the number of words, which holds the
//! quotient. That number is a multiple of the streams that ids are folded onto, so two owners with the same word have the
//! same backend stream, and it serves one capture at a time. Only where captures do not follow the folding
//! ([`DeviceCaptures::default`] knows of none) may a word have two owners at once; it then says so, and the lock decides.
//! A reader sees a transition once it has returned, if anything orders the reader behind it.

use std::num::NonZeroU32;
use std::sync::PoisonError;

use super::sync::{Arc, AtomicU64, Mutex, Ordering};
use super::{CaptureEnd, CaptureError, LifecycleCall, LogicalStreamId, Window};

/// What a backend stream is doing about captures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    NoCapture,
    Open(Window, LogicalStreamId),
}

/// The captures of one device. Every backend stream takes its share of it; everybody else reads its status.
///
/// ```
/// use phonograph_runtime::capture::{CaptureEnd, DeviceCaptures, LogicalStreamId};
///
/// let (owner, neighbour) = (LogicalStreamId { value: 7 }, LogicalStreamId { value: 8 });
/// let device = DeviceCaptures::default();
/// let status = device.status();
/// let mut stream = device.stream();
/// stream.prepare(owner)?;
/// assert!(status.is_capturing(owner) && !status.any_recording());
/// stream.begin()?;
/// assert!(status.any_recording() && !status.is_capturing(neighbour));
/// assert_eq!(stream.end(owner)?, CaptureEnd::Owned { owner });
/// assert!(!status.any_active());
/// # Ok::<(), phonograph_runtime::capture::CaptureError>(())
/// ```
#[derive(Clone, Debug)]
pub struct DeviceCaptures {
    record: Arc<Record>,
}

impl Default for DeviceCaptures {
    fn default() -> Self {
        Self::folding(NonZeroU32::MIN)
    }
}

impl DeviceCaptures {
    /// For a device that serves logical stream `id` by backend stream `id % streams`, which makes
    /// [`CaptureStatus::is_capturing`] one atomic load whoever captures.
    pub fn folding(streams: NonZeroU32) -> Self {
        let streams = u64::from(streams.get());
        let words = streams * LEAST_WORDS.div_ceil(streams);
        let words = (0..words).map(|_| AtomicU64::new(NONE)).collect();
        let (counts, lock) = (AtomicU64::new(0), Mutex::new(Owners::default()));
        Self { record: Arc::new(Record { counts, words, lock }) }
    }

    /// The state of one more backend stream; it leaves the record when it is dropped.
    pub fn stream(&self) -> StreamCaptureState {
        StreamCaptureState { phase: Phase::NoCapture, record: self.record.clone() }
    }

    /// What can be seen of the captures.
    pub fn status(&self) -> CaptureStatus {
        CaptureStatus { record: self.record.clone() }
    }
}

/// A view of a device's captures that changes nothing. Clones share it; each question is one atomic load.
#[derive(Clone, Debug)]
pub struct CaptureStatus {
    record: Arc<Record>,
}

impl CaptureStatus {
    /// Whether any stream of the device prepares or records a capture.
    #[inline]
    pub fn any_active(&self) -> bool {
        self.record.counts.load(Ordering::Acquire) & ACTIVE != 0
    }

    /// Whether any stream of the device records a capture.
    #[inline]
    pub fn any_recording(&self) -> bool {
        self.record.counts.load(Ordering::Acquire) >= RECORDING
    }

    /// Whether this logical stream owns a capture, from prepare until it ends, is aborted or dropped.
    ///
    /// One atomic load on a device that [folds](DeviceCaptures::folding). On another, a lock decides while two owners
    /// capture whose ids are equal modulo 64, and for such ids alone.
    #[inline]
    pub fn is_capturing(&self, stream: LogicalStreamId) -> bool {
        let (word, only) = self.record.place(stream);
        match self.record.words[word].load(Ordering::Acquire) {
            NONE => false,
            SEVERAL => self.record.owns(stream),
            one => one == only,
        }
    }

    /// Runs `work` while no stream of the device can begin to record, or not at all if one records.
    ///
    /// For what a recording must not see half done, such as giving pages back. `work` holds up every transition of the
    /// device and must make none itself.
    pub fn unless_recording<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        let owners = self.record.lock();
        (owners.recording == 0).then(work)
    }
}

/// The capture state of one backend stream; see the table at the head of this file's source, or the methods.
#[derive(Debug)]
pub struct StreamCaptureState {
    phase: Phase,
    record: Arc<Record>,
}

impl StreamCaptureState {
    /// Opens the window for `owner`: its warm-up begins.
    ///
    /// # Errors
    /// [`CaptureError::Busy`] if a window is open.
    pub fn prepare(&mut self, owner: LogicalStreamId) -> Result<(), CaptureError> {
        match self.phase {
            Phase::NoCapture => {
                self.move_to(Phase::Open(Window::Preparing, owner));
                Ok(())
            }
            Phase::Open(phase, holder) => {
                Err(CaptureError::Busy { owner: holder, caller: owner, phase })
            }
        }
    }

    /// Starts recording, after the warm-up.
    ///
    /// # Errors
    /// [`CaptureError::NotPrepared`] or [`CaptureError::AlreadyRecording`].
    pub fn begin(&mut self) -> Result<(), CaptureError> {
        match self.phase {
            Phase::NoCapture => Err(CaptureError::NotPrepared),
            Phase::Open(Window::Recording, owner) => Err(CaptureError::AlreadyRecording { owner }),
            Phase::Open(Window::Preparing, owner) => {
                self.move_to(Phase::Open(Window::Recording, owner));
                Ok(())
            }
        }
    }

    /// As [`begin`](Self::begin), for the owner alone.
    ///
    /// # Errors
    /// Those of `begin`, and [`CaptureError::NotOwner`] if `caller` has not prepared this window.
    pub fn begin_as(&mut self, caller: LogicalStreamId) -> Result<(), CaptureError> {
        match self.phase {
            Phase::Open(Window::Preparing, owner) if owner != caller => {
                Err(CaptureError::NotOwner { call: LifecycleCall::Begin, owner, caller })
            }
            _ => self.begin(),
        }
    }

    /// Closes the recording, whoever calls; what the answer says may be sealed only if the caller is the owner.
    ///
    /// # Errors
    /// [`CaptureError::NotRecording`], also during the warm-up.
    pub fn end(&mut self, caller: LogicalStreamId) -> Result<CaptureEnd, CaptureError> {
        let Phase::Open(Window::Recording, owner) = self.phase else {
            return Err(CaptureError::NotRecording { caller });
        };
        self.move_to(Phase::NoCapture);
        Ok(if owner == caller {
            CaptureEnd::Owned { owner }
        } else {
            CaptureEnd::Abandoned { owner }
        })
    }

    /// Closes the window, whatever its phase and whoever owns it. Nothing where none is open.
    pub fn abort(&mut self) {
        if self.is_active() {
            self.move_to(Phase::NoCapture);
        }
    }

    /// As [`abort`](Self::abort), for the owner alone.
    ///
    /// # Errors
    /// [`CaptureError::NotOwner`] if the open window is not the caller's.
    pub fn abort_as(&mut self, caller: LogicalStreamId) -> Result<(), CaptureError> {
        match self.phase {
            Phase::Open(_, owner) if owner != caller => {
                Err(CaptureError::NotOwner { call: LifecycleCall::Abort, owner, caller })
            }
            _ => {
                self.abort();
                Ok(())
            }
        }
    }

    /// [`prepare`](Self::prepare) for work that may fail: unless the guard is kept, dropping it aborts the window.
    ///
    /// # Errors
    /// Those of `prepare`.
    pub fn preparing(&mut self, owner: LogicalStreamId) -> Result<PhaseGuard<'_>, CaptureError> {
        self.prepare(owner)?;
        Ok(PhaseGuard { state: self })
    }

    /// [`begin_as`](Self::begin_as) for work that may fail: unless the guard is kept, dropping it aborts the window.
    ///
    /// ```
    /// use phonograph_runtime::capture::{CaptureError, DeviceCaptures, LogicalStreamId};
    ///
    /// let owner = LogicalStreamId { value: 1 };
    /// let mut stream = DeviceCaptures::default().stream();
    /// stream.prepare(owner)?;
    /// let opened = stream.beginning(owner).and_then(|guard| {
    ///     Err::<(), _>(CaptureError::graph_state("the driver refuses"))?;
    ///     guard.keep();
    ///     Ok(())
    /// });
    /// assert!(opened.is_err() && !stream.is_active());
    /// # Ok::<(), CaptureError>(())
    /// ```
    ///
    /// # Errors
    /// Those of `begin_as`.
    pub fn beginning(&mut self, caller: LogicalStreamId) -> Result<PhaseGuard<'_>, CaptureError> {
        self.begin_as(caller)?;
        Ok(PhaseGuard { state: self })
    }

    /// Whether the warm-up is under way.
    pub fn is_preparing(&self) -> bool {
        matches!(self.phase, Phase::Open(Window::Preparing, _))
    }

    /// Whether work is being recorded.
    pub fn is_recording(&self) -> bool {
        matches!(self.phase, Phase::Open(Window::Recording, _))
    }

    /// Whether a window is open, in either phase.
    pub fn is_active(&self) -> bool {
        self.phase != Phase::NoCapture
    }

    /// Who prepared the window that is open.
    pub fn owner(&self) -> Option<LogicalStreamId> {
        match self.phase {
            Phase::NoCapture => None,
            Phase::Open(_, owner) => Some(owner),
        }
    }

    /// What can be seen of all captures of the device that this stream belongs to.
    pub fn device(&self) -> CaptureStatus {
        CaptureStatus { record: self.record.clone() }
    }

    fn move_to(&mut self, phase: Phase) {
        self.record.publish(self.phase, phase);
        self.phase = phase;
    }
}

impl Drop for StreamCaptureState {
    fn drop(&mut self) {
        self.abort();
    }
}

/// A transition whose backend work is still to be done. Dropped on the way out of an error or a panic it aborts the window.
#[must_use = "dropping it aborts the window"]
#[derive(Debug)]
pub struct PhaseGuard<'a> {
    state: &'a mut StreamCaptureState,
}

impl PhaseGuard<'_> {
    /// The backend's work is done: the window stays.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for PhaseGuard<'_> {
    fn drop(&mut self) {
        self.state.abort();
    }
}

// --- the record ---------------------------------------------------------------------------------

/// Counts of open windows in the low half, of recording ones in the high half.
const ACTIVE: u64 = (1 << 32) - 1;
const RECORDING: u64 = 1 << 32;

/// With this many words at least, a quotient leaves bits for a mark.
const LEAST_WORDS: u64 = 64;
/// No owner has this word.
const NONE: u64 = 0;
/// More than one owner has this word.
const SEVERAL: u64 = 2;

#[derive(Debug, Default)]
struct Owners {
    recording: u32,
    /// The owner of every open window; an owner of two is here twice.
    open: Vec<LogicalStreamId>,
}

#[derive(Debug)]
struct Record {
    counts: AtomicU64,
    words: Box<[AtomicU64]>,
    lock: Mutex<Owners>,
}

impl Record {
    fn lock(&self) -> impl std::ops::DerefMut<Target = Owners> + '_ {
        // Only `unless_recording` runs foreign code under the lock, and that cannot reach the owners.
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The word of a stream, and what it holds if this stream is its only owner.
    fn place(&self, stream: LogicalStreamId) -> (usize, u64) {
        let words = self.words.len() as u64;
        ((stream.value % words) as usize, ((stream.value / words) << 2) | 1)
    }

    fn owns(&self, stream: LogicalStreamId) -> bool {
        self.lock().open.contains(&stream)
    }

    /// Notes that a stream of the device moves from one phase to another.
    fn publish(&self, from: Phase, to: Phase) {
        let mut owners = self.lock();
        let recording = |phase| matches!(phase, Phase::Open(Window::Recording, _));
        owners.recording -= u32::from(recording(from));
        owners.recording += u32::from(recording(to));
        if let Phase::Open(_, owner) = from
            && let Some(at) = owners.open.iter().position(|&open| open == owner)
        {
            owners.open.swap_remove(at);
        }
        if let Phase::Open(_, owner) = to {
            owners.open.push(owner);
        }
        let counts = u64::from(owners.recording) << 32 | owners.open.len() as u64;
        self.counts.store(counts, Ordering::Release);
        for phase in [from, to] {
            let Phase::Open(_, owner) = phase else { continue };
            let (word, _) = self.place(owner);
            let open = owners.open.iter().map(|&open| self.place(open));
            let mut here = open.filter(|place| place.0 == word).map(|place| place.1);
            let holds = match here.next() {
                None => NONE,
                Some(first) if here.all(|other| other == first) => first,
                Some(_) => SEVERAL,
            };
            self.words[word].store(holds, Ordering::Release);
        }
    }
}
