//! A backend that counts what is asked of the one inside, and fails one chosen step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use phonograph_graph::{ComputeGraph, Scalar, Schedule, SlotId};
use phonograph_runtime::cpu::kernels::Registry;
use phonograph_runtime::streams::{
    Adopt, Backend, BackendError, BoundPage, GraphKind, Placed, PooledStreamId, Step,
};

/// What has been asked so far, and what is alive.
#[derive(Default, Debug)]
pub struct Trace {
    pub calls: BTreeMap<Step, u64>,
    /// Every step that reached the device, in order.
    pub log: Vec<(Step, PooledStreamId)>,
    /// Fails this step when it comes for this time, counted from 0.
    pub fail: Option<(Step, u64)>,
    /// Fails by a panic.
    pub panic: bool,
    pub failed: bool,
    pub pages: i64,
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
    pub fn new(inner: B) -> (Self, Shared) {
        let trace = Shared::default();
        (Self { inner, trace: trace.clone() }, trace)
    }

    fn step(&self, step: Step, on: PooledStreamId) -> Result<(), BackendError> {
        let mut trace = self.trace.lock().unwrap();
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

    fn count(&self, change: impl FnOnce(&mut Trace)) {
        change(&mut self.trace.lock().unwrap());
    }
}

impl<B: Backend> Backend for Traced<B> {
    type Page = B::Page;
    type Recording = B::Recording;
    type Exec = B::Exec;

    fn graph_kind(&self) -> GraphKind {
        self.inner.graph_kind()
    }

    fn allocate(&mut self, bytes: u64) -> Result<B::Page, BackendError> {
        self.step(Step::Allocate, NO_STREAM)?;
        self.count(|trace| trace.pages += 1);
        self.inner.allocate(bytes)
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
    ) -> Result<(), BackendError> {
        self.step(Step::Write, on)?;
        self.inner.write(on, page, offset, bytes)
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

    fn run(&mut self, on: PooledStreamId, op: &Placed<'_, B::Page>) -> Result<(), BackendError> {
        self.step(Step::Run, on)?;
        self.inner.run(on, op)
    }

    fn fence(&mut self, on: PooledStreamId) -> Result<(), BackendError> {
        self.step(Step::Fence, on)?;
        self.inner.fence(on)
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

    fn launch(&mut self, on: PooledStreamId, exec: &mut B::Exec) -> Result<(), BackendError> {
        self.step(Step::Launch, on)?;
        self.inner.launch(on, exec)
    }

    fn destroy(&mut self, exec: B::Exec) {
        self.count(|trace| trace.execs -= 1);
        self.inner.destroy(exec);
    }
}

impl<B: Adopt> Adopt for Traced<B> {
    fn adopt(
        &mut self,
        graph: &ComputeGraph,
        schedule: &Schedule,
        memory: &[BoundPage<B::Page>],
        registry: &Registry,
    ) -> Result<B::Exec, BackendError> {
        self.step(Step::Instantiate, NO_STREAM)?;
        let exec = self.inner.adopt(graph, schedule, memory, registry)?;
        self.count(|trace| trace.execs += 1);
        Ok(exec)
    }

    fn set(&mut self, exec: &mut B::Exec, slot: SlotId, value: Scalar) -> Result<(), BackendError> {
        self.inner.set(exec, slot, value)
    }
}
