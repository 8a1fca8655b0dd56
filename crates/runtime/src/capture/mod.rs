//! The lifecycle of a capture on a device whose backend streams many callers share.
//!
//! [`state`](StreamCaptureState) is the state machine: who prepares, records and seals on which backend stream, and what
//! everybody else on the device can see of it at the cost of one atomic load. It knows nothing of a backend.

mod end;
mod error;
mod id;
mod state;

pub use end::CaptureEnd;
pub use error::{CaptureError, LifecycleCall, Request, UnownedAllocation, Window};
pub use id::LogicalStreamId;
pub use state::{CaptureStatus, DeviceCaptures, PhaseGuard, StreamCaptureState};

/// The primitives that `state` is built on. The model checker's test includes `state.rs` beside a module of the same
/// name that has loom's.
mod sync {
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
    pub(crate) use std::sync::{Arc, Mutex};
}
