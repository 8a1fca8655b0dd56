//! What the nodes of a graph do on the CPU.
//!
//! A node is prepared once, when a graph is instantiated ([`Prepared::new`]), and then run any number of times over raw
//! host memory. A prepared node is immutable; running it takes no lock and (but for the packing of matrix products, and
//! on failure) allocates nothing. It says what it needs:
//!
//! - [`buffers`](Prepared::buffers): the buffer of each memory operand. A run is given the address of the *first byte of
//!   each buffer*, in this order; offsets and strides are the kernel's own business.
//! - [`scalars`](Prepared::scalars): where each scalar comes from, a constant or a slot. A run is given the values.
//! - [`tiles`](Prepared::tiles): how many parts the work has, at least one. Where they lie depends on shapes alone; they
//!   may run in any order, on any worker, at the same time, and the result is the same bits.
//! - [`finish`](Prepared::finish) is called once, after all tiles, when [`needs_finish`](Prepared::needs_finish) says so.
//! - [`scratch_bytes`](Prepared::scratch_bytes) of memory for each worker, shared by all nodes that it runs, and
//!   [`workspace_bytes`](Prepared::workspace_bytes) of memory for each node, shared by all its tiles.
//! - [`cost_ns`](Prepared::cost_ns): about how long it takes on one core, to decide what is worth splitting.
//!
//! ```
//! use phonograph_graph::{Arg, Expr, DType, GraphBuilder, Scalar, View};
//! use phonograph_runtime::cpu::kernels::{Operands, Prepared, Registry, Scratch};
//!
//! let expr = Expr::build(|e| {
//!     let (x, a) = (e.input(DType::F32), e.param(DType::F32));
//!     e.output(x * a);
//! })?;
//! let mut b = GraphBuilder::new();
//! let (x, y) = (b.external_buffer("x", 12), b.external_buffer("y", 12));
//! let view = |buffer| View::contiguous(buffer, DType::F32, &[3]);
//! let node = b.add_elementwise("scale", expr.into(), &[view(x)?], &[Arg::Scalar(Scalar::F32(2.0))], &[view(y)?]);
//! let graph = b.build()?;
//!
//! let scale = Prepared::new(&graph, node, &Registry::new())?.expect("an elementwise node has work");
//! let (mut x, mut y) = ([1.0f32, 2.0, 3.0], [0.0f32; 3]);
//! let mut scratch = Scratch::new(scale.scratch_bytes());
//! let on = Operands {
//!     buffers: &[x.as_mut_ptr().cast(), y.as_mut_ptr().cast()],
//!     scalars: &[Scalar::F32(2.0)],
//!     workspace: std::ptr::null_mut(), // none is needed
//! };
//! // SAFETY: both buffers hold 12 bytes, aligned for f32, and are used by nothing else.
//! unsafe { scale.run(&on, 0..scale.tiles(), &mut scratch)? };
//! assert_eq!(y, [2.0, 4.0, 6.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod chain;
mod chains;
mod compile;
mod copy;
mod element;
mod elementwise;
mod error;
mod fold;
mod layout;
mod math;
mod matmul;
mod ops;
mod part;
mod philox;
mod reduce;
mod rows;
mod scratch;
mod simd;
mod spin;
mod storage;
mod tensor;
#[cfg(test)]
mod tests;
mod user;
mod values;

use std::fmt;
use std::ops::Range;

use phonograph_graph::{
    Arg, BufferId, ComputeGraph, KernelNode, KernelRef, LibraryKernel, NodeId, NodeKind, Scalar,
    SlotId, View,
};

pub use element::Element;
pub use error::{ArgumentProblem, KernelError, PrepareError};
pub use scratch::Scratch;
pub use spin::spin;
pub use tensor::Operands;
pub use user::{Block, FnKernel, Param, Registry};

/// Tiles aim at this, where the work can be cut: long enough that handing one out is cheap, short enough to balance.
const TARGET_TILE_NS: u64 = 20_000;

/// Where the value of a scalar argument comes from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ScalarSource {
    /// Baked into the graph.
    Constant(Scalar),
    /// Set by the user before a replay.
    Slot(SlotId),
}

/// A node, ready to run. See the [module documentation](self).
pub struct Prepared {
    work: Work,
    buffers: Box<[BufferId]>,
    scalars: Box<[ScalarSource]>,
}

