//! The front of a shared device: streams, buffers, windows, graphs. Every call locks the device once, and waits, where its
//! backend can be waited for so, without the lock.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use phonograph_graph::Scalar;

use super::backend::{Backend, GraphKind, PooledStreamId, Waiting};
use super::handle::{Buffer, GraphToken, Returns, Slot};
use super::op::Operation;
use super::report::{DeviceReport, Retained, TrimReport};
use super::server::{Role, Server};
use crate::capture::{CaptureError, CaptureStatus, DeviceCaptures, LogicalStreamId, Request};
use crate::pool::{GroupId, Place};

/// The most streams of a device. Every call looks at all of them.
pub const MAX_STREAMS: u32 = 1024;

struct Shared<B: Backend> {
    server: Mutex<Server<B>>,
    status: CaptureStatus,
    streams: u32,
}

impl<B: Backend> Shared<B> {
    fn lock(&self) -> MutexGuard<'_, Server<B>> {
        // Panics of a backend's steps are caught; one while it frees something leaves the books right.
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        server.take_back();
        server
    }
}

/// A device that any number of threads share. Streams and windows keep it; when the last of them is gone, what they have
/// submitted is run, and all memory goes back, also that of buffers and graphs that are still around.
pub struct Device<B: Backend>(Arc<Shared<B>>);

impl<B: Backend> Clone for Device<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B: Backend> fmt::Debug for Device<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("max_streams", &self.0.streams).finish_non_exhaustive()
    }
}

/// Graphs of a device that may have scratch in common.
#[derive(Clone)]
pub struct GraphGroup {
    id: GroupId,
    returns: Arc<Returns>,
}

impl fmt::Debug for GraphGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GraphGroup").field(&self.id).finish()
    }
}

impl<B: Backend> Device<B> {
    pub(super) fn lock(&self) -> MutexGuard<'_, Server<B>> {
        self.0.lock()
    }

    /// A device on a backend, with `max_streams` streams for everybody.
    ///
    /// # Errors
    /// [`CaptureError::StreamCount`] for 0 or more than [`MAX_STREAMS`].
    pub fn new(backend: B, max_streams: u32) -> Result<Self, CaptureError> {
        let given = max_streams;
        let folded = NonZeroU32::new(given).filter(|_| given <= MAX_STREAMS);
        let folded = folded.ok_or(CaptureError::StreamCount { given })?;
        let captures = DeviceCaptures::folding(folded);
        let returns = Arc::new(Returns::default());
        let server = Server::new(backend, max_streams, &captures, &returns);
        let server = Mutex::new(server);
        Ok(Self(Arc::new(Shared { server, status: captures.status(), streams: max_streams })))
    }

    /// How many backend streams there are.
    pub fn max_streams(&self) -> u32 {
        self.0.streams
    }

    /// Who keeps the graph while a stream records.
    pub fn graph_kind(&self) -> GraphKind {
        self.0.lock().core.backend.graph_kind()
    }

    /// What can be seen of the captures without the lock.
    pub fn status(&self) -> &CaptureStatus {
        &self.0.status
    }

    /// The calling thread's own stream.
    pub fn stream(&self) -> Stream<B> {
        self.stream_of(LogicalStreamId::current())
    }

    /// This logical stream, from whichever thread.
    pub fn stream_of(&self, id: LogicalStreamId) -> Stream<B> {
        Stream { device: self.clone(), id }
    }

    /// Gives pages back that serve nobody: none while a stream records, none of a stream that warms up.
    pub fn trim(&self) -> TrimReport {
        let server = &mut *self.0.lock();
        let states = &server.states;
        let core = &mut server.core;
        let released = self
            .0
            .status
            .unless_recording(|| core.trim(|stream| states[stream.index()].is_active()));
        match released {
            Some((pages, bytes)) => TrimReport::Released { pages, bytes },
            None => TrimReport::Recording,
        }
    }

    /// What the pools hold. O(pages).
    pub fn report(&self) -> DeviceReport {
        let server = self.0.lock();
        let classes = server.core.pools.report().into_iter();
        DeviceReport {
            classes: classes.map(|((stream, _), report)| (stream, report)).collect(),
            graphs: server.core.graphs.len(),
            tainted: server.core.tainted(),
        }
    }

    /// A new group of graphs that may have scratch in common; see [`Stream::prepare_in`].
    pub fn group(&self) -> GraphGroup {
        let mut server = self.0.lock();
        let id = GroupId(server.core.next_key());
        GraphGroup { id, returns: server.core.returns.clone() }
    }

    /// What every sealed graph keeps alive, in the order of sealing.
    pub fn retained(&self) -> Vec<Retained> {
        let server = self.0.lock();
        let mut keys: Vec<_> = server.core.graphs.keys().copied().collect();
        keys.sort_unstable();
        keys.iter().map(|key| server.core.retained(*key)).collect()
    }
}

