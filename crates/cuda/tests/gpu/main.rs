//! The backend on a device; without one, each test says why it is skipped. Expressions are also run on the host.

mod bits;
mod case;
mod handles;
mod host;
mod nodes;