enum Work {
    Elementwise(elementwise::Elementwise),
    Reduce(reduce::Reduce),
    MatMul(matmul::MatMul),
    Gather(rows::Gather),
    ScatterAdd(rows::ScatterAdd),
    Function(user::FnNode),
    Copy(copy::Copy),
    Fill(copy::Fill),
}

/// Calls a method that every kind of work has.
macro_rules! each_work {
    ($work:expr, $w:ident => $call:expr) => {
        match $work {
            Work::Elementwise($w) => $call,
            Work::Reduce($w) => $call,
            Work::MatMul($w) => $call,
            Work::Gather($w) => $call,
            Work::ScatterAdd($w) => $call,
            Work::Function($w) => $call,
            Work::Copy($w) => $call,
            Work::Fill($w) => $call,
        }
    };
}

impl Prepared {
    /// Prepares a kernel, copy, fill or host node; `None` for nodes that have no work of their own (empty, events,
    /// allocation, inner graphs). O(operations of the expression).
    ///
    /// # Panics
    /// If the id is not of this graph.
    ///
    /// # Errors
    /// [`PrepareError`] for a function that is not registered, and for arguments that it does not accept.
    pub fn new(
        graph: &ComputeGraph,
        node: NodeId,
        registry: &Registry,
    ) -> Result<Option<Self>, PrepareError> {
        let (work, buffers, args) = match &graph.node(node).kind {
            NodeKind::Kernel(kernel) => {
                let (work, buffers) = prepare_kernel(kernel, registry)?;
                (work, buffers, &*kernel.args)
            }
            NodeKind::Memcpy(copy) => {
                let (copy, buffers) = copy::Copy::new(copy)?;
                (Work::Copy(copy), buffers.to_vec(), &[] as &[Arg])
            }
            NodeKind::Memset(fill) => {
                let (fill, buffer) = copy::Fill::new(fill)?;
                (Work::Fill(fill), vec![buffer], &[] as &[Arg])
            }
            NodeKind::Host(host) => {
                let (function, buffers) = user::FnNode::host(host, registry)?;
                (Work::Function(function), buffers, &[] as &[Arg])
            }
            NodeKind::Empty
            | NodeKind::EventRecord(_)
            | NodeKind::EventWait(_)
            | NodeKind::Alloc(_)
            | NodeKind::Free(_)
            | NodeKind::Child(_)
            | NodeKind::Conditional(_) => return Ok(None),
        };
        let scalars = args.iter().filter_map(|arg| match *arg {
            Arg::Scalar(value) => Some(ScalarSource::Constant(value)),
            Arg::Slot(slot) => Some(ScalarSource::Slot(slot)),
            Arg::View(..) | Arg::Region(..) => None,
        });
        Ok(Some(Self { work, buffers: buffers.into(), scalars: scalars.collect() }))
    }

    /// The buffer of each memory operand, in argument order; of a copy, source and destination.
    pub fn buffers(&self) -> &[BufferId] {
        &self.buffers
    }

    /// Where the scalar arguments come from, in argument order.
    pub fn scalars(&self) -> &[ScalarSource] {
        &self.scalars
    }

    /// How many tiles there are; at least one.
    pub fn tiles(&self) -> u32 {
        each_work!(&self.work, w => w.tiles())
    }

    /// About how long all tiles take on one core, in nanoseconds.
    pub fn cost_ns(&self) -> u64 {
        each_work!(&self.work, w => w.cost_ns())
    }

    /// Memory that each worker needs to run this.
    pub fn scratch_bytes(&self) -> usize {
        match &self.work {
            Work::Elementwise(elementwise) => elementwise.scratch_bytes(),
            Work::Reduce(reduce) => reduce.scratch_bytes(),
            Work::MatMul(matmul) => matmul.scratch_bytes(),
            _ => 0,
        }
    }

    /// Memory that this node's tiles share, aligned to 16 bytes; not kept between runs.
    pub fn workspace_bytes(&self) -> usize {
        match &self.work {
            Work::Reduce(reduce) => reduce.workspace_bytes(),
            Work::MatMul(matmul) => matmul.workspace_bytes(),
            _ => 0,
        }
    }

    /// Whether [`finish`](Self::finish) does anything.
    pub fn needs_finish(&self) -> bool {
        matches!(&self.work, Work::Reduce(reduce) if reduce.needs_finish())
    }

