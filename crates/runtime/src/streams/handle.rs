//! The handles that callers hold: buffers, sealed graphs, scalars to be set.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use phonograph_graph::Scalar;

use super::template::Templates;
use crate::capture::CaptureError;
use crate::pool::{Place, Slice};

/// A buffer; never used twice in a process, since whoever records may be given buffers of several devices, to be refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BufferKey(pub u64);

impl BufferKey {
    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A sealed graph of a device; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GraphKey(pub u64);

/// What handles have of their device without its lock. They may be dropped anywhere, also where the device is locked, so
/// they only leave a note for it to take care of.
#[derive(Default)]
pub(super) struct Returns {
    notes: Mutex<Vec<Returned>>,
    templates: Templates,
}

#[derive(Debug)]
pub(super) enum Returned {
    Buffer { key: BufferKey, slice: Slice, bytes: u64 },
    Graph(GraphKey),
}

impl Returns {
    fn push(&self, returned: Returned) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(returned);
    }

    pub fn take(&self) -> Vec<Returned> {
        std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct BufferInner {
    key: BufferKey,
    name: Arc<str>,
    bytes: u64,
    slice: Slice,
    place: Place,
    returns: Arc<Returns>,
}

impl Drop for BufferInner {
    fn drop(&mut self) {
        let (key, slice, bytes) = (self.key, self.slice, self.bytes);
        self.returns.push(Returned::Buffer { key, slice, bytes });
    }
}

/// Memory of a device. Clones share it; it goes back to its pool when the last clone and the last operation that was
/// submitted with it are gone.
#[derive(Clone)]
pub struct Buffer(Arc<BufferInner>);

impl Buffer {
    pub(super) fn new(
        key: BufferKey,
        name: &str,
        bytes: u64,
        slice: Slice,
        place: Place,
        returns: &Arc<Returns>,
    ) -> Self {
        let (name, returns) = (name.into(), returns.clone());
        Self(Arc::new(BufferInner { key, name, bytes, slice, place, returns }))
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// The name it was allocated with.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(super) fn shared_name(&self) -> Arc<str> {
        self.0.name.clone()
    }

    /// Its identity.
    pub fn key(&self) -> BufferKey {
        self.0.key
    }

    /// Where it lies.
    pub fn slice(&self) -> Slice {
        self.0.slice
    }

    /// Whether it is memory of the device or of the host.
    pub fn place(&self) -> Place {
        self.0.place
    }

    /// The operations that its device knows.
    pub(super) fn templates(&self) -> &Templates {
        &self.0.returns.templates
    }

    pub(super) fn belongs_to(&self, returns: &Arc<Returns>) -> bool {
        Arc::ptr_eq(&self.0.returns, returns)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({}, {} bytes, {:?})", self.0.name, self.0.bytes, self.0.key)
    }
}

/// A scalar of one kind or another that is set before a replay. Clones are the same.
///
/// ```
/// use phonograph_runtime::streams::Slot;
///
/// let rate = Slot::new("learning rate", 0.1f32);
/// assert_eq!(rate.name(), "learning rate");
/// ```
#[derive(Clone)]
pub struct Slot(Arc<SlotInner>);

struct SlotInner {
    key: SlotKey,
    name: Arc<str>,
    default: Scalar,
}

/// A slot; never used twice in a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlotKey(pub u64);

impl Slot {
    /// A slot with the value that it has where none is set, which also says its type.
    pub fn new(name: &str, default: impl Into<Scalar>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let key = SlotKey(NEXT.fetch_add(1, Ordering::Relaxed));
        Self(Arc::new(SlotInner { key, name: name.into(), default: default.into() }))
    }

    /// The name it was made with.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// A name that no other slot has: a graph sets its own by name, and two here may have the same.
    pub fn unique_name(&self) -> String {
        format!("{} ({})", self.0.name, self.0.key.0)
    }

    /// The value where none is set.
    pub fn default_value(&self) -> Scalar {
        self.0.default
    }

    /// Its identity.
    pub fn key(&self) -> SlotKey {
        self.0.key
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({}, {:?})", self.0.name, self.0.default)
    }
}

/// The values of a graph's slots, by slot.
pub(super) type Values = Arc<BTreeMap<SlotKey, Scalar>>;

/// The sealed graph's share of its handles and of the launches under way.
pub(super) struct GraphToken {
    pub key: GraphKey,
    pub returns: Arc<Returns>,
    values: Mutex<Values>,
}

impl GraphToken {
    pub fn new(key: GraphKey, returns: &Arc<Returns>, slots: &[Slot]) -> Self {
        let values = slots.iter().map(|slot| (slot.key(), slot.default_value())).collect();
        Self { key, returns: returns.clone(), values: Mutex::new(Arc::new(values)) }
    }

    fn lock(&self) -> MutexGuard<'_, Values> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The values that a launch submitted now has.
    pub fn values(&self) -> Values {
        self.lock().clone()
    }

    pub fn set(&self, slot: &Slot, value: Scalar) -> Result<(), CaptureError> {
        assign(&mut self.lock(), slot, value)
    }
}

/// Sets a slot among the values of a graph.
pub(super) fn assign(values: &mut Values, slot: &Slot, value: Scalar) -> Result<(), CaptureError> {
    let wrong = |problem: String| CaptureError::Slot { slot: slot.name().into(), problem };
    let (expected, given) = (slot.default_value().dtype(), value.dtype());
    if expected != given {
        return Err(wrong(format!("it is of type {expected}, not {given}")));
    }
    let known = Arc::make_mut(values).get_mut(&slot.key());
    *known.ok_or_else(|| wrong("nothing in the graph uses it".into()))? = value;
    Ok(())
}

impl Drop for GraphToken {
    fn drop(&mut self) {
        self.returns.push(Returned::Graph(self.key));
    }
}
