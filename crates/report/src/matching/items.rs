//! What events may have been: the nodes of a graph and of those inside it, as one list with its order.

use std::collections::HashMap;
use std::ops::Range;

use phonograph_graph::{ComputeGraph, ConditionalKind, MemcpyDir, NodeId, NodeKind, display_name};

use super::names::plain;
use crate::compare::NodeAt;
use crate::from_graph::inner_groups;
use crate::picture::{GroupIx, NodeIx};
use crate::profile::{DeviceEvent, Work};
use crate::text::brief;

/// A name and kind that events and nodes have in common.
pub(super) type Key = u32;

/// One thing that may have run: a node at any depth, or a point that only orders others.
pub(super) struct Item {
    pub at: NodeAt,
    /// The child graph or conditional that it is in.
    pub inside: Option<u32>,
    /// What its event would be called; nothing for what leaves no event.
    pub key: Option<Key>,
    /// It is in a body, so it may run any number of times.
    pub optional: bool,
    /// The bodies that may begin when it is done.
    pub bodies: Option<u32>,
    pub after: Vec<u32>,
    pub producers: u32,
}

/// A node that holds graphs.
pub(super) struct Owner {
    pub at: NodeAt,
    pub inside: Option<u32>,
}

/// The bodies of a conditional node.
pub(super) struct Bodies {
    pub loops: bool,
    /// Where they begin.
    pub begin: Vec<u32>,
    /// All their items, inner bodies included.
    pub items: Range<u32>,
}

#[derive(Default)]
pub(super) struct Items {
    pub all: Vec<Item>,
    pub owners: Vec<Owner>,
    pub bodies: Vec<Bodies>,
    keys: HashMap<String, Key>,
    /// The key of a kernel by its name without template arguments, where only one has that name.
    bases: HashMap<String, Option<Key>>,
    /// Items of each key that are in no body, producers first.
    pub by_key: Vec<Vec<u32>>,
}

/// Where a graph that is being added lies.
#[derive(Clone, Copy)]
struct Within {
    group: GroupIx,
    inside: Option<u32>,
    optional: bool,
}

impl Items {
    pub fn new(graph: &ComputeGraph) -> Self {
        let mut items = Items::default();
        items.add(graph, Within { group: GroupIx(0), inside: None, optional: false });
        for item in 0..items.all.len() {
            for next in items.all[item].after.clone() {
                items.all[next as usize].producers += 1;
            }
        }
        items
    }

    /// The node of the outermost graph that an item is, or is in.
    pub fn outermost(&self, item: &Item) -> NodeId {
        let (mut at, mut inside) = (item.at, item.inside);
        while let Some(owner) = inside.map(|owner| &self.owners[owner as usize]) {
            (at, inside) = (owner.at, owner.inside);
        }
        NodeId(at.1.0)
    }

    /// Adds a graph; the places where it begins and ends. Recursive over nesting, which building a graph bounds.
    fn add(&mut self, graph: &ComputeGraph, within: Within) -> (u32, u32) {
        let groups = inner_groups(graph, within.group);
        let begin = self.push((within.group, NodeIx(0)), within, None);
        let mut ends: Vec<(u32, u32)> = vec![(0, 0); graph.node_count()];
        let mut last = vec![begin];
        for &id in graph.topological_order() {
            let at = (within.group, NodeIx(id.0));
            let own = |items: &mut Self| {
                items.owners.push(Owner { at, inside: within.inside });
                Some(items.owners.len() as u32 - 1)
            };
            let place = match &graph.node(id).kind {
                NodeKind::Child(child) => {
                    let inside = own(self);
                    self.add(child, Within { group: groups[&id][0], inside, ..within })
                }
                NodeKind::Conditional(conditional) => {
                    let item = self.push(at, within, None);
                    let inside = own(self);
                    let first = self.all.len() as u32;
                    let begin =
                        conditional.bodies.iter().zip(&groups[&id]).map(|(body, &group)| {
                            self.add(body, Within { group, inside, optional: true }).0
                        });
                    let begin = begin.collect();
                    let items = first..self.all.len() as u32;
                    let loops = conditional.kind == ConditionalKind::While;
                    self.all[item as usize].bodies = Some(self.bodies.len() as u32);
                    self.bodies.push(Bodies { loops, begin, items });
                    (item, item)
                }
                kind => {
                    let key = self.key(kind);
                    let item = self.push(at, within, key);
                    (item, item)
                }
            };
            ends[id.index()] = place;
            let producers = graph.predecessors(id);
            if producers.is_empty() {
                self.all[begin as usize].after.push(place.0);
            }
            for producer in producers {
                let (_, end) = ends[producer.index()];
                self.all[end as usize].after.push(place.0);
            }
            if graph.successors(id).is_empty() {
                last.push(place.1);
            }
        }
        let end = self.push((within.group, NodeIx(0)), within, None);
        for item in last {
            self.all[item as usize].after.push(end);
        }
        (begin, end)
    }

    fn push(&mut self, at: NodeAt, within: Within, key: Option<Key>) -> u32 {
        let place = self.all.len() as u32;
        let Within { inside, optional, .. } = within;
        if let Some(key) = key.filter(|_| !optional) {
            self.by_key[key as usize].push(place);
        }
        let (after, bodies) = (Vec::new(), None);
        self.all.push(Item { at, inside, key, optional, bodies, after, producers: 0 });
        place
    }

    fn key(&mut self, kind: &NodeKind) -> Option<Key> {
        let (name, base) = match kind {
            NodeKind::Kernel(kernel) => {
                let plain = plain(&display_name(kernel.kernel.name()));
                let base = brief(&plain).0;
                (plain, Some(base))
            }
            NodeKind::Memcpy(copy) => match copy.dir {
                MemcpyDir::PeerToPeer { .. } => ("memcpy PtoP".to_owned(), None),
                dir => (format!("memcpy {dir}"), None),
            },
            NodeKind::Memset(_) => ("memset".to_owned(), None),
            _ => return None,
        };
        let next = self.by_key.len() as Key;
        let key = *self.keys.entry(name).or_insert(next);
        if key == next {
            self.by_key.push(Vec::new());
            if let Some(base) = base {
                self.bases.entry(base).and_modify(|known| *known = None).or_insert(Some(key));
            }
        }
        Some(key)
    }

    /// What an event would be as a node; nothing where no node is called so.
    pub fn key_of(&self, event: &DeviceEvent) -> Option<Key> {
        match event.work {
            Work::Kernel => {
                let plain = plain(&event.name);
                let exact = self.keys.get(&plain).copied();
                exact.or_else(|| self.bases.get(&brief(&plain).0).copied().flatten())
            }
            Work::Memcpy => {
                let direction = event.name.split_whitespace().nth(1)?;
                self.keys.get(&format!("memcpy {direction}")).copied()
            }
            Work::Memset => self.keys.get("memset").copied(),
        }
    }
}
