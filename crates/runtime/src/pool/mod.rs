//! Device memory in pages of equal slices, one set of pages for each backend stream.
//!
//! In: requests for bytes on behalf of a backend stream, and pages from whoever owns the device. Out: [`Slice`]s, and whole
//! pages once nothing uses them. A request is rounded up to its [`SizeClass`], at most a quarter more than asked above
//! 1 KiB; a page is cut into slices of one class. A page that a sealed graph has touched is *guarded*: its free slices are
//! not handed out until the last such graph is gone, because a replay may write them at any time. Only graphs of one
//! [`GroupId`], whose launches never overlap where they share a slice, may take them from one another.
//!
//! Taking and giving back cost O(log pages). The pool never allocates by itself: growing is a separate call, so that
//! a recording can be served from what is held and nothing else.

mod class;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

pub use class::{MAX_ALLOCATION, Place, SizeClass};

use crate::streams::PooledStreamId;

/// A page of one device, never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageId(pub u64);

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {}", self.0)
    }
}

/// Graphs that may have scratch in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(pub u64);

/// A part of a page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slice {
    /// The page.
    pub page: PageId,
    /// First byte in it.
    pub offset: u64,
}

#[derive(Debug)]
struct Page<P> {
    memory: P,
    stream: PooledStreamId,
    class: SizeClass,
    /// Offsets of free slices, the next to be handed out last.
    free: Vec<u64>,
    /// Bytes asked for by those who hold slices.
    requested: u64,
    /// Sealed graphs that have touched it, each by its group.
    guards: Vec<Option<GroupId>>,
}

impl<P> Page<P> {
    fn bytes(&self) -> u64 {
        self.class.page_bytes()
    }

    fn free_bytes(&self) -> u64 {
        self.free.len() as u64 * self.class.bytes()
    }

    fn is_empty(&self) -> bool {
        self.free.len() as u64 == self.class.slices()
    }

    fn serves(&self) -> bool {
        self.guards.is_empty() && !self.free.is_empty()
    }

    /// Whether it is guarded, and by graphs of this group alone.
    fn is_of(&self, group: GroupId) -> bool {
        !self.guards.is_empty() && self.guards.iter().all(|guard| *guard == Some(group))
    }
}

/// The pages of one size class of one backend stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassReport {
    /// Where they lie.
    pub place: Place,
    /// Bytes of a slice.
    pub slice_bytes: u64,
    /// Number of pages.
    pub pages: u64,
    /// Their bytes.
    pub page_bytes: u64,
    /// Bytes of the slices that are held.
    pub held_bytes: u64,
    /// Bytes that the holders had asked for.
    pub requested_bytes: u64,
    /// Bytes of free slices that can be handed out.
    pub free_bytes: u64,
    /// Bytes of free slices in guarded pages.
    pub guarded_free_bytes: u64,
}

impl ClassReport {
    /// Share of the held bytes that nobody asked for: lost to rounding. 0 if none are held.
    pub fn internal_fragmentation(&self) -> f64 {
        share(self.held_bytes - self.requested_bytes, self.held_bytes)
    }

