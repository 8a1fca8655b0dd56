//! Opaque kernels with hidden effects, and whether the order that watching their memory gives is enough for what they do.

use std::ops::ControlFlow;

use arbtest::arbitrary::{Result, Unstructured};
use phonograph_graph::{ComputeGraph, NodeId};
use phonograph_plan::recover::{
    BlockId, Change, Diverted, Limits, Observed, Opaque, Recovered, Subject, Verdict, recover,
};

const BYTES: usize = 16;

/// Which blocks a kernel's parameters name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Naming {
    /// Those that it reads and those that it writes.
    All,
    /// Those that it writes; where it reads from, it finds otherwise.
    Writes,
    /// None: it finds them by a table in memory.
    Nothing,
}

/// What a kernel does, unknown to what observes it.
#[derive(Clone, Debug)]
enum Kernel {
    /// Every byte that it writes depends on every byte that it reads.
    Mix { reads: Vec<usize>, writes: Vec<usize> },
    /// The same on what its first block holds, in place.
    InPlace { reads: Vec<usize>, block: usize },
    /// Only the second half of what it writes, at an offset.
    Half { read: usize, write: usize },
    /// Through scratch, which it leaves full.
    Through { read: usize, scratch: usize, write: usize },
    /// Through scratch, which it leaves as it found it.
    Tidy { read: usize, scratch: usize, write: usize },
    /// Clears the first half of a block.
    Clear { write: usize },
    /// Gives nothing of use unless the first half of a block is clear, and leaves it so.
    Counted { read: usize, counter: usize, write: usize },
    /// The same bytes, whatever happens.
    Constant { write: usize },
    /// The larger of each byte and a bound: it hides small differences.
    Clamp { read: usize, write: usize, least: u8 },
    /// Looks at `rare` only if a byte of what it reads is small.
    Rarely { read: usize, rare: usize, write: usize, below: u8 },
    /// Reads, and tells nobody.
    Silent { read: usize },
    /// Something new at every run.
    Random { write: usize },
}

impl Kernel {
    /// Blocks read and written: the truth.
    fn truth(&self) -> (Vec<usize>, Vec<usize>) {
        match self.clone() {
            Kernel::Mix { reads, writes } => (reads, writes),
            Kernel::InPlace { mut reads, block } => {
                reads.push(block);
                (reads, vec![block])
            }
            Kernel::Half { read, write } | Kernel::Clamp { read, write, .. } => {
                (vec![read], vec![write])
            }
            Kernel::Rarely { read, rare, write, .. } => (vec![read, rare], vec![write]),
            Kernel::Through { read, scratch, write } | Kernel::Tidy { read, scratch, write } => {
                (vec![read], vec![scratch, write])
            }
            Kernel::Counted { read, counter, write } => (vec![read, counter], vec![write]),
            Kernel::Clear { write } | Kernel::Constant { write } | Kernel::Random { write } => {
                (vec![], vec![write])
            }
            Kernel::Silent { read } => (vec![read], vec![]),
        }
    }
}

struct Machine {
    kernels: Vec<Kernel>,
    memory: Vec<Vec<u8>>,
    /// By kernel: how its blocks are named, and what it uses instead of some.
    naming: Vec<Naming>,
    diverted: Vec<Vec<Diverted>>,
    scratch: Vec<bool>,
    /// Blocks that are given; the others are the graph's own.
    inputs: usize,
    runs: u64,
}

type Bytes = Vec<u8>;

fn digest(seed: u64, blocks: &[Bytes]) -> u64 {
    blocks.iter().flatten().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
    })
}

fn spread(seed: u64) -> Bytes {
    let byte = |at: usize| (digest(seed, &[vec![at as u8; BYTES]]) >> 32) as u8;
    (0..BYTES).map(byte).collect()
}

impl Machine {
    fn new(kernels: Vec<Kernel>, inputs: usize, blocks: usize) -> Self {
        let memory = (0..blocks as u64).map(|block| spread(1000 + block)).collect();
        let (naming, diverted) = (vec![Naming::All; kernels.len()], vec![vec![]; kernels.len()]);
        Self { kernels, memory, naming, diverted, scratch: vec![false; blocks], inputs, runs: 0 }
    }

