//! What is behind the device's lock: pooled streams with their queues, buffers' contents, graphs.
//!
//! A stream's eager work waits in its queue until somebody needs it: a sync, a read, a conflict with another stream, a
//! window that opens, or a queue that is long. Work of different streams that touches the same slice of memory is run in
//! the order of submission: whoever submits flushes the other stream first. Every failure goes to the logical stream that
//! submitted the work, and taints what the work would have written.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use phonograph_graph::{BufferId, Scalar, SlotId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::backend::{Backend, BackendError, Placed, PooledStreamId};
use super::caught::Caught;
use super::conflicts::Conflicts;
use super::op::{Buffer, BufferKey, GraphKey, GraphToken, Operation, Returned, Returns};
use super::window::Recorded;
use crate::capture::{CaptureError, DeviceCaptures, LogicalStreamId, Request, StreamCaptureState};
use crate::pool::{PageId, Pools, SizeClass, Slice};

/// A queue this long is run.
const LONG_QUEUE: usize = 32;
/// Failures kept for a logical stream that does not ask.
const KEPT_FAILURES: usize = 16;

pub(super) enum Work {
    Run(Operation),
    Write(Buffer, Box<[u8]>),
    /// With the values of slots that this launch sets.
    Launch(Arc<GraphToken>, Box<[(SlotId, Scalar)]>),
}

struct Command {
    by: LogicalStreamId,
    work: Work,
    at: Position,
    touch: Arc<Touch>,
}

/// A place in the order of submission to the device. Work waits in queues, so what is executed now may be older than what
/// was refused before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Position(u64);

/// Contents that are not what they should be, since some position.
struct Taint {
    since: Position,
    cause: Arc<CaptureError>,
}

/// A sealed graph.
pub(super) struct Sealed<B: Backend> {
    pub exec: B::Exec,
    pub recorded: Recorded,
    pub touch: Arc<Touch>,
    /// Memory that it owns a share of, where no page is guarded for it.
    pub held: Box<[Buffer]>,
    /// How its slots are set, if it can have any.
    pub set: Option<SetSlots<B>>,
}

pub(super) type SetSlots<B> =
    fn(&mut Caught<B>, &mut <B as Backend>::Exec, &[(SlotId, Scalar)]) -> Result<(), BackendError>;

struct Freed {
    slice: Slice,
    bytes: u64,
}

#[derive(Default)]
pub(super) struct Stream {
    queue: VecDeque<Command>,
    /// Slices whose buffers are gone, until no window is open on the stream.
    freed: Vec<Freed>,
    /// The owner has asked for a fence inside the window.
    pub fence_owed: bool,
}

/// Everything but the states, which guards borrow while this works.
pub(super) struct Core<B: Backend> {
    pub backend: Caught<B>,
    pub pools: Pools<B::Page>,
    pub streams: Box<[Stream]>,
    pub graphs: FxHashMap<GraphKey, Sealed<B>>,
    /// Executables to be destroyed once no stream records.
    retired: Vec<B::Exec>,
    /// Buffers with a handle somewhere.
    alive: FxHashSet<BufferKey>,
    taints: FxHashMap<BufferKey, Taint>,
    conflicts: Conflicts,
    failures: FxHashMap<LogicalStreamId, Vec<CaptureError>>,
    pub returns: Arc<Returns>,
    returned: VecDeque<Returned>,
    next_key: u64,
    submitted: u64,
}

pub(super) struct Server<B: Backend> {
    pub core: Core<B>,
    pub states: Box<[StreamCaptureState]>,
    pub windows: Box<[Option<super::window::Open>]>,
    pub opened: u64,
}

impl<B: Backend> Server<B> {
    pub fn new(
        backend: B,
        streams: u32,
        captures: &DeviceCaptures,
        returns: &Arc<Returns>,
    ) -> Self {
        Self {
            core: Core {
                backend: Caught(backend),
                pools: Pools::default(),
                streams: (0..streams).map(|_| Stream::default()).collect(),
                graphs: FxHashMap::default(),
                retired: Vec::new(),
                alive: FxHashSet::default(),
                taints: FxHashMap::default(),
                conflicts: Conflicts::new(streams),
                failures: FxHashMap::default(),
                returns: returns.clone(),
                returned: VecDeque::new(),
                next_key: 0,
                submitted: 0,
            },
            states: (0..streams).map(|_| captures.stream()).collect(),
            windows: (0..streams).map(|_| None).collect(),
            opened: 0,
        }
    }

