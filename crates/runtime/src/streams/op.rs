//! Operations and the buffers they name, checked once when they are made.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use phonograph_graph::{
    Access, Arg, BufferId, GraphBuilder, NodeId, NodeKind, Pitched, Region, Target,
};

use crate::capture::CaptureError;
use crate::pool::Slice;

/// A buffer of a device; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BufferKey(pub u64);

/// A sealed graph of a device; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GraphKey(pub u64);

/// What handles leave behind for the device to take care of. They may be dropped anywhere, also where the device is
/// locked, so they only leave a note.
#[derive(Default, Debug)]
pub(super) struct Returns(Mutex<Vec<Returned>>);

#[derive(Debug)]
pub(super) enum Returned {
    Buffer { key: BufferKey, slice: Slice, bytes: u64 },
    Graph(GraphKey),
}

impl Returns {
    fn push(&self, returned: Returned) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(returned);
    }

    pub fn take(&self) -> Vec<Returned> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct BufferInner {
    key: BufferKey,
    name: Arc<str>,
    bytes: u64,
    slice: Slice,
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
        returns: &Arc<Returns>,
    ) -> Self {
        let (name, returns) = (name.into(), returns.clone());
        Self(Arc::new(BufferInner { key, name, bytes, slice, returns }))
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// The name it was allocated with.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its identity on the device.
    pub fn key(&self) -> BufferKey {
        self.0.key
    }

    /// Where it lies.
    pub fn slice(&self) -> Slice {
        self.0.slice
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

/// The sealed graph's share of its handles and of the launches under way.
pub(super) struct GraphToken {
    pub key: GraphKey,
    pub returns: Arc<Returns>,
}

impl Drop for GraphToken {
    fn drop(&mut self) {
        self.returns.push(Returned::Graph(self.key));
    }
}

/// How an operation uses one of its buffers, all parts taken together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Use {
    pub reads: bool,
    pub writes: bool,
    /// One access writes the whole buffer, and nothing of it is read.
    pub whole: bool,
}

/// A piece of work that is complete with its buffers: it runs at once, or becomes a node of a graph.
///
/// ```
/// use phonograph_graph::{Access, Arg, BufferId, DType, Expr, KernelConfig, KernelNode, KernelRef, NodeKind, View};
/// use phonograph_runtime::cpu::{Cpu, kernels::Registry};
/// use phonograph_runtime::streams::{Device, Operation, SoftwareCpu};
///
/// let device = Device::new(SoftwareCpu::new(Cpu::new(1)?, Registry::new()), 4)?;
/// let stream = device.stream();
/// let x = stream.alloc("x", 16)?;
/// stream.write(&x, &[0; 16])?;
/// // Buffer 0 of the operation is the first of its buffers, here x.
/// let view = View::contiguous(BufferId(0), DType::F32, &[4])?;
/// let kernel = KernelNode {
///     kernel: KernelRef::Elementwise(Expr::build(|e| e.output(e.input(DType::F32) + e.f32(1.0)))?.into()),
///     config: KernelConfig::linear(1, 1, 0),
///     args: [Arg::View(view, Access::Read), Arg::View(view, Access::Write)].into(),
///     fusible: true,
/// };
/// stream.submit(&Operation::new("add one", NodeKind::Kernel(kernel), &[x.clone()])?)?;
/// assert_eq!(stream.read(&x)?, [1.0f32; 4].map(f32::to_le_bytes).as_flattened());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Operation {
    name: Arc<str>,
    kind: NodeKind,
    buffers: Box<[Buffer]>,
    uses: Box<[Use]>,
}

impl Operation {
    /// An operation whose buffer number `n`, as `kind` has it, is `buffers[n]`.
    ///
    /// It touches nothing but its buffers; where the kind does not tell how, it is taken to read and write them all.
    ///
    /// # Errors
    /// [`CaptureError::Operation`] for a kind that is not one piece of work (child graphs, conditionals, allocations,
    /// events), that names memory by address or a slot, or that would not do as a node: a buffer that is not there, a
    /// region out of bounds, operands that a kernel does not take.
    pub fn new(name: &str, kind: NodeKind, buffers: &[Buffer]) -> Result<Self, CaptureError> {
        let wrong = |problem: String| CaptureError::Operation { operation: name.into(), problem };
        let count = buffers.len();
        let checked = remap(&kind, |id| (id.index() < count).then_some((id, 0)));
        let kind = checked.map_err(|problem| wrong(problem.into()))?;
        let mut builder = GraphBuilder::new();
        for buffer in buffers {
            let bytes = usize::try_from(buffer.bytes()).map_err(|e| wrong(e.to_string()))?;
            builder.external_buffer(buffer.name(), bytes);
        }
        builder.add(name, kind.clone());
        let graph = builder.build().map_err(|e| wrong(e.to_string()))?;
        let effects = graph.effects(NodeId(0));
        let uses = match effects.known() {
            Some(regions) => uses(buffers, regions),
            None => vec![Use { reads: true, writes: true, whole: false }; count],
        };
        Ok(Self { name: name.into(), kind, buffers: buffers.into(), uses: uses.into() })
    }

