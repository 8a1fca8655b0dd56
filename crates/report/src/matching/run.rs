//! Which node each event of one replay was.
//!
//! Events are taken by start. An event is a node of its name and kind whose producers have all been matched: if possible
//! one that follows what its stream did last, else the oldest. If there is none (a producer is missing in the trace), the
//! oldest unmatched node of that name. Child graphs count as their nodes. A body may run any number of times: it may begin
//! once the producers of its conditional node are done, a loop's begins anew when an event asks for it, and it is over when
//! something that follows the node has run. Where a name occurs outside bodies, too, events go to bodies as long as there
//! are more of them left than nodes outside.

use std::collections::{BTreeSet, HashMap};

use super::items::{Bodies, Item, Items, Key};
use crate::profile::DeviceEvent;

/// For each event of one replay, the item that it was.
pub(super) fn matched(items: &Items, events: &[&DeviceEvent]) -> Vec<Option<u32>> {
    let keys: Vec<Option<Key>> = events.iter().map(|event| items.key_of(event)).collect();
    let mut run = Run {
        items,
        waiting: items.all.iter().map(|item| item.producers).collect(),
        done: vec![false; items.all.len()],
        ready: vec![BTreeSet::new(); items.by_key.len()],
        oldest: vec![0; items.by_key.len()],
        surplus: items.by_key.iter().map(|nodes| -(nodes.len() as i64)).collect(),
        open: BTreeSet::new(),
    };
    for key in keys.iter().flatten() {
        run.surplus[*key as usize] += 1;
    }
    run.release(vec![0]);
    let mut last: HashMap<i64, u32> = HashMap::new();
    let matched = events.iter().zip(keys).map(|(event, key)| {
        let item = run.take(key?, last.get(&event.stream).copied())?;
        last.insert(event.stream, item);
        Some(item)
    });
    matched.collect()
}

/// The state of matching one replay.
struct Run<'a> {
    items: &'a Items,
    /// Producers of each item that are not matched yet.
    waiting: Vec<u32>,
    done: Vec<bool>,
    ready: Vec<BTreeSet<u32>>,
    /// How many items of each key, from the oldest on, are done for certain.
    oldest: Vec<usize>,
    /// By key: how many more events are left than items outside bodies.
    surplus: Vec<i64>,
    /// Bodies that may run now.
    open: BTreeSet<u32>,
}

impl Run<'_> {
    /// Items whose producers are all done: those that leave an event become ready, others are done at once.
    fn release(&mut self, mut todo: Vec<u32>) {
        while let Some(item) = todo.pop() {
            let Item { key, after, bodies, .. } = &self.items.all[item as usize];
            match key {
                Some(key) if !self.done[item as usize] => {
                    self.ready[*key as usize].insert(item);
                    continue;
                }
                _ => self.done[item as usize] = true,
            }
            if let Some(bodies) = *bodies {
                self.close(bodies);
                self.open.insert(bodies);
                todo.extend(&self.items.bodies[bodies as usize].begin);
            }
            for &next in after {
                self.waiting[next as usize] -= 1;
                if self.waiting[next as usize] == 0 {
                    todo.push(next);
                }
            }
        }
    }

    /// Takes bodies back to where nothing in them has run, and those inside them.
    fn close(&mut self, bodies: u32) {
        for item in self.items.bodies[bodies as usize].items.clone() {
            let Item { key, producers, bodies, .. } = &self.items.all[item as usize];
            self.waiting[item as usize] = *producers;
            self.done[item as usize] = false;
            if let Some(key) = key {
                self.ready[*key as usize].remove(&item);
            }
            if let Some(bodies) = bodies {
                self.open.remove(bodies);
            }
        }
        self.open.remove(&bodies);
    }

    fn take(&mut self, key: Key, before: Option<u32>) -> Option<u32> {
        let bodies_first = self.surplus[key as usize] > 0;
        let item = self
            .ready_item(key, before, bodies_first)
            .or_else(|| bodies_first.then(|| self.begin_anew(key)).flatten())
            .or_else(|| self.ready_item(key, before, !bodies_first))
            .or_else(|| self.oldest_item(key));
        if item.is_none_or(|item| self.items.all[item as usize].optional) {
            self.surplus[key as usize] -= 1;
        }
        let item = item?;
        let was_ready = self.ready[key as usize].remove(&item);
        self.done[item as usize] = true;
        // What follows a conditional node has run: its bodies are over.
        for bodies in self.open.clone() {
            let inside = self.items.bodies[bodies as usize].items.contains(&item);
            if !inside && self.follows(item, bodies) {
                self.close(bodies);
            }
        }
        // One that was taken before its producers releases what follows when they are done.
        if was_ready {
            self.release(vec![item]);
        }
        Some(item)
    }

    /// A ready item, in a body or in none: one that follows what the stream did last, else the oldest.
    fn ready_item(&self, key: Key, before: Option<u32>, optional: bool) -> Option<u32> {
        let ready = &self.ready[key as usize];
        let fits = |item: &u32| self.items.all[*item as usize].optional == optional;
        let follows = before.and_then(|before| {
            let after = &self.items.all[before as usize].after;
            after.iter().copied().filter(|next| ready.contains(next)).filter(fits).min()
        });
        follows.or_else(|| ready.iter().copied().find(fits))
    }

    /// An item at the beginning of a loop's body that has run before: the loop runs on.
    fn begin_anew(&mut self, key: Key) -> Option<u32> {
        let items = self.items;
        // Inner loops first.
        for &bodies in self.open.clone().iter().rev() {
            let Bodies { loops, begin, items: range } = &items.bodies[bodies as usize];
            let holds = |item: u32| items.all[item as usize].key == Some(key);
            if !loops || !range.clone().any(holds) {
                continue;
            }
            self.close(bodies);
            self.open.insert(bodies);
            self.release(begin.clone());
            let found = self.ready[key as usize].iter().copied().find(|item| range.contains(item));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The oldest item outside bodies that is not done, whatever it waits for.
    fn oldest_item(&mut self, key: Key) -> Option<u32> {
        let all = &self.items.by_key[key as usize];
        let oldest = &mut self.oldest[key as usize];
        while all.get(*oldest).is_some_and(|&item| self.done[item as usize]) {
            *oldest += 1;
        }
        all.get(*oldest).copied()
    }

    /// Whether an item comes after a conditional node with only such in between as leave no event.
    fn follows(&self, item: u32, bodies: u32) -> bool {
        let mut seen = BTreeSet::new();
        let begins = self.items.bodies[bodies as usize].items.start;
        // The node's own item stands before those of its bodies.
        let mut todo = vec![begins - 1];
        while let Some(at) = todo.pop() {
            for &next in &self.items.all[at as usize].after {
                let Item { key, bodies, .. } = &self.items.all[next as usize];
                if next == item {
                    return true;
                }
                if key.is_none() && seen.insert(next) {
                    todo.push(next);
                    if let Some(bodies) = bodies {
                        todo.extend(&self.items.bodies[*bodies as usize].begin);
                    }
                }
            }
        }
        false
    }
}
