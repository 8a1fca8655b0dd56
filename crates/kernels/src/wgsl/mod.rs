//! Kernels as WGSL text.
//!
//! In: a kernel node whose code is an expression or of the library, and which storage binding each operand lies in. Out:
//! source, launch and the words of its uniform block. Nothing is compiled and nothing is run here. Shapes, strides and
//! offsets are words of the block, so nodes that differ in nothing else share their source.
//!
//! # Memory
//!
//! A binding is an array of 32-bit words, and operands that lie in one buffer share one binding: WebGPU allows no
//! buffer to be read-only and written in one dispatch, and no two writable bindings to overlap. A view starts at an
//! element offset that is a word of the block, so it need not be aligned to more than its element. Elements of 8 and 16 bits
//! are parts of words; a thread that stores one clears and sets its bits with two atomic operations, so that neighbours
//! do not lose theirs. That costs more than a plain store, which is the price for f16, bf16, u8 and bool at any offset
//! and stride without extensions.
//!
//! # What the results are
//!
//! Integers, conversions, copies and the order of every sum are those of the CPU backend. Float arithmetic is what
//! WGSL promises and no more: additions and products are correctly rounded but may be contracted, a division may be 2.5
//! units of the last place off, subnormals may be zero, and NaN and infinity arise and pass as the device has them. exp,
//! log, tanh and erf are the CPU's algorithms in that arithmetic. There is no f64 and no i64.
//!
//! ```
//! use phonograph_graph::{DType, Expr, GraphBuilder, View};
//! use phonograph_kernels::wgsl;
//!
//! let mut b = GraphBuilder::new();
//! let x = b.external_buffer("x", 4096);
//! let x = View::contiguous(x, DType::F32, &[1024])?;
//! let double = Expr::build(|e| { let x = e.input(DType::F32); e.output(x + x) })?;
//! let node = b.add_elementwise("double", double.into(), &[x], &[], &[x]);
//! let graph = b.build()?;
//! // Both operands lie in one buffer, so they share binding 0.
//! let kernel = wgsl::kernel(graph.node(node).kernel().expect("it is a kernel"), &[0, 0])?;
//! assert!(kernel.source.contains("@compute"));
//! assert_eq!(kernel.groups, 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod block;
mod code;
mod elementwise;
mod index;
mod matmul;
mod operand;
mod prelude;
mod reduce;
mod rows;

use phonograph_graph::{Arg, DType, FusedKernel, KernelNode, KernelRef, LibraryKernel, View};

use block::Block;
pub use block::Word;
use operand::Operands;

/// The name of the entry point in every source.
pub const ENTRY: &str = "phonograph_kernel";

/// Words of 32 bits in a fault record: 0, or 1 once there was a fault; then the number that identifies the node, the
/// position in the list of row numbers, and the row number found there. Only the first fault is kept.
pub const FAULT_WORDS: usize = 4;

/// The most workgroups along one axis that every device takes. Kernels loop, so none needs more.
pub const MAX_GROUPS: u32 = 65_535;

/// The most elements along an axis or in a view's reach: kernels count in 32 bits.
const MAX_ELEMENTS: u64 = 1 << 31;

/// A kernel: its source, its launch and what to give it.
///
/// Group 0 has the storage bindings, and after them the fault record if there is one; group 1 has the block at binding 0.
#[derive(Clone, PartialEq, Debug)]
pub struct WgslKernel {
    /// WGSL, complete. The entry point is called [`ENTRY`].
    pub source: String,
    /// Workgroups of the launch, along x.
    pub groups: u32,
    /// For each storage binding whether the kernel writes to it.
    pub writes: Vec<bool>,
    /// Whether the storage bindings are followed by the fault record ([`FAULT_WORDS`]).
    pub notes_faults: bool,
    /// The words of the uniform block, padded to whole vectors of four.
    pub words: Vec<Word>,
}

