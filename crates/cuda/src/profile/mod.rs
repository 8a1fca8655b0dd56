//! How long the nodes of a graph take on the device, each replay: as NVIDIA's profiling library sees it, else by events.
//!
//! A [`Profiler`] is started before a graph is instantiated: the executable's nodes are copies of the graph's, and only then
//! does the library say which is a copy of which. It records every kernel, copy and fill of every graph launch until it is
//! stopped; replays are slower meanwhile, the times of the nodes are not. The library, CUPTI, comes with the toolkit and as
//! `nvidia-cuda-cupti` from PyPI; `PHONOGRAPH_CUPTI` names its file. Where it does not load, the graph is built so that its nodes
//! run one after another with events between them (`split.rs`); which it was is told.

mod cupti;
mod records;
mod split;

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use phonograph_graph::{ComputeGraph, Schedule};
use phonograph_runtime::refused::check_graph;
use rustc_hash::FxHashMap;

use crate::bindings::{Bindings, InstantiateError};
use crate::cuda::Cuda;
use crate::exec::Exec;
use crate::loader::{Driver, Feature, LoadError};
use cupti::Cupti;

pub(crate) use split::Split;

/// Why nothing can be profiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The driver cannot time nodes either.
    #[error(transparent)]
    Load(#[from] LoadError),
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

/// How times of nodes are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Method {
    /// By NVIDIA's profiling library.
    Cupti,
    /// By events between the nodes, which run one after another.
    Events,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cupti => "CUPTI",
            Self::Events => "events between the nodes, one after another",
        })
    }
}

/// The one profiler of the process.
static ONE: Mutex<()> = Mutex::new(());

/// Finds what nodes take, from its start to [`stop`](Self::stop).
#[derive(Debug)]
pub struct Profiler {
    cupti: Option<&'static Cupti>,
    without: Option<ProfileError>,
    _one: MutexGuard<'static, ()>,
}

impl Profiler {
    /// Starts, by CUPTI if that is there and lets itself be started, else by events; [`method`](Self::method) tells.
    ///
    /// # Errors
    /// [`ProfileError::Busy`] if somebody profiles already; [`ProfileError::Load`] if the driver cannot do either.
    pub fn start() -> Result<Self, ProfileError> {
        let one = Self::one()?;
        match Self::recording() {
            Ok(cupti) => Ok(Self { cupti: Some(cupti), without: None, _one: one }),
            Err(error) => Self::by_events(one, Some(error)),
        }
    }

    /// Starts, by this method or not at all.
    ///
    /// # Errors
    /// [`ProfileError`]: without the library, with one of a version that is not known, and if somebody profiles already.
    pub fn with(method: Method) -> Result<Self, ProfileError> {
        let one = Self::one()?;
        match method {
            Method::Cupti => Ok(Self { cupti: Some(Self::recording()?), without: None, _one: one }),
            Method::Events => Self::by_events(one, None),
        }
    }

    /// The CUPTI library that would be used, by the name that it was found by.
    ///
    /// # Errors
    /// [`ProfileError`] says why there is none.
    pub fn cupti() -> Result<&'static str, ProfileError> {
        Ok(&Cupti::load()?.library)
    }

    fn one() -> Result<MutexGuard<'static, ()>, ProfileError> {
        match ONE.try_lock() {
            Ok(one) => Ok(one),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(ProfileError::Busy),
        }
    }

    /// The library, which records from here on.
    fn recording() -> Result<&'static Cupti, ProfileError> {
        let cupti = Cupti::load()?;
        records::state().clear();
        cupti.start()?;
        Ok(cupti)
    }

    fn by_events(
        one: MutexGuard<'static, ()>,
        without: Option<ProfileError>,
    ) -> Result<Self, ProfileError> {
        Driver::load()?.offers(Feature::Timing)?;
        Ok(Self { cupti: None, without, _one: one })
    }

    /// How it finds times.
    pub fn method(&self) -> Method {
        if self.cupti.is_some() { Method::Cupti } else { Method::Events }
    }

    /// Why CUPTI is not used, if it was wanted.
    pub fn without_cupti(&self) -> Option<&ProfileError> {
        self.without.as_ref()
    }

    /// Makes a graph ready to be replayed and looked at, as [`Cuda::instantiate`] does. Replays are slower than without a
    /// profiler; by events, nodes do not overlap. The times of nodes are of the replays that were waited for one by
    /// one, as [`Cuda::replay`] does.
    ///
    /// # Errors
    /// As for [`Cuda::instantiate`].
    pub fn instantiate(
        &self,
        cuda: &mut Cuda,
        graph: &ComputeGraph,
        schedule: &Schedule,
        bindings: &Bindings<'_>,
    ) -> Result<Exec, InstantiateError> {
        check_graph(graph, schedule)?;
        cuda.instantiate_checked(graph, schedule, bindings, Some(self.method()))
    }

    /// Stops, after all work issued so far is complete, which the caller has waited for.
    ///
    /// # Errors
    /// [`ProfileError::Lost`] if there was more than could be kept.
    pub fn stop(self) -> Result<Profile, ProfileError> {
        let Some(cupti) = self.cupti else { return Ok(Profile::default()) };
        cupti.stop()?;
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
    /// By the driver's node, as a number: what each run took, in nanoseconds. Empty without CUPTI: an executable's events are
    /// its own.
    nodes: FxHashMap<usize, Vec<u64>>,
}

impl Profile {
    /// What the nodes of a graph took: for each the median over its runs in nanoseconds, or `None` for nodes that leave no
    /// record: events and empty nodes; by CUPTI also host calls and graphs inside nodes, which events time as a whole.
    /// A node that became several of the driver's counts as their sum.
    pub fn of(&self, exec: &Exec) -> Vec<Option<u64>> {
        if let Some(split) = &exec.split {
            return split.times(exec.driver_nodes().count());
        }
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
