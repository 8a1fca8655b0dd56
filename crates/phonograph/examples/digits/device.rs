//! What the graphs run on: the CPU or a GPU through wgpu.

use std::error::Error;

use phonograph::graph::{BufferId, ComputeGraph, Scalar, Schedule, SlotId};
use phonograph::runtime::cpu::kernels::{Element, Registry};
use phonograph::runtime::cpu::{self, Cpu, Profile};
use phonograph_wgpu::{self as wgpu, Wgpu};

use crate::Backend;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

pub enum Device {
    Cpu(Cpu),
    Wgpu(Box<Wgpu>),
}

#[derive(Clone)]
pub enum Memory {
    Cpu(cpu::Memory),
    Wgpu(wgpu::Memory),
}

pub enum Exec {
    Cpu(Box<cpu::Exec>),
    Wgpu(Box<wgpu::Exec>),
}

const MIXED: &str = "memory and graphs stay on the device that they were made on";

impl Device {
    pub fn open(backend: Backend, threads: u32) -> Result<Self> {
        match backend {
            Backend::Cpu => Ok(Self::Cpu(Cpu::new(threads)?)),
            Backend::Wgpu => Ok(Self::Wgpu(Box::new(Wgpu::new()?))),
            Backend::Cuda => Err("on CUDA launches overlap what the host does".into()),
        }
    }

    /// What it is, for people.
    pub fn name(&self) -> String {
        match self {
            Self::Cpu(cpu) => format!("{} workers", cpu.workers()),
            Self::Wgpu(gpu) => gpu.adapter().to_string(),
        }
    }

    pub fn alloc(&self, bytes: u64) -> Result<Memory> {
        Ok(match self {
            Self::Cpu(cpu) => Memory::Cpu(cpu.alloc(bytes)?),
            Self::Wgpu(gpu) => Memory::Wgpu(gpu.alloc(bytes)?),
        })
    }

    pub fn read<T: Element>(&self, memory: &Memory) -> Result<Vec<T>> {
        match (self, memory) {
            (Self::Cpu(cpu), Memory::Cpu(memory)) => Ok(cpu.slice(memory)?.to_vec()),
            (Self::Wgpu(gpu), Memory::Wgpu(memory)) => Ok(gpu.read(memory)?),
            _ => Err(MIXED.into()),
        }
    }

    pub fn write<T: Element>(&mut self, memory: &Memory, values: &[T]) -> Result<()> {
        match (self, memory) {
            (Self::Cpu(cpu), Memory::Cpu(memory)) => {
                cpu.slice_mut(memory)?.copy_from_slice(values);
                Ok(())
            }
            (Self::Wgpu(gpu), Memory::Wgpu(memory)) => Ok(gpu.write(memory, values)?),
            _ => Err(MIXED.into()),
        }
    }

    /// Makes a graph ready with memory for some of its buffers.
    pub fn instantiate(
        &mut self,
        graph: &ComputeGraph,
        schedule: &Schedule,
        shared: &[(BufferId, Memory)],
    ) -> Result<Exec> {
        match self {
            Self::Cpu(cpu) => {
                let registry = Registry::new();
                let mut bindings = cpu::Bindings::new(&registry);
                for (buffer, memory) in shared {
                    let Memory::Cpu(memory) = memory else { return Err(MIXED.into()) };
                    bindings = bindings.memory(*buffer, memory);
                }
                Ok(Exec::Cpu(Box::new(cpu.instantiate(graph, schedule, &bindings)?)))
            }
            Self::Wgpu(gpu) => {
                let mut bindings = wgpu::Bindings::new();
                for (buffer, memory) in shared {
                    let Memory::Wgpu(memory) = memory else { return Err(MIXED.into()) };
                    bindings = bindings.memory(*buffer, memory);
                }
                Ok(Exec::Wgpu(Box::new(gpu.instantiate(graph, schedule, &bindings)?)))
            }
        }
    }

    pub fn replay(&mut self, exec: &mut Exec) -> Result<()> {
        match (self, exec) {
            (Self::Cpu(cpu), Exec::Cpu(exec)) => Ok(cpu.replay(exec)?),
            (Self::Wgpu(gpu), Exec::Wgpu(exec)) => Ok(gpu.replay(exec)?),
            _ => Err(MIXED.into()),
        }
    }

    /// When the nodes ran: the shortest of some replays. Only the CPU can tell.
    pub fn profile(&mut self, exec: &mut Exec, replays: usize) -> Result<Option<Profile>> {
        let (Self::Cpu(cpu), Exec::Cpu(exec)) = (self, exec) else { return Ok(None) };
        let mut shortest = cpu.replay_profiled(exec)?;
        for _ in 1..replays {
            let next = cpu.replay_profiled(exec)?;
            if next.total_ns < shortest.total_ns {
                shortest = next;
            }
        }
        Ok(Some(shortest))
    }
}

impl Exec {
    pub fn memory(&self, buffer: BufferId) -> Result<Memory> {
        let found = match self {
            Self::Cpu(exec) => exec.memory(buffer).cloned().map(Memory::Cpu),
            Self::Wgpu(exec) => exec.memory(buffer).cloned().map(Memory::Wgpu),
        };
        found.ok_or_else(|| format!("{buffer} has no memory of its own").into())
    }

    pub fn set(&mut self, slot: SlotId, value: impl Into<Scalar>) -> Result<()> {
        match self {
            Self::Cpu(exec) => exec.set(slot, value)?,
            Self::Wgpu(exec) => exec.set(slot, value)?,
        }
        Ok(())
    }

    /// What a replay consists of, for people.
    pub fn parts(&self) -> String {
        match self {
            Self::Cpu(exec) => {
                format!("{} tasks, {} waits between workers", exec.task_count(), exec.wait_count())
            }
            Self::Wgpu(exec) => format!("{} dispatches", exec.dispatch_count()),
        }
    }
}