    /// Where a kernel really reads and writes a block.
    fn places(&self, node: usize, block: usize) -> (usize, usize) {
        let instead = self.diverted[node].iter().find(|d| d.block.0 as usize == block);
        let own = instead.map_or(block, |d| d.own.0 as usize);
        match self.naming[node] {
            Naming::All => (own, own),
            Naming::Writes => (block, own),
            Naming::Nothing => (block, block),
        }
    }

    /// Blocks that are really read and written.
    fn truth(&self, node: usize) -> (Vec<usize>, Vec<usize>) {
        let (reads, writes) = self.kernels[node].truth();
        let place = |block| self.places(node, block);
        (
            reads.into_iter().map(|block| place(block).0).collect(),
            writes.into_iter().map(|block| place(block).1).collect(),
        )
    }

    fn execute(&mut self, node: usize) {
        self.runs += 1;
        let of = |machine: &Machine, reads: &[usize]| -> u64 {
            let read: Vec<_> = reads
                .iter()
                .map(|&block| machine.memory[machine.places(node, block).0].clone())
                .collect();
            digest(node as u64, &read)
        };
        let put = |machine: &mut Machine, block: usize, bytes: Bytes| {
            let place = machine.places(node, block).1;
            machine.memory[place] = bytes;
        };
        match self.kernels[node].clone() {
            Kernel::Mix { reads, writes } => {
                let seed = of(self, &reads);
                for write in writes {
                    put(self, write, spread(seed ^ write as u64));
                }
            }
            Kernel::InPlace { mut reads, block } => {
                reads.push(block);
                let seed = of(self, &reads);
                put(self, block, spread(seed));
            }
            Kernel::Half { read, write } => {
                let whole = spread(of(self, &[read]));
                let place = self.places(node, write).1;
                self.memory[place][BYTES / 2..].copy_from_slice(&whole[BYTES / 2..]);
            }
            Kernel::Through { read, scratch, write } => {
                let seed = of(self, &[read]);
                put(self, scratch, spread(seed));
                let seed = of(self, &[scratch]);
                put(self, write, spread(seed));
            }
            Kernel::Rarely { read, rare, write, below } => {
                let place = self.places(node, read).0;
                let reads =
                    if self.memory[place][0] < below { vec![read, rare] } else { vec![read] };
                let seed = of(self, &reads);
                put(self, write, spread(seed));
            }
            Kernel::Tidy { read, write, .. } => {
                let seed = of(self, &[read]);
                put(self, write, spread(seed));
            }
            Kernel::Clear { write } => {
                let place = self.places(node, write).1;
                self.memory[place][..BYTES / 2].fill(0);
            }
            Kernel::Counted { read, counter, write } => {
                let seed = of(self, &[read]);
                let counter = &self.memory[self.places(node, counter).0][..BYTES / 2];
                let is_clear = counter.iter().all(|&byte| byte == 0);
                put(self, write, if is_clear { spread(seed) } else { vec![0; BYTES] });
            }
            Kernel::Constant { write } => put(self, write, vec![7; BYTES]),
            Kernel::Clamp { read, write, least } => {
                let bytes = &self.memory[self.places(node, read).0];
                let bytes = bytes.iter().map(|byte| *byte.max(&least)).collect();
                put(self, write, bytes);
            }
            Kernel::Silent { .. } => {}
            Kernel::Random { write } => {
                let seed = self.runs << 20;
                put(self, write, spread(seed));
            }
        }
    }
}

impl Subject for Machine {
    type Error = std::convert::Infallible;
    type Saved = Bytes;

    fn nodes(&self) -> u32 {
        self.kernels.len() as u32
    }

    fn blocks(&self) -> u32 {
        self.memory.len() as u32
    }

    fn name(&self, node: NodeId) -> String {
        format!("k{node}")
    }

    fn bytes(&self, block: BlockId) -> u64 {
        self.memory[block.0 as usize].len() as u64
    }

