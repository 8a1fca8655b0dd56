//! A backend that counts what is asked of the one inside, and fails one chosen step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use phonograph_graph::Scalar;
use phonograph_runtime::pool::Place;
use phonograph_runtime::streams::{
    Adopt, Adopted, Backend, BackendError, BoundPage, Failed, GraphKind, Issued, Placed,
    PooledStreamId, SlotKey, Step, Ticket, Wait, Waiting,
};

/// What has been asked so far, and what is alive.
#[derive(Default)]
pub struct Trace {
    pub calls: BTreeMap<Step, u64>,
    /// Every step that reached the device, in order.
    pub log: Vec<(Step, PooledStreamId)>,
    /// Fails this step when it comes for this time, counted from 0.
    pub fail: Option<(Step, u64)>,
    /// Fails by a panic.
    pub panic: bool,
    pub failed: bool,
    /// Only a fence tells what has failed, as on a device that works beside the host.
    pub late: bool,
    /// What somebody who waits for a late device does meanwhile.
    pub wait: Option<Arc<dyn Fn() + Send + Sync>>,
    /// What it has not told yet.
    pub untold: BTreeMap<PooledStreamId, Vec<Failed>>,
    /// For each order in the log, by its place, which stream came first.
    pub orders: Vec<(usize, PooledStreamId)>,
    /// Which ends in the log, by their places, throw a capture away.
    pub discards: BTreeSet<usize>,
    /// How often the host function `tick` was called.
    pub ticks: Arc<AtomicU64>,
    pub pages: i64,
    pub prepared: i64,
    pub recordings: BTreeSet<PooledStreamId>,
    pub execs: i64,
}

pub type Shared = Arc<Mutex<Trace>>;

pub struct Traced<B> {
    inner: B,
    trace: Shared,
}

/// A call that belongs to no stream.
const NO_STREAM: PooledStreamId = PooledStreamId(u32::MAX);

impl<B> Traced<B> {
    /// A backend that is made with its trace at hand.
    pub fn new(inner: impl FnOnce(&Shared) -> B) -> (Self, Shared) {
        let trace = Shared::default();
        (Self { inner: inner(&trace), trace: trace.clone() }, trace)
    }

    fn step(&self, step: Step, on: PooledStreamId) -> Result<(), BackendError> {
        let mut trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = trace.calls.entry(step).or_default();
        let now = *calls;
        *calls += 1;
        if trace.fail == Some((step, now)) {
            trace.failed = true;
            if trace.panic {
                drop(trace);
                std::panic::resume_unwind(Box::new("injected".to_owned())); // without a report on the way
            }
            return Err(BackendError::new(step, "injected"));
        }
        trace.log.push((step, on));
        Ok(())
    }

    fn is_late(&self) -> bool {
        self.trace.lock().unwrap_or_else(PoisonError::into_inner).late
    }

    /// What has been issued, told at once, or with the next fence.
    fn told(
        &self,
        on: PooledStreamId,
        ticket: Ticket,
        issued: Result<Issued, BackendError>,
    ) -> Result<Issued, BackendError> {
        if !self.is_late() {
            return issued;
        }
        if let Err(error) = issued {
            let failed = Failed { ticket, error };
            self.count(|trace| trace.untold.entry(on).or_default().push(failed));
        }
        Ok(Issued::Pending)
    }