    /// Share of the pages' bytes that serve nobody. 0 without pages.
    pub fn external_fragmentation(&self) -> f64 {
        share(self.free_bytes + self.guarded_free_bytes, self.page_bytes)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// All pages of a device. `P` is what the backend knows a page by.
#[derive(Debug)]
pub struct Pools<P> {
    pages: BTreeMap<PageId, Page<P>>,
    /// Pages that can serve, by whom and what.
    open: BTreeMap<(PooledStreamId, SizeClass), BTreeSet<PageId>>,
    next: u64,
}

impl<P> Default for Pools<P> {
    fn default() -> Self {
        Self { pages: BTreeMap::new(), open: BTreeMap::new(), next: 0 }
    }
}

impl<P> Pools<P> {
    /// A free slice of the oldest page that serves, or `None` where none does.
    ///
    /// `requested` is what was asked for, for the report; it must be given back with the slice.
    pub fn take(
        &mut self,
        stream: PooledStreamId,
        class: SizeClass,
        requested: u64,
    ) -> Option<Slice> {
        let open = self.open.get_mut(&(stream, class))?;
        let &id = open.first()?;
        let page = self.pages.get_mut(&id)?;
        let offset = page.free.pop()?;
        page.requested += requested;
        if page.free.is_empty() {
            open.remove(&id);
        }
        Some(Slice { page: id, offset })
    }

    /// Adds a page of `class.page_bytes()`.
    pub fn grow(&mut self, stream: PooledStreamId, class: SizeClass, memory: P) -> PageId {
        let id = PageId(self.next);
        self.next += 1;
        let free = (0..class.slices()).rev().map(|slice| slice * class.bytes()).collect();
        let page = Page { memory, stream, class, free, requested: 0, guards: Vec::new() };
        self.pages.insert(id, page);
        self.open.entry((stream, class)).or_default().insert(id);
        id
    }

    /// How many slices could be taken. O(pages of the class that serve).
    pub fn available(&self, stream: PooledStreamId, class: SizeClass) -> u64 {
        let open = self.open.get(&(stream, class)).into_iter().flatten();
        open.map(|id| self.pages[id].free.len() as u64).sum()
    }

    /// Free slices of pages that graphs of this group guard and nobody else does. O(pages).
    pub fn shared(
        &self,
        stream: PooledStreamId,
        class: SizeClass,
        group: GroupId,
    ) -> impl Iterator<Item = Slice> + '_ {
        let of = self.pages.iter().filter(move |(_, page)| {
            page.stream == stream && page.class == class && page.is_of(group)
        });
        of.flat_map(|(&id, page)| {
            page.free.iter().rev().map(move |&offset| Slice { page: id, offset })
        })
    }

    /// Takes this slice, which is free, for `requested` bytes, guarded or not.
    ///
    /// # Panics
    /// If the page is gone.
    pub fn take_this(&mut self, slice: Slice, requested: u64) {
        let page = self.page_mut(slice.page);
        page.free.retain(|&offset| offset != slice.offset);
        page.requested += requested;
        let (key, full) = ((page.stream, page.class), page.free.is_empty());
        if let Some(open) = self.open.get_mut(&key).filter(|_| full) {
            open.remove(&slice.page);
        }
    }

    /// Gives a slice back that was taken for `requested` bytes.
    pub fn give_back(&mut self, slice: Slice, requested: u64) {
        let page = self.page_mut(slice.page);
        page.requested -= requested;
        page.free.push(slice.offset);
        self.reopen(slice.page);
    }

    /// The backend's name of a page.
    ///
    /// # Panics
    /// If the page is gone. Pages live while a slice of them is held, a graph guards them or a window is open.
    pub fn memory(&self, page: PageId) -> &P {
        &self.pages[&page].memory
    }

    /// The backend stream that a page belongs to.
    ///
    /// # Panics
    /// As for [`memory`](Self::memory).
    pub fn stream(&self, page: PageId) -> PooledStreamId {
        self.pages[&page].stream
    }

    /// How a page is cut.
    ///
    /// # Panics
    /// As for [`memory`](Self::memory).
    pub fn class(&self, page: PageId) -> SizeClass {
        self.pages[&page].class
    }

    /// Bytes of a page.
    ///
    /// # Panics
    /// As for [`memory`](Self::memory).
    pub fn bytes(&self, page: PageId) -> u64 {
        self.pages[&page].bytes()
    }

    /// How many sealed graphs guard a page.
    ///
    /// # Panics
    /// As for [`memory`](Self::memory).
    pub fn guards(&self, page: PageId) -> u32 {
        self.pages[&page].guards.len() as u32
    }

    /// One more sealed graph, of this group if it is of any, touches the page.
    pub fn guard(&mut self, page: PageId, group: Option<GroupId>) {
        let guarded = self.page_mut(page);
        guarded.guards.push(group);
        let key = (guarded.stream, guarded.class);
        if let Some(open) = self.open.get_mut(&key) {
            open.remove(&page);
        }
    }

    /// One of these graphs is gone.
    pub fn unguard(&mut self, page: PageId, group: Option<GroupId>) {
        let guards = &mut self.page_mut(page).guards;
        let at = guards.iter().position(|guard| *guard == group);
        guards.swap_remove(at.expect("a graph unguards what it guarded"));
        self.reopen(page);
    }

    /// Takes out a page of which nothing is held or guarded.
    pub fn remove(&mut self, id: PageId) -> Option<P> {
        let page = self.pages.get(&id)?;
        if !page.is_empty() || !page.guards.is_empty() {
            return None;
        }
        if let Some(open) = self.open.get_mut(&(page.stream, page.class)) {
            open.remove(&id);
        }
        Some(self.pages.remove(&id)?.memory)
    }

    /// Takes out the pages of which nothing is held or guarded, but for those of streams that `keep` names, and those of
    /// [one use](SizeClass::alone). O(pages).
    pub fn trim(&mut self, keep: impl Fn(PooledStreamId) -> bool) -> Vec<(PageId, SizeClass, P)> {
        let idle = self.pages.iter().filter(|(_, page)| {
            let serves_nobody = page.is_empty() && page.guards.is_empty() && !page.class.is_alone();
            serves_nobody && !keep(page.stream)
        });
        let idle: Vec<(PageId, SizeClass)> = idle.map(|(&id, page)| (id, page.class)).collect();
        let taken = idle.into_iter().filter_map(|(id, class)| Some((id, class, self.remove(id)?)));
        taken.collect()
    }

    /// Takes out every page, whoever holds or guards it: the device is going.
    pub fn take_all(&mut self) -> impl Iterator<Item = P> + use<P> {
        self.open.clear();
        std::mem::take(&mut self.pages).into_values().map(|page| page.memory)
    }

    /// Every class that has pages, by stream, then size. O(pages).
    pub fn report(&self) -> BTreeMap<(PooledStreamId, SizeClass), ClassReport> {
        let mut report: BTreeMap<_, ClassReport> = BTreeMap::new();
        for page in self.pages.values() {
            let class = report.entry((page.stream, page.class)).or_default();
            (class.place, class.slice_bytes) = (page.class.place(), page.class.bytes());
            class.pages += 1;
            class.page_bytes += page.bytes();
            let free = page.free_bytes();
            class.held_bytes += page.class.slices() * page.class.bytes() - free;
            class.requested_bytes += page.requested;
            let of = match page.guards.is_empty() {
                true => &mut class.free_bytes,
                false => &mut class.guarded_free_bytes,
            };
            *of += free;
        }
        report
    }

    fn page_mut(&mut self, page: PageId) -> &mut Page<P> {
        self.pages.get_mut(&page).expect("a page outlives its slices and guards")
    }

    fn reopen(&mut self, id: PageId) {
        let page = &self.pages[&id];
        if page.serves() {
            self.open.entry((page.stream, page.class)).or_default().insert(id);
        }
    }
}
