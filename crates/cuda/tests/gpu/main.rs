//! The backend on a device; without one, each test says why it is skipped. Expressions are also run on the host, and all
//! generated code is compiled where there is NVRTC.

mod bits;
mod case;
mod compile;
mod foreign;
mod handles;
mod host;
mod nodes;
mod parts;
mod profile;
mod record;
mod replay;
mod watch;
