//! Reference-counted slots: what captures and graphs lie in, so that a closed one is kept exactly as long as an event or a piece
//! of memory still points at it. Every operation is constant; memory is linear in what is alive.

/// A slot of a [`Slab`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot(u32);

#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    entries: Vec<(u32, Option<T>)>,
    free: Vec<Slot>,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    /// Puts a value in with one reference.
    pub(super) fn insert(&mut self, value: T) -> Slot {
        if let Some(slot) = self.free.pop() {
            self.entries[slot.0 as usize] = (1, Some(value));
            return slot;
        }
        // Every entry is backed by a call of which there are at most u32::MAX, so the position fits.
        let slot = Slot(self.entries.len() as u32);
        self.entries.push((1, Some(value)));
        slot
    }

    pub(super) fn retain(&mut self, slot: Slot) {
        self.entries[slot.0 as usize].0 += 1;
    }

    /// Gives a reference up; the last one empties the slot and hands over what was in it.
    pub(super) fn release(&mut self, slot: Slot) -> Option<T> {
        let (count, value) = &mut self.entries[slot.0 as usize];
        *count -= 1;
        if *count > 0 {
            return None;
        }
        self.free.push(slot);
        value.take()
    }

    /// How many slots hold something.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

impl<T> std::ops::Index<Slot> for Slab<T> {
    type Output = T;

    fn index(&self, slot: Slot) -> &T {
        self.entries[slot.0 as usize].1.as_ref().expect("whoever holds a slot holds a reference")
    }
}

impl<T> std::ops::IndexMut<Slot> for Slab<T> {
    fn index_mut(&mut self, slot: Slot) -> &mut T {
        self.entries[slot.0 as usize].1.as_mut().expect("whoever holds a slot holds a reference")
    }
}