    fn named(&self, node: NodeId) -> Vec<(BlockId, u64)> {
        let (reads, writes) = self.kernels[node.index()].truth();
        let named: Vec<usize> = match self.naming[node.index()] {
            Naming::All => [reads, writes].concat(),
            Naming::Writes => writes,
            Naming::Nothing => vec![],
        };
        named.into_iter().map(|block| (BlockId(block as u32), 0)).collect()
    }

    fn is_scratch(&self, block: BlockId) -> bool {
        self.scratch.get(block.0 as usize).is_some_and(|scratch| *scratch)
    }

    fn give(&mut self, sample: u32) -> std::result::Result<(), Self::Error> {
        for block in 0..self.inputs {
            self.memory[block] = spread(u64::from(sample) << 32 | block as u64);
        }
        Ok(())
    }

    fn run(&mut self, node: NodeId) -> std::result::Result<(), Self::Error> {
        self.execute(node.index());
        Ok(())
    }

    fn save(&mut self, blocks: &[BlockId]) -> std::result::Result<Vec<Self::Saved>, Self::Error> {
        Ok(blocks.iter().map(|block| self.memory[block.0 as usize].clone()).collect())
    }

    fn restore(
        &mut self,
        copies: &[(BlockId, &Self::Saved)],
    ) -> std::result::Result<(), Self::Error> {
        for &(block, saved) in copies {
            assert_eq!(self.memory[block.0 as usize].len(), saved.len());
            self.memory[block.0 as usize] = saved.clone();
        }
        Ok(())
    }

    fn clear(&mut self, blocks: &[BlockId]) -> std::result::Result<(), Self::Error> {
        blocks.iter().for_each(|block| self.memory[block.0 as usize].fill(0));
        Ok(())
    }

    fn changed(
        &mut self,
        expected: &[(BlockId, &Self::Saved)],
    ) -> std::result::Result<Vec<Change>, Self::Error> {
        let change = |&(block, saved): &(BlockId, &Self::Saved)| {
            let now = &self.memory[block.0 as usize];
            let differs = |at: &usize| now[*at] != saved[*at];
            let first = (0..BYTES).find(differs)?;
            let last = (0..BYTES).rfind(differs)?;
            Some(Change { block, bytes: first as u64..last as u64 + 1 })
        };
        Ok(expected.iter().filter_map(change).collect())
    }

    fn spare(&mut self, bytes: u64) -> std::result::Result<Option<BlockId>, Self::Error> {
        self.memory.push(vec![0; bytes as usize]);
        Ok(Some(BlockId(self.memory.len() as u32 - 1)))
    }

    fn divert(
        &mut self,
        node: NodeId,
        instead: &[Diverted],
    ) -> std::result::Result<bool, Self::Error> {
        let named = self.named(node);
        let names = |instead: &Diverted| named.iter().any(|(block, _)| *block == instead.block);
        let all = instead.iter().all(names);
        if all {
            self.diverted[node.index()] = instead.to_vec();
        }
        Ok(all)
    }
}

fn observe(kernels: &[Kernel], inputs: usize, blocks: usize, limits: Limits) -> Recovered {
    observe_on(&mut Machine::new(kernels.to_vec(), inputs, blocks), limits)
}

fn observe_on(machine: &mut Machine, limits: Limits) -> Recovered {
    let before = machine.memory.clone();
    let recovered = recover(machine, limits, &mut |_| ControlFlow::Continue(()));
    assert_eq!(machine.memory[..before.len()], before, "the memory is not as it was");
    recovered.expect("the machine never fails")
}

/// Conflicts of the truth, on blocks that count, which the order leaves open.
fn open_conflicts(
    machine: &Machine,
    graph: &ComputeGraph,
    counts: impl Fn(usize) -> bool,
) -> Vec<(usize, usize)> {
    let truth: Vec<_> = (0..machine.kernels.len()).map(|node| machine.truth(node)).collect();
    let meets =
        |a: &[usize], b: &[usize]| a.iter().any(|block| b.contains(block) && counts(*block));
    let mut open = Vec::new();
    for (later, (reads, writes)) in truth.iter().enumerate() {
        for (earlier, (read, written)) in truth[..later].iter().enumerate() {
            let conflict = meets(written, reads) || meets(written, writes) || meets(read, writes);
            let ordered = graph.is_reachable(NodeId(earlier as u32), NodeId(later as u32));
            if conflict && !ordered {
                open.push((earlier, later));
            }
        }
    }
    open
}

