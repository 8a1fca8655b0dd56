//! Scratch that graphs of one group have in common.
//!
//! A page that a sealed graph has touched is guarded, because a replay may write it at any time. What a graph writes as a whole
//! before it reads it, and nobody holds, is of no use to anybody between two of its replays, though: another graph may have it
//! as well, if the two never run at the same time. They do not, because launches that touch the same slice conflict, and the
//! device puts the later one behind the earlier. What is proved here is the rest: that the slice is scratch to every graph that
//! has it, when it is lent and again when the window is sealed.

use std::collections::BTreeMap;

use super::backend::{Backend, PooledStreamId};
use super::queue::Core;
use super::window::Recorded;
use crate::capture::CaptureError;
use crate::pool::{GroupId, SizeClass, Slice};

impl<B: Backend> Core<B> {
    /// The name of a graph that uses a slice, if all that do only use it as scratch.
    fn scratch_of(&self, slice: Slice) -> Option<&str> {
        let mut using = None;
        for sealed in self.graphs.values() {
            let here = sealed.recorded.buffers.values().filter(|member| member.slice == slice);
            for member in here {
                if member.input {
                    return None;
                }
                using = Some(&*sealed.recorded.name);
            }
        }
        // Of a page that is guarded, a slice that no graph uses is nobody's.
        Some(using.unwrap_or_default())
    }

    /// A slice that only graphs of this group use, and those as scratch: each writes all of it before it reads any, so
    /// another may write it between two of their replays. O(pages + buffers of all graphs) for each slice looked at.
    pub fn take_shared(
        &mut self,
        on: PooledStreamId,
        class: SizeClass,
        group: GroupId,
        bytes: u64,
    ) -> Option<(Slice, String)> {
        let free: Vec<Slice> = self.pools.shared(on, class, group).collect();
        let (slice, with) = free.into_iter().find_map(|slice| {
            let with = self.scratch_of(slice)?;
            Some((slice, with.to_owned()))
        })?;
        self.pools.take_this(slice, bytes);
        Some((slice, with))
    }

    pub fn available_shared(&self, on: PooledStreamId, class: SizeClass, group: GroupId) -> u64 {
        let free = self.pools.shared(on, class, group);
        free.filter(|&slice| self.scratch_of(slice).is_some()).count() as u64
    }

    /// Why memory that a window took from other graphs of its group cannot be theirs as well. Where they use the same slice
    /// their launches conflict, so the device has one wait for the other, whatever streams they are on.
    pub fn more_than_scratch(
        &self,
        recorded: &Recorded,
        shared: &[(Slice, String)],
    ) -> Option<CaptureError> {
        let with: BTreeMap<Slice, &str> = shared
            .iter()
            .map(|(slice, with)| (*slice, &**with))
            .filter(|s| !s.1.is_empty())
            .collect();
        recorded.buffers.iter().find_map(|(key, member)| {
            let with = with.get(&member.slice)?;
            let problem = match (member.input, self.alive.contains(key)) {
                (true, _) => "the window reads it before it has written all of it",
                (false, true) => "somebody holds it after the window",
                (false, false) => return None,
            };
            let (buffer, with) = (member.name.to_string(), (*with).to_owned());
            Some(CaptureError::Shared { buffer, with, problem })
        })
    }
}
