//! What has been issued and not been told of: by stream, with the executables that know what has failed.
//!
//! An executable notes its first fault, whichever of its launches it was in. So it is asked when nothing of it runs any more;
//! only where a later launch of one that may fail is under way has that to be waited for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use phonograph_runtime::cpu::kernels::Registry;
use phonograph_runtime::streams::{BackendError, Failed, PooledStreamId, Step, Ticket};

use super::at;
use crate::exec::{Exec, ReplayError};
use crate::stream::Stream;

/// An executable, and how many launches of it have not been told of.
pub(super) struct Issuable {
    pub exec: Exec,
    under_way: usize,
    /// What its nodes call by name. Goes after the executable.
    _called: Registry,
}

/// The owner's share, or that of a launch.
pub(super) type Shared = Arc<Mutex<Issuable>>;

pub(super) fn shared(exec: Exec, called: Registry) -> Shared {
    Arc::new(Mutex::new(Issuable { exec, under_way: 0, _called: called }))
}

pub(super) fn lock(exec: &Mutex<Issuable>) -> MutexGuard<'_, Issuable> {
    // A panic elsewhere leaves it as an error in the same place would.
    exec.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Issuable {
    /// What has failed in launches that are over, all but those under way.
    fn fault(&mut self) -> Result<(), ReplayError> {
        if self.under_way == 0 {
            // It is known to be over, so that nobody has to wait for its stream when it goes.
            self.exec.last = None;
            return self.exec.take_fault();
        }
        // What cannot fail has nothing to tell.
        let may_fail = self.exec.faults.is_some() || !self.exec.hosts.is_empty();
        if may_fail { self.exec.finish() } else { Ok(()) }
    }
}

struct Launched {
    ticket: Ticket,
    step: Step,
    exec: Shared,
}

#[derive(Default)]
pub(super) struct Launches {
    /// What may have something to tell.
    issued: BTreeMap<PooledStreamId, Vec<Launched>>,
    /// What has nothing more to tell. It is not destroyed while a stream records.
    finished: Vec<Shared>,
}

impl Launches {
    pub fn issue(
        &mut self,
        on: PooledStreamId,
        stream: &Stream,
        exec: &Shared,
        step: Step,
        ticket: Ticket,
    ) -> Result<(), BackendError> {
        let mut issuable = lock(exec);
        issuable.exec.launch_ordered(stream).map_err(at(step))?;
        issuable.under_way += 1;
        self.issued.entry(on).or_default().push(Launched { ticket, step, exec: exec.clone() });
        Ok(())
    }

    /// What has failed of the launches of a stream up to this ticket, all of which are over.
    pub fn settle(
        &mut self,
        on: PooledStreamId,
        up_to: Ticket,
    ) -> Result<Vec<Failed>, BackendError> {
        let Some(issued) = self.issued.get_mut(&on) else { return Ok(Vec::new()) };
        let over: Vec<Launched> =
            issued.extract_if(.., |launched| launched.ticket <= up_to).collect();
        over.iter().for_each(|launched| lock(&launched.exec).under_way -= 1);
        let mut failed = Vec::new();
        for Launched { ticket, step, exec } in over {
            match lock(&exec).fault() {
                Ok(()) => {}
                Err(ReplayError::Driver(error)) => {
                    return Err(BackendError::new(Step::Fence, error));
                }
                Err(error) => failed.push(Failed { ticket, error: BackendError::new(step, error) }),
            }
            self.finished.push(exec);
        }
        Ok(failed)
    }

    /// Lets go of what is finished. Nothing records.
    pub fn let_go(&mut self) {
        self.finished.clear();
    }
}
