//! A machine whose kernels are opaque to what observes it, and the truth about them.

use std::ops::Range;

use phonograph_graph::{ComputeGraph, NodeId};
use phonograph_plan::recover::{BlockId, Change, Diverted, Subject};

pub const BYTES: usize = 16;

/// Which blocks a kernel's parameters name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Naming {
    /// Those that it reads and those that it writes.
    All,
    /// Those that it writes; where it reads from, it finds otherwise.
    Writes,
    /// None: it finds them by a table in memory.
    Nothing,
}

/// What a kernel does, unknown to what observes it.
#[derive(Clone, Debug)]
pub enum Kernel {
    /// Every byte that it writes depends on every byte that it reads.
    Mix { reads: Vec<usize>, writes: Vec<usize> },
    /// The same on what its first block holds, in place.
    InPlace { reads: Vec<usize>, block: usize },
    /// Only half of what it writes, the upper one at an offset.
    Half { read: usize, write: usize, upper: bool },
    /// Through scratch, which it leaves full.
    Through { read: usize, scratch: usize, write: usize },
    /// Through scratch, which it leaves as it found it.
    Tidy { read: usize, scratch: usize, write: usize },
    /// Clears the first half of a block.
    Clear { write: usize },
    /// Gives nothing of use unless the first half of a block is clear, and leaves it so.
    Counted { read: usize, counter: usize, write: usize },
    /// Never ends unless the first half of a block is clear, and counts there to the same number every time.
    Counting { read: usize, counter: usize, write: usize },
    /// Never ends if the first half of a block is clear.
    Waiting { read: usize, flag: usize, write: usize },
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

/// Bytes of a block.
pub type Touch = (usize, Range<usize>);

fn whole(blocks: Vec<usize>) -> Vec<Touch> {
    blocks.into_iter().map(|block| (block, 0..BYTES)).collect()
}

/// One half of a block.
fn half(upper: bool) -> Range<usize> {
    if upper { BYTES / 2..BYTES } else { 0..BYTES / 2 }
}

impl Kernel {
    /// What is read and written: the truth.
    pub fn truth(&self) -> (Vec<Touch>, Vec<Touch>) {
        match self.clone() {
            Kernel::Mix { reads, writes } => (whole(reads), whole(writes)),
            Kernel::InPlace { mut reads, block } => {
                reads.push(block);
                (whole(reads), whole(vec![block]))
            }
            Kernel::Half { read, write, upper } => (whole(vec![read]), vec![(write, half(upper))]),
            Kernel::Clamp { read, write, .. } => (whole(vec![read]), whole(vec![write])),
            Kernel::Rarely { read, rare, write, .. } => {
                (whole(vec![read, rare]), whole(vec![write]))
            }
            Kernel::Through { read, scratch, write } | Kernel::Tidy { read, scratch, write } => {
                (whole(vec![read]), whole(vec![scratch, write]))
            }
            Kernel::Counted { read, counter: other, write }
            | Kernel::Waiting { read, flag: other, write } => {
                (vec![(read, 0..BYTES), (other, half(false))], whole(vec![write]))
            }
            Kernel::Counting { read, counter, write } => (
                vec![(read, 0..BYTES), (counter, half(false))],
                vec![(counter, half(false)), (write, 0..BYTES)],
            ),
            Kernel::Clear { write } => (vec![], vec![(write, half(false))]),
            Kernel::Constant { write } | Kernel::Random { write } => (vec![], whole(vec![write])),
            Kernel::Silent { read } => (whole(vec![read]), vec![]),
        }
    }
}

pub struct Machine {
    pub kernels: Vec<Kernel>,
    pub memory: Vec<Vec<u8>>,
    /// By block as it is seen: which bytes of which memory it is.
    pieces: Vec<Touch>,
    /// By kernel: how its blocks are named, and what it uses instead of some.
    pub naming: Vec<Naming>,
    pub diverted: Vec<Vec<Diverted>>,
    pub scratch: Vec<bool>,
    pub fresh: Vec<bool>,
    /// By kernel: whether it is excluded.
    pub excluded: Vec<bool>,
    /// Whether a kernel has waited for what never comes.
    pub endless: bool,
    /// Blocks that are given; the others are the graph's own.
    pub inputs: usize,
    pub runs: u64,
}

pub type Bytes = Vec<u8>;

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
    pub fn new(kernels: Vec<Kernel>, inputs: usize, blocks: usize) -> Self {
        let memory = (0..blocks as u64).map(|block| spread(1000 + block)).collect();
        let pieces = whole((0..blocks).collect());
        let (naming, diverted) = (vec![Naming::All; kernels.len()], vec![vec![]; kernels.len()]);
        let excluded = vec![false; kernels.len()];
        let (scratch, fresh) = (vec![false; blocks], vec![false; blocks]);
        Self {
            kernels,
            memory,
            pieces,
            naming,
            diverted,
            scratch,
            fresh,
            excluded,
            endless: false,
            inputs,
            runs: 0,
        }
    }