/// By block: whether a replay on another input leaves, or finds on its way, other bytes than the last.
fn changing(kernels: &[Kernel], inputs: usize, blocks: usize) -> Vec<bool> {
    let mut machine = Machine::new(kernels.to_vec(), inputs, blocks);
    let mut changes = vec![false; blocks];
    for sample in 0..4 {
        machine.give(sample).unwrap();
        for node in 0..kernels.len() {
            let before = machine.memory.clone();
            machine.execute(node);
            for block in 0..blocks {
                changes[block] |= sample > 0 && machine.memory[block] != before[block];
            }
        }
    }
    changes
}

fn any_kernel(u: &mut Unstructured, blocks: usize, inputs: usize) -> Result<Kernel> {
    let read = |u: &mut Unstructured| u.choose_index(blocks);
    let write = |u: &mut Unstructured| Ok(inputs + u.choose_index(blocks - inputs)?);
    let some = |u: &mut Unstructured| -> Result<Vec<usize>> {
        (0..u.int_in_range(1..=3)?).map(|_| read(u)).collect()
    };
    Ok(match u.int_in_range(0..=9)? {
        0..=4 => Kernel::Mix {
            reads: some(u)?,
            writes: (0..u.int_in_range(1..=2)?).map(|_| write(u)).collect::<Result<_>>()?,
        },
        5 => Kernel::InPlace { reads: some(u)?, block: write(u)? },
        6 => Kernel::Half { read: read(u)?, write: write(u)? },
        7 => Kernel::Through { read: read(u)?, scratch: write(u)?, write: write(u)? },
        8 => Kernel::Constant { write: write(u)? },
        _ => Kernel::Silent { read: read(u)? },
    })
}

/// Kernels like those that a library launches for one call, through scratch that all calls share.
fn any_call(u: &mut Unstructured, blocks: usize, inputs: usize) -> Result<Vec<Kernel>> {
    let scratch = blocks - 1;
    let (read, write) =
        (u.choose_index(blocks - 1)?, inputs + u.choose_index(blocks - 1 - inputs)?);
    let first = Kernel::Mix { reads: vec![read], writes: vec![scratch] };
    let last = Kernel::Mix { reads: vec![scratch], writes: vec![write] };
    Ok(match u.int_in_range(0..=3)? {
        0 => vec![Kernel::Through { read, scratch, write }],
        1 => vec![first, Kernel::InPlace { reads: vec![], block: scratch }, last],
        2 => vec![first, any_kernel(u, blocks - 1, inputs)?, last],
        _ => vec![first, last],
    })
}

#[test]
fn what_is_observed_orders_every_conflict() {
    let (mut graphs, mut private) = (0, 0);
    arbtest::arbtest(|u| {
        let inputs = u.int_in_range(1..=3)?;
        let blocks = inputs + u.int_in_range(2..=20)?;
        let count = u.int_in_range(0..=24)?;
        let mut kernels = Vec::new();
        while kernels.len() < count {
            match u.arbitrary()? {
                true => kernels.push(any_kernel(u, blocks, inputs)?),
                false => kernels.extend(any_call(u, blocks, inputs)?),
            }
        }
        let zeros = u.arbitrary()?;
        let limits = Limits { rounds: 2, zeros, ..Limits::default() };
        let mut machine = Machine::new(kernels.clone(), inputs, blocks);
        for naming in &mut machine.naming {
            let one = [Naming::All, Naming::All, Naming::All, Naming::Writes, Naming::Nothing];
            *naming = *u.choose(&one)?;
        }
        for scratch in &mut machine.scratch[inputs..] {
            *scratch = u.ratio(1, 4)?;
        }
        machine.scratch[blocks - 1] = u.ratio(3, 4)?;
        let mut captured = Machine::new(kernels.clone(), inputs, blocks);
        let recovered = observe_on(&mut machine, limits);
        assert!(
            matches!(recovered.verdict, Verdict::Verified { .. }),
            "{recovered:?}\n{kernels:?}"
        );
        let changes = changing(&kernels, inputs, blocks);
        let counts = |block: usize| zeros || changes.get(block).is_none_or(|changes| *changes);
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
        Ok(())
    })
    .size_min(2000)
    .budget_ms(2000);
    println!("{graphs} graphs, {private} with copies of scratch memory");
}

