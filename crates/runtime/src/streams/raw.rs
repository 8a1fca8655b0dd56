//! What lies under a shared device, for those who know which backend it is, and work that is done there past the device.

use smallvec::SmallVec;

use super::backend::{Backend, PooledStreamId};
use super::device::{Device, Graph, Stream};
use super::handle::Buffer;
use super::queue::Work;
use crate::capture::{CaptureError, Request};
use crate::pool::Slice;

impl<B: Backend> Device<B> {
    /// Works with the backend, which nobody else uses meanwhile.
    ///
    /// # Safety
    /// What `work` does leaves true what the device knows of the backend: it issues nothing to memory of the device that is
    /// not [`touch`](Stream::touch)ed, does not begin or end recordings, does not wait for a stream that records, and frees
    /// nothing that it has not made.
    pub unsafe fn with_backend<R>(&self, work: impl FnOnce(&mut B) -> R) -> R {
        work(&mut self.lock().core.backend.0)
    }

    /// The page that a buffer lies in, and its first byte there.
    ///
    /// # Errors
    /// [`CaptureError::OtherDevice`].
    pub fn page_of(&self, buffer: &Buffer) -> Result<(B::Page, u64), CaptureError> {
        let server = self.lock();
        server.own([buffer])?;
        let Slice { page, offset } = buffer.slice();
        Ok((server.core.pools.memory(page).clone(), offset))
    }

    /// Looks at the executable of a graph.
    ///
    /// # Errors
    /// [`CaptureError::OtherDevice`].
    pub fn with_exec<R>(
        &self,
        graph: &Graph,
        look: impl FnOnce(&B::Exec) -> R,
    ) -> Result<R, CaptureError> {
        let server = self.lock();
        let sealed = server.core.sealed(&graph.0);
        let sealed = sealed.ok_or(CaptureError::OtherDevice { what: "the graph".into() })?;
        Ok(look(&sealed.exec))
    }
}

impl<B: Backend> Stream<B> {
    /// A buffer in memory of somebody else's: all of this page, of so many bytes. The backend gets the page back when the
    /// buffer, the graphs that use it, and the work that was submitted with it are gone and done.
    ///
    /// # Errors
    /// [`CaptureError::InWindow`] and [`CaptureError::Neighbour`] beside a recording.
    ///
    /// # Safety
    /// The page is the backend's, has so many bytes, and none of them is in another buffer. As long as the buffer or a graph
    /// with it lives, others touch them only where the device [takes note](Self::touch) of it.
    pub unsafe fn import(
        &self,
        name: &str,
        page: B::Page,
        bytes: u64,
    ) -> Result<Buffer, CaptureError> {
        let server = &mut *self.lock();
        server.admit(self.id(), Request::Allocate(name.into()))?;
        let on = server.fold(self.id());
        Ok(server.import(on, name, page, bytes))
    }

    /// Takes note of work on these buffers, each written or only read, that somebody else does: what was submitted before and
    /// conflicts with it is before whatever this stream is given from now on, and what comes later and conflicts is behind
    /// this stream. Everything submitted to this stream has then been issued, to the backend stream that is given back.
    ///
    /// # Errors
    /// [`CaptureError::InWindow`] and [`CaptureError::Neighbour`] beside a recording; [`CaptureError::OtherDevice`];
    /// [`CaptureError::Tainted`].
    pub fn touch(&self, buffers: &[(Buffer, bool)]) -> Result<PooledStreamId, CaptureError> {
        let server = &mut *self.lock();
        server.own(buffers.iter().map(|(buffer, _)| buffer))?;
        server.admit(self.id(), Request::Order(self.id()))?;
        let on = server.fold(self.id());
        let touched: SmallVec<[(Buffer, bool); 4]> = buffers.into();
        if !touched.is_empty() {
            server.core.enqueue(on, self.id(), Work::Touch(touched))?;
        }
        while server.core.run_one(on) {}
        Ok(on)
    }
}
