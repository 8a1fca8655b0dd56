//! Opaque kernels with hidden effects, and whether the order that watching their memory gives is enough for what they do.

use std::ops::ControlFlow;

use arbtest::arbitrary::{Result, Unstructured};
use phonograph_graph::{ComputeGraph, NodeId};
use phonograph_plan::recover::{
    BlockId, Limits, Observed, Opaque, Recovered, Subject, Verdict, recover,
};

const BYTES: usize = 16;

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
            Kernel::Constant { write } | Kernel::Random { write } => (vec![], vec![write]),
            Kernel::Silent { read } => (vec![read], vec![]),
        }
    }
}

struct Machine {
    kernels: Vec<Kernel>,
    memory: Vec<[u8; BYTES]>,
    /// Blocks that are given; the others are the graph's own.
    inputs: usize,
    runs: u64,
}

fn digest(seed: u64, blocks: &[[u8; BYTES]]) -> u64 {
    blocks.iter().flatten().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
    })
}

fn spread(seed: u64) -> [u8; BYTES] {
    let mut block = [0; BYTES];
    for (at, byte) in block.iter_mut().enumerate() {
        *byte = (digest(seed, &[[at as u8; BYTES]]) >> 32) as u8;
    }
    block
}

impl Machine {
    fn new(kernels: Vec<Kernel>, inputs: usize, blocks: usize) -> Self {
        let memory = (0..blocks as u64).map(|block| spread(1000 + block)).collect();
        Self { kernels, memory, inputs, runs: 0 }
    }

    fn execute(&mut self, node: usize) {
        self.runs += 1;
        let of = |memory: &[[u8; BYTES]], reads: &[usize]| -> u64 {
            let read: Vec<_> = reads.iter().map(|&block| memory[block]).collect();
            digest(node as u64, &read)
        };
        match self.kernels[node].clone() {
            Kernel::Mix { reads, writes } => {
                let seed = of(&self.memory, &reads);
                for write in writes {
                    self.memory[write] = spread(seed ^ write as u64);
                }
            }
            Kernel::InPlace { mut reads, block } => {
                reads.push(block);
                self.memory[block] = spread(of(&self.memory, &reads));
            }
            Kernel::Half { read, write } => {
                let whole = spread(of(&self.memory, &[read]));
                self.memory[write][BYTES / 2..].copy_from_slice(&whole[BYTES / 2..]);
            }
            Kernel::Through { read, scratch, write } => {
                self.memory[scratch] = spread(of(&self.memory, &[read]));
                self.memory[write] = spread(of(&self.memory, &[scratch]));
            }
            Kernel::Rarely { read, rare, write, below } => {
                let reads =
                    if self.memory[read][0] < below { vec![read, rare] } else { vec![read] };
                self.memory[write] = spread(of(&self.memory, &reads));
            }
            Kernel::Tidy { read, write, .. } => {
                self.memory[write] = spread(of(&self.memory, &[read]));
            }
            Kernel::Constant { write } => self.memory[write] = [7; BYTES],
            Kernel::Clamp { read, write, least } => {
                self.memory[write] = self.memory[read].map(|byte| byte.max(least));
            }
            Kernel::Silent { .. } => {}
            Kernel::Random { write } => self.memory[write] = spread(self.runs << 20),
        }
    }
}

impl Subject for Machine {
    type Error = std::convert::Infallible;
    type Saved = [u8; BYTES];

    fn nodes(&self) -> u32 {
        self.kernels.len() as u32
    }

    fn blocks(&self) -> u32 {
        self.memory.len() as u32
    }

    fn name(&self, node: NodeId) -> String {
        format!("k{node}")
    }

