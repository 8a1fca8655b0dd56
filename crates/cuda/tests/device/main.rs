//! The behaviours of a shared device, on CUDA: the same tests that both modes of the CPU pass.

#[path = "../../../runtime/tests/device/adopt.rs"]
mod adopt;
#[path = "../../../runtime/tests/device/branches.rs"]
mod branches;
mod fault_points;
#[path = "../../../runtime/tests/device/faults.rs"]
mod faults;
#[path = "../../../runtime/tests/device/hosts.rs"]
mod hosts;
#[path = "../../../runtime/tests/device/keeping.rs"]
mod keeping;
#[path = "../../../runtime/tests/device/kinds.rs"]
mod kinds;
mod modes;
#[path = "../../../runtime/tests/device/random_device.rs"]
mod random_device;
#[path = "../../../runtime/tests/device/raw.rs"]
mod raw;
mod recorded;
#[path = "../../../runtime/tests/device/refusals.rs"]
mod refusals;
#[path = "../../../runtime/tests/device/shared_device.rs"]
mod shared_device;
#[path = "../../../runtime/tests/device/sharing.rs"]
mod sharing;
#[path = "../../../runtime/tests/device/submission.rs"]
mod submission;
#[path = "../../../runtime/tests/device/taint.rs"]
mod taint;
#[path = "../../../runtime/tests/device/traced.rs"]
mod traced;
#[path = "../../../runtime/tests/device/warm_up.rs"]
mod warm_up;
#[path = "../../../runtime/tests/device/windows.rs"]
mod windows;
#[path = "../../../runtime/tests/device/work.rs"]
mod work;
