//! The window of a capture on the device: warm-up, recording, seal, and what becomes of it when something fails.
//!
//! *Warm-up* runs the work for real and counts its allocations. When the window opens, the stream is flushed, so that
//! nothing of a neighbour is under way, and the pools are topped up until they could serve all of these again; nothing
//! that is dropped in either phase is handed out before the window closes. So a recording that asks for what its warm-up
//! asked for is served from what is held, whatever became of the warm-up's own buffers. What goes beyond that dooms
//! the capture.
//!
//! A window may hold several streams of its owner: they fork from the first when it opens and join it before the seal.
//! Among them, too, work on the same memory is ordered as it is submitted, by edges of the graph; what has none runs side by
//! side.
//!
//! *Sealing* leaves the capture state first. Then the recording becomes a graph, or everything that it would have written
//! is tainted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::backend::{Backend, GraphKind, PooledStreamId};
use super::handle::{Buffer, BufferKey, GraphToken, Slot};
use super::op::Operation;
use super::order::{Order, Position, Touched};
use super::queue::Core;
use super::server::{Role, Server};
use super::taint::Touch;
use super::template::Use;
use crate::capture::{CaptureEnd, CaptureError, LogicalStreamId, Request, UnownedAllocation};
use crate::pool::{GroupId, PageId, SizeClass, Slice};

/// A window that is open.
pub(super) struct Open {
    /// Tells this window from every other.
    number: u64,
    /// The logical streams that it is the recording of, the owner's among them.
    pub members: BTreeSet<LogicalStreamId>,
    /// The pooled streams that serve them, the one that it was prepared on first.
    slots: Vec<PooledStreamId>,
    warm_up: BTreeMap<(PooledStreamId, SizeClass), Vec<String>>,
    asked: BTreeMap<(PooledStreamId, SizeClass), u64>,
    doomed: Option<CaptureError>,
    unowned: Vec<UnownedAllocation>,
    recorded: Recorded,
    /// What the window has taken of memory that graphs of its group guard, and a graph that does.
    shared: Vec<(Slice, String)>,
    order: Order,
    /// What an operation would have written that is not in the recording.
    refused: Vec<BufferKey>,
}

/// What a recording touches, in the order of its first use.
#[derive(Default, Clone, Debug)]
pub(super) struct Recorded {
    pub name: String,
    pub nodes: u64,
    pub pages: BTreeSet<PageId>,
    pub buffers: BTreeMap<BufferKey, Member>,
    pub group: Option<GroupId>,
    pub slots: Vec<Slot>,
    last: String,
}

/// A buffer of a recording.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub name: Arc<str>,
    pub bytes: u64,
    pub slice: Slice,
    /// Read before the graph has written all of it: an input.
    pub input: bool,
    pub written: bool,
    /// All of it is written by one operation that comes before every read.
    pub whole: bool,
}

impl Recorded {
    fn note(&mut self, op: &Operation) {
        self.nodes += 1;
        self.last = op.name().into();
        for slot in op.slots() {
            if self.slots.iter().all(|known| known.key() != slot.key()) {
                self.slots.push(slot.clone());
            }
        }
        self.pages.extend(op.buffers().iter().map(|buffer| buffer.slice().page));
        self.note_uses(op.uses());
    }

    /// How a node uses buffers.
    pub fn note_uses<'b>(&mut self, uses: impl Iterator<Item = (&'b Buffer, Use)>) {
        for (buffer, used) in uses {
            let member = self.buffers.entry(buffer.key()).or_insert_with(|| Member {
                name: buffer.shared_name(),
                bytes: buffer.bytes(),
                slice: buffer.slice(),
                input: false,
                written: false,
                whole: false,
            });
            member.input |= used.reads && !member.whole;
            member.written |= used.writes;
            member.whole |= used.whole;
        }
    }

    pub fn touch(&self) -> Touch {
        let mut touch = Touch::default();
        for (&key, member) in &self.buffers {
            touch.slices.push(Touched { slice: member.slice, writes: member.written });
            if member.input {
                touch.reads.push((key, member.name.clone()));
            }
            if member.whole {
                touch.whole.push(key);
            }
        }
        touch.written = self.written();
        touch
    }

    pub fn written(&self) -> Vec<BufferKey> {
        let written = self.buffers.iter().filter(|(_, member)| member.written);
        written.map(|(&key, _)| key).collect()
    }

    pub fn touches(&self, key: BufferKey) -> bool {
        self.buffers.contains_key(&key)
    }

    pub fn keys(&self) -> impl Iterator<Item = BufferKey> {
        self.buffers.keys().copied()
    }
}

