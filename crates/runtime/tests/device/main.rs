//! A device that many threads share, in both modes of the CPU.

#[macro_use]
mod common;
mod adopt;
mod faults;
mod lifecycle;
mod random_device;
mod shared_device;
mod traced;
