//! What a file declares, found by number or by name. O(log rows) a name, and once O(rows · log rows).

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::JsonError;
use super::path::Path;
use super::value::Ref;
use crate::{Buffer, BufferId, Slot, SlotId};

/// Names of a table's rows, sorted when first asked for.
pub(super) struct Names {
    rows: OnceCell<BTreeMap<Arc<str>, Option<u32>>>,
}

impl Names {
    pub const fn new() -> Self {
        Self { rows: OnceCell::new() }
    }

    /// The row that `reference` means, of `count` whose names `all` lists.
    pub fn find<'n>(
        &self,
        reference: &Ref,
        what: &str,
        count: usize,
        all: impl Iterator<Item = &'n Arc<str>>,
        path: &Path,
    ) -> Result<u32, JsonError> {
        match reference {
            Ref::Id(id) if (*id as usize) < count => Ok(*id),
            Ref::Id(id) => Err(path.wrong(format!("there is no {what} {id}; there are {count}"))),
            Ref::Name(name) => {
                let rows = self.rows.get_or_init(|| {
                    let mut rows = BTreeMap::new();
                    for (index, name) in all.enumerate() {
                        rows.entry(name.clone())
                            .and_modify(|row| *row = None)
                            .or_insert(Some(index as u32));
                    }
                    rows
                });
                let short: String = name.chars().take(60).collect();
                match rows.get(&**name) {
                    Some(Some(index)) => Ok(*index),
                    Some(None) => Err(path.wrong(format!("several {what}s are named `{short}`"))),
                    None => Err(path.wrong(format!("there is no {what} named `{short}`"))),
                }
            }
        }
    }
}

/// The declarations of a graph, for what refers to them.
pub(super) struct Declared {
    pub buffers: Vec<Buffer>,
    pub slots: Vec<Slot>,
    pub buffer_names: Names,
    pub slot_names: Names,
}

impl Declared {
    pub fn buffer(&self, reference: &Ref, path: &Path) -> Result<BufferId, JsonError> {
        let names = self.buffers.iter().map(|buffer| &buffer.name);
        let found = self.buffer_names.find(reference, "buffer", self.buffers.len(), names, path);
        found.map(BufferId)
    }

    pub fn slot(&self, reference: &Ref, path: &Path) -> Result<SlotId, JsonError> {
        let names = self.slots.iter().map(|slot| &slot.name);
        self.slot_names.find(reference, "slot", self.slots.len(), names, path).map(SlotId)
    }
}
