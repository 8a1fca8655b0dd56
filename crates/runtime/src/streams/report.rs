//! What a device holds, and what keeps it.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::backend::{Backend, PooledStreamId};
use super::handle::GraphKey;
use super::queue::{Core, Sealed};
use crate::pool::{ClassReport, PageId, Slice};

/// Pages by backend stream and size class.
#[derive(Clone, PartialEq, Debug)]
pub struct DeviceReport {
    /// One for each stream and class that have pages.
    pub classes: Vec<(PooledStreamId, ClassReport)>,
    /// Sealed graphs that are alive.
    pub graphs: usize,
    /// Buffers that are tainted.
    pub tainted: usize,
}

/// What [`Device::trim`](super::Device::trim) did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrimReport {
    /// Pages went back.
    Released {
        /// Number of pages.
        pages: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// A stream of the device records, so nothing went back.
    Recording,
}

/// A buffer that a sealed graph keeps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetainedBuffer {
    /// Its name.
    pub name: String,
    /// Bytes asked for.
    pub bytes: u64,
    /// Whether nobody holds it any more, so that only graphs keep its bytes from others.
    pub released: bool,
}

/// What a sealed graph keeps alive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Retained {
    /// The graph's name.
    pub graph: String,
    /// Nodes recorded.
    pub nodes: u64,
    /// The pages it guards, with their bytes.
    pub pages: Vec<(PageId, u64)>,
    /// Bytes of the pages that no other graph guards: what would be free to hand out without this one.
    pub exclusive_bytes: u64,
    /// Bytes of its buffers' slices that other graphs use as well, their own or of its group.
    pub shared_bytes: u64,
    /// Bytes of its pages that are in no buffer of its own: guarded because they share a page with one.
    pub bystander_bytes: u64,
    /// The buffers it touches, in the order of their allocation.
    pub buffers: Vec<RetainedBuffer>,
    /// Handles of the graph, and launches of it that have not been issued yet: what keeps all of this.
    pub holders: u64,
}

impl Retained {
    /// Bytes of all pages that the graph guards.
    pub fn page_bytes(&self) -> u64 {
        self.pages.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Bytes of buffers that nobody but graphs holds.
    pub fn released_bytes(&self) -> u64 {
        self.buffers.iter().filter(|buffer| buffer.released).map(|buffer| buffer.bytes).sum()
    }
}

impl<B: Backend> Core<B> {
    /// What a sealed graph keeps alive.
    pub fn retained(&self, key: GraphKey) -> Retained {
        let Sealed { recorded, holders, .. } = &self.graphs[&key];
        let pages: Vec<_> = recorded.pages.iter().map(|&id| (id, self.pools.bytes(id))).collect();
        let exclusive = pages.iter().filter(|(id, _)| self.pools.guards(*id) == 1);
        // Two buffers of a graph may have had the same slice, one after the other.
        let slices: BTreeMap<Slice, u64> = recorded
            .buffers
            .values()
            .map(|member| (member.slice, self.pools.class(member.slice.page).bytes()))
            .collect();
        let (whole, own): (u64, u64) =
            (pages.iter().map(|(_, bytes)| bytes).sum(), slices.values().sum());
        let others = self.graphs.iter().filter(|(other, _)| **other != key);
        let theirs: FxHashSet<Slice> = others
            .flat_map(|(_, other)| other.recorded.buffers.values().map(|member| member.slice))
            .collect();
        let shared = slices.iter().filter(|(slice, _)| theirs.contains(slice));
        let shared_bytes = shared.map(|(_, bytes)| bytes).sum();
        let buffers = recorded.buffers.iter().map(|(key, member)| RetainedBuffer {
            name: member.name.to_string(),
            bytes: member.bytes,
            released: !self.alive.contains(key),
        });
        Retained {
            graph: recorded.name.clone(),
            nodes: recorded.nodes,
            exclusive_bytes: exclusive.map(|(_, bytes)| bytes).sum(),
            shared_bytes,
            bystander_bytes: whole - own,
            buffers: buffers.collect(),
            holders: holders.strong_count() as u64,
            pages,
        }
    }
}
