//! Graphs at random: what is observed orders every conflict of the truth, and replays give the captured order's bytes.

use arbtest::arbitrary::{Result, Unstructured};
use phonograph_plan::recover::{Limits, Subject, Verdict};

use crate::machine::{BYTES, Kernel, Machine, Naming, Touch, open_conflicts};
use crate::observe_on;

/// By block: which bytes a replay on another input leaves, or finds on its way, otherwise than the last.
fn changing(kernels: &[Kernel], inputs: usize, blocks: usize) -> Vec<[bool; BYTES]> {
    let mut machine = Machine::new(kernels.to_vec(), inputs, blocks);
    let mut changes = vec![[false; BYTES]; blocks];
    for sample in 0..4 {
        machine.give(sample).unwrap();
        for node in 0..kernels.len() {
            let before = machine.memory.clone();
            machine.execute(node);
            for block in 0..blocks {
                for (at, byte) in before[block].iter().enumerate() {
                    changes[block][at] |= sample > 0 && machine.memory[block][at] != *byte;
                }
            }
        }
    }
    changes
}

/// Writes to the block `halved`, if there is one, only in halves.
fn any_kernel(
    u: &mut Unstructured,
    blocks: usize,
    inputs: usize,
    halved: Option<usize>,
) -> Result<Kernel> {
    let read = |u: &mut Unstructured| u.choose_index(blocks);
    let write = |u: &mut Unstructured| {
        let block = inputs + u.choose_index(blocks - inputs)?;
        Ok(if Some(block) == halved { inputs } else { block })
    };
    let some = |u: &mut Unstructured| -> Result<Vec<usize>> {
        (0..u.int_in_range(1..=3)?).map(|_| read(u)).collect()
    };
    Ok(match u.int_in_range(0..=9)? {
        0..=4 => Kernel::Mix {
            reads: some(u)?,
            writes: (0..u.int_in_range(1..=2)?).map(|_| write(u)).collect::<Result<_>>()?,
        },
        5 => Kernel::InPlace { reads: some(u)?, block: write(u)? },
        6 => {
            let write = halved.map_or_else(|| write(u), Ok)?;
            Kernel::Half { read: read(u)?, write, upper: u.arbitrary()? }
        }
        7 => Kernel::Through { read: read(u)?, scratch: write(u)?, write: write(u)? },
        8 => Kernel::Constant { write: write(u)? },
        _ => Kernel::Silent { read: read(u)? },
    })
}

/// Kernels like those that a library launches for one call, through scratch that all calls share.
fn any_call(
    u: &mut Unstructured,
    blocks: usize,
    inputs: usize,
    halved: Option<usize>,
) -> Result<Vec<Kernel>> {
    let scratch = blocks - 1;
    let (read, mut write) =
        (u.choose_index(blocks - 1)?, inputs + u.choose_index(blocks - 1 - inputs)?);
    if Some(write) == halved {
        write = inputs;
    }
    let first = Kernel::Mix { reads: vec![read], writes: vec![scratch] };
    let last = Kernel::Mix { reads: vec![scratch], writes: vec![write] };
    Ok(match u.int_in_range(0..=4)? {
        4 => {
            let other = any_kernel(u, blocks - 1, inputs, halved)?;
            let counting = Kernel::Counting { read, counter: scratch, write };
            vec![Kernel::Clear { write: scratch }, other, counting]
        }
        0 => vec![Kernel::Through { read, scratch, write }],
        1 => vec![first, Kernel::InPlace { reads: vec![], block: scratch }, last],
        2 => vec![first, any_kernel(u, blocks - 1, inputs, halved)?, last],
        _ => vec![first, last],
    })
}

