//! Opaque kernels with hidden effects, and whether the order that watching their memory gives is enough for what they do.

use std::ops::ControlFlow;

use phonograph_plan::recover::{Limits, Recovered, recover};

use machine::Machine;

mod cases;
mod limits;
mod machine;
mod random;

fn observe_on(machine: &mut Machine, limits: Limits) -> Recovered {
    let before = machine.memory.clone();
    let recovered = recover(machine, limits, &mut |_| ControlFlow::Continue(()));
    assert_eq!(machine.memory[..before.len()], before, "the memory is not as it was");
    recovered.expect("the machine never fails")
}