    /// Whether a block was cut.
    pub fn is_cut(&self) -> bool {
        self.pieces.len() > self.memory.len()
    }

    fn piece(&mut self, block: BlockId) -> &mut [u8] {
        let (memory, bytes) = self.pieces[block.0 as usize].clone();
        &mut self.memory[memory][bytes]
    }

    /// Where a kernel really reads and writes a block.
    fn places(&self, node: usize, block: usize) -> (usize, usize) {
        let memory = |block: BlockId| self.pieces[block.0 as usize].0;
        let instead = self.diverted[node].iter().find(|d| memory(d.block) == block);
        let own = instead.map_or(block, |d| memory(d.own));
        match self.naming[node] {
            Naming::All => (own, own),
            Naming::Writes => (block, own),
            Naming::Nothing => (block, block),
        }
    }

    /// What is really read and written.
    fn truth(&self, node: usize) -> (Vec<Touch>, Vec<Touch>) {
        let (reads, writes) = self.kernels[node].truth();
        let place = |block| self.places(node, block);
        (
            reads.into_iter().map(|(block, bytes)| (place(block).0, bytes)).collect(),
            writes.into_iter().map(|(block, bytes)| (place(block).1, bytes)).collect(),
        )
    }

    pub fn execute(&mut self, node: usize) {
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
            Kernel::Half { read, write, upper } => {
                let whole = spread(of(self, &[read]));
                let place = self.places(node, write).1;
                self.memory[place][half(upper)].copy_from_slice(&whole[half(upper)]);
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
            Kernel::Counting { read, counter, write } => {
                let seed = of(self, &[read]);
                let (from, to) = self.places(node, counter);
                self.endless |= self.memory[from][..BYTES / 2].iter().any(|&byte| byte != 0);
                self.memory[to][..BYTES / 2].fill(9);
                put(self, write, spread(seed));
            }
            Kernel::Waiting { read, flag, write } => {
                let seed = of(self, &[read]);
                let flag = &self.memory[self.places(node, flag).0][..BYTES / 2];
                self.endless |= flag.iter().all(|&byte| byte == 0);
                put(self, write, spread(seed));
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
        self.pieces.len() as u32
    }

    fn name(&self, node: NodeId) -> String {
        format!("k{node}")
    }

    fn bytes(&self, block: BlockId) -> u64 {
        self.pieces[block.0 as usize].1.len() as u64
    }

    fn named(&self, node: NodeId) -> Vec<(BlockId, u64)> {
        let (reads, writes) = self.kernels[node.index()].truth();
        let named: Vec<Touch> = match self.naming[node.index()] {
            Naming::All => [reads, writes].concat(),
            Naming::Writes => writes,
            Naming::Nothing => vec![],
        };
        let named = |memory: usize| named.iter().any(|(block, _)| *block == memory);
        let pieces = (0..).map(BlockId).zip(&self.pieces);
        pieces.filter(|(_, (memory, _))| named(*memory)).map(|(block, _)| (block, 0)).collect()
    }

    fn is_excluded(&self, node: NodeId) -> bool {
        self.excluded[node.index()]
    }

    fn is_scratch(&self, block: BlockId) -> bool {
        self.scratch.get(self.pieces[block.0 as usize].0).is_some_and(|scratch| *scratch)
    }

    fn is_fresh(&self, block: BlockId) -> bool {
        self.fresh.get(self.pieces[block.0 as usize].0).is_some_and(|fresh| *fresh)
    }

    fn cut(&mut self, borders: &[(BlockId, u64)]) {
        let mut pieces = Vec::new();
        for (block, (memory, bytes)) in (0..).map(BlockId).zip(self.pieces.drain(..)) {
            let mut start = bytes.start;
            for (_, at) in borders.iter().filter(|border| border.0 == block) {
                let end = bytes.start + *at as usize;
                assert!(start < end && end < bytes.end, "{borders:?}");
                pieces.push((memory, start..end));
                start = end;
            }
            pieces.push((memory, start..bytes.end));
        }
        self.pieces = pieces;
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
        Ok(blocks.iter().map(|&block| self.piece(block).to_vec()).collect())
    }

    fn save_changes(
        &mut self,
        changes: &[(&Change, &Self::Saved)],
    ) -> std::result::Result<Vec<(Self::Saved, u64)>, Self::Error> {
        let save = |(change, before): &(&Change, &Self::Saved)| {
            let (mut saved, bytes) = ((*before).clone(), change.bytes.clone());
            let changed = bytes.start as usize..bytes.end as usize;
            saved[changed.clone()].copy_from_slice(&self.piece(change.block)[changed]);
            (saved, bytes.end - bytes.start)
        };
        Ok(changes.iter().map(save).collect())
    }

    fn restore(
        &mut self,
        copies: &[(BlockId, &Self::Saved)],
    ) -> std::result::Result<(), Self::Error> {
        copies.iter().for_each(|&(block, saved)| self.piece(block).copy_from_slice(saved));
        Ok(())
    }

    fn spoil(&mut self, blocks: &[BlockId]) -> std::result::Result<(), Self::Error> {
        blocks.iter().for_each(|&block| self.piece(block).fill(0x9d));
        Ok(())
    }

    fn clear(&mut self, blocks: &[BlockId]) -> std::result::Result<(), Self::Error> {
        blocks.iter().for_each(|&block| self.piece(block).fill(0));
        Ok(())
    }

    fn changed(
        &mut self,
        expected: &[(BlockId, &Self::Saved)],
    ) -> std::result::Result<Vec<Change>, Self::Error> {
        let change = |&(block, saved): &(BlockId, &Self::Saved)| {
            let now = self.piece(block);
            let differs = |at: &usize| now[*at] != saved[*at];
            let first = (0..now.len()).find(differs)?;
            let last = (0..now.len()).rfind(differs)?;
            Some(Change { block, bytes: first as u64..last as u64 + 1 })
        };
        Ok(expected.iter().filter_map(change).collect())
    }

    fn spare(&mut self, bytes: u64) -> std::result::Result<Option<BlockId>, Self::Error> {
        self.memory.push(vec![0; bytes as usize]);
        self.pieces.push((self.memory.len() - 1, 0..bytes as usize));
        Ok(Some(BlockId(self.pieces.len() as u32 - 1)))
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

/// Conflicts of the truth, on bytes that count, which the order leaves open.
pub fn open_conflicts(
    machine: &Machine,
    graph: &ComputeGraph,
    counts: impl Fn(Touch) -> bool,
) -> Vec<(usize, usize)> {
    let truth: Vec<_> = (0..machine.kernels.len()).map(|node| machine.truth(node)).collect();
    let meets = |a: &[Touch], b: &[Touch]| {
        a.iter().any(|(block, these)| {
            b.iter().filter(|(other, _)| other == block).any(|(_, those)| {
                let both = these.start.max(those.start)..these.end.min(those.end);
                !both.is_empty() && counts((*block, both))
            })
        })
    };
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
