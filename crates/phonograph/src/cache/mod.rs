//! Captured graphs by the shapes of their inputs: what servers write by hand.
//!
//! In: shapes. Out: what was captured for the [bucket](Buckets) of a shape, captured on its first use or in the background,
//! as long as it fits a memory budget; what was used longest ago goes first. A look-up costs O(log entries) under a lock
//! that is never held while anything is captured.

mod buckets;

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

pub use buckets::Buckets;
use rustc_hash::FxHashMap;

use crate::lock::ExecutionLock;
use crate::{Error, Result};

/// What a [`GraphCache`] keeps: usually graphs and the tensors that they work on.
pub trait Cached: Send + 'static {
    /// Bytes of device memory that it alone holds; asked for once, when it has been captured.
    fn bytes(&self) -> u64;
}

/// What has happened in a cache so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStats {
    /// Look-ups that found what they asked for.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Captures that succeeded.
    pub captures: u64,
    /// Captures that failed.
    pub failures: u64,
    /// Entries that had to make room.
    pub evictions: u64,
    /// Elements of the shapes that were asked for and found.
    pub elements: u64,
    /// Elements of their buckets: what is above `elements` is padding.
    pub padded_elements: u64,
    /// Entries now.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What was captured for a bucket. It lives on while somebody has it, also after it had to make room.
#[derive(Debug)]
pub struct Entry<G> {
    bucket: Box<[u64]>,
    bytes: u64,
    value: Mutex<G>,
}

impl<G> Entry<G> {
    /// The shape that it was captured for.
    pub fn bucket(&self) -> &[u64] {
        &self.bucket
    }

    /// It, for as long as inputs are written, graphs launched and outputs read: everybody else waits.
    pub fn lock(&self) -> MutexGuard<'_, G> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum State<G> {
    /// Somebody captures it, or will, on a thread that is not running yet.
    Capturing(Option<ThreadId>),
    Ready(Arc<Entry<G>>, u64),
    /// The last capture failed; the next look-up that may capture tries again.
    Failed(Error),
}

struct Entries<G> {
    states: BTreeMap<Box<[u64]>, State<G>>,
    stats: CacheStats,
    /// Counts look-ups, to know what was used last.
    clock: u64,
    /// The buckets that threads wait for.
    waiting: FxHashMap<ThreadId, Box<[u64]>>,
}

type Capture<G> = dyn Fn(&[u64]) -> Result<G> + Send + Sync;

struct Shared<G> {
    entries: Mutex<Entries<G>>,
    changed: Condvar,
    buckets: Buckets,
    budget: u64,
    capture: Box<Capture<G>>,
}

/// Captured graphs by the shapes of their inputs. Clones share it.
///
/// ```
/// use phonograph::cache::{Buckets, Cached, GraphCache};
/// use phonograph::prelude::*;
///
/// kernel! { fn double(x: &[f32], y: out [f32]) |_e| { y = 2.0 * x; } }
///
/// struct Doubler { x: Tensor<f32>, y: Tensor<f32>, graph: CapturedGraph<()> }
/// impl Cached for Doubler {
///     fn bytes(&self) -> u64 { 2 * 4 * self.x.elements() }
/// }
///
/// let device = Device::cpu(1)?;
/// let stream = device.stream(0);
/// let cache = GraphCache::new(Buckets::new().powers_of_two(1024), 1 << 20, move |bucket| {
///     let x = api::zeros::<f32>(bucket).sync_on(&stream)?;
///     let mut y = api::zeros::<f32>(bucket).sync_on(&stream)?;
///     let graph = double(&x, &mut y).map(drop).graph_on(&stream)?;
///     Ok(Doubler { x, y, graph })
/// });
///
/// let serve = |input: Vec<f32>| -> Result<Vec<f32>> {
///     let len = input.len();
///     let entry = cache.get(&[len as u64])?;
///     let Doubler { x, y, graph } = &mut *entry.lock();
///     let mut padded = input;
///     padded.resize(entry.bucket()[0] as usize, 0.0);
///     graph.update(api::store(padded, x))?;
///     graph.launch().sync_on(graph.stream())?;
///     let mut output = y.to_vec()?;
///     output.truncate(len);
///     Ok(output)
/// };
/// assert_eq!(serve(vec![1.0, 2.0, 3.0])?, [2.0, 4.0, 6.0]);
/// assert_eq!(serve(vec![5.0; 4])?, [10.0; 4]); // the same graph
/// let stats = cache.stats();
/// assert_eq!((stats.misses, stats.hits, stats.captures), (1, 1, 1));
/// # Ok::<(), Error>(())
/// ```
pub struct GraphCache<G>(Arc<Shared<G>>);

