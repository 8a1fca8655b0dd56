//! What CUPTI tells: which node is a copy of which, and how long each ran.
//!
//! The offsets are those of the records of CUDA 12.4 to 13.0, whose beginnings are alike; a record is read only as far as it
//! lies in its buffer.

use std::sync::{Mutex, MutexGuard};

use rustc_hash::FxHashMap;

use super::unpoisoned;

/// Kinds of records.
pub(super) const MEMCPY: u32 = 1;
pub(super) const MEMSET: u32 = 2;
pub(super) const KERNEL: u32 = 10;

/// Records that are kept; 40 bytes each.
const MOST: usize = 1 << 24;

/// What has been told so far.
#[derive(Debug, Default)]
pub(super) struct State {
    /// By the number of a node of an executable, the node of the graph that it was copied from.
    copies: FxHashMap<u64, usize>,
    /// By the number of a node, what each of its runs took, in nanoseconds.
    runs: FxHashMap<u64, Vec<u64>>,
    kept: usize,
    pub lost: u64,
}

pub(super) fn state() -> MutexGuard<'static, State> {
    static STATE: Mutex<State> = Mutex::new(State {
        copies: FxHashMap::with_hasher(rustc_hash::FxBuildHasher),
        runs: FxHashMap::with_hasher(rustc_hash::FxBuildHasher),
        kept: 0,
        lost: 0,
    });
    unpoisoned(&STATE)
}

impl State {
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Notes that a node, by its number, is a copy of another, by its handle and number.
    pub fn copied(&mut self, node: u64, from: usize, from_number: u64) {
        // The copy of a copy is one of the first.
        let first = self.copies.get(&from_number).copied().unwrap_or(from);
        self.copies.insert(node, first);
    }

    /// Reads one record: the bytes from its first on, to the end of its buffer.
    pub fn record(&mut self, bytes: &[u8]) {
        match parse(bytes) {
            Some(None) => {}
            Some(Some((node, ns))) if self.kept < MOST => {
                self.kept += 1;
                self.runs.entry(node).or_default().push(ns);
            }
            _ => self.lost += 1,
        }
    }

    /// The runs by the handle of the graph's node.
    pub fn by_original(self) -> FxHashMap<usize, Vec<u64>> {
        let mut nodes: FxHashMap<usize, Vec<u64>> = FxHashMap::default();
        for (number, runs) in self.runs {
            if let Some(&original) = self.copies.get(&number) {
                nodes.entry(original).or_default().extend(runs);
            }
        }
        nodes
    }
}

/// The number of a record's node and what it took; `Some(None)` for work that no graph launched and for other records.
fn parse(bytes: &[u8]) -> Option<Option<(u64, u64)>> {
    const START: usize = 16;
    const END: usize = 24;
    let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let kind = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
    let node = match kind {
        KERNEL => word(144)?,
        MEMCPY | MEMSET => word(64)?,
        _ => return Some(None),
    };
    let ns = word(END)?.saturating_sub(word(START)?);
    Some((node != 0).then_some((node, ns)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, node: u64, start: u64, end: u64) -> Vec<u8> {
        let mut bytes = vec![0u8; 160];
        let mut put =
            |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        put(16, start);
        put(24, end);
        put(if kind == KERNEL { 144 } else { 64 }, node);
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes
    }

    #[test]
    fn runs_are_found_by_the_node_that_was_copied() {
        let mut state = State::default();
        state.copied(11, 0x100, 1);
        state.copied(12, 0x200, 2);
        state.copied(21, 0x999, 11); // The copy of a copy.
        state.record(&record(KERNEL, 11, 100, 350));
        state.record(&record(KERNEL, 21, 1000, 1240));
        state.record(&record(MEMSET, 12, 7, 9));
        state.record(&record(MEMCPY, 77, 0, 5)); // Of a graph that was instantiated before.
        state.record(&record(KERNEL, 0, 0, 5)); // Of no graph.
        state.record(&record(99, 1, 0, 5)); // Of another kind.
        assert_eq!(state.lost, 0);
        let nodes = state.by_original();
        assert_eq!(nodes.len(), 2);
        let mut runs = nodes[&0x100].clone();
        runs.sort_unstable();
        assert_eq!((runs, &nodes[&0x200]), (vec![240, 250], &vec![2]));
    }

    #[test]
    fn a_record_that_ends_too_early_is_lost_and_not_read_beyond_its_end() {
        for (kind, whole) in [(KERNEL, 152), (MEMCPY, 72), (MEMSET, 72)] {
            let bytes = record(kind, 5, 1, 2);
            for length in 0..bytes.len() {
                let mut state = State::default();
                state.record(&bytes[..length]);
                assert_eq!(state.lost, u64::from(length < whole), "{kind} of {length} bytes");
            }
        }
    }
}
