//! The window of a capture on the device: warm-up, recording, seal, and what becomes of it when something fails.
//!
//! *Warm-up* runs the work for real and counts its allocations. When the window opens, the stream is flushed, so that
//! nothing of a neighbour is under way, and the pools are topped up until they could serve all of these again; nothing
//! that is dropped in either phase is handed out before the window closes. So a recording that asks for what its warm-up
//! asked for is served from what is held, whatever became of the warm-up's own buffers. What goes beyond that dooms
//! the capture.
//!
//! *Sealing* leaves the capture state first. Then the recording becomes a graph, or everything that it would have written
//! is tainted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::backend::{Backend, GraphKind, PooledStreamId};
use super::op::{Buffer, BufferKey, GraphToken, Operation, Use};
use super::server::{Core, Sealed, Server, Touch};
use crate::capture::{CaptureEnd, CaptureError, LogicalStreamId, Request, UnownedAllocation};
use crate::pool::{PageId, SizeClass, Slice};

/// A window that is open.
pub(super) struct Open {
    /// Tells this window from every other.
    number: u64,
    warm_up: BTreeMap<SizeClass, Vec<String>>,
    asked: BTreeMap<SizeClass, u64>,
    doomed: Option<CaptureError>,
    unowned: Vec<UnownedAllocation>,
    recorded: Recorded,
    /// What an operation would have written that is not in the recording.
    refused: Vec<BufferKey>,
}

/// What a recording touches, in the order of its first use.
#[derive(Default, Clone, Debug)]
pub(super) struct Recorded {
    pub name: String,
    pub nodes: u64,
    pub pages: BTreeSet<PageId>,
    buffers: BTreeMap<BufferKey, Touched>,
    last: String,
}

#[derive(Clone, Debug)]
struct Touched {
    name: Arc<str>,
    bytes: u64,
    slice: Slice,
    /// Read before the graph has written all of it: an input.
    input: bool,
    written: bool,
    /// All of it is written by one operation that comes before every read.
    whole: bool,
}

impl Recorded {
    fn note(&mut self, op: &Operation) {
        self.note_node(op.name(), op.uses());
        self.pages.extend(op.buffers().iter().map(|buffer| buffer.slice().page));
    }

    /// A node, and how it uses buffers.
    pub fn note_node<'b>(&mut self, name: &str, uses: impl Iterator<Item = (&'b Buffer, Use)>) {
        self.nodes += 1;
        self.last = name.into();
        for (buffer, used) in uses {
            let touched = self.buffers.entry(buffer.key()).or_insert_with(|| Touched {
                name: buffer.name().into(),
                bytes: buffer.bytes(),
                slice: buffer.slice(),
                input: false,
                written: false,
                whole: false,
            });
            touched.input |= used.reads && !touched.whole;
            touched.written |= used.writes;
            touched.whole |= used.whole;
        }
    }

    pub fn touch(&self) -> Touch {
        let mut touch = Touch::default();
        for (&key, touched) in &self.buffers {
            touch.slices.push(touched.slice);
            if touched.input {
                touch.reads.push((key, touched.name.clone()));
            }
            if touched.whole {
                touch.whole.push(key);
            }
        }
        touch.written = self.written();
        touch
    }

    pub fn written(&self) -> Vec<BufferKey> {
        let written = self.buffers.iter().filter(|(_, touched)| touched.written);
        written.map(|(&key, _)| key).collect()
    }

    pub fn touches(&self, key: BufferKey) -> bool {
        self.buffers.contains_key(&key)
    }

    pub fn keys(&self) -> impl Iterator<Item = BufferKey> {
        self.buffers.keys().copied()
    }

    /// Name and bytes of the buffers, in the order of their allocation.
    pub fn buffers(&self) -> impl Iterator<Item = (&str, u64)> {
        self.buffers.values().map(|touched| (&*touched.name, touched.bytes))
    }
}

