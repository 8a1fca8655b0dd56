//! Operations that have been made ready to run, kept for the next time: by what they do and where.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::op::Operation;
use super::template::TemplateKey;
use crate::pool::{PageId, Slice};

/// The most that are kept. Each may hold an executable of the driver's.
const MOST: usize = 1024;

type Key = (TemplateKey, SmallVec<[Slice; 4]>);

struct Entry<P> {
    prepared: P,
    used: u64,
}

/// Prepared operations, the least recently used half of which goes when there are too many.
pub(super) struct Prepared<P> {
    kept: FxHashMap<Key, Entry<P>>,
    clock: u64,
}

impl<P> Default for Prepared<P> {
    fn default() -> Self {
        Self { kept: FxHashMap::default(), clock: 0 }
    }
}

impl<P> Prepared<P> {
    fn key(op: &Operation) -> Key {
        (op.template(), op.buffers().iter().map(|buffer| buffer.slice()).collect())
    }

    pub fn get(&mut self, op: &Operation) -> Option<&mut P> {
        let entry = self.kept.get_mut(&Self::key(op))?;
        self.clock += 1;
        entry.used = self.clock;
        Some(&mut entry.prepared)
    }

    /// Keeps one; gives it back with those that have to go.
    pub fn insert(&mut self, op: &Operation, prepared: P) -> Vec<P> {
        let mut gone = Vec::new();
        if self.kept.len() >= MOST {
            let mut used: Vec<u64> = self.kept.values().map(|entry| entry.used).collect();
            let (_, &mut median, _) = used.select_nth_unstable(MOST / 2);
            let old = self.kept.extract_if(|_, entry| entry.used < median);
            gone.extend(old.map(|(_, entry)| entry.prepared));
        }
        self.clock += 1;
        let entry = Entry { prepared, used: self.clock };
        gone.extend(self.kept.insert(Self::key(op), entry).map(|entry| entry.prepared));
        gone
    }

    /// Takes out all.
    pub fn take_all(&mut self) -> impl Iterator<Item = P> + use<P> {
        std::mem::take(&mut self.kept).into_values().map(|entry| entry.prepared)
    }

    /// Takes out those that touch a page.
    pub fn take(&mut self, touches: impl Fn(PageId) -> bool) -> Vec<P> {
        let touching =
            self.kept.extract_if(|(_, slices), _| slices.iter().any(|s| touches(s.page)));
        touching.map(|(_, entry)| entry.prepared).collect()
    }
}
