//! How long the nodes of a graph take on the device, each replay, as NVIDIA's profiling library sees it.
//!
//! A [`Profiler`] is started before a graph is instantiated: the executable's nodes are copies of the graph's, and only then
//! does the library say which is a copy of which. It records every kernel, copy and fill of every graph launch until it is
//! stopped; replays are slower meanwhile, the times of the nodes are not. The library, CUPTI, comes with the toolkit and as
//! `nvidia-cuda-cupti` from PyPI; `PHONOGRAPH_CUPTI` names its file.

mod cupti;
mod records;

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use rustc_hash::FxHashMap;

use crate::exec::Exec;
use cupti::Cupti;

/// Why nothing can be profiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// No library.
    #[error(
        "there is no CUPTI library (it comes with the CUDA toolkit and as nvidia-cuda-cupti from PyPI; PHONOGRAPH_CUPTI names the file): {0}"
    )]
    NotFound(String),
    /// A library that lacks a function.
    #[error("the CUPTI library {library} has no function {symbol}")]
    MissingSymbol {
        /// The library's name.
        library: String,
        /// The function.
        symbol: &'static str,
    },
    /// A version whose records may lie otherwise.
    #[error("CUPTI {version} is not known; those of CUDA 12.4 to 13.0 are")]
    Version {
        /// The library's number for its interface.
        version: u32,
    },
    /// There is one profiler for a process.
    #[error("something else in this process profiles already")]
    Busy,
    /// CUPTI refused.
    #[error("{call} failed with {code}{}", hint(*code))]
    Call {
        /// The function called.
        call: &'static str,
        /// CUPTI's number for the error.
        code: u32,
    },
    /// Records that did not fit, or that this crate cannot read.
    #[error("CUPTI gave {lost} records that could not be kept")]
    Lost {
        /// How many.
        lost: u64,
    },
}

const fn hint(code: u32) -> &'static str {
    match code {
        35 => " (this user may not profile; the driver can allow it)",
        39 => " (another tool profiles this process)",
        _ => "",
    }
}

/// The one profiler of the process.
static ONE: Mutex<()> = Mutex::new(());

/// Records what graph launches take, from its start to [`stop`](Self::stop).
#[derive(Debug)]
pub struct Profiler {
    cupti: &'static Cupti,
    _one: MutexGuard<'static, ()>,
}

impl Profiler {
    /// Starts recording. Graphs that are instantiated from here on can be told apart.
    ///
    /// # Errors
    /// [`ProfileError`]: without the library, with one of a version that is not known, and if somebody profiles already.
    pub fn start() -> Result<Self, ProfileError> {
        let cupti = Cupti::load()?;
        let one = match ONE.try_lock() {
            Ok(one) => one,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(ProfileError::Busy),
        };
        records::state().clear();
        cupti.start()?;
        Ok(Self { cupti, _one: one })
    }

    /// Stops, after all work issued so far is complete, which the caller has waited for.
    ///
    /// # Errors
    /// [`ProfileError::Lost`] if there was more than could be kept.
    pub fn stop(self) -> Result<Profile, ProfileError> {
        self.cupti.stop()?;
        let state = std::mem::take(&mut *records::state());
        match state.lost {
            0 => Ok(Profile { nodes: state.by_original() }),
            lost => Err(ProfileError::Lost { lost }),
        }
    }
}

/// What was recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// By the driver's node, as a number: what each run took, in nanoseconds.
    nodes: FxHashMap<usize, Vec<u64>>,
}

impl Profile {
    /// What the nodes of a graph took: for each the median over its runs in nanoseconds, or `None` for nodes that leave no
    /// record (host calls, events, empty nodes, graphs inside nodes). A node that became several of the driver's counts as
    /// their sum.
    pub fn of(&self, exec: &Exec) -> Vec<Option<u64>> {
        let times = exec.driver_nodes().map(|nodes| {
            let mut sum = 0u64;
            for node in nodes? {
                let mut runs = self.nodes.get(&node.addr())?.clone();
                runs.sort_unstable();
                sum += runs[runs.len() / 2];
            }
            Some(sum)
        });
        times.collect()
    }
}

fn unpoisoned<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