/// Whether a wait is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a deferred wait has waited for nothing yet"]
pub enum Synced {
    /// Everything submitted before is done.
    Done,
    /// The stream records, and its driver bears no wait; the wait happens when the window closes.
    Deferred,
}

impl Synced {
    /// Whether nothing is put off.
    pub fn is_done(self) -> bool {
        self == Synced::Done
    }
}

/// A logical stream of a device. Usable from any thread; whoever holds it acts as this stream.
pub struct Stream<B: Backend> {
    device: Device<B>,
    id: LogicalStreamId,
}

impl<B: Backend> Clone for Stream<B> {
    fn clone(&self) -> Self {
        Self { device: self.device.clone(), id: self.id }
    }
}

impl<B: Backend> fmt::Debug for Stream<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stream").field(&self.id).finish()
    }
}

impl<B: Backend> Stream<B> {
    /// The logical stream.
    pub fn id(&self) -> LogicalStreamId {
        self.id
    }

    /// The backend stream that serves it.
    pub fn pooled(&self) -> PooledStreamId {
        self.lock().fold(self.id)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Server<B>> {
        self.device.0.lock()
    }

    /// Memory; new pages are zeroed, used slices hold what they held.
    ///
    /// # Errors
    /// [`CaptureError::Unowned`] in the owner's recording if no page held has a slice free, which dooms the capture.
    /// [`CaptureError::Neighbour`] beside somebody else's recording. [`CaptureError::TooLarge`],
    /// [`CaptureError::Backend`].
    pub fn alloc(&self, name: &str, bytes: u64) -> Result<Buffer, CaptureError> {
        self.lock().allocate(self.id, name, bytes, Place::Device)
    }

    /// Page-locked memory of the host: what operations hand to functions of the host lies there. Like
    /// [`alloc`](Self::alloc) otherwise.
    ///
    /// # Errors
    /// As for [`alloc`](Self::alloc).
    pub fn alloc_host(&self, name: &str, bytes: u64) -> Result<Buffer, CaptureError> {
        self.lock().allocate(self.id, name, bytes, Place::Host)
    }

    /// Runs an operation, or records it in the caller's own window.
    ///
    /// Whatever is refused taints the buffers that it would have written. An operation that fails later does the same
    /// and is reported by the next [`sync`](Self::sync) of this stream.
    ///
    /// # Errors
    /// [`CaptureError::Neighbour`], [`CaptureError::Tainted`] for an input, [`CaptureError::OtherDevice`],
    /// [`CaptureError::Backend`] if it cannot be recorded, which dooms the capture.
    pub fn submit(&self, op: &Operation) -> Result<(), CaptureError> {
        self.lock().submit(self.id, op)
    }

    /// Replaces the contents of a buffer.
    ///
    /// # Errors
    /// [`CaptureError::Unrecordable`] in the owner's recording, which dooms the capture;
    /// [`CaptureError::Neighbour`]; both taint the buffer. [`CaptureError::Size`], [`CaptureError::OtherDevice`].
    pub fn write(&self, buffer: &Buffer, bytes: &[u8]) -> Result<(), CaptureError> {
        self.lock().write(self.id, buffer, bytes)
    }

    /// The contents of a buffer, after everything submitted before that touches it.
    ///
    /// # Errors
    /// [`CaptureError::InWindow`] in the owner's recording, which lives; [`CaptureError::Neighbour`];
    /// [`CaptureError::Tainted`]; [`CaptureError::OtherDevice`]; [`CaptureError::Backend`].
    pub fn read(&self, buffer: &Buffer) -> Result<Vec<u8>, CaptureError> {
        let mut server = self.lock();
        for on in server.writers(self.id, buffer)? {
            server = self.wait_for(server, on, Waiting::Attentive)?;
        }
        server.read(self.id, buffer)
    }

    /// Waits for everything that this stream has submitted, and reports what has failed of it. Others go on using the device
    /// meanwhile, if its backend can be waited for so.
    ///
    /// # Errors
    /// The failures since the last sync; [`CaptureError::Several`] if there are more than one.
    /// [`CaptureError::InWindow`] in the owner's recording on a device with software graphs.
    pub fn sync(&self) -> Result<Synced, CaptureError> {
        self.sync_while(Waiting::Attentive)
    }

    /// As [`sync`](Self::sync), in either way of waiting.
    ///
    /// # Errors
    /// As for [`sync`](Self::sync).
    pub fn sync_while(&self, waiting: Waiting) -> Result<Synced, CaptureError> {
        let mut server = self.lock();
        if server.role(self.id) != Role::Free {
            let done = server.sync(self.id)?;
            return Ok(if done { Synced::Done } else { Synced::Deferred });
        }
        let on = server.fold(self.id);
        let mut server = self.wait_for(server, on, waiting)?;
        server.core.failures(self.id).map(|()| Synced::Done)
    }

    /// Waits for everything that a backend stream has been given, without the device if its backend can be waited for so.
    fn wait_for<'a>(
        &'a self,
        mut server: MutexGuard<'a, Server<B>>,
        on: PooledStreamId,
        waiting: Waiting,
    ) -> Result<MutexGuard<'a, Server<B>>, CaptureError> {
        if server.states[on.index()].is_recording() {
            return Ok(server); // its window was opened behind all of it
        }
        let Some((wait, reached)) = server.core.mark(on, waiting)? else {
            server.core.flush(on)?;
            return Ok(server);
        };
        drop(server);
        let waited = wait();
        let mut server = self.lock();
        waited?;
        server.core.settle(&reached)?;
        Ok(server)
    }

    /// Runs an operation by itself and tells how long the host waited for it.
    ///
    /// # Errors
    /// [`CaptureError::InWindow`] in the owner's recording, which lives. Else those of [`submit`](Self::submit) and
    /// [`sync`](Self::sync).
    pub fn profile(&self, op: &Operation) -> Result<Duration, CaptureError> {
        let mut server = self.lock();
        server.admit(self.id, Request::Profile(op.name().into()))?;
        server.sync(self.id)?;
        let start = Instant::now();
        server.submit(self.id, op)?;
        server.sync(self.id)?;
        Ok(start.elapsed())
    }

    /// Replays a graph behind everything that this stream has submitted. The graph may be dropped meanwhile.
    ///
    /// # Errors
    /// [`CaptureError::Tainted`] for an input, [`CaptureError::Neighbour`], [`CaptureError::OtherDevice`], and
    /// [`CaptureError::Unrecordable`] in the owner's recording, which dooms the capture.
    pub fn launch(&self, graph: &Graph) -> Result<(), CaptureError> {
        self.lock().launch(self.id, &graph.0, graph.0.values())
    }

    /// Opens the window of a capture: from here to [`CaptureWindow::begin`] work runs and what it allocates is noted.
    ///
    /// # Errors
    /// [`CaptureError::Busy`].
    pub fn prepare(&self) -> Result<CaptureWindow<B>, CaptureError> {
        self.prepare_with(&[])
    }

    /// As [`prepare`](Self::prepare), for work that this stream spreads over others of the device: what they are given is
    /// recorded too, each on a branch of its own, from [`CaptureWindow::begin`] on. They act as this stream, which owns the
    /// window. Their branches begin where the window does and are joined where it ends; in between, work on the same memory
    /// is ordered as it is submitted, and [`after`](Self::after) orders more.
    ///
    /// # Errors
    /// [`CaptureError::Busy`] if a capture is open on a pooled stream of any of them. None is prepared then.
    ///
    /// ```
    /// # use phonograph_graph::{BufferId, Extent, MemsetNode, NodeKind, Pitched, Target};
    /// # use phonograph_runtime::capture::LogicalStreamId;
    /// # use phonograph_runtime::cpu::{Cpu, kernels::Registry};
    /// # use phonograph_runtime::streams::{Device, Operation, SoftwareCpu};
    /// # let device = Device::new(SoftwareCpu::new(Cpu::new(2)?, Registry::new()), 4)?;
    /// # let [main, side] = [0, 1].map(|value| device.stream_of(LogicalStreamId { value }));
    /// # let (x, y) = (main.alloc("x", 4)?, main.alloc("y", 4)?);
    /// # let dst = Pitched::linear(Target::Buffer(BufferId(0)), 0);
    /// # let fill = MemsetNode { dst, value: 7, element_size: 1, extent: Extent::linear(4) };
    /// # let fill = NodeKind::Memset(Box::new(fill));
    /// # let fill_x = Operation::new("x", fill.clone(), &[x])?;
    /// # let fill_y = Operation::new("y", fill, &[y.clone()])?;
    /// let window = main.prepare_with(&[&side])?;
    /// window.begin()?;
    /// main.submit(&fill_x)?;
    /// side.submit(&fill_y)?; // beside it
    /// let graph = window.end("two fills")?;
    /// side.launch(&graph)?;
    /// assert_eq!(side.read(&y)?, [7; 4]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prepare_with(&self, others: &[&Stream<B>]) -> Result<CaptureWindow<B>, CaptureError> {
        self.open(others, None)
    }

    /// As [`prepare_with`](Self::prepare_with), for a graph that may have scratch in common with others of its group.
    ///
    /// What the recording allocates is taken, as far as it goes, from memory that graphs of the group keep from everybody
    /// else: slices that each of them writes as a whole before it reads them, and that nobody holds. Such graphs never run
    /// together: launches of them conflict, and the device has the later one wait. What lies there has to be scratch of this
    /// window, too. Peak memory of the group is then nearer to that of its largest graph than to the sum of them.
    ///
    /// # Errors
    /// Those of [`prepare_with`](Self::prepare_with). [`CaptureWindow::end`] gives [`CaptureError::Doomed`] with
    /// [`CaptureError::Shared`] for a buffer that is more than scratch.
    pub fn prepare_in(
        &self,
        group: &GraphGroup,
        others: &[&Stream<B>],
    ) -> Result<CaptureWindow<B>, CaptureError> {
        if !Arc::ptr_eq(&group.returns, &self.lock().core.returns) {
            return Err(CaptureError::OtherDevice { what: "the group".into() });
        }
        self.open(others, Some(group.id))
    }

    fn open(
        &self,
        others: &[&Stream<B>],
        group: Option<GroupId>,
    ) -> Result<CaptureWindow<B>, CaptureError> {
        others.iter().try_for_each(|other| self.own(other))?;
        let others: Vec<LogicalStreamId> = others.iter().map(|other| other.id).collect();
        let number = self.lock().prepare(self.id, &others, group)?;
        Ok(CaptureWindow { stream: self.clone(), number })
    }

    fn own(&self, other: &Stream<B>) -> Result<(), CaptureError> {
        match Arc::ptr_eq(&other.device.0, &self.device.0) {
            true => Ok(()),
            false => Err(CaptureError::OtherDevice { what: "a stream".into() }),
        }
    }

    /// What this stream is given from now on comes after what `other` has been given. Work on the same memory is in order
    /// without.
    ///
    /// # Errors
    /// [`CaptureError::Unrecordable`] in the owner's recording if `other` is not recorded with it, which dooms the capture;
    /// [`CaptureError::Neighbour`], [`CaptureError::OtherDevice`], [`CaptureError::Backend`].
    pub fn after(&self, other: &Stream<B>) -> Result<(), CaptureError> {
        self.own(other)?;
        self.lock().after(self.id, other.id)
    }

    /// Starts to record what this stream prepared.
    ///
    /// # Errors
    /// [`CaptureError::NotPrepared`], [`CaptureError::AlreadyRecording`], [`CaptureError::NotOwner`]. What has failed of this
    /// stream's work, the warm-up's too, as [`sync`](Self::sync) would tell it, or [`CaptureError::Backend`]: then the
    /// window is closed.
    pub fn begin(&self) -> Result<(), CaptureError> {
        self.lock().begin(self.id)
    }

    /// Closes the recording on the stream that serves this one, and seals it if it is this one's own.
    ///
    /// # Errors
    /// [`CaptureError::NotRecording`]; [`CaptureError::Several`] for somebody else's recording, which is discarded;
    /// [`CaptureError::Doomed`]; [`CaptureError::Backend`]. Whatever the error but the first, the window is closed
    /// and what it would have written is tainted.
    pub fn end(&self, name: &str) -> Result<Graph, CaptureError> {
        self.lock().end(self.id, name).map(Graph)
    }

    /// Gives this stream's own window up, in either phase. Nothing where none is open.
    ///
    /// # Errors
    /// [`CaptureError::NotOwner`].
    pub fn abort(&self) -> Result<(), CaptureError> {
        self.lock().abort(self.id)
    }
}

