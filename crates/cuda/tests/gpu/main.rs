//! The backend on a device; without one, each test says why it is skipped.

mod bits;
mod case;
mod nodes;