    pub fn fold(&self, stream: LogicalStreamId) -> PooledStreamId {
        PooledStreamId((stream.value % self.states.len() as u64) as u32)
    }

    /// Who records on the pooled stream that serves `caller`.
    pub fn recorder(&self, caller: LogicalStreamId) -> Option<LogicalStreamId> {
        let state = &self.states[self.fold(caller).index()];
        state.owner().filter(|_| state.is_recording())
    }

    /// Takes back what handles have left, and does what was put off for a window that has closed since. Called first by
    /// whoever has locked the device.
    pub fn take_back(&mut self) {
        // A graph that goes leaves the buffers that it held.
        while let Some(returned) = self.core.returned() {
            match returned {
                Returned::Buffer { key, slice, bytes } => {
                    self.core.alive.remove(&key);
                    if !self.core.reachable(key) {
                        self.core.taints.remove(&key);
                    }
                    let on = self.core.pools.stream(slice.page);
                    self.core.streams[on.index()].freed.push(Freed { slice, bytes });
                }
                Returned::Graph(key) => {
                    if let Some(sealed) = self.core.graphs.remove(&key) {
                        for &page in &sealed.recorded.pages {
                            self.core.pools.unguard(page);
                        }
                        self.core.retired.push(sealed.exec);
                        self.core.conflicts.destroy(key);
                        self.core.forget_taints(&sealed.recorded);
                        drop(sealed.held);
                    }
                }
            }
        }
        // A window gets the same answers in both phases: what is dropped in it is not handed out before it closes.
        for (stream, state) in self.core.streams.iter_mut().zip(&self.states) {
            if !state.is_active() {
                for Freed { slice, bytes } in stream.freed.drain(..) {
                    self.core.pools.give_back(slice, bytes);
                }
            }
        }
        if !self.states.iter().any(StreamCaptureState::is_recording) {
            for exec in self.core.retired.drain(..) {
                self.core.backend.destroy(exec);
            }
        }
    }

    // --- eager work -------------------------------------------------------------------------------

    pub fn allocate(
        &mut self,
        caller: LogicalStreamId,
        name: &str,
        bytes: u64,
    ) -> Result<Buffer, CaptureError> {
        let class = SizeClass::of(bytes).ok_or(CaptureError::TooLarge { bytes })?;
        let on = self.fold(caller);
        let slice = match self.recorder(caller) {
            Some(owner) if owner != caller => {
                let request = Request::Allocate(name.into());
                return Err(CaptureError::Neighbour { request, owner, caller });
            }
            Some(_) => self.allocate_in_window(on, name, bytes, class)?,
            None => {
                let slice = self.core.allocate(on, bytes, class)?;
                self.note_warm_up(on, caller, name, class);
                slice
            }
        };
        let key = BufferKey(self.core.next_key());
        self.core.alive.insert(key);
        Ok(Buffer::new(key, name, bytes, slice, &self.core.returns))
    }

    pub fn submit(&mut self, caller: LogicalStreamId, op: &Operation) -> Result<(), CaptureError> {
        self.own(op.buffers())?;
        match self.recorder(caller) {
            Some(owner) if owner == caller => self.record(caller, op),
            Some(owner) => {
                let request = Request::Submit(op.name().into());
                Err(self.refuse(CaptureError::Neighbour { request, owner, caller }, op.written()))
            }
            None => self.core.enqueue(self.fold(caller), caller, Work::Run(op.clone())),
        }
    }

    pub fn write(
        &mut self,
        caller: LogicalStreamId,
        buffer: &Buffer,
        bytes: &[u8],
    ) -> Result<(), CaptureError> {
        self.own([buffer])?;
        if bytes.len() as u64 != buffer.bytes() {
            let (name, given) = (buffer.name().into(), bytes.len() as u64);
            return Err(CaptureError::Size { buffer: name, bytes: buffer.bytes(), given });
        }
        let request = Request::Write(buffer.name().into());
        match self.recorder(caller) {
            Some(owner) if owner == caller => {
                let error = CaptureError::Unrecordable { request, owner };
                self.doom(caller, error.clone(), [buffer.key()]);
                Err(error)
            }
            Some(owner) => {
                let error = CaptureError::Neighbour { request, owner, caller };
                Err(self.refuse(error, [buffer.key()]))
            }
            None => {
                let work = Work::Write(buffer.clone(), bytes.into());
                self.core.enqueue(self.fold(caller), caller, work)
            }
        }
    }

