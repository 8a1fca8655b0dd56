//! The device: a team of workers and the memory that its graphs share.

use std::slice;
use std::sync::Arc;

use phonograph_graph::{ComputeGraph, DEFAULT_ALIGN, Schedule};

use super::exec::{Exec, Profile, ReplayError};
use super::instantiate::{self, Bindings, InstantiateError};
use super::kernels::Element;
use super::memory::{DeviceToken, Memory, MemoryError, OutOfMemory};
use super::team::{Team, TeamError};

/// The CPU as a device.
///
/// ```
/// use phonograph_graph::{Arg, DType, Expr, GraphBuilder, Schedule, Space, Step, StreamId, View};
/// use phonograph_runtime::cpu::{Bindings, Cpu};
/// use phonograph_runtime::cpu::kernels::Registry;
///
/// let mut b = GraphBuilder::new();
/// let x = b.external_buffer("x", 16);
/// let view = View::contiguous(x, DType::F32, &[4])?;
/// let by = b.slot("by", 1.0f32);
/// let add = Expr::build(|e| e.output(e.input(DType::F32) + e.param(DType::F32)))?;
/// let node = b.add_elementwise("add", add.into(), &[view], &[Arg::Slot(by)], &[view]);
/// let graph = b.build()?;
/// let schedule = Schedule { streams: 1, steps: vec![Step::run(node, StreamId(0))], ..Default::default() };
///
/// let mut cpu = Cpu::new(1)?;
/// let memory = cpu.alloc(16)?;
/// cpu.slice_mut(&memory)?.copy_from_slice(&[1.0f32, 2.0, 3.0, 4.0]);
/// let registry = Registry::new();
/// let mut exec = cpu.instantiate(&graph, &schedule, &Bindings::new(&registry).memory(x, &memory))?;
/// cpu.replay(&mut exec)?;
/// exec.set(by, 10.0f32)?;
/// cpu.replay(&mut exec)?;
/// assert_eq!(cpu.slice::<f32>(&memory)?, &[12.0, 13.0, 14.0, 15.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Cpu {
    team: Team,
    token: Arc<DeviceToken>,
}

impl Cpu {
    /// A device with this many workers, of which the calling thread is one. Results are the same bits for any number.
    ///
    /// # Errors
    /// [`TeamError`] for no workers, for too many, and where threads cannot be had.
    pub fn new(workers: u32) -> Result<Self, TeamError> {
        Ok(Self { team: Team::new(workers)?, token: Arc::new(DeviceToken) })
    }

    /// How many workers there are.
    pub fn workers(&self) -> u32 {
        self.team.workers()
    }

    /// Allocates zeroed memory, aligned as device allocators do.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn alloc(&self, bytes: u64) -> Result<Memory, OutOfMemory> {
        Memory::new(&self.token, bytes, DEFAULT_ALIGN)
    }

    /// As [`alloc`](Self::alloc), for a buffer that asks for more alignment.
    ///
    /// # Errors
    /// [`OutOfMemory`], also for an alignment that is no power of two.
    pub fn alloc_aligned(&self, bytes: u64, align: u64) -> Result<Memory, OutOfMemory> {
        Memory::new(&self.token, bytes, align.max(DEFAULT_ALIGN))
    }

    /// The contents of memory.
    ///
    /// # Errors
    /// [`MemoryError`] for memory of another device, or whose bytes are no whole number of `T`.
    pub fn slice<'a, T: Element>(&'a self, memory: &'a Memory) -> Result<&'a [T], MemoryError> {
        let len = self.own(memory)?.elements::<T>()?;
        // SAFETY: the allocation holds `len` initialised elements, any bytes are a `T`, and the borrowed handle keeps it
        // alive. Whatever writes to it needs `&mut self`: `slice_mut` and `replay`.
        Ok(unsafe { slice::from_raw_parts(memory.start().cast(), len) })
    }

    /// The contents of memory, to be changed.
    ///
    /// # Errors
    /// [`MemoryError`] for memory of another device, or whose bytes are no whole number of `T`.
    pub fn slice_mut<'a, T: Element>(
        &'a mut self,
        memory: &'a Memory,
    ) -> Result<&'a mut [T], MemoryError> {
        let len = self.own(memory)?.elements::<T>()?;
        // SAFETY: as in `slice`; `&mut self` excludes every other borrow and every replay.
        Ok(unsafe { slice::from_raw_parts_mut(memory.start().cast(), len) })
    }

    fn own<'m>(&self, memory: &'m Memory) -> Result<&'m Memory, MemoryError> {
        if Arc::ptr_eq(&self.token, &memory.device) {
            Ok(memory)
        } else {
            Err(MemoryError::OtherDevice)
        }
    }

    /// Makes a graph ready to replay as `schedule` says.
    ///
    /// Everything that could be wrong is found here: the schedule goes through the checker, conflicting accesses
    /// must be ordered, kernels must be registered and accept their arguments, memory must be there.
    ///
    /// # Errors
    /// [`InstantiateError`] says which of these, and of which node or buffer.
    pub fn instantiate(
        &self,
        graph: &ComputeGraph,
        schedule: &Schedule,
        bindings: &Bindings<'_>,
    ) -> Result<Exec, InstantiateError> {
        instantiate::instantiate(&self.token, self.workers(), graph, schedule, bindings)
    }

    /// Runs the graph once and returns when all of it is done.
    ///
    /// # Errors
    /// The first node, in issue order, that failed or panicked; nodes that had not started were skipped. The graph can be
    /// replayed again.
    pub fn replay(&mut self, exec: &mut Exec) -> Result<(), ReplayError> {
        exec.replay(&mut self.team, &self.token)
    }

    /// As [`replay`](Self::replay), noting when each task ran, on which worker.
    ///
    /// # Errors
    /// As for [`replay`](Self::replay).
    pub fn replay_profiled(&mut self, exec: &mut Exec) -> Result<Profile, ReplayError> {
        exec.replay_profiled(&mut self.team, &self.token)
    }

    pub(super) fn team(&mut self) -> &mut Team {
        &mut self.team
    }
}
