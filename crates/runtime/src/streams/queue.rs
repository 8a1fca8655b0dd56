//! The work of a shared device: queues, what has been issued, what has failed of it.
//!
//! A stream's eager work waits in its queue until somebody needs it: a sync, a read, a conflict with another stream, a
//! window that opens, or a queue that is long. Work of different streams that conflicts is done in the order of submission:
//! the later stream is put behind the earlier one. What is issued may still be under way; a fence of its stream, and of
//! those that it is behind, tells what has failed. Every failure goes to the logical stream that submitted the work, and
//! taints what the work would have written, and what has been made of that since.

mod failures;
mod memory;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::backend::{
    Backend, BackendError, Failed, Issued, Operand, Placed, PooledStreamId, Ticket, Wait, Waiting,
};
use super::caught::Caught;
use super::handle::{Buffer, BufferKey, GraphKey, GraphToken, Returned, Returns, Values};
use super::launches::Launches;
use super::op::Operation;
use super::order::{Order, Position, Reached, Touched};
use super::prepared::Prepared;
use super::taint::{Taints, Touch};
use super::window::Recorded;
use crate::capture::{CaptureError, LogicalStreamId};
use crate::pool::{PageId, Pools, Slice};

/// A queue this long is run.
const LONG_QUEUE: usize = 32;
/// A device with so much work under way is waited for: what it needs to tell failures is not to grow without end.
const MUCH_PENDING: usize = 4096;

pub(super) enum Work {
    Run(Operation),
    Write(Buffer, Box<[u8]>),
    Launch(Arc<GraphToken>, Values),
    /// Somebody else's, on these buffers, which it writes or only reads.
    Touch(SmallVec<[(Buffer, bool); 4]>),
}

struct Command {
    by: LogicalStreamId,
    work: Work,
    at: Position,
    touch: Arc<Touch>,
}

/// Work that has been issued and may be under way.
struct Pending {
    at: Position,
    on: PooledStreamId,
    by: LogicalStreamId,
    touch: Arc<Touch>,
}

/// A sealed graph.
pub(super) struct Sealed<B: Backend> {
    pub exec: B::Exec,
    pub recorded: Recorded,
    pub touch: Arc<Touch>,
    pub holders: Weak<GraphToken>,
    /// Memory that it owns a share of, where no page is guarded for it.
    pub held: Box<[Buffer]>,
}

pub(super) struct Freed {
    pub slice: Slice,
    pub bytes: u64,
}

#[derive(Default)]
pub(super) struct Stream {
    queue: VecDeque<Command>,
    /// Slices whose buffers are gone, until no window is open on the stream.
    pub freed: Vec<Freed>,
    /// The owner has asked for a fence inside the window.
    pub fence_owed: bool,
}

/// Everything but the states of the captures.
pub(super) struct Core<B: Backend> {
    pub backend: Caught<B>,
    pub pools: Pools<B::Page>,
    pub streams: Box<[Stream]>,
    pub graphs: FxHashMap<GraphKey, Sealed<B>>,
    /// What is to be destroyed once no stream records.
    pub retired: Vec<B::Exec>,
    retired_operations: Vec<B::Prepared>,
    /// Pages of one use that have been given back and may still be in use by what has been submitted.
    leaving: Vec<PageId>,
    /// Buffers with a handle somewhere.
    pub alive: FxHashSet<BufferKey>,
    taints: Taints,
    order: Order,
    launches: Launches,
    pending: Vec<Pending>,
    prepared: Prepared<B::Prepared>,
    failures: FxHashMap<LogicalStreamId, Vec<CaptureError>>,
    pub returns: Arc<Returns>,
    returned: VecDeque<Returned>,
    next_key: u64,
    submitted: u64,
}

impl<B: Backend> Core<B> {
    pub fn new(backend: B, streams: usize, returns: &Arc<Returns>) -> Self {
        Self {
            backend: Caught(backend),
            pools: Pools::default(),
            streams: (0..streams).map(|_| Stream::default()).collect(),
            graphs: FxHashMap::default(),
            retired: Vec::new(),
            retired_operations: Vec::new(),
            leaving: Vec::new(),
            alive: FxHashSet::default(),
            taints: Taints::default(),
            order: Order::new(streams),
            launches: Launches::default(),
            pending: Vec::new(),
            prepared: Prepared::default(),
            failures: FxHashMap::default(),
            returns: returns.clone(),
            returned: VecDeque::new(),
            next_key: 0,
            submitted: 0,
        }
    }