    pub fn launch(
        &mut self,
        caller: LogicalStreamId,
        graph: &Arc<GraphToken>,
        values: Box<[(SlotId, Scalar)]>,
    ) -> Result<(), CaptureError> {
        if !Arc::ptr_eq(&graph.returns, &self.core.returns) {
            return Err(CaptureError::OtherDevice { what: "the graph".into() });
        }
        let sealed = &self.core.graphs[&graph.key]; // the token keeps it
        if !values.is_empty() && sealed.set.is_none() {
            let problem = "it has no slots".to_owned();
            return Err(CaptureError::Operation {
                operation: sealed.recorded.name.clone(),
                problem,
            });
        }
        let Some(owner) = self.recorder(caller) else {
            let work = Work::Launch(graph.clone(), values);
            return self.core.enqueue(self.fold(caller), caller, work);
        };
        let written = sealed.touch.written.clone();
        let request = Request::Launch(sealed.recorded.name.clone());
        match owner {
            owner if owner == caller => {
                let error = CaptureError::Unrecordable { request, owner };
                self.doom(caller, error.clone(), written);
                Err(error)
            }
            owner => Err(self.refuse(CaptureError::Neighbour { request, owner, caller }, written)),
        }
    }

    pub fn read(
        &mut self,
        caller: LogicalStreamId,
        buffer: &Buffer,
    ) -> Result<Vec<u8>, CaptureError> {
        self.own([buffer])?;
        self.admit(caller, Request::Read(buffer.name().into()))?;
        let on = self.fold(caller);
        let streams = self.core.conflicts.of_slices(&[buffer.slice()]);
        self.core.settle(streams, None)?;
        if let Some(taint) = self.core.taints.get(&buffer.key()) {
            return Err(tainted(buffer.name(), &taint.cause));
        }
        let size = usize::try_from(buffer.bytes());
        let size = size.map_err(|_| CaptureError::TooLarge { bytes: buffer.bytes() })?;
        let mut bytes = vec![0; size];
        let Slice { page, offset } = buffer.slice();
        let memory = self.core.pools.memory(page).clone();
        self.core.backend.read(on, &memory, offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Refuses what waits for the stream, to the owner of its recording and to neighbours.
    pub fn admit(&self, caller: LogicalStreamId, request: Request) -> Result<(), CaptureError> {
        match self.recorder(caller) {
            None => Ok(()),
            Some(owner) if owner == caller => Err(CaptureError::InWindow { request, owner }),
            Some(owner) => Err(CaptureError::Neighbour { request, owner, caller }),
        }
    }

    pub fn own<'b>(
        &self,
        buffers: impl IntoIterator<Item = &'b Buffer>,
    ) -> Result<(), CaptureError> {
        match buffers.into_iter().find(|buffer| !buffer.belongs_to(&self.core.returns)) {
            Some(foreign) => Err(CaptureError::OtherDevice { what: foreign.name().into() }),
            None => Ok(()),
        }
    }

    /// Taints what a refused request would have written.
    pub fn refuse(
        &mut self,
        error: CaptureError,
        written: impl IntoIterator<Item = BufferKey>,
    ) -> CaptureError {
        self.core.taint(&error, written);
        error
    }
}

impl<B: Backend> Drop for Server<B> {
    /// The last handle of the device is gone: what is queued still runs, then everything goes back to the backend.
    fn drop(&mut self) {
        // No window is open: its guard would keep the device.
        for on in (0..self.states.len() as u32).map(PooledStreamId) {
            self.core.run_queue(on);
            // Should the fence fail, nobody is left to be told, and there is nothing else to do than to let go of everything.
            drop(self.core.backend.fence(on));
        }
        let graphs = self.core.graphs.drain().map(|(_, sealed)| sealed.exec);
        for exec in graphs.chain(self.core.retired.drain(..)) {
            self.core.backend.destroy(exec);
        }
        for page in self.core.pools.take_all() {
            self.core.backend.free(page);
        }
    }
}

impl<B: Backend> Core<B> {
    fn returned(&mut self) -> Option<Returned> {
        if self.returned.is_empty() {
            self.returned = self.returns.take().into();
        }
        self.returned.pop_front()
    }

    pub fn next_key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key
    }

    /// A slice from the pools, or from a new page.
    pub fn allocate(
        &mut self,
        on: PooledStreamId,
        bytes: u64,
        class: SizeClass,
    ) -> Result<Slice, CaptureError> {
        loop {
            if let Some(slice) = self.pools.take(on, class, bytes) {
                return Ok(slice);
            }
            self.grow(on, class)?;
        }
    }

    pub fn grow(&mut self, on: PooledStreamId, class: SizeClass) -> Result<(), CaptureError> {
        let memory = self.backend.allocate(class.page_bytes())?;
        self.pools.grow(on, class, memory);
        Ok(())
    }

