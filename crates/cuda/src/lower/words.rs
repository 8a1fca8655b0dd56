//! Words of the parameter block: one for each scalar slot that a generated kernel takes, and one for each place in a pointer
//! slot.

use phonograph_graph::{Arg, BufferId, BufferRole, ComputeGraph, KernelRef, NodeId};
use phonograph_kernels::cuda::change_words;
use rustc_hash::FxHashMap;

use super::Lowering;
use super::scope::Scope;
use crate::bindings::InstantiateError;
use crate::block::{Block, WordId};
use crate::error::DriverError;
use crate::memory::Memory;
use crate::module::Function;
use crate::slots::{PointerSlot, ScalarSlot, Use};

/// The words given out so far.
#[derive(Default)]
pub(super) struct Words {
    values: Vec<u64>,
    places: FxHashMap<(BufferId, u64), WordId>,
    /// Where they will be, if there can be any.
    memory: Option<Memory>,
    /// The kernel that changes them, once there is one.
    change: Option<Function>,
}

impl Words {
    /// The address of the word that holds a scalar slot.
    pub fn scalar(&mut self, slot: &mut ScalarSlot) -> u64 {
        let word = *slot.word.get_or_insert(WordId(self.values.len() as u32));
        if word.0 as usize == self.values.len() {
            self.values.push(slot.value.to_bits());
        }
        self.address(word)
    }

    /// The address of the word that holds the address so many bytes into a pointer slot.
    pub fn pointer(
        &mut self,
        slots: &mut FxHashMap<BufferId, PointerSlot>,
        slot: BufferId,
        offset: u64,
    ) -> u64 {
        let next = WordId(self.values.len() as u32);
        let word = *self.places.entry((slot, offset)).or_insert(next);
        if word == next {
            let slot = slots.get_mut(&slot).expect("`bind` has one for each");
            slot.uses.push(Use::Word(word, offset));
            let memory = slot.bound.as_ref().or(slot.stand_in.as_ref());
            self.values.push(memory.map_or(0, Memory::address) + offset);
        }
        self.address(word)
    }

    /// The parameter block, if some kernel reads it.
    pub fn into_block(self) -> Option<Block> {
        Some(Block::new(self.values, self.memory?, self.change?))
    }

    fn address(&self, word: WordId) -> u64 {
        let memory = self.memory.as_ref().expect("there is room for all words");
        memory.address() + u64::from(word.0) * 8
    }
}

impl Lowering<'_> {
    /// Memory for as many words as the graph may need: nodes are made with the words' addresses before all are known.
    pub(super) fn room_for_words(&mut self, graph: &ComputeGraph) -> Result<(), DriverError> {
        let places = if self.pointer_slots.is_empty() { 0 } else { places(graph) };
        self.room_for(graph.slots().len() + places)
    }

    /// Memory for so many words, unless there is some already.
    pub(super) fn room_for(&mut self, words: usize) -> Result<(), DriverError> {
        if words > 0 && self.held.words.memory.is_none() {
            let (owner, device) = (self.target.owner, &self.target.devices[0]);
            self.held.words.memory = Some(Memory::on_device(owner, device, words as u64 * 8)?);
        }
        Ok(())
    }

    /// Has the kernel that changes words, for a node that reads one.
    pub(super) fn need_words(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
    ) -> Result<(), InstantiateError> {
        if self.held.words.change.is_none() {
            let device = self.target.devices[0].clone();
            self.held.words.change = Some(self.compiled(scope, id, &device, &change_words())?);
        }
        Ok(())
    }

    /// The parameter block, if some kernel reads it.
    pub(super) fn block(&mut self) -> Option<Block> {
        std::mem::take(&mut self.held.words).into_block()
    }
}

/// How many operands of generated kernels may lie in pointer slots. Recursive over nesting, which graphs bound.
fn places(graph: &ComputeGraph) -> usize {
    let may_be_slot = |buffer: BufferId| {
        matches!(graph.buffer(buffer).role, BufferRole::Slot(_) | BufferRole::Outer(_))
    };
    let of_node = |node: &phonograph_graph::Node| {
        let args = match node.kernel() {
            Some(kernel) if !matches!(kernel.kernel, KernelRef::Named(_)) => &kernel.args[..],
            _ => &[],
        };
        let own = args.iter().filter(|arg| match arg {
            Arg::View(view, _) => may_be_slot(view.buffer),
            _ => false,
        });
        own.count() + node.kind.inner_graphs().iter().map(places).sum::<usize>()
    };
    graph.nodes().iter().map(of_node).sum()
}
