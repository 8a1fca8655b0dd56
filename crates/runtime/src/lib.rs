//! Backends that replay a scheduled graph, and the lifecycle of captures on a device that many callers share.
//!
//! ```
//! use phonograph_graph::{Arg, DType, Expr, GraphBuilder, Schedule, View};
//! use phonograph_runtime::cpu::kernels::Registry;
//! use phonograph_runtime::cpu::{Bindings, Cpu};
//!
//! let mut b = GraphBuilder::new();
//! let x = View::contiguous(b.external_buffer("x", 16), DType::F32, &[4])?;
//! let by = b.slot("by", 1.0f32);
//! let add = Expr::build(|e| e.output(e.input(DType::F32) + e.param(DType::F32)))?;
//! b.add_elementwise("add", add.into(), &[x], &[Arg::Slot(by)], &[x]);
//! let graph = b.build()?;
//!
//! let (mut cpu, registry) = (Cpu::new(2)?, Registry::new());
//! let memory = cpu.alloc(16)?;
//! let bindings = Bindings::new(&registry).memory(x.buffer, &memory);
//! let mut exec = cpu.instantiate(&graph, &Schedule::sequential(&graph), &bindings)?; // refused here or never
//! cpu.replay(&mut exec)?;
//! exec.set(by, 10.0f32)?;
//! cpu.replay(&mut exec)?;
//! assert_eq!(cpu.slice::<f32>(&memory)?, [11.0; 4]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`cpu`] is that backend, [`streams`] the device that many callers share; `phonograph_cuda` and `phonograph_wgpu` are the other
//! backends. `phonograph` has all of it with tensors and operations.

pub mod capture;
pub mod cpu;
mod panics;
pub mod pool;
pub mod refused;
pub mod streams;
