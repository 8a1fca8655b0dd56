//! What is behind the device's lock: who may ask for what while whose capture is open.

use std::sync::Arc;

use smallvec::SmallVec;

use super::backend::{Backend, PooledStreamId};
use super::handle::{Buffer, BufferKey, GraphToken, Returned, Returns, Values};
use super::op::Operation;
use super::queue::{Core, Freed, Work};
use super::window::Open;
use crate::capture::{CaptureError, DeviceCaptures, LogicalStreamId, Request, StreamCaptureState};
use crate::pool::{Place, SizeClass, Slice};

pub(super) struct Server<B: Backend> {
    pub core: Core<B>,
    pub states: Box<[StreamCaptureState]>,
    /// The windows that are open, each at the pooled stream that it was prepared on.
    pub windows: Box<[Option<Open>]>,
    /// Of each pooled stream in a window, the one that the window was prepared on.
    pub origins: Box<[Option<PooledStreamId>]>,
    pub opened: u64,
}

/// What a logical stream is to the recording on the pooled stream that serves it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Nothing is being recorded there.
    Free,
    /// The recording is its own: it owns the window, or is one of the streams that the owner records.
    Member { origin: PooledStreamId, owner: LogicalStreamId },
    /// The recording is somebody else's.
    Neighbour { owner: LogicalStreamId },
}

impl<B: Backend> Server<B> {
    pub fn new(
        backend: B,
        streams: u32,
        captures: &DeviceCaptures,
        returns: &Arc<Returns>,
    ) -> Self {
        Self {
            core: Core::new(backend, streams as usize, returns),
            states: (0..streams).map(|_| captures.stream()).collect(),
            windows: (0..streams).map(|_| None).collect(),
            origins: (0..streams).map(|_| None).collect(),
            opened: 0,
        }
    }

    pub fn fold(&self, stream: LogicalStreamId) -> PooledStreamId {
        PooledStreamId((stream.value % self.states.len() as u64) as u32)
    }

    /// The window on the pooled stream that serves `caller`, in whichever phase: where it was prepared, who owns it, and
    /// whether the caller is one of its streams.
    pub fn window_of(
        &self,
        caller: LogicalStreamId,
    ) -> Option<(PooledStreamId, LogicalStreamId, bool)> {
        let origin = self.origins[self.fold(caller).index()]?;
        let window = self.windows[origin.index()].as_ref()?;
        let owner = self.states[origin.index()].owner()?;
        Some((origin, owner, window.members.contains(&caller)))
    }

    pub fn role(&self, caller: LogicalStreamId) -> Role {
        match self.window_of(caller) {
            Some((origin, owner, member)) if self.states[origin.index()].is_recording() => {
                if member { Role::Member { origin, owner } } else { Role::Neighbour { owner } }
            }
            _ => Role::Free,
        }
    }

    /// Takes back what handles have left, and does what was put off for a window that has closed since. Called first by
    /// whoever has locked the device.
    pub fn take_back(&mut self) {
        // A graph that goes leaves the buffers that it held.
        while let Some(returned) = self.core.returned() {
            match returned {
                Returned::Buffer { key, slice, bytes } => {
                    self.core.alive.remove(&key);
                    self.core.forget_taints([key]);
                    let on = self.core.pools.stream(slice.page);
                    self.core.streams[on.index()].freed.push(Freed { slice, bytes });
                }
                Returned::Graph(key) => self.core.retire(key),
            }
        }
        // A window gets the same answers in both phases: what is dropped in it is not handed out before it closes.
        for (at, state) in self.states.iter().enumerate() {
            if !state.is_active() {
                for Freed { slice, bytes } in std::mem::take(&mut self.core.streams[at].freed) {
                    self.core.give_back(slice, bytes);
                }
            }
        }
        if !self.states.iter().any(StreamCaptureState::is_recording) {
            self.core.destroy_retired();
            self.core.let_go();
        }
    }

    pub fn allocate(
        &mut self,
        caller: LogicalStreamId,
        name: &str,
        bytes: u64,
        place: Place,
    ) -> Result<Buffer, CaptureError> {
        let class = SizeClass::of(bytes).ok_or(CaptureError::TooLarge { bytes })?.at(place);
        let on = self.fold(caller);
        let slice = match self.role(caller) {
            Role::Neighbour { owner } => {
                let request = Request::Allocate(name.into());
                return Err(CaptureError::Neighbour { request, owner, caller });
            }
            Role::Member { origin, .. } => {
                self.allocate_in_window(origin, on, name, bytes, class)?
            }
            Role::Free => {
                let slice = self.core.allocate(on, bytes, class)?;
                self.note_warm_up(caller, name, class);
                slice
            }
        };
        let key = BufferKey::next();
        self.core.alive.insert(key);
        Ok(Buffer::new(key, name, bytes, slice, place, &self.core.returns))
    }

    /// A buffer that is all of a page.
    pub fn import(&mut self, on: PooledStreamId, name: &str, page: B::Page, bytes: u64) -> Buffer {
        let class = SizeClass::alone(bytes);
        let page = self.core.pools.grow(on, class, page);
        let slice = Slice { page, offset: 0 };
        self.core.pools.take_this(slice, bytes);
        let key = BufferKey::next();
        self.core.alive.insert(key);
        Buffer::new(key, name, bytes, slice, Place::Device, &self.core.returns)
    }

