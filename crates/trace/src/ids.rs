//! Dense ids of what a call may name. Each is given out by [`Names`](crate::Names), or by whoever watches a running program.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub u32);

        impl $name {
            /// The position of this id in dense storage.
            pub fn index(self) -> usize {
                self.0 as usize
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
    /// A stream that the program created.
    StreamId, "s"
);
id!(
    /// An event that the program created.
    EventId, "e"
);
id!(
    /// A thread of the program; 0 is the main thread.
    ThreadId, "@"
);
id!(
    /// A piece of memory: an allocation, a pool allocation or a host buffer, by the name the program gave it.
    MemoryId, "m"
);
id!(
    /// A graph that the program named: one that captures are begun into, or one that a capture ended with.
    GraphId, "g"
);
id!(
    /// A node that the program added to a graph itself and gave a name.
    NodeId, "n"
);