impl<B: Backend> Server<B> {
    /// Opens a window for `caller` and the other streams that it records with; its number.
    pub fn prepare(
        &mut self,
        caller: LogicalStreamId,
        others: &[LogicalStreamId],
        group: Option<GroupId>,
    ) -> Result<u64, CaptureError> {
        let members: BTreeSet<_> = others.iter().copied().chain([caller]).collect();
        let origin = self.fold(caller);
        let mut slots = vec![origin];
        for on in members.iter().map(|&member| self.fold(member)) {
            if !slots.contains(&on) {
                slots.push(on);
            }
        }
        for (at, on) in slots.iter().enumerate() {
            if let Err(busy) = self.states[on.index()].prepare(caller) {
                slots[..at].iter().for_each(|on| self.states[on.index()].abort());
                return Err(busy);
            }
        }
        slots.iter().for_each(|on| self.origins[on.index()] = Some(origin));
        self.opened += 1;
        self.windows[origin.index()] = Some(Open {
            number: self.opened,
            members,
            slots,
            warm_up: BTreeMap::new(),
            asked: BTreeMap::new(),
            doomed: None,
            unowned: Vec::new(),
            recorded: Recorded { last: "the start".into(), group, ..Recorded::default() },
            shared: Vec::new(),
            order: Order::new(self.states.len()),
            refused: Vec::new(),
        });
        Ok(self.opened)
    }

    /// Where the window on the caller's slot was prepared, and who calls: for one of its streams, its owner does.
    fn acting(&self, caller: LogicalStreamId) -> (PooledStreamId, LogicalStreamId) {
        match self.window_of(caller) {
            Some((origin, owner, true)) => (origin, owner),
            Some((origin, _, false)) => (origin, caller),
            None => (self.fold(caller), caller),
        }
    }

    /// The pooled streams of the window that was prepared on `origin`; it alone where none is open.
    fn slots(&self, origin: PooledStreamId) -> Vec<PooledStreamId> {
        let window = self.windows[origin.index()].as_ref();
        window.map_or_else(|| vec![origin], |window| window.slots.clone())
    }

    pub fn begin(&mut self, caller: LogicalStreamId) -> Result<(), CaptureError> {
        let (origin, caller) = self.acting(caller);
        let slots = self.slots(origin);
        // The states of a window's streams move together, so only the first can refuse.
        slots.iter().try_for_each(|on| self.states[on.index()].begin_as(caller))?;
        let Some(window) = &self.windows[origin.index()] else {
            unreachable!("a stream that prepares has a window: both are made by `prepare`")
        };
        let opened = open(&mut self.core, window);
        if opened.is_err() {
            slots.iter().for_each(|on| self.states[on.index()].abort());
            self.core.backend.discard(origin);
            self.close(origin, caller);
        }
        opened
    }

