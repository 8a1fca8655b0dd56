//! Kernels and host functions that the user registers: Rust functions over blocks, with typed access to arguments
//! that cannot alias.
//!
//! A function declares its [`Param`]s; a node that gives other arguments is refused when it is prepared. Two blocks may
//! run at the same time, so a block of a kernel that runs [by blocks](FnKernel::blocks) reaches only its own part of what
//! it writes, and nothing that is written can be read. A kernel that needs more runs [as a whole](FnKernel::whole).
//!
//! ```
//! use phonograph_graph::DType;
//! use phonograph_runtime::cpu::kernels::{FnKernel, Param, Registry};
//!
//! let mut registry = Registry::new();
//! let params = [Param::Read(DType::F32), Param::ReadWrite(DType::F32), Param::Scalar(DType::F32)];
//! registry.register("axpy", FnKernel::blocks(&params, |block| {
//!     let (x, y, a) = (block.read_part::<f32>(0)?, block.write::<f32>(1)?, block.scalar::<f32>(2)?);
//!     for (y, x) in y.iter_mut().zip(x) {
//!         *y += a * x;
//!     }
//!     Ok(())
//! }));
//! ```

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use phonograph_graph::{
    Access, Arg, BufferId, DType, Dim3, HostNode, KernelConfig, KernelNode, Region,
};

use super::tensor::Operands;
use super::{ArgumentProblem, Element, KernelError, PrepareError};
use crate::panics::message;

/// The most arguments of a registered function: which of them a block holds is a word of bits.
const MAX_PARAMS: usize = 64;

fn fits<T: Element>(dtype: DType) -> bool {
    dtype == T::DTYPE || (dtype == DType::Bool && T::DTYPE == DType::U8)
}

/// A parameter of a registered function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Param {
    /// A tensor that is read: a contiguous view, or a region of whole elements.
    Read(DType),
    /// A tensor that is written without looking; it holds whatever it held.
    Write(DType),
    /// A tensor that is changed.
    ReadWrite(DType),
    /// A scalar.
    Scalar(DType),
}

impl Param {
    /// Type of an element.
    pub const fn dtype(self) -> DType {
        match self {
            Param::Read(t) | Param::Write(t) | Param::ReadWrite(t) | Param::Scalar(t) => t,
        }
    }

    const fn kind(self) -> &'static str {
        match self {
            Param::Read(_) => "read",
            Param::Write(_) => "write",
            Param::ReadWrite(_) => "read-write",
            Param::Scalar(_) => "scalar",
        }
    }

    const fn access(self) -> Option<Access> {
        match self {
            Param::Read(_) => Some(Access::Read),
            Param::Write(_) => Some(Access::Write),
            Param::ReadWrite(_) => Some(Access::ReadWrite),
            Param::Scalar(_) => None,
        }
    }
}

