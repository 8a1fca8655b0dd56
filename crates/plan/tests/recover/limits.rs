//! Stops and limits.

use std::ops::ControlFlow;

use phonograph_plan::recover::{Limits, Observed, Opaque, Recovered, Verdict, recover};

use crate::machine::{BYTES, Kernel, Machine};
use crate::observe_on;

fn observe(kernels: &[Kernel], inputs: usize, blocks: usize, limits: Limits) -> Recovered {
    observe_on(&mut Machine::new(kernels.to_vec(), inputs, blocks), limits)
}

#[test]
fn a_stop_is_reported_and_leaves_everything_in_order() {
    let kernels: Vec<Kernel> =
        (0..6).map(|k| Kernel::Mix { reads: vec![k % 2], writes: vec![2 + k] }).collect();
    let steps = {
        let mut steps = 0;
        let mut machine = Machine::new(kernels.clone(), 2, 8);
        recover(&mut machine, Limits::default(), &mut |_| {
            steps += 1;
            ControlFlow::Continue(())
        })
        .expect("the machine never fails");
        steps
    };
    for stop in 0..steps {
        let mut machine = Machine::new(kernels.clone(), 2, 8);
        let before = machine.memory.clone();
        let mut left = stop;
        let recovered = recover(&mut machine, Limits::default(), &mut |_| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            left -= 1;
            ControlFlow::Continue(())
        })
        .expect("the machine never fails");
        assert_eq!(machine.memory, before);
        assert_eq!(recovered.verdict, Verdict::Stopped, "after {stop} steps");
    }
}

#[test]
fn copies_keep_to_their_limit() {
    let kernels = vec![Kernel::Mix { reads: vec![0], writes: vec![1] }; 4];
    let limits = Limits { saved_bytes: 3 * BYTES as u64, ..Limits::default() };
    let recovered = observe(&kernels, 1, 2, limits);
    assert_eq!(recovered.verdict, Verdict::Full);
    let unseen = |seen: &Observed| seen.opaque == Some(Opaque::NotExamined);
    assert!(recovered.observed.iter().all(unseen));
    assert_eq!(recovered.graph.edge_count(), 3, "the captured chain");
}