    pub fn next_key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key
    }

    fn next_position(&mut self) -> Position {
        self.submitted += 1;
        Position(self.submitted)
    }

    /// The work that work on these slices comes after.
    fn before<'a>(
        &'a self,
        slices: &'a [Touched],
    ) -> impl Iterator<Item = (PooledStreamId, Position)> + 'a {
        self.order.before(slices).chain(self.launches.before(slices))
    }

    /// The streams with work that a read of a buffer comes after.
    pub fn writers(&self, buffer: &Buffer) -> SmallVec<[PooledStreamId; 4]> {
        let touched = [Touched { slice: buffer.slice(), writes: false }];
        self.order.open(None, self.before(&touched))
    }

    /// An error if a buffer is tainted, after everything that writes it.
    pub fn readable(&mut self, buffer: &Buffer) -> Result<(), CaptureError> {
        for on in self.writers(buffer) {
            self.flush(on)?;
        }
        self.taints.check(buffer.key(), buffer.name())
    }

    /// Queues work behind everything that it conflicts with.
    pub fn enqueue(
        &mut self,
        on: PooledStreamId,
        by: LogicalStreamId,
        work: Work,
    ) -> Result<(), CaptureError> {
        let at = self.next_position();
        let touch = self.touch(&work);
        // The others' work may fail just now, so taints are looked at after it.
        let graph = match &work {
            Work::Launch(token, _) => Some(token.key),
            Work::Run(_) | Work::Write(..) | Work::Touch(_) => None,
        };
        let waits = match graph {
            Some(key) => self.order.open(Some(on), self.launches.before_launch(key)),
            None => self.order.open(Some(on), self.before(&touch.slices)),
        };
        let settled = waits.into_iter().try_for_each(|other| self.follow(on, other));
        if let Err(error) = settled.and_then(|()| self.taints.clean(&touch, at)) {
            self.taint_since(at, &error, touch.written.iter().copied());
            return Err(error);
        }
        self.taints.rewritten(&touch, at);
        match graph {
            Some(key) => {
                self.order.note(on, at, &[]);
                self.launches.launch(key, on, at);
            }
            None => {
                self.order.note(on, at, &touch.slices);
                self.launches.note(on, at, &touch.slices);
            }
        }
        self.streams[on.index()].queue.push_back(Command { by, work, at, touch });
        if self.streams[on.index()].queue.len() >= LONG_QUEUE {
            self.run_queue(on);
        }
        if self.pending.len() >= MUCH_PENDING
            && let Err(failed) = self.flush(on)
        {
            self.fail(by, failed);
        }
        Ok(())
    }

    /// Puts what `on` is given from now on behind what `other` has been given.
    pub fn follow(
        &mut self,
        on: PooledStreamId,
        other: PooledStreamId,
    ) -> Result<(), CaptureError> {
        if self.order.is_behind_all(on, other) {
            return Ok(());
        }
        self.run_queue(other);
        self.run_queue(on);
        self.backend.order(on, other)?;
        self.order.wait(on, other);
        Ok(())
    }

    /// Runs what waits and waits until it is done, and whatever it is behind.
    pub fn flush(&mut self, on: PooledStreamId) -> Result<(), CaptureError> {
        self.run_queue(on);
        let streams = self.order.prerequisites(on);
        self.complete(&streams, |core, stream, _| {
            core.run_queue(stream);
            core.backend.fence(stream)
        })
    }

    /// Runs what waits; what waits until it is done, and how far the streams are then. `None` where only
    /// [`flush`](Self::flush) can wait.
    pub fn mark(
        &mut self,
        on: PooledStreamId,
        waiting: Waiting,
    ) -> Result<Option<(Wait, Reached)>, CaptureError> {
        self.run_queue(on);
        let wait = self.backend.mark(on, waiting)?;
        Ok(wait.map(|wait| (wait, self.order.reached(on))))
    }

    /// The streams are so far: what has failed on the way.
    pub fn settle(&mut self, reached: &Reached) -> Result<(), CaptureError> {
        self.complete(reached, |core, stream, up_to| core.backend.settle(stream, up_to))
    }

    /// Notes that the streams are so far, one after the other until one of them cannot `tell` what of it has failed.
    fn complete(
        &mut self,
        reached: &Reached,
        mut tell: impl FnMut(&mut Self, PooledStreamId, Ticket) -> Result<Vec<Failed>, BackendError>,
    ) -> Result<(), CaptureError> {
        let mut failed = Vec::new();
        let mut refused = Ok(());
        let mut completed = Reached::new();
        for &(stream, at) in reached {
            match tell(self, stream, Ticket(at.0)) {
                Ok(found) => failed.extend(found),
                Err(error) => {
                    refused = Err(error.into());
                    break;
                }
            }
            self.order.completed_up_to(stream, at);
            completed.push((stream, at));
        }
        self.told(failed);
        self.pending.retain(|pending| {
            !completed.iter().any(|&(stream, at)| pending.on == stream && pending.at <= at)
        });
        refused
    }

    fn run_queue(&mut self, on: PooledStreamId) {
        while self.run_one(on) {}
    }

    /// Runs the oldest work that waits on a stream; false if none did.
    pub fn run_one(&mut self, on: PooledStreamId) -> bool {
        let Some(command) = self.streams[on.index()].queue.pop_front() else { return false };
        let Command { by, work, at, touch } = command;
        match self.taints.clean(&touch, at).and_then(|()| self.issue(on, &work, at)) {
            Ok(Issued::Done) => self.taints.rewritten(&touch, at),
            Ok(Issued::Pending) => {
                self.taints.rewritten(&touch, at);
                self.pending.push(Pending { at, on, by, touch });
            }
            Err(error) => {
                self.taint_since(at, &error, touch.written.iter().copied());
                self.fail(by, error);
            }
        }
        true
    }

    /// Enters a graph that can be launched from now on.
    pub fn enter(
        &mut self,
        exec: B::Exec,
        recorded: Recorded,
        held: Box<[Buffer]>,
    ) -> Arc<GraphToken> {
        let key = GraphKey(self.next_key());
        let token = Arc::new(GraphToken::new(key, &self.returns, &recorded.slots));
        let (touch, holders) = (Arc::new(recorded.touch()), Arc::downgrade(&token));
        self.launches.seal(key, &touch.slices, &self.order);
        self.graphs.insert(key, Sealed { exec, recorded, touch, holders, held });
        token
    }

    /// A graph of this device.
    pub fn sealed(&self, token: &Arc<GraphToken>) -> Option<&Sealed<B>> {
        let own = Arc::ptr_eq(&token.returns, &self.returns);
        own.then(|| &self.graphs[&token.key]) // the token keeps it
    }

    /// Nobody launches this graph any more.
    pub fn retire(&mut self, key: GraphKey) {
        let Some(sealed) = self.graphs.remove(&key) else { return };
        for ((on, at), slices) in self.launches.destroy(key) {
            self.order.note_late(on, at, &slices);
        }
        for &page in &sealed.recorded.pages {
            self.pools.unguard(page, sealed.recorded.group);
        }
        self.retired.push(sealed.exec);
        self.forget_taints(sealed.recorded.keys());
        drop(sealed.held);
    }

    /// What a handle has left.
    pub fn returned(&mut self) -> Option<Returned> {
        if self.returned.is_empty() {
            self.returned = self.returns.take().into();
        }
        self.returned.pop_front()
    }

    fn issue(
        &mut self,
        on: PooledStreamId,
        work: &Work,
        at: Position,
    ) -> Result<Issued, CaptureError> {
        let ticket = Ticket(at.0);
        Ok(match work {
            Work::Run(op) => {
                if self.prepared.get(op).is_none() {
                    let prepared = self.place(op, |backend, placed| backend.prepare(placed))?;
                    self.retired_operations.extend(self.prepared.insert(op, prepared));
                }
                let prepared = self.prepared.get(op).expect("it is there now");
                self.backend.run(on, prepared, ticket)?
            }
            Work::Write(buffer, bytes) => {
                let Slice { page, offset } = buffer.slice();
                let memory = self.pools.memory(page);
                self.backend.write(on, memory, offset, bytes)?
            }
            Work::Launch(token, values) => {
                let sealed = self.graphs.get_mut(&token.key).expect("the token keeps the graph");
                self.backend.launch(on, &mut sealed.exec, values, ticket)?
            }
            // It is in the order of the stream, where somebody else has put it or will.
            Work::Touch(_) => Issued::Pending,
        })
    }

    /// Gives the backend an operation with its memory.
    pub fn place<R>(
        &mut self,
        op: &Operation,
        work: impl FnOnce(&mut Caught<B>, &Placed<'_, B::Page>) -> R,
    ) -> R {
        let operands = op.buffers().iter().map(|buffer| {
            let Slice { page, offset } = buffer.slice();
            let page = self.pools.memory(page).clone();
            let (key, name, place) = (buffer.key(), buffer.shared_name(), buffer.place());
            Operand { key, name, page, offset, bytes: buffer.bytes(), place }
        });
        let operands: SmallVec<[Operand<B::Page>; 4]> = operands.collect();
        let (name, kind, slots) = (op.name(), op.kind(), op.slots());
        work(&mut self.backend, &Placed { name, kind, operands: &operands, slots })
    }

    fn touch(&self, work: &Work) -> Arc<Touch> {
        match work {
            Work::Run(op) => Touch::of(op).into(),
            Work::Write(buffer, _) => {
                let key = buffer.key();
                let slices = vec![Touched { slice: buffer.slice(), writes: true }];
                Touch { slices, reads: Vec::new(), written: vec![key], whole: vec![key] }.into()
            }
            Work::Launch(token, _) => self.graphs[&token.key].touch.clone(),
            Work::Touch(buffers) => {
                let mut touch = Touch::default();
                for (buffer, writes) in buffers {
                    touch.slices.push(Touched { slice: buffer.slice(), writes: *writes });
                    touch.reads.push((buffer.key(), buffer.shared_name()));
                    touch.written.extend(writes.then(|| buffer.key()));
                }
                touch.into()
            }
        }
    }
}
