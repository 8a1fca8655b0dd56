//! How a capture's window was closed.

use super::{CaptureError, LogicalStreamId};

/// What closing a window came to: the owner's recording can be sealed, anybody else's call only gives the stream back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CaptureEnd {
    /// The owner closed it; what was recorded may be sealed.
    Owned {
        /// Who prepared the window.
        owner: LogicalStreamId,
    },
    /// Somebody else closed it; what was recorded is discarded, and the stream serves again.
    Abandoned {
        /// Who prepared the window.
        owner: LogicalStreamId,
    },
}

impl CaptureEnd {
    /// Who prepared the window.
    pub fn owner(&self) -> LogicalStreamId {
        match *self {
            CaptureEnd::Owned { owner } | CaptureEnd::Abandoned { owner } => owner,
        }
    }

    /// Whether the recording is discarded because its owner did not close the window.
    pub fn is_abandoned(&self) -> bool {
        matches!(self, CaptureEnd::Abandoned { .. })
    }

    /// The error for a caller that closed somebody else's window: always [`CaptureError::Several`], of which the first says
    /// who owned and who closed, and the second, if there is one, what had doomed the recording before.
    pub fn abandoned_error(
        &self,
        caller: LogicalStreamId,
        doomed: Option<CaptureError>,
    ) -> CaptureError {
        let abandoned = CaptureError::Abandoned { owner: self.owner(), caller };
        CaptureError::Several { errors: std::iter::once(abandoned).chain(doomed).collect() }
    }
}