    /// Its name, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it does; buffer `n` is the `n`th of its buffers.
    pub fn kind(&self) -> &NodeKind {
        &self.kind
    }

    /// Its buffers.
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    pub(super) fn uses(&self) -> impl Iterator<Item = (&Buffer, Use)> {
        self.buffers.iter().zip(self.uses.iter().copied())
    }

    pub(super) fn written(&self) -> impl Iterator<Item = BufferKey> {
        self.uses().filter(|(_, used)| used.writes).map(|(buffer, _)| buffer.key())
    }

    /// The kind with buffers numbered anew: `place` gives each its number and the byte at which it starts there.
    pub(super) fn placed(&self, place: impl Fn(&Buffer) -> (BufferId, u64)) -> NodeKind {
        let kind = remap(&self.kind, |id| self.buffers.get(id.index()).map(&place));
        kind.unwrap_or_else(|_| unreachable!("`new` has mapped every buffer of it"))
    }
}

pub(super) fn uses(buffers: &[Buffer], regions: &[(Region, Access)]) -> Vec<Use> {
    let mut uses = vec![Use::default(); buffers.len()];
    for (region, access) in regions {
        let at = region.buffer.index();
        uses[at].reads |= access.reads();
        uses[at].writes |= access.writes();
        uses[at].whole |= access.writes() && region.bytes == buffers[at].bytes();
    }
    for used in &mut uses {
        used.whole &= !used.reads;
    }
    uses
}

/// `kind` with every buffer replaced by what `map` says: its number and an offset to add.
pub(super) fn remap(
    kind: &NodeKind,
    map: impl Fn(BufferId) -> Option<(BufferId, u64)>,
) -> Result<NodeKind, &'static str> {
    const MISSING: &str = "it names a buffer that it was not given";
    let region = |region: Region| {
        let (buffer, by) = map(region.buffer).ok_or(MISSING)?;
        Ok::<_, &'static str>(Region { buffer, offset: region.offset.saturating_add(by), ..region })
    };
    let pitched = |end: Pitched| {
        let Target::Buffer(buffer) = end.target else {
            return Err("it names memory that is no buffer of this device");
        };
        let (buffer, by) = map(buffer).ok_or(MISSING)?;
        let target = Target::Buffer(buffer);
        Ok(Pitched { target, offset: end.offset.saturating_add(by), ..end })
    };
    Ok(match kind {
        NodeKind::Kernel(kernel) => {
            let args = kernel.args.iter().map(|arg| {
                Ok(match *arg {
                    Arg::Scalar(_) => *arg,
                    Arg::Slot(_) => return Err("it names a slot; a submitted operation has none"),
                    Arg::View(mut view, access) => {
                        let (buffer, by) = map(view.buffer).ok_or(MISSING)?;
                        view.buffer = buffer;
                        view.offset = view.offset.saturating_add(by);
                        Arg::View(view, access)
                    }
                    Arg::Region(bytes, access) => Arg::Region(region(bytes)?, access),
                })
            });
            let args = args.collect::<Result<_, &'static str>>()?;
            let mut kernel = kernel.clone();
            kernel.args = args;
            NodeKind::Kernel(kernel)
        }
        NodeKind::Memcpy(copy) => {
            let mut copy = copy.clone();
            (copy.src, copy.dst) = (pitched(copy.src)?, pitched(copy.dst)?);
            NodeKind::Memcpy(copy)
        }
        NodeKind::Memset(fill) => {
            let mut fill = fill.clone();
            fill.dst = pitched(fill.dst)?;
            NodeKind::Memset(fill)
        }
        NodeKind::Host(host) => {
            let mut host = host.clone();
            for (bytes, _) in &mut host.effects {
                *bytes = region(*bytes)?;
            }
            NodeKind::Host(host)
        }
        NodeKind::Empty => NodeKind::Empty,
        NodeKind::Child(_) | NodeKind::Conditional(_) => {
            return Err("it has graphs inside; submit their operations one by one");
        }
        NodeKind::Alloc(_) | NodeKind::Free(_) => {
            return Err("it allocates or frees; memory comes from the stream");
        }
        NodeKind::EventRecord(_) | NodeKind::EventWait(_) => {
            return Err("events of other graphs mean nothing on a shared stream");
        }
    })
}