/// What becomes of cases that watching memory cannot, or can only just, tell apart.
#[test]
fn adversarial_cases() {
    let (read, write) = (0, 2);
    let to = |read: usize, write: usize| Kernel::Mix { reads: vec![read], writes: vec![write] };
    let cases: Vec<(&str, Vec<Kernel>)> = vec![
        (
            "two branches and a join",
            vec![to(0, 2), to(1, 3), Kernel::Mix { reads: vec![2, 3], writes: vec![4] }],
        ),
        ("in place", vec![to(0, 2), Kernel::InPlace { reads: vec![], block: 2 }, to(2, 3)]),
        ("read, then overwritten", vec![to(0, 2), to(2, 3), to(1, 2), to(2, 4)]),
        (
            "scratch that both leave full",
            vec![
                Kernel::Through { read: 0, scratch: 5, write: 2 },
                Kernel::Through { read: 1, scratch: 5, write: 3 },
            ],
        ),
        (
            "scratch that both leave as it was",
            vec![
                Kernel::Tidy { read: 0, scratch: 5, write: 2 },
                Kernel::Tidy { read: 1, scratch: 5, write: 3 },
            ],
        ),
        (
            "a read that hides small differences",
            vec![to(0, 2), Kernel::Clamp { read: 2, write: 3, least: 200 }, to(3, 4)],
        ),
        (
            "a read that hides all differences",
            vec![to(0, 2), Kernel::Clamp { read: 2, write: 3, least: 255 }, to(3, 4)],
        ),
        (
            "a read that the data seldom asks for",
            vec![to(0, 2), Kernel::Rarely { read: 1, rare: 2, write: 3, below: 2 }],
        ),
        (
            "the same bytes at every replay",
            vec![Kernel::Constant { write: 2 }, Kernel::Mix { reads: vec![0, 2], writes: vec![3] }],
        ),
        (
            "a counter that is cleared, in front of what differs",
            vec![
                to(0, 5),
                to(5, 2),
                Kernel::Clear { write: 5 },
                Kernel::Counted { read: 1, counter: 5, write: 3 },
            ],
        ),
        ("writes nothing", vec![to(0, 2), Kernel::Silent { read: 2 }, to(1, 3)]),
        ("never twice the same", vec![to(0, 2), Kernel::Random { write: 3 }, to(1, 4)]),
        ("half a block each", vec![to(0, 2), Kernel::Half { read: 1, write: 2 }, to(2, 3)]),
    ];
    let mut told = String::new();
    for (name, kernels) in cases {
        for zeros in [false, true] {
            let mut machine = Machine::new(kernels.clone(), read + write, 6);
            let recovered = observe_on(&mut machine, Limits { zeros, ..Limits::default() });
            told += &tell(name, zeros, &machine, &recovered);
        }
    }
    insta::assert_snapshot!(told);
}

