//! Nodes: one operation each, with everything a backend needs to perform it.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::{
    Access, BufferId, ComputeGraph, EventId, Expr, FusedKernel, LibraryKernel, Region, Scalar,
    SlotId, StreamId, View,
};

/// Three extents, x first, as launch configurations give them.
pub type Dim3 = (u32, u32, u32);

/// How a kernel is launched.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KernelConfig {
    /// Blocks along x, y, z.
    pub grid: Dim3,
    /// Threads of a block along x, y, z.
    pub block: Dim3,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_mem_bytes: u32,
    /// Blocks of a cluster along x, y, z; all 1 for none.
    pub cluster: Dim3,
    /// Whether all blocks must be resident at once.
    pub cooperative: bool,
    /// Launch priority; lower numbers go first, 0 is the default.
    pub priority: i32,
}

impl KernelConfig {
    /// A one-dimensional launch: `blocks` × `threads`, `shared` bytes of dynamic shared memory.
    pub const fn linear(blocks: u32, threads: u32, shared: u32) -> Self {
        Self::new((blocks, 1, 1), (threads, 1, 1), shared)
    }

    /// A launch in three dimensions.
    pub const fn new(grid: Dim3, block: Dim3, shared_mem_bytes: u32) -> Self {
        let cluster = (1, 1, 1);
        Self { grid, block, shared_mem_bytes, cluster, cooperative: false, priority: 0 }
    }

    /// The configuration of a kernel whose launch a file does not tell. No backend runs it.
    pub const fn unknown() -> Self {
        Self::new((0, 0, 0), (0, 0, 0), 0)
    }

    /// Whether the launch is known. Attributes may be known where it is not.
    pub fn is_known(&self) -> bool {
        (self.grid, self.block) != ((0, 0, 0), (0, 0, 0))
    }

    /// Number of blocks.
    pub const fn blocks(&self) -> u64 {
        volume(self.grid)
    }

    /// Number of threads in a block.
    pub const fn threads(&self) -> u64 {
        volume(self.block)
    }
}

// Saturating: extents come from files, and three of them can exceed 64 bits.
const fn volume((x, y, z): Dim3) -> u64 {
    (x as u64 * y as u64).saturating_mul(z as u64)
}

impl fmt::Display for KernelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dim = |f: &mut fmt::Formatter<'_>, d: Dim3| match d {
            (x, 1, 1) => write!(f, "{x}"),
            (x, y, 1) => write!(f, "{x}×{y}"),
            (x, y, z) => write!(f, "{x}×{y}×{z}"),
        };
        if !self.is_known() {
            return f.write_str("launch unknown");
        }
        dim(f, self.grid)?;
        f.write_str(" blocks of ")?;
        dim(f, self.block)?;
        if self.shared_mem_bytes > 0 {
            write!(f, ", {} B shared", self.shared_mem_bytes)?;
        }
        Ok(())
    }
}

/// What code a kernel node runs.
#[derive(Clone, PartialEq, Debug)]
pub enum KernelRef {
    /// A function that the backend finds by name: in a module on a GPU, in a registry on the CPU.
    Named(Arc<str>),
    /// An elementwise expression; views are its inputs then its outputs, scalars its parameters.
    Elementwise(Arc<Expr>),
    /// A kernel of the library.
    Library(LibraryKernel),
    /// A kernel of the library with expressions before and after it.
    Fused(Arc<FusedKernel>),
}

impl KernelRef {
    /// A short name for people.
    pub fn name(&self) -> &str {
        match self {
            KernelRef::Named(name) => name,
            KernelRef::Elementwise(_) => "elementwise",
            KernelRef::Library(kernel) => kernel.name(),
            KernelRef::Fused(fused) => fused.library.name(),
        }
    }
}

/// An argument of a kernel.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Arg {
    /// A value, baked into the graph.
    Scalar(Scalar),
    /// A value that the user sets before a replay.
    Slot(SlotId),
    /// A tensor.
    View(View, Access),
    /// Untyped bytes.
    Region(Region, Access),
}

impl Arg {
    /// The view, of an argument that is one.
    pub fn view(&self) -> Option<&View> {
        match self {
            Arg::View(view, _) => Some(view),
            _ => None,
        }
    }

    /// The memory that this argument lets the kernel touch.
    pub fn effect(&self) -> Option<(Region, Access)> {
        match *self {
            Arg::View(view, access) => {
                let region = view.region();
                // A view with gaps leaves the bytes between its elements as they were.
                let gaps = region.bytes != view.elements() * view.dtype.size();
                let partial = access == Access::Write && gaps;
                Some((region, if partial { Access::ReadWrite } else { access }))
            }
            Arg::Region(region, access) => Some((region, access)),
            Arg::Scalar(_) | Arg::Slot(_) => None,
        }
    }
}

