//! The memory of a shared device: slices of pages, and what goes back to the backend when.

use rustc_hash::FxHashSet;

use super::{Core, Touched};
use crate::capture::CaptureError;
use crate::pool::{SizeClass, Slice};
use crate::streams::backend::{Backend, PooledStreamId};

impl<B: Backend> Core<B> {
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
        let memory = self.backend.allocate(class.page_bytes(), class.place())?;
        self.pools.grow(on, class, memory);
        Ok(())
    }

    /// Gives back pages that serve nobody, but for those of streams that `keep` names: their number and bytes. No stream
    /// records.
    pub fn trim(&mut self, keep: impl Fn(PooledStreamId) -> bool) -> (u64, u64) {
        let idle = self.pools.trim(keep);
        let ids: FxHashSet<_> = idle.iter().map(|(id, ..)| *id).collect();
        for operation in self.prepared.take(|page| ids.contains(&page)) {
            self.backend.release(operation);
        }
        let (mut pages, mut bytes) = (0, 0);
        for (_, class, memory) in idle {
            pages += 1;
            bytes += class.page_bytes();
            self.backend.free(memory);
        }
        (pages, bytes)
    }

    /// Gives a slice back to its pool.
    pub fn give_back(&mut self, slice: Slice, bytes: u64) {
        self.pools.give_back(slice, bytes);
        if self.pools.class(slice.page).is_alone() {
            self.leaving.push(slice.page);
        }
    }

    /// Gives pages of one use back to the backend that nothing uses any more. No stream records. O(pages that leave).
    pub fn let_go(&mut self) {
        for page in std::mem::take(&mut self.leaving) {
            let all = [Touched { slice: Slice { page, offset: 0 }, writes: true }];
            let in_use = !self.order.open(None, self.before(&all)).is_empty();
            let memory = if in_use { None } else { self.pools.remove(page) };
            let Some(memory) = memory else {
                self.leaving.push(page);
                continue;
            };
            for operation in self.prepared.take(|of| of == page) {
                self.backend.release(operation);
            }
            self.backend.free(memory);
        }
    }

    /// Destroys what was put off. No stream records.
    pub fn destroy_retired(&mut self) {
        for exec in self.retired.drain(..) {
            self.backend.destroy(exec);
        }
        for operation in self.retired_operations.drain(..) {
            self.backend.release(operation);
        }
    }

    /// The device is going: what is queued still runs, then everything goes back to the backend.
    pub fn give_all_back(&mut self) {
        for on in (0..self.streams.len() as u32).map(PooledStreamId) {
            self.run_queue(on);
            // Should the fence fail, nobody is left to be told, and there is nothing else to do than to let go of everything.
            drop(self.backend.fence(on));
        }
        self.retired.extend(self.graphs.drain().map(|(_, sealed)| sealed.exec));
        self.retired_operations.extend(self.prepared.take_all());
        self.destroy_retired();
        for page in self.pools.take_all() {
            self.backend.free(page);
        }
    }
}
