//! What work touches, and contents that are not what they should be.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::handle::BufferKey;
use super::op::Operation;
use super::order::{Position, Touched};
use crate::capture::CaptureError;

/// What work touches, and how.
#[derive(Default)]
pub(super) struct Touch {
    pub slices: Vec<Touched>,
    pub reads: Vec<(BufferKey, Arc<str>)>,
    pub written: Vec<BufferKey>,
    /// Written as a whole, by work that reads nothing of it before.
    pub whole: Vec<BufferKey>,
}

impl Touch {
    pub fn of(op: &Operation) -> Self {
        let mut touch = Touch::default();
        for (buffer, used) in op.uses() {
            touch.slices.push(Touched { slice: buffer.slice(), writes: used.writes });
            if used.reads {
                touch.reads.push((buffer.key(), buffer.shared_name()));
            }
            if used.writes {
                touch.written.push(buffer.key());
            }
            if used.whole {
                touch.whole.push(buffer.key());
            }
        }
        touch
    }
}

/// Contents that are not what they should be, since some position.
struct Taint {
    since: Position,
    cause: Arc<CaptureError>,
}

/// The buffers of a device that are tainted.
#[derive(Default)]
pub(super) struct Taints(FxHashMap<BufferKey, Taint>);

impl Taints {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Taints a buffer, unless something newer has.
    pub fn insert(&mut self, key: BufferKey, since: Position, cause: &Arc<CaptureError>) {
        if self.0.get(&key).is_none_or(|taint| taint.since <= since) {
            self.0.insert(key, Taint { since, cause: cause.clone() });
        }
    }

    pub fn forget(&mut self, key: BufferKey) {
        self.0.remove(&key);
    }

    /// An error if the buffer is tainted.
    pub fn check(&self, key: BufferKey, name: &str) -> Result<(), CaptureError> {
        self.0.get(&key).map_or(Ok(()), |taint| Err(tainted(name, &taint.cause)))
    }

    /// An error if an input was tainted before this position.
    pub fn clean(&self, touch: &Touch, at: Position) -> Result<(), CaptureError> {
        if self.0.is_empty() {
            return Ok(()); // what a launch costs does not grow with what its graph touches
        }
        let taint = touch.reads.iter().find_map(|(key, name)| {
            let taint = self.0.get(key).filter(|taint| taint.since < at)?;
            Some(tainted(name, &taint.cause))
        });
        taint.map_or(Ok(()), Err)
    }

    /// Lifts the taints from before this position of what is written as a whole there.
    pub fn rewritten(&mut self, touch: &Touch, at: Position) {
        if self.0.is_empty() {
            return;
        }
        for key in &touch.whole {
            if self.0.get(key).is_some_and(|taint| taint.since <= at) {
                self.0.remove(key);
            }
        }
    }
}

fn tainted(name: &str, cause: &Arc<CaptureError>) -> CaptureError {
    // Taint of taint would nest without end; the first cause is the one to act on.
    let cause = match &**cause {
        CaptureError::Tainted { cause, .. } => cause.clone(),
        _ => cause.clone(),
    };
    CaptureError::Tainted { buffer: name.into(), cause }
}
