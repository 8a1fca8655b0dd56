//! Expressions compiled to steps over blocks.
//!
//! In: a checked expression and where its operands lie. Out: the steps to perform once a run, the steps to perform on
//! each block, and the layout of the registers. What is the same for every element (constants, parameters, inputs of
//! one element, and whatever is computed from them) is computed once a run. Dense inputs and outputs of a type that
//! needs no conversion are used where they lie. Runs of f32 operations that hand one value on become
//! [chains](super::chains). A register is reused when its value is dead. O(operations · operands).

use phonograph_graph::{BinaryOp, DType, Expr, Op, Scalar, ValueId, View};
use smallvec::SmallVec;

use super::chain::{self, ChainFn};
use super::chains::{self, Chain, LinkOp};
use super::layout::{Axis, Space};
use super::ops;
use super::philox::Philox;
use super::simd::{BlockFn, Level, MoveFn};
use super::storage::{is_plain, loader, register_bits, register_size, rounder, storer};
use super::tensor::Tensor;
use super::values::Values;

/// Registers are laid out so that their blocks together stay below this, where the expression is not too large.
const REGISTER_BYTES: usize = 24 << 10;
/// The longest block; longer ones gain nothing.
const MAX_BLOCK: usize = 1024;
/// The shortest block, also the alignment of registers.
const MIN_BLOCK: usize = 128;

/// Where a step finds or puts a block of values.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Place {
    /// Scratch memory, this many bytes from its start.
    Register(usize),
    /// A dense tensor's own memory.
    Memory(usize),
    /// An operand that the operation does not have.
    Unused,
}

pub(super) enum Step {
    /// A constant, as register bits.
    Constant { to: usize, bits: u64, size: usize },
    /// A scalar argument.
    Parameter { to: usize, scalar: usize, size: usize },
    /// The one element of a tensor, repeated.
    Repeat { to: usize, load: MoveFn, tensor: usize },
    /// Positions along an axis.
    Index { to: usize, axis: Axis },
    /// A loop over values.
    Map { to: Place, map: BlockFn, from: [Place; 3] },
    /// A chain of operations, each on the result of the one before.
    Chain { run: ChainFn, to: Place, start: Place, links: Box<[ChainLink]> },
    /// Elements of a tensor, converted and made dense.
    Load { to: usize, load: MoveFn, tensor: usize, size: usize, dense: bool },
    /// Values to a tensor.
    Store { from: Place, store: MoveFn, tensor: usize, size: usize, dense: bool },
}

pub(super) struct ChainLink {
    pub op: LinkOp,
    pub operand: Place,
    /// Whether the operand is one number for all elements.
    pub uniform: bool,
}

/// A step that is performed once a run.
pub(super) struct OnceStep {
    pub step: Step,
    /// For a whole block of equal values; else one is enough.
    pub wide: bool,
}

pub(super) struct Compiled {
    /// Performed once a run.
    pub once: Box<[OnceStep]>,
    /// Performed on each block.
    pub steps: Box<[Step]>,
    /// Elements of a block.
    pub block: usize,
    pub scratch_bytes: usize,
    /// About how long an element takes.
    pub cost_ps: u64,
}

/// Gives out registers; a register is named by the bytes of an element of each register before it.
#[derive(Default)]
struct Registers {
    used: usize,
    free: [Vec<usize>; 3],
}

impl Registers {
    fn class(size: usize) -> usize {
        match size {
            1 => 0,
            4 => 1,
            _ => 2,
        }
    }

    /// One that nothing else ever uses.
    fn take_own(&mut self, size: usize) -> usize {
        self.used += size;
        self.used - size
    }

    fn take(&mut self, size: usize) -> usize {
        self.free[Self::class(size)].pop().unwrap_or_else(|| self.take_own(size))
    }

    fn give_back(&mut self, register: usize, size: usize) {
        self.free[Self::class(size)].push(register);
    }
}

/// What is compiled, with what is known of it before any step is chosen.
struct Source<'a> {
    level: Level,
    expr: &'a Expr,
    /// The inputs, then the outputs.
    views: &'a [View],
    axes: &'a [Axis],
    /// Of each view, whether neighbours of a run are neighbours in memory.
    dense: Vec<bool>,
    values: Values,
    /// The value that each output is, and the type that it has there.
    stored: Vec<(usize, DType)>,
}