    pub fn submit(&mut self, caller: LogicalStreamId, op: &Operation) -> Result<(), CaptureError> {
        self.own(op.buffers())?;
        match self.role(caller) {
            Role::Member { origin, .. } => self.record(origin, caller, op),
            Role::Neighbour { owner } => {
                let request = Request::Submit(op.name().into());
                Err(self.refuse(CaptureError::Neighbour { request, owner, caller }, op.written()))
            }
            Role::Free => self.core.enqueue(self.fold(caller), caller, Work::Run(op.clone())),
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
        let request = || Request::Write(buffer.name().into());
        match self.role(caller) {
            Role::Member { origin, owner } => {
                let error = CaptureError::Unrecordable { request: request(), owner };
                self.doom(origin, error.clone(), [buffer.key()]);
                Err(error)
            }
            Role::Neighbour { owner } => {
                let error = CaptureError::Neighbour { request: request(), owner, caller };
                Err(self.refuse(error, [buffer.key()]))
            }
            Role::Free => {
                let work = Work::Write(buffer.clone(), bytes.into());
                self.core.enqueue(self.fold(caller), caller, work)
            }
        }
    }

    pub fn launch(
        &mut self,
        caller: LogicalStreamId,
        graph: &Arc<GraphToken>,
        values: Values,
    ) -> Result<(), CaptureError> {
        if !Arc::ptr_eq(&graph.returns, &self.core.returns) {
            return Err(CaptureError::OtherDevice { what: "the graph".into() });
        }
        let sealed = &self.core.graphs[&graph.key]; // the token keeps it
        let request = || Request::Launch(sealed.recorded.name.clone());
        match self.role(caller) {
            Role::Member { origin, owner } => {
                let error = CaptureError::Unrecordable { request: request(), owner };
                let written = sealed.touch.written.clone();
                self.doom(origin, error.clone(), written);
                Err(error)
            }
            Role::Neighbour { owner } => {
                let error = CaptureError::Neighbour { request: request(), owner, caller };
                let written = sealed.touch.written.clone();
                Err(self.refuse(error, written))
            }
            Role::Free => {
                let work = Work::Launch(graph.clone(), values);
                self.core.enqueue(self.fold(caller), caller, work)
            }
        }
    }

    /// The streams with work that a read of a buffer comes after.
    pub fn writers(
        &self,
        caller: LogicalStreamId,
        buffer: &Buffer,
    ) -> Result<SmallVec<[PooledStreamId; 4]>, CaptureError> {
        self.own([buffer])?;
        self.admit(caller, Request::Read(buffer.name().into()))?;
        Ok(self.core.writers(buffer))
    }

    pub fn read(
        &mut self,
        caller: LogicalStreamId,
        buffer: &Buffer,
    ) -> Result<Vec<u8>, CaptureError> {
        self.own([buffer])?;
        self.admit(caller, Request::Read(buffer.name().into()))?;
        let on = self.fold(caller);
        self.core.readable(buffer)?;
        let size = usize::try_from(buffer.bytes());
        let size = size.map_err(|_| CaptureError::TooLarge { bytes: buffer.bytes() })?;
        let mut bytes = vec![0; size];
        let Slice { page, offset } = buffer.slice();
        let memory = self.core.pools.memory(page).clone();
        self.core.backend.read(on, &memory, offset, &mut bytes)?;
        Ok(bytes)
    }

    /// What `caller` submits from now on comes after what `other` has submitted.
    pub fn after(
        &mut self,
        caller: LogicalStreamId,
        other: LogicalStreamId,
    ) -> Result<(), CaptureError> {
        let (on, before) = (self.fold(caller), self.fold(other));
        match (self.role(caller), self.role(other)) {
            (Role::Member { origin, owner }, theirs) => {
                let request = Request::Order(other);
                if theirs == (Role::Member { origin, owner }) {
                    return self.order_in_window(origin, on, before);
                }
                let error = CaptureError::Unrecordable { request, owner };
                self.doom(origin, error.clone(), []);
                Err(error)
            }
            (Role::Neighbour { owner }, _) => {
                let request = Request::Order(other);
                Err(CaptureError::Neighbour { request, owner, caller })
            }
            (Role::Free, Role::Free) => self.core.follow(on, before),
            // What it had submitted before the window opened is done, and what is recorded has not been submitted.
            (Role::Free, _) => Ok(()),
        }
    }

    /// Refuses what waits for the stream, to the owner of its recording and to neighbours.
    pub fn admit(&self, caller: LogicalStreamId, request: Request) -> Result<(), CaptureError> {
        match self.role(caller) {
            Role::Free => Ok(()),
            Role::Member { owner, .. } => Err(CaptureError::InWindow { request, owner }),
            Role::Neighbour { owner } => Err(CaptureError::Neighbour { request, owner, caller }),
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
    fn refuse(
        &mut self,
        error: CaptureError,
        written: impl IntoIterator<Item = BufferKey>,
    ) -> CaptureError {
        self.core.taint(&error, written);
        error
    }
}

impl<B: Backend> Drop for Server<B> {
    /// The last handle of the device is gone. No window is open: its guard would keep the device.
    fn drop(&mut self) {
        self.core.give_all_back();
    }
}