impl<B: Backend> Server<B> {
    /// Opens a window; its number.
    pub fn prepare(&mut self, caller: LogicalStreamId) -> Result<u64, CaptureError> {
        let on = self.fold(caller).index();
        self.states[on].prepare(caller)?;
        self.opened += 1;
        self.windows[on] = Some(Open {
            number: self.opened,
            warm_up: BTreeMap::new(),
            asked: BTreeMap::new(),
            doomed: None,
            unowned: Vec::new(),
            recorded: Recorded { last: "the start".into(), ..Recorded::default() },
            refused: Vec::new(),
        });
        Ok(self.opened)
    }

    pub fn begin(&mut self, caller: LogicalStreamId) -> Result<(), CaptureError> {
        let on = self.fold(caller);
        let warm_up = self.windows[on.index()].as_ref().map(|window| &window.warm_up);
        let opened = self.states[on.index()]
            .beginning(caller)
            .map(|guard| open(&mut self.core, on, caller, warm_up).inspect(|()| guard.keep()));
        match opened {
            Ok(Ok(())) => Ok(()),
            Ok(Err(failed)) => {
                self.core.backend.discard(on);
                self.close(on, caller);
                Err(failed)
            }
            Err(refused) => Err(refused),
        }
    }

    /// Closes the window, and seals what was recorded if the caller owns it and nothing has doomed it.
    pub fn end(
        &mut self,
        caller: LogicalStreamId,
        name: &str,
    ) -> Result<Arc<GraphToken>, CaptureError> {
        let on = self.fold(caller);
        let end = self.states[on.index()].end(caller)?;
        let window = self.windows[on.index()].take();
        let Some(Open { doomed, unowned, mut recorded, refused, .. }) = window else {
            unreachable!("a stream that records has a window: both are made by `prepare`")
        };
        let doomed = doomed.map(|cause| {
            let (owner, cause) = (end.owner(), Box::new(cause));
            CaptureError::Doomed { owner, cause, unowned }
        });
        recorded.name = name.into();
        let written = recorded.written();
        let discarded = match end {
            CaptureEnd::Abandoned { .. } => Some(end.abandoned_error(caller, doomed)),
            CaptureEnd::Owned { .. } => doomed,
        };
        let sealed = match discarded {
            Some(error) => {
                self.core.backend.discard(on);
                Err(error)
            }
            None => self.core.seal(on, recorded),
        };
        if let Err(error) = &sealed {
            self.core.taint(error, written.into_iter().chain(refused));
        }
        self.close(on, end.owner());
        sealed
    }

    /// Closes the caller's window without a graph. Nothing where none is open.
    pub fn abort(&mut self, caller: LogicalStreamId) -> Result<(), CaptureError> {
        let on = self.fold(caller);
        let recording = self.states[on.index()].is_recording();
        self.states[on.index()].abort_as(caller)?;
        if recording {
            self.core.backend.discard(on);
        }
        if let Some(window) = self.windows[on.index()].take() {
            let error = window.doomed.unwrap_or(CaptureError::Aborted { owner: caller });
            self.core.taint(&error, window.recorded.written().into_iter().chain(window.refused));
        }
        self.close(on, caller);
        Ok(())
    }

    /// Whether window `number` is open on the stream that serves the caller.
    pub fn is_open(&self, caller: LogicalStreamId, number: u64) -> bool {
        let on = self.fold(caller).index();
        let window = self.windows[on].as_ref().filter(|_| self.states[on].is_active());
        window.is_some_and(|window| window.number == number)
    }

    /// What was put off while the window of `owner` was open.
    fn close(&mut self, on: PooledStreamId, owner: LogicalStreamId) {
        self.windows[on.index()] = None;
        let owed = std::mem::take(&mut self.core.streams[on.index()].fence_owed);
        if owed && let Err(failed) = self.core.flush(on) {
            self.core.fail(owner, failed);
        }
        self.take_back();
    }