impl Source<'_> {
    fn output_view(&self, output: usize) -> usize {
        self.expr.inputs().len() + output
    }

    fn size(&self, value: usize) -> usize {
        register_size(self.expr.type_of(ValueId(value as u16)))
    }

    /// Whether an input is used where it lies. It must stay as it is until the last output is stored; outputs are stored
    /// after all operations, so only an output that *is* an input could find it overwritten by an earlier one.
    fn is_used_in_place(&self, input: usize) -> bool {
        let ops = self.expr.ops();
        let moves_input = || self.stored.iter().any(|&(v, _)| matches!(ops[v], Op::Input(_)));
        let overwritten = || self.views[self.output_view(0)..].contains(&self.views[input]);
        self.dense[input] && is_plain(self.views[input].dtype) && !(overwritten() && moves_input())
    }

    /// The output in whose memory a value is computed: a loop has to compute it for each element, without overwriting an
    /// input that a later operation uses.
    fn computed_in(&self, value: usize) -> Option<usize> {
        if matches!(self.expr.ops()[value], Op::Input(_) | Op::Index(_))
            || self.values.uniform[value]
        {
            return None;
        }
        (0..self.stored.len()).find(|&output| {
            let (of, dtype) = self.stored[output];
            let view = self.output_view(output);
            let over_input = || self.views[..self.output_view(0)].contains(&self.views[view]);
            let plain = is_plain(dtype) || dtype == DType::Bool;
            of == value && plain && self.dense[view] && !over_input()
        })
    }

    /// The step of one operation, and about how long an element takes in picoseconds.
    fn operation(&self, at: usize, to: Place, from: [Place; 3]) -> (Step, u64) {
        let (expr, level) = (self.expr, self.level);
        let ops = expr.ops();
        let dtype = expr.type_of(ValueId(at as u16));
        let size = register_size(dtype);
        let operands = ops[at].operands();
        let type_of = |operand: usize| operands[operand].map_or(dtype, |v| expr.type_of(v));
        let register = if let Place::Register(r) = to { r } else { 0 };
        let (map, cost_ps) = match ops[at] {
            Op::Const(scalar) => {
                return (Step::Constant { to: register, bits: register_bits(scalar), size }, 0);
            }
            Op::Param(scalar) => {
                return (Step::Parameter { to: register, scalar: scalar.into(), size }, 0);
            }
            Op::Input(input) => {
                let tensor = input as usize;
                let load = loader(level, self.views[tensor].dtype);
                if self.values.uniform[at] {
                    return (Step::Repeat { to: register, load, tensor }, 0);
                }
                let dense = self.dense[tensor];
                return (
                    Step::Load { to: register, load, tensor, size, dense },
                    move_cost_ps(dense),
                );
            }
            Op::Index(axis) => {
                return (Step::Index { to: register, axis: self.axes[axis as usize] }, 100);
            }
            Op::Unary(op, _) => (ops::unary(level, op, type_of(0)), ops::unary_cost_ps(op, dtype)),
            Op::Binary(BinaryOp::Div, _, by) if is_power_of_two(&ops[by.index()]) => {
                (ops::div_by_power(level), 80)
            }
            Op::Binary(op, ..) => {
                (ops::binary(level, op, type_of(0)), ops::binary_cost_ps(op, dtype))
            }
            Op::Compare(op, ..) => (ops::compare(level, op, type_of(0)), 100),
            Op::Select(..) => (ops::select(level, dtype), 100),
            Op::Cast(to_type, _) => (ops::cast(level, type_of(0), to_type), 100),
            Op::Round(to_type, _) => (rounder(level, to_type), 300),
            Op::Philox { .. } => (level.block::<Philox>(), 3000),
        };
        (Step::Map { to, map, from }, cost_ps)
    }

    /// The step of a chain, and about how long an element takes in picoseconds.
    fn chain(&self, chain: &Chain, to: Place, places: &[Place]) -> (Step, u64) {
        let link = |&(op, operand): &(LinkOp, Option<usize>)| ChainLink {
            op,
            operand: operand.map_or(Place::Unused, |v| places[v]),
            uniform: operand.is_some_and(|v| self.values.uniform[v]),
        };
        let links: Box<[ChainLink]> = chain.links.iter().map(link).collect();
        let cost_ps = 60 + 40 * links.len() as u64;
        let (run, start) = (chain::runner(self.level), places[chain.start]);
        (Step::Chain { run, to, start, links }, cost_ps)
    }
}

fn is_power_of_two(op: &Op) -> bool {
    matches!(op, Op::Const(Scalar::U32(value)) if value.is_power_of_two())
}

/// About how long an element of a tensor takes to load or store.
fn move_cost_ps(dense: bool) -> u64 {
    if dense { 100 } else { 500 }
}

/// Elements of a block, from the bytes of an element in all registers.
fn block_of(register_bytes: usize) -> usize {
    match (REGISTER_BYTES / register_bytes.max(1)).checked_ilog2() {
        Some(log) => (1 << log).clamp(MIN_BLOCK, MAX_BLOCK),
        None => MIN_BLOCK,
    }
}

