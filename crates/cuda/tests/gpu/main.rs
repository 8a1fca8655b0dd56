//! The backend on a device; without one, each test says why it is skipped. Expressions are also run on the host, and all
//! generated code is compiled where there is NVRTC.

mod bits;
mod case;
mod compile;
#[path = "../../../runtime/tests/graphs/every_node.rs"]
mod every_node;
mod foreign;
mod handles;
mod host;
mod nodes;
mod profile;
mod record;
mod replay;
#[path = "../../../runtime/tests/graphs/case.rs"]
mod shared_case;
mod watch;