    /// Taints what a request that is refused now would have written.
    pub fn taint(&mut self, error: &CaptureError, written: impl IntoIterator<Item = BufferKey>) {
        let now = self.next_position();
        self.taint_since(now, error, written);
    }

    fn taint_since(
        &mut self,
        since: Position,
        error: &CaptureError,
        written: impl IntoIterator<Item = BufferKey>,
    ) {
        let cause = Arc::new(error.clone());
        for key in written {
            let newer = self.taints.get(&key).is_some_and(|taint| taint.since > since);
            if !newer && self.reachable(key) {
                self.taints.insert(key, Taint { since, cause: cause.clone() });
            }
        }
    }

    fn next_position(&mut self) -> Position {
        self.submitted += 1;
        Position(self.submitted)
    }

    /// How many buffers are tainted.
    pub fn tainted(&self) -> usize {
        self.taints.len()
    }

    /// Queues work behind everything that it conflicts with.
    fn enqueue(
        &mut self,
        on: PooledStreamId,
        by: LogicalStreamId,
        work: Work,
    ) -> Result<(), CaptureError> {
        let at = self.next_position();
        let touch = self.touch(&work);
        let graph = match &work {
            Work::Launch(token, _) => Some(token.key),
            _ => None,
        };
        let streams = match graph {
            Some(key) => self.conflicts.of_graph(key),
            None => self.conflicts.of_slices(&touch.slices),
        };
        // The others' work may fail just now, so taints are looked at after it.
        let settled = self.settle(streams, Some(on)).and_then(|()| self.clean(&touch, at));
        if let Err(error) = settled {
            self.taint_since(at, &error, touch.written.iter().copied());
            return Err(error);
        }
        self.rewritten(&touch, at);
        match graph {
            Some(key) => self.conflicts.launch(key, on),
            None => self.conflicts.touch(&touch.slices, on),
        }
        self.streams[on.index()].queue.push_back(Command { by, work, at, touch });
        if self.streams[on.index()].queue.len() >= LONG_QUEUE {
            self.run_queue(on);
        }
        Ok(())
    }

    /// Runs and fences these streams but `but`.
    fn settle(
        &mut self,
        streams: BTreeSet<PooledStreamId>,
        but: Option<PooledStreamId>,
    ) -> Result<(), CaptureError> {
        for on in streams.into_iter().filter(|&on| Some(on) != but) {
            self.flush(on)?;
        }
        Ok(())
    }

    /// Runs what waits and waits until it is done.
    pub fn flush(&mut self, on: PooledStreamId) -> Result<(), CaptureError> {
        self.run_queue(on);
        self.backend.fence(on)?;
        // Only now: work that was issued but not fenced still conflicts.
        self.conflicts.fenced(on);
        Ok(())
    }

    fn run_queue(&mut self, on: PooledStreamId) {
        while self.run_one(on) {}
    }

    /// Runs the oldest work that waits on a stream; false if none did.
    pub fn run_one(&mut self, on: PooledStreamId) -> bool {
        let Some(command) = self.streams[on.index()].queue.pop_front() else { return false };
        let Command { by, work, at, touch } = command;
        match self.clean(&touch, at).and_then(|()| self.issue(on, &work)) {
            Ok(()) => self.rewritten(&touch, at),
            Err(error) => {
                self.taint_since(at, &error, touch.written.iter().copied());
                self.fail(by, error);
            }
        }
        true
    }

    fn issue(&mut self, on: PooledStreamId, work: &Work) -> Result<(), CaptureError> {
        match work {
            Work::Run(op) => {
                self.place(op, |backend, placed| backend.run(on, placed))?;
            }
            Work::Write(buffer, bytes) => {
                let Slice { page, offset } = buffer.slice();
                let memory = self.pools.memory(page);
                self.backend.write(on, memory, offset, bytes)?;
            }
            Work::Launch(token, values) => {
                let sealed = self.graphs.get_mut(&token.key).expect("the token keeps the graph");
                if let (Some(set), false) = (sealed.set, values.is_empty()) {
                    set(&mut self.backend, &mut sealed.exec, values)?;
                }
                self.backend.launch(on, &mut sealed.exec)?;
            }
        }
        Ok(())
    }

