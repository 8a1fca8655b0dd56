//! Kernels as CUDA C text.
//!
//! In: a kernel node whose code is an expression or of the library. Out: source, launch and parameters. Nothing is
//! compiled and nothing is run here. Shapes and strides are parameters, so nodes that differ in nothing else share their
//! source; which axes there are, and which operands are dense or repeated along an axis, is in the source.
//!
//! # What the results are
//!
//! Compiled without contraction (`--fmad=false`), with correctly rounded division and square root and with subnormals
//! (the compiler's defaults), every operation of an expression gives the bits that the CPU backend gives:
//! arithmetic is IEEE or wrapping, conversions are written out, and exp, log, tanh and erf are the CPU's algorithms,
//! operation by operation. Which NaN a NaN is may differ. Reductions use the CPU's tree, gather moves bits and
//! scatter-add sums in index order, so these agree as well. Work before and
//! after a reduction or a product is the same as in a kernel of its own. Matrix products do not: an element is one chain of fused
//! multiply-adds along k, so it is within k ε Σ |aᵢ bᵢ| of the exact value (ε = 2⁻²⁴ or 2⁻⁵³), as the CPU's is, and within
//! twice that of the CPU's.
//!
//! ```
//! use phonograph_graph::{DType, Expr, GraphBuilder, View};
//! use phonograph_kernels::cuda;
//!
//! let mut b = GraphBuilder::new();
//! let x = b.external_buffer("x", 4096);
//! let x = View::contiguous(x, DType::F32, &[1024])?;
//! let double = Expr::build(|e| { let x = e.input(DType::F32); e.output(x + x) })?;
//! let node = b.add_elementwise("double", double.into(), &[x], &[], &[x]);
//! let graph = b.build()?;
//! let kernel = cuda::kernel(graph.node(node).kernel().expect("it is a kernel"))?;
//! assert!(kernel.source.contains("__global__"));
//! assert_eq!((kernel.blocks, kernel.threads), (4, 256));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod code;
mod condition;
mod elementwise;
mod matmul;
mod params;
mod prelude;
mod reduce;
mod rows;
mod space;

use phonograph_graph::{Arg, DType, FusedKernel, KernelNode, KernelRef, LibraryKernel, View};

pub use condition::{CHANGES, change_words, set_condition};
use params::Params;

/// The name of the function in every source.
pub const ENTRY: &str = "phonograph_kernel";

/// A kernel: its source, its launch and what to give it.
#[derive(Clone, PartialEq, Debug)]
pub struct CudaKernel {
    /// CUDA C, complete. The function is called [`ENTRY`].
    pub source: String,
    /// Blocks of the launch, along x.
    pub blocks: u32,
    /// Threads of a block, along x.
    pub threads: u32,
    /// The parameters in order.
    pub params: Vec<Param>,
}

/// A parameter of a generated kernel.
#[derive(Clone, PartialEq, Debug)]
pub enum Param {
    /// The address of the first element of a view. These come in the order of the node's arguments.
    View(View),
    /// The value of a scalar argument of the node: its number among the arguments, and its type.
    Scalar(usize, DType),
    /// A structure of 64-bit words: counts, extents, strides.
    Words(Vec<u64>),
    /// The address of so many bytes of device memory, aligned to 16, that are the node's alone; zeros before the first launch,
    /// and left as they are between launches.
    Scratch(u64),
    /// The address of a 32-bit word in device memory, 0 until the first fault: who sets it writes the record.
    FaultLock,
    /// The address of the record in which a kernel notes what it could not do; see [`FAULT_WORDS`]. It may be in host
    /// memory that the device reaches, because it is only written.
    FaultRecord,
}

/// Words of 64 bits in a fault record: 0 or one more than the number that identifies the node, then the position in the
/// list of row numbers, then the row number found there (sign extended). Only the first fault is kept.
pub const FAULT_WORDS: usize = 3;

/// Why there is no CUDA C for a kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// A kernel that the user supplies.
    #[error("`{0}` is a kernel by name, of which there is no source here")]
    Named(String),
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
    /// More elements along the axis of an argmax than its result can number.
    #[error("{0} elements along the axis; positions are i32")]
    TooLong(u64),
}

/// The kernel of a node, by what it computes. O(operations of the expression).
///
/// # Errors
/// [`CudaError`] for a kernel by name, and for operands that no device can address.
pub fn kernel(node: &KernelNode) -> Result<CudaKernel, CudaError> {
    let none = &|_| false;
    kernel_in(node, &Place { number: 0, weak_edges: false, indirect: none, aligned: none })
}

/// What a kernel has to know of where its node stands.
pub struct Place<'a> {
    /// The number under which the node notes its faults.
    pub number: u32,
    /// Whether a weak edge leads to the node or from it.
    pub weak_edges: bool,
    /// Which of the node's arguments, by their numbers, are *indirect*: what stands for such a one is the address of a 64-bit
    /// word in device memory. The word holds what the parameter would be otherwise, a scalar in its first bytes.
    pub indirect: &'a dyn Fn(usize) -> bool,
    /// Of which of the node's arguments, by their numbers, it is known that the first element lies on a multiple of 16 bytes.
    pub aligned: &'a dyn Fn(usize) -> bool,
}

/// As [`kernel`], for a node in its place.
pub fn kernel_in(node: &KernelNode, place: &Place<'_>) -> Result<CudaKernel, CudaError> {
    let Place { number: id, weak_edges, indirect, aligned } = *place;
    let (mut views, mut indirect_views, mut scalars) = (Vec::new(), Vec::new(), Vec::new());
    let mut all_aligned = true;
    for (at, arg) in node.args.iter().enumerate() {
        match arg {
            Arg::View(view, _) => {
                views.push(*view);
                indirect_views.push(indirect(at));
                all_aligned &= aligned(at);
            }
            Arg::Scalar(_) | Arg::Slot(_) => scalars.push((at, indirect(at))),
            Arg::Region(..) => {}
        }
    }
    for (index, view) in views.iter().enumerate() {
        if !view.offset.is_multiple_of(view.dtype.size()) {
            let (offset, dtype) = (view.offset, view.dtype);
            return Err(CudaError::Misaligned { index, offset, dtype });
        }
    }
    let params = Params::new(&views, &indirect_views, &scalars, weak_edges);
    let library = match &node.kernel {
        KernelRef::Named(name) => return Err(CudaError::Named(name.to_string())),
        KernelRef::Elementwise(expr) => return Ok(elementwise::kernel(expr, params, all_aligned)),
        KernelRef::Library(library) => {
            &FusedKernel { library: *library, before: None, after: None }
        }
        KernelRef::Fused(fused) => &**fused,
    };
    Ok(match library.library {
        LibraryKernel::Reduce { op, axis } => {
            reduce::kernel(library, op, usize::from(axis), params)?
        }
        LibraryKernel::MatMul => matmul::kernel(library, params),
        LibraryKernel::Gather => rows::gather(params, id),
        LibraryKernel::ScatterAdd => rows::scatter_add(params, id),
    })
}

/// What memory holds of a type, as named in the sources.
fn raw(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "f32",
        DType::F64 => "f64",
        DType::F16 | DType::BF16 => "u16",
        DType::I32 => "i32",
        DType::I64 => "i64",
        DType::U32 => "u32",
        DType::U8 | DType::Bool => "u8",
    }
}

/// What a register holds of a computed type.
fn value(dtype: DType) -> &'static str {
    match dtype.computed() {
        DType::Bool => "u8",
        other => raw(other),
    }
}