    /// Runs some tiles.
    ///
    /// # Errors
    /// A row number out of range, or what a registered function reports. The run as a whole has then failed.
    ///
    /// # Safety
    /// - `on.buffers` has an entry for each of [`buffers`](Self::buffers): initialised memory, aligned for the types of
    ///   the operands (8 bytes are enough for all), of at least the buffer's declared size, in which different buffers do
    ///   not overlap where this node uses them.
    /// - `on.scalars` has an entry for each of [`scalars`](Self::scalars), of the declared type, the same in all tiles.
    /// - `on.workspace` is [`workspace_bytes`](Self::workspace_bytes) of memory aligned to 16 bytes, this run's alone.
    /// - Between the start of a run's first tile and its end, nothing else writes what this node reads, or touches what
    ///   it writes.
    /// - Each tile runs at most once in a run.
    ///
    /// # Panics
    /// If there are fewer operands than this, or if `scratch` is too small.
    pub unsafe fn run(
        &self,
        on: &Operands<'_>,
        tiles: Range<u32>,
        scratch: &mut Scratch,
    ) -> Result<(), KernelError> {
        // SAFETY: the caller's promises are those of each kind of work; that operands lie within their buffers and do not
        // overlap was checked when the graph was built, and here for registered functions and copies.
        unsafe {
            match &self.work {
                Work::Elementwise(elementwise) => elementwise.run(on, tiles, scratch),
                Work::Reduce(reduce) => reduce.run(on, tiles, scratch),
                Work::MatMul(matmul) => matmul.run(on, tiles, scratch),
                Work::Copy(copy) => copy.run(on, tiles),
                Work::Fill(fill) => fill.run(on, tiles),
                Work::Gather(gather) => return gather.run(on, tiles),
                Work::ScatterAdd(scatter) => return scatter.run(on, tiles),
                Work::Function(function) => return function.run(on, tiles),
            }
        }
        Ok(())
    }

    /// Completes a run whose tiles have all run: one long reduction combines its partial results.
    ///
    /// # Safety
    /// As for [`run`](Self::run), with the same operands; every tile of this run is complete, and visible to this thread.
    pub unsafe fn finish(&self, on: &Operands<'_>) {
        if let Work::Reduce(reduce) = &self.work {
            // SAFETY: the caller's promise.
            unsafe { reduce.finish(on) }
        }
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.work {
            Work::Elementwise(_) => "elementwise",
            Work::Reduce(_) => "reduce",
            Work::MatMul(_) => "matmul",
            Work::Gather(_) => "gather",
            Work::ScatterAdd(_) => "scatter_add",
            Work::Function(_) => "function",
            Work::Copy(_) => "copy",
            Work::Fill(_) => "fill",
        };
        f.debug_struct("Prepared")
            .field("work", &kind)
            .field("buffers", &self.buffers)
            .field("scalars", &self.scalars)
            .field("tiles", &self.tiles())
            .finish()
    }
}

fn prepare_kernel(
    kernel: &KernelNode,
    registry: &Registry,
) -> Result<(Work, Vec<BufferId>), PrepareError> {
    let views: Vec<View> = kernel.args.iter().filter_map(Arg::view).copied().collect();
    let work = match &kernel.kernel {
        KernelRef::Named(name) => {
            let (function, buffers) = user::FnNode::kernel(name, kernel, registry)?;
            return Ok((Work::Function(function), buffers));
        }
        KernelRef::Elementwise(expr) => {
            Work::Elementwise(elementwise::Elementwise::new(expr, &views)?)
        }
        KernelRef::Library(LibraryKernel::Reduce { op, axis }) => {
            Work::Reduce(reduce::Reduce::new(*op, usize::from(*axis), &views[0], &views[1])?)
        }
        KernelRef::Fused(fused) => match fused.library {
            LibraryKernel::Reduce { op, axis } => {
                Work::Reduce(reduce::Reduce::fused(fused, op, usize::from(axis), &views)?)
            }
            LibraryKernel::MatMul => Work::MatMul(matmul::MatMul::fused(fused, &views)?),
            other => unreachable!("graphs have no fused {}", other.name()),
        },
        KernelRef::Library(LibraryKernel::MatMul) => Work::MatMul(matmul::MatMul::new(&views)?),
        KernelRef::Library(LibraryKernel::Gather) => Work::Gather(rows::Gather::new(&views)?),
        KernelRef::Library(LibraryKernel::ScatterAdd) => {
            Work::ScatterAdd(rows::ScatterAdd::new(&views)?)
        }
    };
    Ok((work, views.iter().map(|v| v.buffer).collect()))
}