impl<G> Clone for GraphCache<G> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<G: Cached> GraphCache<G> {
    /// A cache of at most `budget` bytes that captures for a bucket with `capture`. One entry is kept whatever its size.
    pub fn new(
        buckets: Buckets,
        budget: u64,
        capture: impl Fn(&[u64]) -> Result<G> + Send + Sync + 'static,
    ) -> Self {
        let (states, stats, waiting) =
            (BTreeMap::new(), CacheStats::default(), FxHashMap::default());
        let entries = Entries { states, stats, clock: 0, waiting };
        Self(Arc::new(Shared {
            entries: Mutex::new(entries),
            changed: Condvar::new(),
            buckets,
            budget,
            capture: Box::new(capture),
        }))
    }

    /// What is captured for the bucket of this shape; captures it here if nobody has. Whoever asks for the same bucket
    /// meanwhile waits for that.
    ///
    /// # Errors
    /// [`Error::NoBucket`]; those of the capture, which the next look-up tries again; [`Error::NonReentrant`] from inside
    /// a capture, where it could not capture, and inside the very capture that it asks for, or one that this waits for.
    #[track_caller]
    pub fn get(&self, extents: &[u64]) -> Result<Arc<Entry<G>>> {
        ExecutionLock::check("GraphCache::get")?;
        let bucket = self.0.buckets.round(extents)?;
        let me = thread::current().id();
        let mut entries = self.0.lock();
        let mut waited = false;
        loop {
            if let Some(entry) = entries.hit(&bucket, extents, !waited) {
                return Ok(entry);
            }
            match entries.states.get(&*bucket) {
                Some(State::Capturing(_)) if entries.waits_for(&bucket, me) => {
                    let what = "GraphCache::get inside its capture";
                    return Err(Error::NonReentrant { what, at: Some(Location::caller()) });
                }
                Some(State::Capturing(_)) => {
                    waited = true;
                    entries.waiting.insert(me, bucket.clone().into());
                    entries = self.0.changed.wait(entries).unwrap_or_else(PoisonError::into_inner);
                    entries.waiting.remove(&me);
                }
                // Whoever has waited shares the fate of the capture that it waited for.
                Some(State::Failed(error)) if waited => return Err(error.clone()),
                Some(State::Ready(..)) => unreachable!("it would have been a hit"),
                Some(State::Failed(_)) | None => break,
            }
        }
        entries.states.insert(bucket.clone().into(), State::Capturing(Some(me)));
        drop(entries);
        self.0.capture(bucket)
    }

    /// What is captured for the bucket of this shape, if it is there. If not, it is captured in the background, and the
    /// caller does without: `None`.
    ///
    /// # Errors
    /// [`Error::NoBucket`]; that of the last capture, if it has failed, which is then tried again;
    /// [`Error::Start`] where a thread cannot be had.
    pub fn get_or_capture_later(&self, extents: &[u64]) -> Result<Option<Arc<Entry<G>>>> {
        let bucket = self.0.buckets.round(extents)?;
        let mut entries = self.0.lock();
        if let Some(entry) = entries.hit(&bucket, extents, true) {
            return Ok(Some(entry));
        }
        let failed = match entries.states.get(&*bucket) {
            Some(State::Capturing(_)) => return Ok(None),
            Some(State::Failed(error)) => Some(error.clone()),
            _ => None,
        };
        if let Some(error) = failed {
            entries.states.remove(&*bucket);
            return Err(error);
        }
        entries.states.insert(bucket.clone().into(), State::Capturing(None));
        drop(entries);
        let shared = self.0.clone();
        let task = bucket.clone();
        let builder = thread::Builder::new().name("phonograph capture".into());
        let spawned = builder.spawn(move || {
            let by = State::Capturing(Some(thread::current().id()));
            shared.lock().states.insert(task.clone().into(), by);
            // The error is kept for the next look-up.
            drop(shared.capture(task));
        });
        if let Err(error) = spawned {
            let error = Error::Start(error.to_string());
            self.0.finish(&bucket, Err(error.clone()));
            return Err(error);
        }
        Ok(None)
    }