/// A kernel launch.
#[derive(Clone, PartialEq, Debug)]
pub struct KernelNode {
    /// The code.
    pub kernel: KernelRef,
    /// The launch. For expressions and library kernels a suggestion: backends choose their own.
    pub config: KernelConfig,
    /// The arguments in order.
    pub args: Box<[Arg]>,
    /// Whether planners may merge it with its neighbours.
    pub fusible: bool,
}

/// Direction of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)] // Source and destination, as named.
pub enum MemcpyDir {
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    HostToHost,
    /// Between two devices.
    PeerToPeer {
        src_device: u32,
        dst_device: u32,
    },
}

impl fmt::Display for MemcpyDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemcpyDir::HostToDevice => f.write_str("HtoD"),
            MemcpyDir::DeviceToHost => f.write_str("DtoH"),
            MemcpyDir::DeviceToDevice => f.write_str("DtoD"),
            MemcpyDir::HostToHost => f.write_str("HtoH"),
            MemcpyDir::PeerToPeer { src_device, dst_device } => {
                write!(f, "PtoP {src_device}→{dst_device}")
            }
        }
    }
}

/// What memory an end of a copy or a memset names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// A declared buffer.
    Buffer(BufferId),
    /// A raw address, in a graph from elsewhere.
    Address(u64),
    /// Not said: a copy of which only the size is known.
    Unspecified,
}

/// One end of a copy, or the destination of a memset.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pitched {
    /// The memory.
    pub target: Target,
    /// Byte offset of the first byte.
    pub offset: u64,
    /// Bytes from one row to the next.
    pub pitch: u64,
    /// Rows from one slice to the next.
    pub slice_rows: u64,
}

impl Pitched {
    /// Plain bytes from `offset` on.
    pub const fn linear(target: Target, offset: u64) -> Self {
        Self { target, offset, pitch: 0, slice_rows: 0 }
    }

    /// The smallest byte range that holds `extent`, or `None` where the target is no declared buffer.
    pub fn region(&self, extent: Extent) -> Option<Region> {
        let Target::Buffer(buffer) = self.target else { return None };
        let bytes = if extent.bytes() == 0 {
            0
        } else {
            let slices = (extent.depth - 1).saturating_mul(self.slice_rows);
            let rows = slices.saturating_add(extent.height - 1);
            rows.saturating_mul(self.pitch).saturating_add(extent.width)
        };
        Some(Region { buffer, offset: self.offset, bytes })
    }
}

/// Extent of a copy or memset: bytes of a row, rows, slices.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Extent {
    /// Bytes in a row.
    pub width: u64,
    /// Rows in a slice.
    pub height: u64,
    /// Slices.
    pub depth: u64,
}

impl Extent {
    /// `bytes` in one row.
    pub const fn linear(bytes: u64) -> Self {
        Self { width: bytes, height: 1, depth: 1 }
    }

    /// Bytes in all.
    pub const fn bytes(&self) -> u64 {
        self.width.saturating_mul(self.height).saturating_mul(self.depth)
    }
}

/// A copy of up to three dimensions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MemcpyNode {
    /// Direction.
    pub dir: MemcpyDir,
    /// From.
    pub src: Pitched,
    /// To.
    pub dst: Pitched,
    /// How much.
    pub extent: Extent,
}

impl MemcpyNode {
    /// Whether its ends may share a byte. Columns of the same rows are told apart, blocks of other shapes are not.
    pub fn overlaps_itself(&self) -> bool {
        let Self { src, dst, extent, .. } = *self;
        let (Some(from), Some(to)) = (src.region(extent), dst.region(extent)) else { return false };
        if from.bytes == 0 || !from.overlaps(&to) {
            return false;
        }
        let pitch = src.pitch;
        if extent.height == 1 && extent.depth == 1 || pitch != dst.pitch || pitch == 0 {
            return true;
        }
        // Apart if the bytes are apart within a row, all the way round.
        let apart = (dst.offset % pitch + pitch - src.offset % pitch) % pitch;
        apart < extent.width || pitch - apart < extent.width
    }
}

/// A fill with a repeated pattern of 1, 2 or 4 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MemsetNode {
    /// What to fill.
    pub dst: Pitched,
    /// The pattern, in its low `element_size` bytes.
    pub value: u32,
    /// Bytes of the pattern: 1, 2 or 4; 0 in a graph from elsewhere that tells neither it nor what is filled.
    pub element_size: u8,
    /// How much, in bytes.
    pub extent: Extent,
}

/// A call of a host function.
#[derive(Clone, PartialEq, Debug)]
pub struct HostNode {
    /// The function, found by the backend in its registry; empty in a graph from elsewhere that does not tell.
    pub function: Arc<str>,
    /// What it touches; empty means that nothing is known.
    pub effects: SmallVec<[(Region, Access); 2]>,
}

/// Which kind of conditional.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ConditionalKind {
    /// One body, or two (then, else): the first runs if the value is not 0, the second if it is.
    If,
    /// One body, run again as long as the value is not 0.
    While,
    /// Body number `value` runs; none if there are fewer.
    Switch,
}

