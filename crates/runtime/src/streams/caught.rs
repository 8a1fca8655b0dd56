//! A backend whose panics are failures of the step they happen in.
//!
//! The device is locked while its backend works, and its books are written around each step. A panic that unwound through
//! them would leave work that is neither done nor tainted.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use phonograph_graph::Scalar;

use super::backend::{
    Backend, BackendError, Failed, GraphKind, Issued, Placed, PooledStreamId, Step, Ticket, Wait,
    Waiting,
};
use super::handle::SlotKey;
use crate::panics::{message, quietly};
use crate::pool::Place;

pub(super) struct Caught<B>(pub B);

pub(super) fn attempt<R>(
    step: Step,
    work: impl FnOnce() -> Result<R, BackendError>,
) -> Result<R, BackendError> {
    // The backend is left as the panic left it, as it would be by an error in the same place.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        Err(BackendError::new(step, format_args!("panicked: {}", message(payload))))
    })
}

impl<B: Backend> Backend for Caught<B> {
    type Page = B::Page;
    type Prepared = B::Prepared;
    type Recording = B::Recording;
    type Exec = B::Exec;

    fn graph_kind(&self) -> GraphKind {
        self.0.graph_kind()
    }

    fn allocate(&mut self, bytes: u64, place: Place) -> Result<B::Page, BackendError> {
        attempt(Step::Allocate, || self.0.allocate(bytes, place))
    }

    fn free(&mut self, page: B::Page) {
        quietly(|| self.0.free(page));
    }

    fn write(
        &mut self,
        on: PooledStreamId,
        page: &B::Page,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Issued, BackendError> {
        attempt(Step::Write, || self.0.write(on, page, offset, bytes))
    }

    fn read(
        &mut self,
        on: PooledStreamId,
        page: &B::Page,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), BackendError> {
        attempt(Step::Read, || self.0.read(on, page, offset, into))
    }

    fn prepare(&mut self, op: &Placed<'_, B::Page>) -> Result<B::Prepared, BackendError> {
        attempt(Step::Prepare, || self.0.prepare(op))
    }

    fn run(
        &mut self,
        on: PooledStreamId,
        op: &mut B::Prepared,
        ticket: Ticket,
    ) -> Result<Issued, BackendError> {
        attempt(Step::Run, || self.0.run(on, op, ticket))
    }

    fn release(&mut self, op: B::Prepared) {
        quietly(|| self.0.release(op));
    }

    fn order(&mut self, on: PooledStreamId, after: PooledStreamId) -> Result<(), BackendError> {
        attempt(Step::Order, || self.0.order(on, after))
    }

    fn fence(&mut self, on: PooledStreamId) -> Result<Vec<Failed>, BackendError> {
        attempt(Step::Fence, || self.0.fence(on))
    }

    fn mark(&mut self, on: PooledStreamId, waiting: Waiting) -> Result<Option<Wait>, BackendError> {
        let wait = attempt(Step::Fence, || self.0.mark(on, waiting))?;
        Ok(wait.map(|wait| Box::new(|| attempt(Step::Fence, wait)) as Wait))
    }

    fn settle(&mut self, on: PooledStreamId, up_to: Ticket) -> Result<Vec<Failed>, BackendError> {
        attempt(Step::Fence, || self.0.settle(on, up_to))
    }

    fn begin(&mut self, on: PooledStreamId) -> Result<(), BackendError> {
        attempt(Step::Begin, || self.0.begin(on))
    }

    fn record(&mut self, on: PooledStreamId, op: &Placed<'_, B::Page>) -> Result<(), BackendError> {
        attempt(Step::Record, || self.0.record(on, op))
    }

    fn end(&mut self, on: PooledStreamId) -> Result<B::Recording, BackendError> {
        let ended = attempt(Step::End, || self.0.end(on));
        if ended.is_err() {
            // A panic may have come before the end.
            self.discard(on);
        }
        ended
    }

    fn discard(&mut self, on: PooledStreamId) {
        quietly(|| self.0.discard(on));
    }

    fn instantiate(&mut self, recording: B::Recording) -> Result<B::Exec, BackendError> {
        attempt(Step::Instantiate, || self.0.instantiate(recording))
    }

    fn upload(&mut self, on: PooledStreamId, exec: &mut B::Exec) -> Result<(), BackendError> {
        attempt(Step::Upload, || self.0.upload(on, exec))
    }

    fn launch(
        &mut self,
        on: PooledStreamId,
        exec: &mut B::Exec,
        values: &BTreeMap<SlotKey, Scalar>,
        ticket: Ticket,
    ) -> Result<Issued, BackendError> {
        attempt(Step::Launch, || self.0.launch(on, exec, values, ticket))
    }

    fn destroy(&mut self, exec: B::Exec) {
        quietly(|| self.0.destroy(exec));
    }
}
