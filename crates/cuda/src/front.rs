//! What a launch looks at, and the launch itself: of one executable, or of a large graph's parts one after another.

use crate::error::DriverError;
use crate::graph::Executable;
use crate::order::Turn;
use crate::stream::Stream;

/// A part of a graph that has an executable of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PartId(pub u32);

/// What a launch looks at, in one line of the cache: a launch of a large graph leaves none of it there.
#[repr(align(64))]
pub(crate) struct Front {
    /// Of the only part, or the first one.
    pub executable: Executable,
    /// The turn of its last launch.
    pub turn: Turn,
    /// Whether something is to be done before the next launch: slots without memory, changes, memory to be let go.
    pub pending: bool,
    /// Of the other parts, each launched after the one before.
    pub rest: Box<[Executable]>,
}

impl Front {
    /// Issues a run of all parts to the stream.
    #[inline]
    pub fn launch(&mut self, stream: &Stream) -> Result<(), DriverError> {
        // Looked at before the launch, which leaves nothing in the caches.
        match self.rest.is_empty() {
            true => self.executable.launch(stream),
            false => self.launch_parts(stream),
        }
    }

    /// Where the driver refuses a part, those before it have been issued.
    #[cold]
    fn launch_parts(&mut self, stream: &Stream) -> Result<(), DriverError> {
        self.parts().try_for_each(|part| part.launch(stream))
    }

    /// The executables of all parts, in order.
    pub fn parts(&mut self) -> impl Iterator<Item = &mut Executable> {
        std::iter::once(&mut self.executable).chain(&mut self.rest)
    }

    /// The executable of a part.
    pub fn part(&self, part: PartId) -> &Executable {
        match part.0.checked_sub(1) {
            None => &self.executable,
            Some(at) => &self.rest[at as usize],
        }
    }
}