type Function = dyn Fn(&Block<'_>) -> Result<(), KernelError> + Send + Sync;

/// A kernel as a Rust function.
#[derive(Clone)]
pub struct FnKernel {
    params: Arc<[Param]>,
    by_blocks: bool,
    function: Arc<Function>,
}

impl FnKernel {
    /// A kernel called once for each block of the launch, several blocks at a time.
    ///
    /// A block has a part of each tensor: elements `b * n .. (b + 1) * n` for block number `b`, where `n` is the number of
    /// threads of a block or, if blocks of that size do not cover the tensor, its length over the number of blocks.
    pub fn blocks<F>(params: &[Param], function: F) -> Self
    where
        F: Fn(&Block<'_>) -> Result<(), KernelError> + Send + Sync + 'static,
    {
        Self { params: params.into(), by_blocks: true, function: Arc::new(function) }
    }

    /// A kernel called once, with all of each tensor.
    pub fn whole<F>(params: &[Param], function: F) -> Self
    where
        F: Fn(&Block<'_>) -> Result<(), KernelError> + Send + Sync + 'static,
    {
        Self { params: params.into(), by_blocks: false, function: Arc::new(function) }
    }
}

impl fmt::Debug for FnKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnKernel")
            .field("params", &self.params)
            .field("by_blocks", &self.by_blocks)
            .finish_non_exhaustive()
    }
}

/// The kernels and host functions that graphs refer to by name.
#[derive(Clone, Default, Debug)]
pub struct Registry {
    kernels: rustc_hash::FxHashMap<Box<str>, FnKernel>,
    hosts: rustc_hash::FxHashMap<Box<str>, FnKernel>,
    others: rustc_hash::FxHashMap<Box<str>, Arc<dyn Any + Send + Sync>>,
}

impl Registry {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Both together; where a name is in both, `other`'s.
    pub fn with(&self, other: &Registry) -> Registry {
        let mut both = self.clone();
        both.kernels.extend(other.kernels.iter().map(|(name, f)| (name.clone(), f.clone())));
        both.hosts.extend(other.hosts.iter().map(|(name, f)| (name.clone(), f.clone())));
        both.others.extend(other.others.iter().map(|(name, it)| (name.clone(), it.clone())));
        both
    }

    /// Registers what only one backend knows how to run where a node calls a kernel of this name.
    pub fn other(&mut self, name: &str, it: Arc<dyn Any + Send + Sync>) -> &mut Self {
        self.others.insert(name.into(), it);
        self
    }

    /// What was registered so.
    pub fn get_other(&self, name: &str) -> Option<Arc<dyn Any + Send + Sync>> {
        self.others.get(name).cloned()
    }

    /// Registers a kernel; one of the same name is replaced, for nodes prepared from now on.
    pub fn register(&mut self, name: &str, kernel: FnKernel) -> &mut Self {
        self.kernels.insert(name.into(), kernel);
        self
    }

    /// Registers a host function. Its parameters are the first of the regions that a node says it touches; a node may
    /// name more, which then only order it among its neighbours.
    pub fn host<F>(&mut self, name: &str, params: &[Param], function: F) -> &mut Self
    where
        F: Fn(&Block<'_>) -> Result<(), KernelError> + Send + Sync + 'static,
    {
        self.hosts.insert(name.into(), FnKernel::whole(params, function));
        self
    }
}

/// An argument, bound to its place among a node's operands or scalars.
enum Bound {
    Tensor { operand: usize, offset: usize, len: usize },
    Scalar(usize),
}

/// A node that calls a registered function.
pub(super) struct FnNode {
    kernel: FnKernel,
    args: Box<[Bound]>,
    grid: Dim3,
    threads: Dim3,
    blocks: u64,
    blocks_per_tile: u64,
    bytes: u64,
}

impl FnNode {
    /// A kernel node, and the buffers of its operands.
    pub(super) fn kernel(
        name: &str,
        node: &KernelNode,
        registry: &Registry,
    ) -> Result<(Self, Vec<BufferId>), PrepareError> {
        let unregistered = || PrepareError::Unregistered { kind: "kernel", name: name.to_owned() };
        let kernel = registry.kernels.get(name).ok_or_else(unregistered)?;
        if !node.config.is_known() {
            return Err(PrepareError::UnknownLaunch);
        }
        Self::bind(kernel, &node.args, &node.config)
    }

    /// A host node, and the buffers of its operands.
    pub(super) fn host(
        node: &HostNode,
        registry: &Registry,
    ) -> Result<(Self, Vec<BufferId>), PrepareError> {
        let (kind, name) = ("host function", &*node.function);
        let unregistered = || PrepareError::Unregistered { kind, name: name.to_owned() };
        let function = registry.hosts.get(name).ok_or_else(unregistered)?;
        let taken = function.params.len().min(node.effects.len());
        let args: Vec<Arg> =
            node.effects[..taken].iter().map(|&(r, access)| Arg::Region(r, access)).collect();
        Self::bind(function, &args, &KernelConfig::linear(1, 1, 0))
    }

    fn bind(
        kernel: &FnKernel,
        args: &[Arg],
        config: &KernelConfig,
    ) -> Result<(Self, Vec<BufferId>), PrepareError> {
        let expected = kernel.params.len();
        if args.len() != expected {
            return Err(PrepareError::Count { expected, given: args.len() });
        }
        if expected > MAX_PARAMS {
            let problem = format!("is one too many; the most is {MAX_PARAMS}");
            return Err(PrepareError::Argument { index: MAX_PARAMS, problem });
        }
        let mut buffers = Vec::new();
        let mut scalars = 0;
        let mut bound = Vec::with_capacity(expected);
        let mut bytes = 0;
        for (index, (arg, &param)) in args.iter().zip(&*kernel.params).enumerate() {
            bound.push(match (arg, param.access()) {
                // The type of a slot is known only when its value is; it is checked when asked for.
                (Arg::Slot(_), None) => scalar_at(&mut scalars),
                (Arg::Scalar(value), None) if value.dtype() == param.dtype() => {
                    scalar_at(&mut scalars)
                }
                (Arg::View(..) | Arg::Region(..), Some(access)) => {
                    let region = tensor_region(index, arg, param, access)?;
                    bytes += region.bytes;
                    buffers.push(region.buffer);
                    Bound::Tensor {
                        operand: buffers.len() - 1,
                        offset: region.offset as usize,
                        len: (region.bytes / param.dtype().size()) as usize,
                    }
                }
                _ => {
                    let problem = format!(
                        "is {}, where the function takes a {} of type {}",
                        describe(arg),
                        param.kind(),
                        param.dtype()
                    );
                    return Err(PrepareError::Argument { index, problem });
                }
            });
        }
        refuse_overlap(args)?;
        let blocks = if kernel.by_blocks { config.blocks() } else { 1 };
        let node = Self {
            kernel: kernel.clone(),
            args: bound.into(),
            grid: if kernel.by_blocks { config.grid } else { (1, 1, 1) },
            threads: config.block,
            blocks,
            blocks_per_tile: blocks.div_ceil(256),
            bytes,
        };
        Ok((node, buffers))
    }

    pub(super) fn tiles(&self) -> u32 {
        self.blocks.div_ceil(self.blocks_per_tile) as u32
    }

    /// A guess from the bytes it may touch; what the function does is not known.
    pub(super) fn cost_ns(&self) -> u64 {
        self.bytes / 4 + self.blocks.saturating_mul(100)
    }

    /// # Safety
    /// See [`Prepared::run`](super::Prepared::run).
    pub(super) unsafe fn run(
        &self,
        on: &Operands<'_>,
        tiles: Range<u32>,
    ) -> Result<(), KernelError> {
        let first = u64::from(tiles.start) * self.blocks_per_tile;
        let end = (u64::from(tiles.end) * self.blocks_per_tile).min(self.blocks);
        for number in first..end {
            let block = Block { node: self, on, number, held: Cell::new(0) };
            // A panic must not take a worker with it. What the function had borrowed is forgotten, as after an error.
            match catch_unwind(AssertUnwindSafe(|| (self.kernel.function)(&block))) {
                Ok(result) => result?,
                Err(payload) => return Err(KernelError::Panicked(message(payload))),
            }
        }
        Ok(())
    }
}

fn scalar_at(scalars: &mut usize) -> Bound {
    *scalars += 1;
    Bound::Scalar(*scalars - 1)
}

fn describe(arg: &Arg) -> String {
    match arg {
        Arg::Scalar(value) => format!("a scalar of type {}", value.dtype()),
        Arg::Slot(_) => "a slot".to_owned(),
        Arg::View(view, access) => format!("a view of type {} for {}", view.dtype, access.name()),
        Arg::Region(_, access) => format!("a region for {}", access.name()),
    }
}

/// The bytes of a tensor argument that fits its parameter: right type and access, whole and aligned elements.
fn tensor_region(
    index: usize,
    arg: &Arg,
    param: Param,
    access: Access,
) -> Result<Region, PrepareError> {
    let size = param.dtype().size();
    let (region, given) = match arg {
        Arg::View(view, given) if view.dtype == param.dtype() && view.is_contiguous() => {
            (view.region(), *given)
        }
        Arg::Region(region, given) => (*region, *given),
        other => {
            let problem = format!(
                "is {}, where the function takes contiguous elements of type {}",
                describe(other),
                param.dtype()
            );
            return Err(PrepareError::Argument { index, problem });
        }
    };
    if given != access {
        let problem = format!("is for {}, not for {}", given.name(), access.name());
        return Err(PrepareError::Argument { index, problem });
    }
    if !region.offset.is_multiple_of(size) || !region.bytes.is_multiple_of(size) {
        let problem = format!(
            "is bytes {}..{}, which are no whole elements of type {}",
            region.offset,
            region.end(),
            param.dtype()
        );
        return Err(PrepareError::Argument { index, problem });
    }
    Ok(region)
}

/// What is written shares no byte with any other operand.
fn refuse_overlap(args: &[Arg]) -> Result<(), PrepareError> {
    for (second, b) in args.iter().enumerate() {
        for (first, a) in args[..second].iter().enumerate() {
            if let (Some((a, of_a)), Some((b, of_b))) = (a.effect(), b.effect())
                && (of_a.writes() || of_b.writes())
                && a.overlaps(&b)
            {
                return Err(PrepareError::Overlap { first, second });
            }
        }
    }
    Ok(())
}

/// One call of a registered function: which block it is, and its arguments.
///
/// Arguments are asked for by their place in the signature. What is written is given out once to each block.
pub struct Block<'a> {
    node: &'a FnNode,
    on: &'a Operands<'a>,
    number: u64,
    /// A bit for each written argument that has been given out.
    held: Cell<u64>,
}

impl<'a> Block<'a> {
    /// Which block of the grid this is.
    pub fn index(&self) -> Dim3 {
        let (x, y, _) = self.node.grid;
        let (x, y) = (u64::from(x), u64::from(y));
        ((self.number % x) as u32, (self.number / x % y) as u32, (self.number / x / y) as u32)
    }

    /// Blocks of the launch; one where the kernel runs as a whole.
    pub fn grid(&self) -> Dim3 {
        self.node.grid
    }

    /// Threads of a block of the launch.
    pub fn threads(&self) -> Dim3 {
        self.node.threads
    }

    /// All of a tensor that is read.
    ///
    /// # Errors
    /// [`KernelError::Argument`] for an argument that is not there, no tensor that is read, or of another type.
    pub fn read<T: Element>(&self, index: usize) -> Result<&'a [T], KernelError> {
        let (first, len) = self.tensor::<T>(index, |p| matches!(p, Param::Read(_)))?;
        // SAFETY: the operand holds `len` aligned elements of any bits (`bind`, and the promise of `Prepared::run`);
        // nothing writes them during the run: no operand of this node that is written overlaps them (`refuse_overlap`),
        // and no other node that writes them runs (the promise again).
        Ok(unsafe { std::slice::from_raw_parts(first, len) })
    }

    /// This block's part of a tensor that is read.
    ///
    /// # Errors
    /// [`KernelError::Argument`] for an argument that is not there, no tensor that is read, or of another type.
    pub fn read_part<T: Element>(&self, index: usize) -> Result<&'a [T], KernelError> {
        let all = self.read(index)?;
        Ok(&all[self.part(all.len())])
    }

    /// This block's part of a tensor that is written; all of it where the kernel runs as a whole.
    ///
    /// # Errors
    /// [`KernelError::Argument`] for an argument that is not there, no tensor that is written, of another type, or taken by
    /// this block before.
    pub fn write<T: Element>(&self, index: usize) -> Result<&'a mut [T], KernelError> {
        let writes = |p| matches!(p, Param::Write(_) | Param::ReadWrite(_));
        let (first, len) = self.tensor::<T>(index, writes)?;
        let bit = 1 << index;
        if self.held.get() & bit != 0 {
            return Err(KernelError::Argument { index, problem: ArgumentProblem::Taken });
        }
        self.held.set(self.held.get() | bit);
        let part = self.part(len);
        // SAFETY: as in `read`; further, parts of different blocks are disjoint, because the type that they are counted
        // in is the signature's; each block runs once in a run (the promise of `Prepared::run`); and this block has not
        // given the part out before.
        Ok(unsafe { std::slice::from_raw_parts_mut(first.add(part.start), part.len()) })
    }

    /// Which elements of a tensor argument are this block's.
    ///
    /// # Errors
    /// [`KernelError::Argument`] for an argument that is not there or no tensor.
    pub fn range(&self, index: usize) -> Result<Range<usize>, KernelError> {
        match self.arg(index)? {
            (Bound::Tensor { len, .. }, _) => Ok(self.part(*len)),
            (Bound::Scalar(_), param) => Err(access_problem(index, param)),
        }
    }

    /// The value of a scalar.
    ///
    /// # Errors
    /// [`KernelError::Argument`] for an argument that is not there, no scalar, or of another type.
    pub fn scalar<T: Element>(&self, index: usize) -> Result<T, KernelError> {
        match self.arg(index)? {
            (&Bound::Scalar(at), _) => {
                let value = self.on.scalars[at];
                T::of(value).ok_or(KernelError::Argument {
                    index,
                    problem: ArgumentProblem::Type(value.dtype()),
                })
            }
            (Bound::Tensor { .. }, param) => Err(access_problem(index, param)),
        }
    }

    fn arg(&self, index: usize) -> Result<(&'a Bound, Param), KernelError> {
        let (args, params) = (&self.node.args, &self.node.kernel.params);
        match (args.get(index), params.get(index)) {
            (Some(bound), Some(&param)) => Ok((bound, param)),
            _ => {
                let problem = ArgumentProblem::Missing(args.len());
                Err(KernelError::Argument { index, problem })
            }
        }
    }

    /// Address and length of a tensor argument whose parameter is wanted so and of type `T`.
    fn tensor<T: Element>(
        &self,
        index: usize,
        wanted: impl Fn(Param) -> bool,
    ) -> Result<(*mut T, usize), KernelError> {
        let (bound, param) = self.arg(index)?;
        let &Bound::Tensor { operand, offset, len } = bound else {
            return Err(access_problem(index, param));
        };
        if !wanted(param) {
            return Err(access_problem(index, param));
        }
        if !fits::<T>(param.dtype()) {
            let problem = ArgumentProblem::Type(param.dtype());
            return Err(KernelError::Argument { index, problem });
        }
        Ok((self.on.buffers[operand].wrapping_add(offset).cast(), len))
    }

    fn part(&self, len: usize) -> Range<usize> {
        let (x, y, z) = self.node.threads;
        let threads = (u64::from(x) * u64::from(y)).saturating_mul(z.into());
        let blocks = self.node.blocks;
        let each = if blocks.saturating_mul(threads) >= len as u64 && blocks > 1 {
            threads
        } else {
            (len as u64).div_ceil(blocks)
        };
        let at = |block: u64| block.saturating_mul(each).min(len as u64) as usize;
        at(self.number)..at(self.number + 1)
    }
}

fn access_problem(index: usize, param: Param) -> KernelError {
    KernelError::Argument { index, problem: ArgumentProblem::Access(param.kind()) }
}
