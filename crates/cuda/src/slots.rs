//! What changes between replays: slots, and the operations of the driver that hold their values.
//!
//! In: values and memory, set or bound between replays. Out: words of the parameter block, which is copied before the next
//! launch, and nodes of the driver with other parameters, which it is told before that, once for each node however often it
//! changed. O(uses of the slot) to set one, O(changed operations) for the launch.

use cudarc::driver::sys::CUgraphNode;
use phonograph_graph::{BufferId, Scalar, SlotId};
use phonograph_runtime::cpu::SetError;
use phonograph_runtime::refused::{SlotExtent, check_value};

use crate::block::WordId;
use crate::device::Device;
use crate::error::{DriverError, call};
use crate::exec::Exec;
use crate::front::PartId;
use crate::launch::{Launch, Pointers};
use crate::memory::Memory;
use crate::order::Turn;
use crate::transfer::Transfer;

/// A place among the [`Exec`]'s operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OpId(pub u32);

/// A node of the driver whose parameters may change between replays.
pub(crate) struct Op {
    pub node: CUgraphNode,
    pub work: Work,
    pub part: PartId,
    pub changed: bool,
}

pub(crate) enum Work {
    Kernel(Launch),
    Transfer(Transfer),
}

/// Where the address of a buffer goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Use {
    /// A parameter of a kernel: this many bytes after the buffer's first.
    Parameter(OpId, usize, u64),
    Source(OpId, u64),
    Destination(OpId, u64),
    Filled(OpId, u64),
    /// A word of the parameter block.
    Word(WordId, u64),
}

/// A pointer slot: what is bound, and every place of its address.
pub(crate) struct PointerSlot {
    pub extent: SlotExtent,
    pub on_host: bool,
    /// Where its memory lies, unless that is the host's.
    pub device: Device,
    /// Whether the graph writes what is bound.
    pub writes: bool,
    pub bound: Option<Memory>,
    /// What nodes name until memory is bound for the first time.
    pub stand_in: Option<Memory>,
    pub uses: Vec<Use>,
}

pub(crate) struct ScalarSlot {
    pub value: Scalar,
    pub uses: Vec<(OpId, usize)>,
    /// Where generated kernels read it.
    pub word: Option<WordId>,
}

impl ScalarSlot {
    pub fn new(value: Scalar) -> Self {
        Self { value, uses: Vec::new(), word: None }
    }
}

impl Exec {
    /// Sets a scalar slot for the replays to come. O(uses of the slot).
    ///
    /// # Errors
    /// [`SetError`] for a slot that the graph does not have, or a value of another type; the slot then keeps what it had.
    pub fn set(&mut self, slot: SlotId, value: impl Into<Scalar>) -> Result<(), SetError> {
        let value = value.into();
        let known = self.scalar_slots.get_mut(slot.index()).ok_or(SetError::UnknownSlot(slot))?;
        check_value(slot, known.value, value)?;
        if known.value == value {
            return Ok(());
        }
        known.value = value;
        self.front.pending = true;
        if let (Some(word), Some(block)) = (known.word, &mut self.block) {
            block.set(word, value.to_bits());
        }
        for &(id, index) in &known.uses {
            let op = &mut self.ops[id.0 as usize];
            let Work::Kernel(launch) = &mut op.work else {
                unreachable!("only kernels have scalar parameters")
            };
            launch.values.set(index, value.to_bits());
            note(op, id, &mut self.changed);
        }
        Ok(())
    }

    /// Binds memory to a pointer slot for the replays to come. O(bound buffers + uses of the slot).
    ///
    /// # Errors
    /// [`SetError`] for what is no pointer slot, and for memory that is too small, elsewhere, or bound to another buffer
    /// already; the slot then keeps what it had.
    pub fn bind(&mut self, buffer: BufferId, memory: &Memory) -> Result<(), SetError> {
        let slots = self.pointer_slots.iter();
        let bound = slots.filter_map(|(id, slot)| Some((id, slot.bound.as_ref()?)));
        let taken = bound.chain(&self.memory).map(|(&id, memory)| (id, memory.span()));
        let slot = self.pointer_slots.get(&buffer).ok_or(SetError::NotASlot(buffer))?;
        let there = slot.on_host || memory.device().is(&slot.device);
        if !memory.belongs_to(&self.owner) || memory.is_on_host() != slot.on_host || !there {
            return Err(SetError::OtherDevice);
        }
        slot.extent.check(memory.span(), taken)?;
        let slot = self.pointer_slots.get_mut(&buffer).expect("it is there");
        self.adopted.bind(buffer, memory);
        // A replay that still runs uses what was bound before.
        self.retired.extend(slot.bound.replace(memory.clone()));
        self.unbound.remove(&buffer);
        // What is bound may be in use elsewhere, so the next launch asks.
        (self.front.turn, self.front.pending) = (Turn::default(), true);
        let address = memory.address();
        for &place in &slot.uses {
            let (Use::Parameter(id, ..)
            | Use::Source(id, _)
            | Use::Destination(id, _)
            | Use::Filled(id, _)) = place
            else {
                if let (Use::Word(word, offset), Some(block)) = (place, &mut self.block) {
                    block.set(word, address + offset);
                }
                continue;
            };
            let op = &mut self.ops[id.0 as usize];
            note(op, id, &mut self.changed);
            match (&mut op.work, place) {
                (Work::Kernel(launch), Use::Parameter(_, index, offset)) => {
                    launch.values.set(index, address + offset);
                }
                (Work::Transfer(Transfer::Copy(copy, _)), Use::Source(_, offset)) => {
                    copy.srcDevice = address + offset;
                    copy.srcHost = (address + offset) as usize as *const _;
                }
                (Work::Transfer(Transfer::Copy(copy, _)), Use::Destination(_, offset)) => {
                    copy.dstDevice = address + offset;
                    copy.dstHost = (address + offset) as usize as *mut _;
                }
                (Work::Transfer(Transfer::Fill(fill, _)), Use::Filled(_, offset)) => {
                    fill.dst = address + offset;
                }
                _ => unreachable!("lowering notes uses with the operation they are of"),
            }
        }
        Ok(())
    }

    /// Hands the changes to the driver. O(changed operations).
    pub(crate) fn tell_changes(&mut self) -> Result<(), DriverError> {
        if self.changed.is_empty() {
            return Ok(());
        }
        let _current = self.device.enter()?;
        let mut pointers = Pointers::new();
        while let Some(&id) = self.changed.last() {
            let op = &mut self.ops[id.0 as usize];
            let executable = self.front.part(op.part).handle();
            // SAFETY: the executable lives, the node is of the graph that it was made of, and the parameters are of its
            // kind. The driver copies what they point to.
            unsafe {
                match &op.work {
                    Work::Kernel(launch) => {
                        let params = launch.params(&mut pointers);
                        call!(cuGraphExecKernelNodeSetParams_v2(executable, op.node, &params))
                    }
                    Work::Transfer(transfer) => transfer.set(executable, op.node),
                }
            }?;
            op.changed = false;
            self.changed.pop();
        }
        Ok(())
    }
}

/// Notes a change of an operation, once.
fn note(op: &mut Op, id: OpId, changed: &mut Vec<OpId>) {
    if !op.changed {
        op.changed = true;
        changed.push(id);
    }
}
