//! Which piece of memory an address lies in.

use std::collections::BTreeMap;

use crate::MemoryId;

/// The pieces of memory that are alive, by address.
#[derive(Default)]
pub(super) struct Space {
    /// By first address: the address behind the last, and the name.
    live: BTreeMap<u64, (u64, MemoryId)>,
}

impl Space {
    pub(super) fn insert(&mut self, address: u64, bytes: u64, memory: MemoryId) {
        self.live.insert(address, (address.saturating_add(bytes.max(1)), memory));
    }

    pub(super) fn remove(&mut self, address: u64) {
        self.live.remove(&address);
    }

    /// The piece that an address lies in.
    pub(super) fn find(&self, address: u64) -> Option<MemoryId> {
        let (_, (end, memory)) = self.live.range(..=address).next_back()?;
        (address < *end).then_some(*memory)
    }
}
