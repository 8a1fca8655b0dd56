//! The CPU backend: tasks on worker threads from a frozen schedule.
//!
//! [`Program`] is the schedule, frozen once and immutable; [`Team`] is the threads that replay it, again and again,
//! without a lock and without an allocation. Neither knows what a task does.

mod device;
mod event;
mod exec;
mod gate;
mod instantiate;
pub mod kernels;
mod measure;
mod memory;
mod program;
mod team;

pub use crate::refused::{NodePath, SetError};
pub use device::Cpu;
pub use event::{Event, Ticket};
pub use exec::{Exec, NodeFault, Profile, ReplayError, TaskSpan};
pub use instantiate::{Bindings, InstantiateError};
pub use measure::Overheads;
pub use memory::{Memory, MemoryError, OutOfMemory};
pub use program::{Program, ProgramBuilder, ProgramError, TaskId, WorkerId};
pub use team::{Cause, Failure, ReplayError as TeamReplayError, Team, TeamError};

/// The primitives that [`gate`] is built on. The model checker's test includes `gate.rs` beside a module of the same
/// name that has loom's.
mod sync {
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub(crate) use std::thread::{Thread, current, park, yield_now};
}