    /// `Ok(false)` if the wait is put off to the end of the window.
    pub fn sync(&mut self, caller: LogicalStreamId) -> Result<bool, CaptureError> {
        let on = self.fold(caller);
        match self.recorder(caller) {
            Some(owner) if owner == caller => match self.core.backend.graph_kind() {
                GraphKind::Software => {
                    Err(CaptureError::InWindow { request: Request::Sync, owner })
                }
                GraphKind::Hardware => {
                    self.core.streams[on.index()].fence_owed = true;
                    Ok(false)
                }
            },
            // The window was opened behind everything that this neighbour had submitted.
            Some(_) => self.core.failures(caller).map(|()| true),
            None => {
                self.core.flush(on)?;
                self.core.failures(caller).map(|()| true)
            }
        }
    }

    pub fn record(&mut self, owner: LogicalStreamId, op: &Operation) -> Result<(), CaptureError> {
        let on = self.fold(owner);
        match self.core.place(op, |backend, placed| backend.record(on, placed)) {
            Ok(()) => {
                self.window(on).recorded.note(op);
                Ok(())
            }
            Err(failed) => {
                let error = CaptureError::from(failed);
                self.doom(owner, error.clone(), op.written());
                Err(error)
            }
        }
    }

    /// The recording of `owner` lacks something; the first cause is kept.
    pub fn doom(
        &mut self,
        owner: LogicalStreamId,
        cause: CaptureError,
        written: impl IntoIterator<Item = BufferKey>,
    ) {
        let on = self.fold(owner);
        let written: Vec<_> = written.into_iter().collect();
        self.core.taint(&cause, written.iter().copied());
        let window = self.window(on);
        window.refused.extend(written);
        window.doomed.get_or_insert(cause);
    }

    pub fn allocate_in_window(
        &mut self,
        on: PooledStreamId,
        name: &str,
        bytes: u64,
        class: SizeClass,
    ) -> Result<Slice, CaptureError> {
        let slice = self.core.pools.take(on, class, bytes);
        let window = self.window(on);
        let asked = window.asked.entry(class).or_default();
        *asked += 1;
        if let Some(slice) = slice {
            return Ok(slice);
        }
        let missing = UnownedAllocation {
            name: name.into(),
            bytes,
            slice_bytes: class.bytes(),
            after: window.recorded.last.clone(),
            number: *asked,
            warm_up: window.warm_up.get(&class).cloned().unwrap_or_default(),
        };
        let error = CaptureError::Unowned(Box::new(missing.clone()));
        window.unowned.push(missing);
        window.doomed.get_or_insert_with(|| error.clone());
        Err(error)
    }

    pub fn note_warm_up(
        &mut self,
        on: PooledStreamId,
        caller: LogicalStreamId,
        name: &str,
        class: SizeClass,
    ) {
        let state = &self.states[on.index()];
        if state.is_preparing() && state.owner() == Some(caller) {
            self.window(on).warm_up.entry(class).or_default().push(name.into());
        }
    }

    fn window(&mut self, on: PooledStreamId) -> &mut Open {
        self.windows[on.index()].as_mut().expect("`prepare` makes it with the state's window")
    }
}

/// The backend's part of opening a window.
fn open<B: Backend>(
    core: &mut Core<B>,
    on: PooledStreamId,
    owner: LogicalStreamId,
    warm_up: Option<&BTreeMap<SizeClass, Vec<String>>>,
) -> Result<(), CaptureError> {
    core.flush(on)?;
    core.failures(owner)?; // a warm-up that failed
    for (&class, names) in warm_up.into_iter().flatten() {
        while core.pools.available(on, class) < names.len() as u64 {
            core.grow(on, class)?;
        }
    }
    Ok(core.backend.begin(on)?)
}

impl<B: Backend> Core<B> {
    fn seal(
        &mut self,
        on: PooledStreamId,
        recorded: Recorded,
    ) -> Result<Arc<GraphToken>, CaptureError> {
        let recording = self.backend.end(on)?;
        let mut exec = self.backend.instantiate(recording)?;
        if let Err(failed) = self.backend.upload(on, &mut exec) {
            self.backend.destroy(exec);
            return Err(failed.into());
        }
        for &page in &recorded.pages {
            self.pools.guard(page);
        }
        let touch = recorded.touch().into();
        Ok(self.enter(Sealed { exec, recorded, touch, held: Box::default(), set: None }))
    }
}