#[test]
fn what_is_observed_orders_every_conflict() {
    let (mut graphs, mut private, mut cut) = (0, 0, 0);
    arbtest::arbtest(|u| {
        let inputs = u.int_in_range(1..=3)?;
        let blocks = inputs + u.int_in_range(3..=20)?;
        let halved = u.arbitrary::<bool>()?.then_some(blocks - 2);
        let count = u.int_in_range(0..=24)?;
        let mut kernels = Vec::new();
        while kernels.len() < count {
            if let Some(write) = halved.filter(|_| u.ratio(1, 5).unwrap_or(false)) {
                let (read, upper) = (u.choose_index(blocks)?, u.arbitrary()?);
                kernels.push(Kernel::Half { read, write, upper });
            }
            match u.arbitrary()? {
                true => kernels.push(any_kernel(u, blocks, inputs, halved)?),
                false => kernels.extend(any_call(u, blocks, inputs, halved)?),
            }
        }
        let zeros = u.arbitrary()?;
        let limits = Limits { rounds: 2, zeros, ..Limits::default() };
        let mut machine = Machine::new(kernels.clone(), inputs, blocks);
        for (naming, kernel) in machine.naming.iter_mut().zip(&kernels) {
            let one = [Naming::All, Naming::All, Naming::All, Naming::Writes, Naming::Nothing];
            *naming = *u.choose(&one)?;
            // Moved, it would read one memory and write another. Only the results that somebody reads tell, so that what it
            // leaves for nobody may come from anywhere: no conflict that counts, but one by the truth.
            let (reads, writes) = kernel.truth();
            if *naming == Naming::Writes && reads.iter().any(|read| writes.contains(read)) {
                *naming = Naming::All;
            }
            // What waits for ever on other bytes has to say where it waits, and what clears them which it clears.
            if matches!(kernel, Kernel::Clear { .. } | Kernel::Counting { .. }) {
                *naming = Naming::All;
            }
        }
        for scratch in &mut machine.scratch[inputs..] {
            *scratch = u.ratio(1, 4)?;
        }
        machine.scratch[blocks - 1] = u.ratio(3, 4)?;
        // What is written whole before anything reads it may hold anything until then.
        for block in inputs..blocks {
            let of = |touches: Vec<Touch>| touches.into_iter().find(|touch| touch.0 == block);
            let first = kernels.iter().map(Kernel::truth).find_map(|(reads, writes)| {
                let (read, written) = (of(reads), of(writes));
                (read.is_some() || written.is_some()).then_some((read, written))
            });
            let whole = matches!(&first, Some((None, Some((_, bytes)))) if *bytes == (0..BYTES));
            machine.fresh[block] = whole && u.arbitrary()?;
        }
        let mut captured = Machine::new(kernels.clone(), inputs, blocks);
        let recovered = observe_on(&mut machine, limits);
        assert!(!machine.endless, "{kernels:?}\n{:?}", machine.naming);
        assert!(
            matches!(recovered.verdict, Verdict::Verified { .. }),
            "{recovered:?}\n{kernels:?}"
        );
        let changes = changing(&kernels, inputs, blocks);
        let counts = |(block, bytes): Touch| {
            zeros || changes.get(block).is_none_or(|changes| changes[bytes].contains(&true))
        };
        let open = open_conflicts(&machine, &recovered.graph, counts);
        assert!(
            open.is_empty(),
            "{open:?} are not ordered\n{kernels:?}\n{:?}\n{:?}",
            machine.naming,
            recovered.private
        );
        // Replays one after the other, what the last one left being what the next one finds.
        for replay in 0..4 {
            captured.give(100 + replay).unwrap();
            machine.give(100 + replay).unwrap();
            (0..kernels.len()).for_each(|node| captured.execute(node));
            let order = recovered.graph.topological_order();
            match replay {
                0 => (0..kernels.len()).for_each(|node| machine.execute(node)),
                _ => order.iter().for_each(|node| machine.execute(node.index())),
            }
            for block in (0..blocks).filter(|&block| !machine.scratch[block]) {
                assert_eq!(
                    machine.memory[block], captured.memory[block],
                    "block {block} in replay {replay}\n{kernels:?}\n{:?}\n{:?}",
                    machine.naming, recovered.private
                );
            }
        }
        graphs += 1;
        private += u32::from(!recovered.private.is_empty());
        cut += u32::from(machine.is_cut());
        Ok(())
    })
    .size_min(2000)
    .budget_ms(2000);
    println!("{graphs} graphs, {private} with copies of scratch memory, {cut} with blocks cut");
}