    fn count(&self, change: impl FnOnce(&mut Trace)) {
        change(&mut self.trace.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl<B: Backend> Backend for Traced<B> {
    type Page = B::Page;
    type Prepared = B::Prepared;
    type Recording = B::Recording;
    type Exec = B::Exec;

    fn graph_kind(&self) -> GraphKind {
        self.inner.graph_kind()
    }

    fn allocate(&mut self, bytes: u64, place: Place) -> Result<B::Page, BackendError> {
        self.step(Step::Allocate, NO_STREAM)?;
        self.count(|trace| trace.pages += 1);
        self.inner.allocate(bytes, place)
    }

    fn free(&mut self, page: B::Page) {
        self.count(|trace| trace.pages -= 1);
        self.inner.free(page);
    }

    fn write(
        &mut self,
        on: PooledStreamId,
        page: &B::Page,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Issued, BackendError> {
        self.step(Step::Write, on)?;
        let issued = self.inner.write(on, page, offset, bytes)?;
        Ok(if self.is_late() { Issued::Pending } else { issued })
    }

    fn read(
        &mut self,
        on: PooledStreamId,
        page: &B::Page,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), BackendError> {
        self.step(Step::Read, on)?;
        self.inner.read(on, page, offset, into)
    }

    fn prepare(&mut self, op: &Placed<'_, B::Page>) -> Result<B::Prepared, BackendError> {
        self.step(Step::Prepare, NO_STREAM)?;
        let prepared = self.inner.prepare(op)?;
        self.count(|trace| trace.prepared += 1);
        Ok(prepared)
    }

    fn run(
        &mut self,
        on: PooledStreamId,
        op: &mut B::Prepared,
        ticket: Ticket,
    ) -> Result<Issued, BackendError> {
        self.step(Step::Run, on)?;
        let issued = self.inner.run(on, op, ticket);
        self.told(on, ticket, issued)
    }

    fn release(&mut self, op: B::Prepared) {
        self.count(|trace| trace.prepared -= 1);
        self.inner.release(op);
    }

    fn order(&mut self, on: PooledStreamId, after: PooledStreamId) -> Result<(), BackendError> {
        self.step(Step::Order, on)?;
        self.count(|trace| trace.orders.push((trace.log.len() - 1, after)));
        self.inner.order(on, after)
    }

    fn fence(&mut self, on: PooledStreamId) -> Result<Vec<Failed>, BackendError> {
        self.step(Step::Fence, on)?;
        let mut failed = self.inner.fence(on)?;
        self.count(|trace| failed.extend(trace.untold.remove(&on).into_iter().flatten()));
        Ok(failed)
    }

    /// A device that tells failures late is one that can be waited for without its lock.
    fn mark(&mut self, on: PooledStreamId, waiting: Waiting) -> Result<Option<Wait>, BackendError> {
        if !self.is_late() {
            return self.inner.mark(on, waiting);
        }
        let meanwhile = self.trace.lock().unwrap_or_else(PoisonError::into_inner).wait.clone();
        Ok(Some(Box::new(move || {
            meanwhile.iter().for_each(|meanwhile| meanwhile());
            Ok(())
        })))
    }

    fn settle(&mut self, on: PooledStreamId, up_to: Ticket) -> Result<Vec<Failed>, BackendError> {
        self.step(Step::Fence, on)?;
        let mut failed = self.inner.settle(on, up_to)?;
        self.count(|trace| {
            let untold = trace.untold.entry(on).or_default();
            failed.extend(untold.extract_if(.., |untold| untold.ticket <= up_to));
        });
        Ok(failed)
    }

    fn begin(&mut self, on: PooledStreamId) -> Result<(), BackendError> {
        self.step(Step::Begin, on)?;
        self.inner.begin(on)?;
        self.count(|trace| assert!(trace.recordings.insert(on)));
        Ok(())
    }

    fn record(&mut self, on: PooledStreamId, op: &Placed<'_, B::Page>) -> Result<(), BackendError> {
        self.step(Step::Record, on)?;
        self.inner.record(on, op)
    }

    fn end(&mut self, on: PooledStreamId) -> Result<B::Recording, BackendError> {
        self.step(Step::End, on)?;
        self.count(|trace| assert!(trace.recordings.remove(&on)));
        self.inner.end(on)
    }

    fn discard(&mut self, on: PooledStreamId) {
        self.count(|trace| {
            if trace.recordings.remove(&on) {
                trace.discards.insert(trace.log.len());
                trace.log.push((Step::End, on)); // a driver discards by ending
            }
        });
        self.inner.discard(on);
    }

    fn instantiate(&mut self, recording: B::Recording) -> Result<B::Exec, BackendError> {
        self.step(Step::Instantiate, NO_STREAM)?;
        let exec = self.inner.instantiate(recording)?;
        self.count(|trace| trace.execs += 1);
        Ok(exec)
    }

    fn upload(&mut self, on: PooledStreamId, exec: &mut B::Exec) -> Result<(), BackendError> {
        self.step(Step::Upload, on)?;
        self.inner.upload(on, exec)
    }

    fn launch(
        &mut self,
        on: PooledStreamId,
        exec: &mut B::Exec,
        values: &BTreeMap<SlotKey, Scalar>,
        ticket: Ticket,
    ) -> Result<Issued, BackendError> {
        self.step(Step::Launch, on)?;
        let issued = self.inner.launch(on, exec, values, ticket);
        self.told(on, ticket, issued)
    }

    fn destroy(&mut self, exec: B::Exec) {
        self.count(|trace| trace.execs -= 1);
        self.inner.destroy(exec);
    }
}

impl<B: Adopt> Adopt for Traced<B> {
    const HOST_REACHES_DEVICE: bool = B::HOST_REACHES_DEVICE;

    fn lanes(&self) -> u32 {
        self.inner.lanes()
    }

    fn adopt(
        &mut self,
        adopted: &Adopted<'_>,
        memory: &[BoundPage<B::Page>],
    ) -> Result<B::Exec, BackendError> {
        self.step(Step::Instantiate, NO_STREAM)?;
        let exec = self.inner.adopt(adopted, memory)?;
        self.count(|trace| trace.execs += 1);
        Ok(exec)
    }
}