    /// Closes the window, and seals what was recorded if the caller owns it and nothing has doomed it.
    pub fn end(
        &mut self,
        caller: LogicalStreamId,
        name: &str,
    ) -> Result<Arc<GraphToken>, CaptureError> {
        let (origin, caller) = self.acting(caller);
        let end = self.states[origin.index()].end(caller)?;
        let slots = self.slots(origin);
        slots.iter().for_each(|on| self.states[on.index()].abort());
        let Some(window) = &mut self.windows[origin.index()] else {
            unreachable!("a stream that records has a window: both are made by `prepare`")
        };
        let (doomed, unowned) = (window.doomed.take(), std::mem::take(&mut window.unowned));
        let mut recorded = std::mem::take(&mut window.recorded);
        let refused = std::mem::take(&mut window.refused);
        let doomed = doomed.or_else(|| self.core.more_than_scratch(&recorded, &window.shared));
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
                self.core.backend.discard(origin);
                Err(error)
            }
            None => self.core.seal(&slots, recorded),
        };
        if let Err(error) = &sealed {
            self.core.taint(error, written.into_iter().chain(refused));
        }
        self.close(origin, end.owner());
        sealed
    }

    /// Closes the caller's window without a graph. Nothing where none is open.
    pub fn abort(&mut self, caller: LogicalStreamId) -> Result<(), CaptureError> {
        let (origin, caller) = self.acting(caller);
        let recording = self.states[origin.index()].is_recording();
        self.states[origin.index()].abort_as(caller)?;
        self.slots(origin).iter().for_each(|on| self.states[on.index()].abort());
        if recording {
            self.core.backend.discard(origin);
        }
        if let Some(window) = &mut self.windows[origin.index()] {
            let error = window.doomed.take().unwrap_or(CaptureError::Aborted { owner: caller });
            let refused = std::mem::take(&mut window.refused);
            let written = window.recorded.written().into_iter().chain(refused);
            self.core.taint(&error, written);
        }
        self.close(origin, caller);
        Ok(())
    }

    /// Whether window `number` is open on the stream that serves the caller.
    pub fn is_open(&self, caller: LogicalStreamId, number: u64) -> bool {
        let origin = self.origins[self.fold(caller).index()];
        let window = origin.and_then(|origin| self.windows[origin.index()].as_ref());
        window.is_some_and(|window| window.number == number)
    }

    /// What was put off while the window of `owner` was open.
    fn close(&mut self, origin: PooledStreamId, owner: LogicalStreamId) {
        for on in self.slots(origin) {
            self.origins[on.index()] = None;
            let owed = std::mem::take(&mut self.core.streams[on.index()].fence_owed);
            if owed && let Err(failed) = self.core.flush(on) {
                self.core.fail(owner, failed);
            }
        }
        self.windows[origin.index()] = None;
        self.take_back();
    }

    /// `Ok(false)` if the wait is put off to the end of the window.
    pub fn sync(&mut self, caller: LogicalStreamId) -> Result<bool, CaptureError> {
        let on = self.fold(caller);
        match self.role(caller) {
            Role::Member { owner, .. } => match self.core.backend.graph_kind() {
                GraphKind::Software => {
                    Err(CaptureError::InWindow { request: Request::Sync, owner })
                }
                GraphKind::Hardware => {
                    self.core.streams[on.index()].fence_owed = true;
                    Ok(false)
                }
            },
            // The window was opened behind everything that this neighbour had submitted.
            Role::Neighbour { .. } => self.core.failures(caller).map(|()| true),
            Role::Free => {
                self.core.flush(on)?;
                self.core.failures(caller).map(|()| true)
            }
        }
    }

    pub fn record(
        &mut self,
        origin: PooledStreamId,
        by: LogicalStreamId,
        op: &Operation,
    ) -> Result<(), CaptureError> {
        let on = self.fold(by);
        let touch = Touch::of(op);
        let Some(window) = &mut self.windows[origin.index()] else {
            unreachable!("a stream that records has a window: both are made by `prepare`")
        };
        let core = &mut self.core;
        let waits = window.order.waits(Some(on), &touch.slices);
        let ordered = waits.into_iter().try_for_each(|other| {
            core.backend.order(on, other)?;
            window.order.wait(on, other);
            Ok(())
        });
        let recorded =
            ordered.and_then(|()| core.place(op, |backend, placed| backend.record(on, placed)));
        match recorded {
            Ok(()) => {
                window.recorded.note(op);
                window.order.note(on, Position(window.recorded.nodes), &touch.slices);
                Ok(())
            }
            Err(failed) => {
                let error = CaptureError::from(failed);
                self.doom(origin, error.clone(), op.written());
                Err(error)
            }
        }
    }

    /// Puts one stream of a recording behind another.
    pub fn order_in_window(
        &mut self,
        origin: PooledStreamId,
        on: PooledStreamId,
        before: PooledStreamId,
    ) -> Result<(), CaptureError> {
        if self.window(origin).order.is_behind_all(on, before) {
            return Ok(());
        }
        match self.core.backend.order(on, before) {
            Ok(()) => {
                self.window(origin).order.wait(on, before);
                Ok(())
            }
            Err(failed) => {
                let error = CaptureError::from(failed);
                self.doom(origin, error.clone(), []);
                Err(error)
            }
        }
    }

    /// The recording lacks something; the first cause is kept.
    pub fn doom(
        &mut self,
        origin: PooledStreamId,
        cause: CaptureError,
        written: impl IntoIterator<Item = BufferKey>,
    ) {
        let written: Vec<_> = written.into_iter().collect();
        self.core.taint(&cause, written.iter().copied());
        let window = self.window(origin);
        window.refused.extend(written);
        window.doomed.get_or_insert(cause);
    }

    pub fn allocate_in_window(
        &mut self,
        origin: PooledStreamId,
        on: PooledStreamId,
        name: &str,
        bytes: u64,
        class: SizeClass,
    ) -> Result<Slice, CaptureError> {
        let group = self.window(origin).recorded.group;
        let shared = group.and_then(|group| self.core.take_shared(on, class, group, bytes));
        let taken = shared.as_ref().map(|(slice, _)| *slice);
        let slice = taken.or_else(|| self.core.pools.take(on, class, bytes));
        let window = self.window(origin);
        window.shared.extend(shared);
        let asked = window.asked.entry((on, class)).or_default();
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
            warm_up: window.warm_up.get(&(on, class)).cloned().unwrap_or_default(),
        };
        let error = CaptureError::Unowned(Box::new(missing.clone()));
        window.unowned.push(missing);
        window.doomed.get_or_insert_with(|| error.clone());
        Err(error)
    }

    pub fn note_warm_up(&mut self, caller: LogicalStreamId, name: &str, class: SizeClass) {
        if let Some((origin, _, true)) = self.window_of(caller) {
            let on = self.fold(caller);
            self.window(origin).warm_up.entry((on, class)).or_default().push(name.into());
        }
    }

    fn window(&mut self, origin: PooledStreamId) -> &mut Open {
        self.windows[origin.index()].as_mut().expect("`prepare` makes it with the state's window")
    }
}

