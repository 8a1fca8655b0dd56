//! What has failed: who is told, and what is tainted by it.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{Core, Pending, Position};
use crate::capture::{CaptureError, LogicalStreamId};
use crate::streams::backend::{Backend, BackendError, Failed, Ticket};
use crate::streams::handle::BufferKey;

/// Failures kept for a logical stream that does not ask.
const KEPT_FAILURES: usize = 16;

impl<B: Backend> Core<B> {
    /// Taints what a request that is refused now would have written.
    pub fn taint(&mut self, error: &CaptureError, written: impl IntoIterator<Item = BufferKey>) {
        let now = self.next_position();
        self.taint_since(now, error, written);
    }

    pub(super) fn taint_since(
        &mut self,
        since: Position,
        error: &CaptureError,
        written: impl IntoIterator<Item = BufferKey>,
    ) {
        let cause = Arc::new(error.clone());
        for key in written {
            if self.reachable(key) {
                self.taints.insert(key, since, &cause);
            }
        }
    }

    /// How many buffers are tainted.
    pub fn tainted(&self) -> usize {
        self.taints.len()
    }

    /// Whether anybody can still see what a buffer holds: through a handle, or by replaying a graph. O(graphs) for a buffer
    /// without a handle.
    fn reachable(&self, key: BufferKey) -> bool {
        self.alive.contains(&key) || self.graphs.values().any(|sealed| sealed.recorded.touches(key))
    }

    /// Handles or graphs are gone: taints of these buffers, where nothing can reach them any more, go too.
    pub fn forget_taints(&mut self, of: impl IntoIterator<Item = BufferKey>) {
        if self.taints.len() == 0 {
            return; // what a graph's end costs does not grow with the number of graphs
        }
        for key in of {
            if !self.reachable(key) {
                self.taints.forget(key);
            }
        }
    }

    /// Work that had been issued turns out to have failed: taints what it would have written, and follows that through all
    /// that has been issued since.
    pub(super) fn told(&mut self, failed: Vec<Failed>) {
        let Some(first) = failed.iter().map(|failed| failed.ticket).min() else { return };
        let mut failed: FxHashMap<Ticket, BackendError> =
            failed.into_iter().map(|failed| (failed.ticket, failed.error)).collect();
        let mut pending = std::mem::take(&mut self.pending);
        pending.sort_by_key(|pending| pending.at);
        for Pending { at, by, touch, .. } in pending.iter().filter(|p| Ticket(p.at.0) >= first) {
            let error = failed.remove(&Ticket(at.0)).map(CaptureError::from);
            match error.map_or_else(|| self.taints.clean(touch, *at), Err) {
                Ok(()) => self.taints.rewritten(touch, *at),
                Err(error) => {
                    self.taint_since(*at, &error, touch.written.iter().copied());
                    self.fail(*by, error);
                }
            }
        }
        self.pending = pending;
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
}
