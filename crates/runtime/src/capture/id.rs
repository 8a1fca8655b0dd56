//! Logical streams: what a caller names, many of them folded onto few backend streams.

use std::sync::atomic::{AtomicU64, Ordering};

/// A stream as callers see it: a line of work of its own, whichever backend stream serves it.
///
/// Two logical streams share a backend stream if their values are equal modulo the device's number of streams. Every
/// thread has one of its own by [default](Self::current); whoever wants another names it, from any thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LogicalStreamId {
    /// The number.
    pub value: u64,
}

impl LogicalStreamId {
    /// The logical stream of the calling thread: a number that no other thread of the process gets, small and dense, so
    /// that threads spread evenly over the backend streams. O(1); the first call of a thread draws the number.
    ///
    /// ```
    /// use phonograph_runtime::capture::LogicalStreamId;
    ///
    /// let here = LogicalStreamId::current();
    /// assert_eq!(here, LogicalStreamId::current());
    /// let there = std::thread::spawn(LogicalStreamId::current).join().unwrap();
    /// assert_ne!(here, there);
    /// ```
    pub fn current() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        thread_local! {
            static OWN: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        Self { value: OWN.with(|own| *own) }
    }
}