impl ConditionalKind {
    /// The name used in files and pictures.
    pub const fn name(self) -> &'static str {
        match self {
            ConditionalKind::If => "if",
            ConditionalKind::While => "while",
            ConditionalKind::Switch => "switch",
        }
    }
}

/// What a conditional decides by.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Condition {
    /// One element (i32, u32, u8 or bool) in device memory, read when the node is reached, and for a
    /// `while` after each run of its body.
    Value(View),
    /// A driver's conditional handle, in a graph from elsewhere; 0 where it is not told.
    Handle(u64),
}

/// A conditional node.
#[derive(Clone, PartialEq, Debug)]
pub struct ConditionalNode {
    /// Which kind.
    pub kind: ConditionalKind,
    /// What decides.
    pub condition: Condition,
    /// The bodies.
    pub bodies: Vec<ComputeGraph>,
}

/// What a node does.
#[derive(Clone, PartialEq, Debug)]
pub enum NodeKind {
    /// A kernel launch.
    Kernel(KernelNode),
    /// A copy.
    Memcpy(Box<MemcpyNode>),
    /// A fill.
    Memset(Box<MemsetNode>),
    /// A host callback.
    Host(Box<HostNode>),
    /// Nothing: a point that others are ordered by.
    Empty,
    /// Records an event that work outside the graph can wait for.
    EventRecord(EventId),
    /// Waits for an event that work outside the graph records.
    EventWait(EventId),
    /// Allocates the memory of a buffer.
    Alloc(BufferId),
    /// Frees it.
    Free(BufferId),
    /// A whole graph as one node.
    Child(Box<ComputeGraph>),
    /// Bodies that run or not, by a value in device memory.
    Conditional(Box<ConditionalNode>),
}

impl NodeKind {
    /// The kind's name, as counted in reports.
    pub const fn name(&self) -> &'static str {
        match self {
            NodeKind::Kernel(_) => "kernel",
            NodeKind::Memcpy(_) => "memcpy",
            NodeKind::Memset(_) => "memset",
            NodeKind::Host(_) => "host",
            NodeKind::Empty => "empty",
            NodeKind::EventRecord(_) => "event_record",
            NodeKind::EventWait(_) => "event_wait",
            NodeKind::Alloc(_) => "mem_alloc",
            NodeKind::Free(_) => "mem_free",
            NodeKind::Child(_) => "child_graph",
            NodeKind::Conditional(_) => "conditional",
        }
    }

    /// Whether there are graphs inside.
    pub const fn has_inner_graphs(&self) -> bool {
        matches!(self, NodeKind::Child(_) | NodeKind::Conditional(_))
    }

    /// The graphs inside: a child graph, or the bodies of a conditional.
    pub fn inner_graphs(&self) -> &[ComputeGraph] {
        match self {
            NodeKind::Child(graph) => std::slice::from_ref(graph),
            NodeKind::Conditional(conditional) => &conditional.bodies,
            _ => &[],
        }
    }
}

/// A node of a graph.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// For people; kernels by name keep the function's name here.
    pub name: Arc<str>,
    /// What it does.
    pub kind: NodeKind,
    /// The stream that it was recorded on, if it was recorded.
    pub stream: Option<StreamId>,
}

impl Node {
    /// The kernel, if it is one.
    pub fn kernel(&self) -> Option<&KernelNode> {
        match &self.kind {
            NodeKind::Kernel(kernel) => Some(kernel),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ends_overlap_where_they_share_a_byte() {
        let end = |offset, pitch| Pitched {
            target: Target::Buffer(BufferId(0)),
            offset,
            pitch,
            slice_rows: 3,
        };
        let bytes = |from: Pitched, extent: Extent| -> HashSet<u64> {
            let of = |slice, row| from.offset + (slice * from.slice_rows + row) * from.pitch;
            let rows = |slice| (0..extent.height).map(move |row| of(slice, row));
            let starts = (0..extent.depth).flat_map(rows);
            starts.flat_map(|start| start..start + extent.width).collect()
        };
        let mut shared = 0;
        for place in 0..20u64 * 20 * 6 * 3 * 3 * 2 {
            let mut rest = place;
            let mut below = |n| {
                let digit = rest % n;
                rest /= n;
                digit
            };
            let (from, to) = (below(20), below(20));
            let extent = Extent { width: below(6), height: 1 + below(3), depth: 1 + below(3) };
            let (src, dst) = (end(from, 5), end(to, 5 + below(2)));
            let copy = MemcpyNode { dir: MemcpyDir::DeviceToDevice, src, dst, extent };
            let is_shared = !bytes(src, extent).is_disjoint(&bytes(dst, extent));
            // Exact for columns of one matrix, true in doubt.
            let columns = src.pitch == dst.pitch && extent.depth == 1;
            let told = copy.overlaps_itself();
            assert!(if columns { told == is_shared } else { told || !is_shared }, "{copy:?}");
            shared += u32::from(is_shared);
        }
        assert!(shared > 1000);
    }
}