/// Why there is no WGSL for a kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WgslError {
    /// A kernel that the user supplies.
    #[error("`{0}` is a kernel by name, of which there is no source here")]
    Named(String),
    /// A type that WGSL lacks.
    #[error("it works on {0}, which WGSL does not have")]
    Type(DType),
    /// An operand that does not lie on whole elements.
    #[error("operand {index} starts at byte {offset}, where no {dtype} can lie; offsets are multiples of {}", .dtype.size())]
    Misaligned {
        /// Which operand.
        index: usize,
        /// Where it starts.
        offset: u64,
        /// Its type.
        dtype: DType,
    },
    /// More elements than kernels count.
    #[error("{0} elements; kernels count to 2^31")]
    TooLarge(u64),
}

/// The kernel of a node, by what it computes. O(operations of the expression).
///
/// `bindings` gives the storage binding of each operand in memory; bindings are numbered from 0 without gaps.
///
/// # Errors
/// [`WgslError`] for a kernel by name, and for what WGSL cannot say or a device not address.
///
/// # Panics
/// If there are fewer bindings than operands.
pub fn kernel(node: &KernelNode, bindings: &[u32]) -> Result<WgslKernel, WgslError> {
    let (mut views, mut written) = (Vec::new(), Vec::new());
    for arg in &node.args {
        if let Arg::View(view, access) = arg {
            views.push(*view);
            written.push(access.writes());
        }
    }
    for (index, view) in views.iter().enumerate() {
        check_view(index, view)?;
    }
    let scalars = node.args.iter().enumerate();
    let scalars = scalars.filter(|(_, arg)| matches!(arg, Arg::Scalar(_) | Arg::Slot(_)));
    let scalars: Vec<usize> = scalars.map(|(index, _)| index).collect();
    let source = Source {
        operands: Operands::new(&views, &written, bindings),
        views: &views,
        scalars: &scalars,
        block: Block::default(),
    };
    let library = match &node.kernel {
        KernelRef::Named(name) => return Err(WgslError::Named(name.to_string())),
        KernelRef::Elementwise(expr) => return elementwise::kernel(source, expr),
        KernelRef::Library(library) => {
            &FusedKernel { library: *library, before: None, after: None }
        }
        KernelRef::Fused(fused) => &**fused,
    };
    match library.library {
        LibraryKernel::Reduce { op, axis } => {
            reduce::kernel(source, library, op, usize::from(axis))
        }
        LibraryKernel::MatMul => matmul::kernel(source, library),
        LibraryKernel::Gather => Ok(rows::gather(source)),
        LibraryKernel::ScatterAdd => Ok(rows::scatter_add(source)),
    }
}

fn check_view(index: usize, view: &View) -> Result<(), WgslError> {
    value(view.dtype)?;
    if !view.offset.is_multiple_of(view.dtype.size()) {
        let (offset, dtype) = (view.offset, view.dtype);
        return Err(WgslError::Misaligned { index, offset, dtype });
    }
    let reach = view.region().bytes / view.dtype.size();
    match reach.max(view.elements()) {
        count if count >= MAX_ELEMENTS => Err(WgslError::TooLarge(count)),
        _ => Ok(()),
    }
}

/// What every generator works with.
struct Source<'a> {
    operands: Operands<'a>,
    views: &'a [View],
    /// The numbers of the scalar arguments.
    scalars: &'a [usize],
    block: Block,
}

impl Source<'_> {
    /// Puts a kernel together: `body` is everything after the operands, with its entry point.
    fn finish(self, body: &str, groups: u32, notes_faults: bool) -> WgslKernel {
        let Self { operands, mut block, .. } = self;
        let access = operands.functions(&mut block);
        let mut source = operands.declarations(notes_faults);
        source += &block.declaration();
        source += &prelude::needed(&[&access, body]);
        source += &access;
        source += body;
        WgslKernel { source, groups, writes: operands.writes(), notes_faults, words: block.words() }
    }
}

/// What a computed type is called in the sources.
fn value(dtype: DType) -> Result<&'static str, WgslError> {
    match dtype.computed() {
        DType::F32 => Ok("f32"),
        DType::I32 => Ok("i32"),
        DType::U32 => Ok("u32"),
        DType::Bool => Ok("bool"),
        other => Err(WgslError::Type(other)),
    }
}