/// The backend's part of opening a window.
fn open<B: Backend>(core: &mut Core<B>, window: &Open) -> Result<(), CaptureError> {
    for &on in &window.slots {
        core.flush(on)?;
    }
    for &member in &window.members {
        core.failures(member)?; // a warm-up that failed
    }
    for (&(on, class), names) in &window.warm_up {
        let group = window.recorded.group;
        let shared = group.map_or(0, |group| core.available_shared(on, class, group));
        while shared + core.pools.available(on, class) < names.len() as u64 {
            core.grow(on, class)?;
        }
    }
    let origin = window.slots[0];
    core.backend.begin(origin)?;
    for &on in &window.slots[1..] {
        core.backend.order(on, origin)?;
    }
    Ok(())
}

impl<B: Backend> Core<B> {
    fn seal(
        &mut self,
        slots: &[PooledStreamId],
        recorded: Recorded,
    ) -> Result<Arc<GraphToken>, CaptureError> {
        let origin = slots[0];
        for &on in &slots[1..] {
            if let Err(failed) = self.backend.order(origin, on) {
                self.backend.discard(origin);
                return Err(failed.into());
            }
        }
        let recording = self.backend.end(origin)?;
        let mut exec = self.backend.instantiate(recording)?;
        if let Err(failed) = self.backend.upload(origin, &mut exec) {
            self.backend.destroy(exec);
            return Err(failed.into());
        }
        for &page in &recorded.pages {
            self.pools.guard(page, recorded.group);
        }
        Ok(self.enter(exec, recorded, Box::default()))
    }
}