    /// Gives the backend an operation with its pages.
    pub fn place<R>(
        &mut self,
        op: &Operation,
        work: impl FnOnce(&mut Caught<B>, &Placed<'_, B::Page>) -> R,
    ) -> R {
        let ids: BTreeSet<PageId> = op.buffers().iter().map(|b| b.slice().page).collect();
        let pages: Vec<(PageId, B::Page)> =
            ids.iter().map(|&id| (id, self.pools.memory(id).clone())).collect();
        let kind = op.placed(|buffer| {
            let Slice { page, offset } = buffer.slice();
            (BufferId::from_index(ids.range(..page).count()), offset)
        });
        work(&mut self.backend, &Placed { name: op.name(), kind: &kind, pages: &pages })
    }

    /// Enters a graph that can be launched from now on.
    pub fn enter(&mut self, sealed: Sealed<B>) -> Arc<GraphToken> {
        let key = GraphKey(self.next_key());
        self.conflicts.seal(key, &sealed.touch.slices);
        self.graphs.insert(key, sealed);
        Arc::new(GraphToken { key, returns: self.returns.clone() })
    }

    /// What failed for a logical stream since it last asked.
    pub fn failures(&mut self, of: LogicalStreamId) -> Result<(), CaptureError> {
        match self.failures.remove(&of) {
            None => Ok(()),
            Some(mut errors) if errors.len() == 1 => Err(errors.remove(0)),
            Some(errors) => Err(CaptureError::Several { errors }),
        }
    }

    /// Notes a failure for a logical stream to ask for.
    pub fn fail(&mut self, of: LogicalStreamId, error: CaptureError) {
        let failures = self.failures.entry(of).or_default();
        if failures.len() < KEPT_FAILURES {
            failures.push(error);
        }
    }

    /// Whether anybody can still see what a buffer holds: through a handle, or by replaying a graph. O(graphs) for a buffer
    /// without a handle.
    fn reachable(&self, key: BufferKey) -> bool {
        self.alive.contains(&key) || self.graphs.values().any(|sealed| sealed.recorded.touches(key))
    }

    /// A graph is gone: taints of its buffers that nothing can reach any more go too.
    fn forget_taints(&mut self, recorded: &Recorded) {
        let graphs = &self.graphs;
        let reachable =
            |key| self.alive.contains(&key) || graphs.values().any(|g| g.recorded.touches(key));
        let lost: Vec<_> = recorded.keys().filter(|&key| !reachable(key)).collect();
        for key in lost {
            self.taints.remove(&key);
        }
    }

    fn touch(&self, work: &Work) -> Arc<Touch> {
        let mut touch = Touch::default();
        match work {
            Work::Run(op) => {
                for (buffer, used) in op.uses() {
                    touch.slices.push(buffer.slice());
                    if used.reads {
                        touch.reads.push((buffer.key(), buffer.name().into()));
                    }
                    if used.writes {
                        touch.written.push(buffer.key());
                    }
                    if used.whole {
                        touch.whole.push(buffer.key());
                    }
                }
            }
            Work::Write(buffer, _) => {
                touch.slices.push(buffer.slice());
                touch.written.push(buffer.key());
                touch.whole.push(buffer.key());
            }
            Work::Launch(token, _) => return self.graphs[&token.key].touch.clone(),
        }
        touch.into()
    }

    /// An error if an input was tainted before this position.
    fn clean(&self, touch: &Touch, at: Position) -> Result<(), CaptureError> {
        if self.taints.is_empty() {
            return Ok(()); // what a launch costs does not grow with what the graph touches
        }
        let taint = touch.reads.iter().find_map(|(key, name)| {
            let taint = self.taints.get(key).filter(|taint| taint.since < at)?;
            Some(tainted(name, &taint.cause))
        });
        taint.map_or(Ok(()), Err)
    }

    /// Lifts the taints from before this position of what is written as a whole there.
    fn rewritten(&mut self, touch: &Touch, at: Position) {
        if self.taints.is_empty() {
            return;
        }
        for key in &touch.whole {
            if self.taints.get(key).is_some_and(|taint| taint.since <= at) {
                self.taints.remove(key);
            }
        }
    }
}

/// What work touches, and how.
#[derive(Default)]
pub(super) struct Touch {
    pub slices: Vec<Slice>,
    pub reads: Vec<(BufferKey, Arc<str>)>,
    pub written: Vec<BufferKey>,
    pub whole: Vec<BufferKey>,
}

fn tainted(name: &str, cause: &Arc<CaptureError>) -> CaptureError {
    // Taint of taint would nest without end; the first cause is the one to act on.
    let cause = match &**cause {
        CaptureError::Tainted { cause, .. } => cause.clone(),
        _ => cause.clone(),
    };
    CaptureError::Tainted { buffer: name.into(), cause }
}
