//! Typed ids: dense `u32` indices, one newtype a table, so that none can be mistaken for another.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub u32);

        impl $name {
            /// The id as an index into its table.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// The id of table row `index`.
            ///
            /// # Panics
            /// If `index` does not fit 32 bits; tables refuse to grow that far before this can happen.
            #[inline]
            pub fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).expect("an id table holds fewer than 2^32 rows"))
            }
        }

        impl From<u32> for $name {
            fn from(raw: u32) -> Self {
                Self(raw)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A node of one [`ComputeGraph`](crate::ComputeGraph), in creation order.
    NodeId,
    "n"
);
id!(
    /// A buffer declared in one [`ComputeGraph`](crate::ComputeGraph).
    BufferId,
    "b"
);
id!(
    /// A stream: work on one stream runs in the order it was issued.
    StreamId,
    "s"
);
id!(
    /// An event: recorded on one stream, waited for on others.
    EventId,
    "e"
);
id!(
    /// A slot: a value that the user sets before a replay.
    SlotId,
    "slot"
);
