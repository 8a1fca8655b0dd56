//! Task graphs in Taskflow and oneTBB, through `peers.cpp`.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

use crate::executors::{Failure, Graph};

/// What a task is: one call through a pointer.
pub type Body = extern "C" fn(context: *const c_void, task: u32);

#[derive(Clone, Copy)]
pub enum Library {
    Taskflow = 0,
    Tbb = 1,
}

#[repr(C)]
struct Raw {
    opaque: [u8; 0],
}

unsafe extern "C" {
    fn peer_new(
        which: u32,
        threads: u32,
        tasks: u32,
        offsets: *const u32,
        predecessors: *const u32,
    ) -> Option<NonNull<Raw>>;
    fn peer_replay(peer: NonNull<Raw>, bodies: *const Body, context: *const c_void) -> bool;
    fn peer_free(peer: NonNull<Raw>);
    fn peer_failure() -> *const c_char;
    fn peer_version(which: u32) -> *const c_char;
}

impl Library {
    pub fn name(self) -> &'static str {
        match self {
            Library::Taskflow => "Taskflow",
            Library::Tbb => "oneTBB",
        }
    }

    pub fn version(self) -> String {
        // SAFETY: a string of the library's that is there as long as the library.
        unsafe { CStr::from_ptr(peer_version(self as u32)) }.to_string_lossy().into_owned()
    }
}

pub struct Peer {
    raw: NonNull<Raw>,
    tasks: usize,
}

impl Peer {
    pub fn new(library: Library, threads: u32, graph: &Graph) -> Result<Self, Failure> {
        // SAFETY: `graph` has one offset more than tasks, and they lie within the targets, which are tasks.
        let raw = unsafe {
            peer_new(
                library as u32,
                threads,
                graph.tasks() as u32,
                graph.offsets.as_ptr(),
                graph.targets.as_ptr(),
            )
        };
        Ok(Self { raw: raw.ok_or_else(failure)?, tasks: graph.tasks() })
    }

    /// Runs every task once: `bodies[task](context, task)`.
    ///
    /// # Safety
    /// The bodies may be called with `context`, by several threads at once, until this returns.
    pub unsafe fn replay(
        &mut self,
        bodies: &[Body],
        context: *const c_void,
    ) -> Result<(), Failure> {
        assert_eq!(bodies.len(), self.tasks);
        // SAFETY: a body a task; the caller's promise for the rest, and `&mut self` keeps other replays away.
        match unsafe { peer_replay(self.raw, bodies.as_ptr(), context) } {
            true => Ok(()),
            false => Err(failure()),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // SAFETY: made by `peer_new`, given back once, and no replay is under way.
        unsafe { peer_free(self.raw) };
    }
}

fn failure() -> Failure {
    // SAFETY: the message of this thread's failed call, copied before another is made.
    unsafe { CStr::from_ptr(peer_failure()) }.to_string_lossy().into()
}