/// Compiles; `views` and `tensors` are the inputs, then the outputs.
pub(super) fn compile(
    level: Level,
    expr: &Expr,
    views: &[View],
    space: &Space,
    tensors: &[Tensor],
    axes: &[Axis],
) -> Compiled {
    let ops = expr.ops();
    let is_repeat = |input: usize| tensors[input].strides[..space.rank].iter().all(|&s| s == 0);
    let mut values = Values::new(expr, is_repeat);
    let (chains, chain_of) = chains::find(expr, &values);
    for chain in &chains {
        values.used_by(chain);
    }
    let wide = values.wide(expr, &chain_of);
    let dense = tensors.iter().map(|t| space.is_dense(&t.strides)).collect();
    let stored = expr.outputs().iter().map(|&(v, t)| (values.same_as[v.index()], t)).collect();
    let source = Source { level, expr, views, axes, dense, values, stored };
    let values = &source.values;

    let mut registers = Registers::default();
    let mut places = vec![Place::Unused; ops.len()];
    let (mut once, mut steps) = (Vec::new(), Vec::new());
    let mut done_in_memory = vec![false; source.stored.len()];
    let mut cost_ps = 0;
    for (at, op) in ops.iter().enumerate() {
        let chain = chain_of[at].map(|chain| &chains[chain]);
        // A chain is done with its last.
        if !values.needed[at] || chain.is_some_and(|chain| chain.last != at) {
            continue;
        }
        if let Op::Input(input) = *op
            && !values.uniform[at]
            && source.is_used_in_place(input as usize)
        {
            places[at] = Place::Memory(input as usize);
            continue;
        }
        let to = match source.computed_in(at) {
            Some(output) => {
                done_in_memory[output] = true;
                Place::Memory(source.output_view(output))
            }
            // Written before the first block and read in every one.
            None if values.uniform[at] => Place::Register(registers.take_own(source.size(at))),
            None => Place::Register(registers.take(source.size(at))),
        };
        places[at] = to;
        let operands = op.operands().map(|v| v.map(|v| values.same_as[v.index()]));
        let (step, cost) = match chain {
            Some(chain) => source.chain(chain, to, &places),
            None => {
                source.operation(at, to, operands.map(|v| v.map_or(Place::Unused, |v| places[v])))
            }
        };
        if values.uniform[at] {
            once.push(OnceStep { step, wide: wide[at] });
            continue;
        }
        steps.push(step);
        cost_ps += cost;
        // Free only now: a loop's destination never is one of its operands.
        let used: SmallVec<[usize; 4]> = match chain {
            Some(chain) => chain.operands().collect(),
            None => operands.into_iter().flatten().collect(),
        };
        for (i, &value) in used.iter().enumerate() {
            let dead = values.last_use[value] == at && !values.uniform[value];
            if let Place::Register(r) = places[value]
                && dead
                && !used[..i].contains(&value)
            {
                registers.give_back(r, source.size(value));
            }
        }
    }
    for (output, &(value, dtype)) in source.stored.iter().enumerate() {
        if !done_in_memory[output] {
            let tensor = source.output_view(output);
            let (size, dense) = (register_size(dtype), source.dense[tensor]);
            let store = storer(level, dtype);
            steps.push(Step::Store { from: places[value], store, tensor, size, dense });
            cost_ps += move_cost_ps(dense);
        }
    }
    // Bytes to and from memory cost more than most operations.
    let touched = views.iter().zip(tensors).filter(|(_, t)| t.strides.iter().any(|&s| s != 0));
    cost_ps += touched.map(|(v, _)| v.dtype.size() * 50).sum::<u64>();

    let block = block_of(registers.used);
    let scale_once = |once: OnceStep| OnceStep { step: once.step.scaled(block), ..once };
    Compiled {
        once: once.into_iter().map(scale_once).collect(),
        steps: steps.into_iter().map(|s| s.scaled(block)).collect(),
        block,
        scratch_bytes: registers.used * block,
        cost_ps,
    }
}

impl Place {
    fn scaled(self, block: usize) -> Self {
        match self {
            Place::Register(register) => Place::Register(register * block),
            other => other,
        }
    }
}

impl Step {
    /// Turns the names of registers into byte offsets.
    fn scaled(mut self, block: usize) -> Self {
        match &mut self {
            Step::Constant { to, .. }
            | Step::Parameter { to, .. }
            | Step::Repeat { to, .. }
            | Step::Index { to, .. }
            | Step::Load { to, .. } => *to *= block,
            Step::Map { to, from, .. } => {
                *to = to.scaled(block);
                *from = from.map(|f| f.scaled(block));
            }
            Step::Store { from, .. } => *from = from.scaled(block),
            Step::Chain { to, start, links, .. } => {
                (*to, *start) = (to.scaled(block), start.scaled(block));
                for link in links {
                    link.operand = link.operand.scaled(block);
                }
            }
        }
        self
    }
}
