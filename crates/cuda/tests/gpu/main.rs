//! The backend on a device; without one, each test says why it is skipped. Expressions are also run on the host, and all
//! generated code is compiled where there is NVRTC.

mod adopted;
mod bits;
mod captures;
mod case;
mod compile;
mod devices;
#[path = "../../../runtime/tests/graphs/every_node.rs"]
mod every_node;
mod foreign;
mod handles;
mod host;
mod kernels;
mod nodes;
#[path = "../../../runtime/tests/graphs/operations.rs"]
mod operations;
mod order;
mod parts;
mod profile;
mod record;
mod refusals;
mod replay;
mod reuse;
#[path = "../../../runtime/tests/graphs/samples.rs"]
mod samples;
#[path = "../../../runtime/tests/graphs/case.rs"]
mod shared_case;
mod slots;
mod watch;
mod wide;