/// A window that closes when it is dropped, however that comes about.
#[must_use = "dropping it gives the capture up"]
pub struct CaptureWindow<B: Backend> {
    stream: Stream<B>,
    number: u64,
}

impl<B: Backend> CaptureWindow<B> {
    /// The warm-up is over; from here on work is recorded.
    ///
    /// # Errors
    /// As for [`Stream::begin`].
    pub fn begin(&self) -> Result<(), CaptureError> {
        self.stream.begin()
    }

    /// Seals what was recorded.
    ///
    /// # Errors
    /// As for [`Stream::end`].
    pub fn end(self, name: &str) -> Result<Graph, CaptureError> {
        self.stream.end(name)
    }
}

impl<B: Backend> Drop for CaptureWindow<B> {
    fn drop(&mut self) {
        let mut server = self.stream.lock();
        if server.is_open(self.stream.id, self.number)
            && let Err(error) = server.abort(self.stream.id)
        {
            unreachable!("window {} is the stream's own: {error}", self.number);
        }
    }
}

/// A sealed graph. Clones and launches under way share it; the last of them destroys it.
#[derive(Clone)]
pub struct Graph(pub(super) Arc<GraphToken>);

impl Graph {
    /// Sets a slot for the launches that are submitted from now on. Those submitted before keep the value that they had.
    ///
    /// # Errors
    /// [`CaptureError::Slot`] for a slot that nothing in the graph uses, or a value of another type.
    pub fn set(&self, slot: &Slot, value: impl Into<Scalar>) -> Result<(), CaptureError> {
        self.0.set(slot, value.into())
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Graph").field(&self.0.key).finish()
    }
}
