//! Completions that somebody may wait for: a table of slots, used again and again.
//!
//! | state | `complete` | `poll` | `forget` |
//! | --- | --- | --- | --- |
//! | `Waiting(waker)` | → `Done`, wakes | takes the new waker | → `Forgotten` |
//! | `Done(result)` | – (a ticket is completed once) | → free, gives the result | → free |
//! | `Forgotten` | → free | – | – |
//!
//! Whoever registers gets two halves, which nobody can clone: the [`Ticket`] of the waiter and the [`Promise`] of who
//! completes. So each transition happens once, and a slot is free exactly when both halves are used up. Wakers are called and
//! dropped outside the lock.

use std::task::{Poll, Waker};

use super::sync::{Arc, Mutex};

enum Slot<R> {
    /// The next free slot.
    Free(Option<usize>),
    Waiting(Option<Waker>),
    Done(R),
    Forgotten,
}

struct Slots<R> {
    slots: Vec<Slot<R>>,
    free: Option<usize>,
}

impl<R> Slots<R> {
    fn release(&mut self, at: usize) -> Slot<R> {
        let next = self.free.replace(at);
        std::mem::replace(&mut self.slots[at], Slot::Free(next))
    }
}

/// The table.
pub struct Table<R>(Arc<Mutex<Slots<R>>>);

impl<R> Clone for Table<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R> Default for Table<R> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Slots { slots: Vec::new(), free: None })))
    }
}

fn locked<R, T>(slots: &Mutex<Slots<R>>, work: impl FnOnce(&mut Slots<R>) -> T) -> T {
    // Nothing that runs under the lock panics halfway: a poisoned table is whole.
    let mut slots = slots.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    work(&mut slots)
}

impl<R> Table<R> {
    /// A completion to come: for who waits, and for who completes it.
    pub fn register(&self) -> (Ticket<R>, Promise<R>) {
        let at = locked(&self.0, |table| {
            let waiting = Slot::Waiting(None);
            match table.free {
                Some(at) => {
                    if let Slot::Free(next) = table.slots[at] {
                        table.free = next;
                    }
                    table.slots[at] = waiting;
                    at
                }
                None => {
                    table.slots.push(waiting);
                    table.slots.len() - 1
                }
            }
        });
        (Ticket { table: self.0.clone(), at: Some(at) }, Promise { table: self.0.clone(), at })
    }

    /// Slots in use.
    pub fn in_use(&self) -> usize {
        locked(&self.0, |table| {
            table.slots.iter().filter(|slot| !matches!(slot, Slot::Free(_))).count()
        })
    }
}

/// The waiter's half.
pub struct Ticket<R> {
    table: Arc<Mutex<Slots<R>>>,
    /// `None` once the result has been taken.
    at: Option<usize>,
}

impl<R> Ticket<R> {
    /// The result, once; until it is there, `waker` is woken when it is. After that it stays pending.
    pub fn poll(&mut self, waker: &Waker) -> Poll<R> {
        let Some(at) = self.at else { return Poll::Pending };
        let (result, old) = locked(&self.table, |table| match &mut table.slots[at] {
            Slot::Waiting(known) => match known {
                Some(known) if known.will_wake(waker) => (None, None),
                _ => (None, known.replace(waker.clone())),
            },
            _ => match table.release(at) {
                Slot::Done(result) => (Some(result), None),
                _ => unreachable!("a slot with a ticket is waiting or done"),
            },
        });
        drop(old);
        match result {
            Some(result) => {
                self.at = None;
                Poll::Ready(result)
            }
            None => Poll::Pending,
        }
    }
}

impl<R> Drop for Ticket<R> {
    /// Nobody waits any more: never blocks on the work, and leaves the slot to who completes it.
    fn drop(&mut self) {
        let Some(at) = self.at else { return };
        let left = locked(&self.table, |table| match table.slots[at] {
            Slot::Done(_) => table.release(at),
            _ => std::mem::replace(&mut table.slots[at], Slot::Forgotten),
        });
        drop(left);
    }
}

/// The completer's half.
pub struct Promise<R> {
    table: Arc<Mutex<Slots<R>>>,
    at: usize,
}

impl<R> Promise<R> {
    /// Completes, and wakes who waits.
    pub fn complete(self, result: R) {
        let at = self.at;
        let waker = locked(&self.table, |table| match &mut table.slots[at] {
            Slot::Waiting(waker) => {
                let waker = waker.take();
                table.slots[at] = Slot::Done(result);
                waker
            }
            _ => {
                table.release(at);
                None
            }
        });
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