    /// What has happened so far.
    pub fn stats(&self) -> CacheStats {
        self.0.lock().stats
    }

    /// The buckets that are captured, in order.
    pub fn buckets(&self) -> Vec<Box<[u64]>> {
        let entries = self.0.lock();
        let ready = entries.states.iter().filter(|(_, state)| matches!(state, State::Ready(..)));
        ready.map(|(bucket, _)| bucket.clone()).collect()
    }
}

impl<G> Entries<G> {
    /// Whether a bucket is captured by a thread, or by one that waits for it. Nobody waits in a circle: this is asked before.
    fn waits_for<'b>(&'b self, mut bucket: &'b [u64], thread: ThreadId) -> bool {
        while let Some(State::Capturing(Some(by))) = self.states.get(bucket) {
            if *by == thread {
                return true;
            }
            let Some(next) = self.waiting.get(by) else { break };
            bucket = next;
        }
        false
    }

    fn hit(&mut self, bucket: &[u64], extents: &[u64], first: bool) -> Option<Arc<Entry<G>>> {
        self.clock += 1;
        let found = match self.states.get_mut(bucket) {
            Some(State::Ready(entry, used)) => {
                *used = self.clock;
                Some(entry.clone())
            }
            _ => None,
        };
        match &found {
            Some(_) => {
                self.stats.hits += u64::from(first);
                let product =
                    |extents: &[u64]| extents.iter().copied().fold(1, u64::saturating_mul);
                let sums = [&mut self.stats.elements, &mut self.stats.padded_elements];
                for (sum, extents) in sums.into_iter().zip([extents, bucket]) {
                    *sum = sum.saturating_add(product(extents));
                }
            }
            None => self.stats.misses += u64::from(first),
        }
        found
    }
}

/// Lets those who wait know if a capture panics.
struct Panicked<'a, G>(&'a Shared<G>, &'a [u64]);

impl<G> Drop for Panicked<'_, G> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.finish(self.1, Err(Error::Interrupted));
        }
    }
}

impl<G> Shared<G> {
    fn lock(&self) -> MutexGuard<'_, Entries<G>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, bucket: &[u64], captured: Result<Arc<Entry<G>>>) {
        let mut gone = Vec::new();
        let mut entries = self.lock();
        match captured {
            Ok(entry) => {
                entries.stats.captures += 1;
                entries.stats.entries += 1;
                entries.stats.bytes += entry.bytes;
                entries.clock += 1;
                let used = entries.clock;
                entries.states.insert(bucket.into(), State::Ready(entry, used));
                while entries.stats.bytes > self.budget && entries.stats.entries > 1 {
                    gone.extend(entries.evict(bucket));
                }
            }
            Err(error) => {
                entries.stats.failures += 1;
                entries.states.insert(bucket.into(), State::Failed(error));
            }
        }
        drop(entries);
        self.changed.notify_all();
        drop(gone); // outside the lock: graphs and tensors go with them
    }
}

impl<G: Cached> Shared<G> {
    fn capture(&self, bucket: Vec<u64>) -> Result<Arc<Entry<G>>> {
        let panicked = Panicked(self, &bucket);
        let captured = (self.capture)(&bucket).map(|value| {
            let bytes = value.bytes();
            Arc::new(Entry { bucket: bucket.clone().into(), bytes, value: Mutex::new(value) })
        });
        drop(panicked);
        self.finish(&bucket, captured.clone());
        captured
    }
}

impl<G> Entries<G> {
    /// Takes out what was used longest ago, but not `keep`.
    fn evict(&mut self, keep: &[u64]) -> Option<Arc<Entry<G>>> {
        let ready = self.states.iter().filter_map(|(bucket, state)| match state {
            State::Ready(_, used) if **bucket != *keep => Some((*used, bucket.clone())),
            _ => None,
        });
        let (_, oldest) = ready.min()?;
        let Some(State::Ready(entry, _)) = self.states.remove(&oldest) else { return None };
        self.stats.entries -= 1;
        self.stats.bytes -= entry.bytes;
        self.stats.evictions += 1;
        Some(entry)
    }
}
