//! A device that many threads share, in both modes of the CPU. The files that name no mode are also tests of the CUDA
//! backend, which includes them.

mod branches;
mod fault_points;
mod faults;
mod keeping;
mod kinds;
mod modes;
mod random_device;
mod refusals;
mod shared_device;
mod sharing;
mod side_by_side;
mod submission;
mod taint;
mod traced;
mod warm_up;
mod windows;
mod work;