/// What becomes of kernels that share scratch memory: block 5.
#[test]
fn scratch_memory() {
    use Naming::{All, Nothing, Writes};
    let through = |read, write| Kernel::Through { read, scratch: 5, write };
    let to = |read: usize, write: usize| Kernel::Mix { reads: vec![read], writes: vec![write] };
    let pair = || vec![through(0, 2), to(2, 3), to(2, 3), through(1, 4)];
    let calls = || vec![to(0, 5), to(5, 2), to(2, 3), to(2, 3), to(1, 5), to(5, 4)];
    let gap = vec![to(0, 5), to(0, 2), to(5, 3), to(3, 2), to(3, 2), through(1, 4)];
    let cases: Vec<(&str, Vec<Kernel>, Naming)> = vec![
        ("two kernels", pair(), All),
        ("two kernels, and no parameter names it", pair(), Nothing),
        ("two kernels, and where they read from is not named", pair(), Writes),
        ("two calls of two kernels", calls(), All),
        ("two calls of two kernels, and where they read from is not named", calls(), Writes),
        ("a call with something else in between", gap, All),
        (
            "a result that waits there for long",
            vec![
                to(0, 5),
                to(0, 2),
                to(0, 3),
                to(2, 4),
                to(5, 4),
                to(4, 3),
                to(4, 3),
                through(1, 2),
            ],
            All,
        ),
        (
            "something that waits there for the next replay",
            vec![to(5, 2), to(2, 3), to(1, 4), to(0, 5)],
            All,
        ),
        (
            "half of it each",
            vec![
                Kernel::Half { read: 0, write: 5 },
                to(5, 2),
                to(2, 3),
                to(2, 3),
                to(1, 5),
                to(5, 4),
            ],
            All,
        ),
        (
            "left as it was found",
            vec![
                Kernel::Tidy { read: 0, scratch: 5, write: 2 },
                to(2, 3),
                to(2, 3),
                Kernel::Tidy { read: 1, scratch: 5, write: 4 },
            ],
            All,
        ),
    ];
    let mut told = String::new();
    for (name, kernels, naming) in cases {
        let mut machine = Machine::new(kernels, 2, 6);
        machine.scratch[5] = true;
        machine.naming.fill(naming);
        let recovered = observe_on(&mut machine, Limits::default());
        told += &tell(name, false, &machine, &recovered);
        for private in &recovered.private {
            let nodes: Vec<_> = private.nodes.iter().map(|node| node.index()).collect();
            told += &format!("  {nodes:?} have a copy: {:?}\n", private.instead.own);
        }
    }
    insta::assert_snapshot!(told);
}

fn tell(name: &str, zeros: bool, machine: &Machine, recovered: &Recovered) -> String {
    let list = |pairs: &[(usize, usize)]| -> String {
        let pairs: Vec<String> = pairs.iter().map(|(a, b)| format!("{a}→{b}")).collect();
        if pairs.is_empty() { "none".to_owned() } else { pairs.join(" ") }
    };
    let edges: Vec<_> =
        recovered.graph.edges().map(|edge| (edge.from.index(), edge.to.index())).collect();
    let missed: Vec<_> =
        recovered.missed.iter().map(|m| (m.before.index(), m.after.index())).collect();
    let open = open_conflicts(machine, &recovered.graph, |_| true);
    let mut told = format!("{name}{}\n", if zeros { ", zeros allowed" } else { "" });
    told += &format!("  order: {}; found by verification: {}\n", list(&edges), list(&missed));
    for (node, seen) in recovered.observed.iter().enumerate() {
        if let Some(opaque) = seen.opaque {
            told += &format!("  {node} keeps its place: {opaque}\n");
        }
        if !seen.assumed.is_empty() {
            told += &format!("  {node} may read {:?}\n", seen.assumed);
        }
    }
    told += &format!("  {:?}; conflicts left open: {}\n", recovered.verdict, list(&open));
    told
}

/// What was not seen is found by running other orders, and only what is needed is added.
#[test]
fn verification_finds_missing_orders() {
    let kernels = vec![
        Kernel::Mix { reads: vec![0], writes: vec![1] },
        Kernel::Mix { reads: vec![0], writes: vec![2] },
        Kernel::Rarely { read: 0, rare: 1, write: 3, below: 20 },
        Kernel::Mix { reads: vec![0], writes: vec![1] },
    ];
    let limits = Limits { rounds: 40, ..Limits::default() };
    let mut machine = Machine::new(kernels, 1, 4);
    let recovered = observe_on(&mut machine, limits);
    insta::assert_snapshot!(tell("rarely seen", false, &machine, &recovered));
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
    assert_eq!(recovered.verdict, Verdict::Stopped);
    let unseen = |seen: &Observed| seen.opaque == Some(Opaque::NotExamined);
    assert!(recovered.observed.iter().all(unseen));
    assert_eq!(recovered.graph.edge_count(), 3, "the captured chain");
}