    fn bytes(&self, _: BlockId) -> u64 {
        BYTES as u64
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

    fn save(&mut self, block: BlockId) -> std::result::Result<Self::Saved, Self::Error> {
        Ok(self.memory[block.0 as usize])
    }

    fn restore(
        &mut self,
        block: BlockId,
        saved: &Self::Saved,
    ) -> std::result::Result<(), Self::Error> {
        self.memory[block.0 as usize] = *saved;
        Ok(())
    }

    fn clear(&mut self, block: BlockId) -> std::result::Result<(), Self::Error> {
        self.memory[block.0 as usize] = [0; BYTES];
        Ok(())
    }

    fn changed(
        &mut self,
        expected: &[(BlockId, &Self::Saved)],
    ) -> std::result::Result<Vec<BlockId>, Self::Error> {
        let differs = |&(block, saved): &(BlockId, &Self::Saved)| {
            (self.memory[block.0 as usize] != *saved).then_some(block)
        };
        Ok(expected.iter().filter_map(differs).collect())
    }
}

fn observe(kernels: &[Kernel], inputs: usize, blocks: usize, limits: Limits) -> Recovered {
    let mut machine = Machine::new(kernels.to_vec(), inputs, blocks);
    let before = machine.memory.clone();
    let recovered = recover(&mut machine, limits, &mut |_| ControlFlow::Continue(()));
    assert_eq!(machine.memory, before, "the memory is not as it was");
    recovered.expect("the machine never fails")
}

/// Conflicts of the truth, on blocks that count, which the order leaves open.
fn open_conflicts(
    kernels: &[Kernel],
    graph: &ComputeGraph,
    counts: impl Fn(usize) -> bool,
) -> Vec<(usize, usize)> {
    let truth: Vec<_> = kernels.iter().map(Kernel::truth).collect();
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

#[test]
fn what_is_observed_orders_every_conflict() {
    let mut graphs = 0;
    arbtest::arbtest(|u| {
        let inputs = u.int_in_range(1..=3)?;
        let blocks = inputs + u.int_in_range(1..=20)?;
        let count = u.int_in_range(0..=24)?;
        let kernels: Vec<Kernel> =
            (0..count).map(|_| any_kernel(u, blocks, inputs)).collect::<Result<_>>()?;
        let zeros = u.arbitrary()?;
        let limits = Limits { rounds: 2, zeros, ..Limits::default() };
        let recovered = observe(&kernels, inputs, blocks, limits);
        assert!(
            matches!(recovered.verdict, Verdict::Verified { .. }),
            "{recovered:?}\n{kernels:?}"
        );
        let changes = changing(&kernels, inputs, blocks);
        let open = open_conflicts(&kernels, &recovered.graph, |block| zeros || changes[block]);
        assert!(open.is_empty(), "{open:?} are not ordered\n{kernels:#?}\n{recovered:#?}");
        graphs += 1;
        Ok(())
    })
    .size_min(2000)
    .budget_ms(2000);
    println!("{graphs} graphs");
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
        ("writes nothing", vec![to(0, 2), Kernel::Silent { read: 2 }, to(1, 3)]),
        ("never twice the same", vec![to(0, 2), Kernel::Random { write: 3 }, to(1, 4)]),
        ("half a block each", vec![to(0, 2), Kernel::Half { read: 1, write: 2 }, to(2, 3)]),
    ];
    let mut told = String::new();
    for (name, kernels) in cases {
        for zeros in [false, true] {
            let recovered =
                observe(&kernels, read + write, 6, Limits { zeros, ..Limits::default() });
            told += &tell(name, zeros, &kernels, &recovered);
        }
    }
    insta::assert_snapshot!(told);
}

fn tell(name: &str, zeros: bool, kernels: &[Kernel], recovered: &Recovered) -> String {
    let list = |pairs: &[(usize, usize)]| -> String {
        let pairs: Vec<String> = pairs.iter().map(|(a, b)| format!("{a}→{b}")).collect();
        if pairs.is_empty() { "none".to_owned() } else { pairs.join(" ") }
    };
    let edges: Vec<_> =
        recovered.graph.edges().map(|edge| (edge.from.index(), edge.to.index())).collect();
    let missed: Vec<_> =
        recovered.missed.iter().map(|m| (m.before.index(), m.after.index())).collect();
    let open = open_conflicts(kernels, &recovered.graph, |_| true);
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
    let recovered = observe(&kernels, 1, 4, limits);
    insta::assert_snapshot!(tell("rarely seen", false, &kernels, &recovered));
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
