//! Expressions compiled to steps over blocks.
//!
//! In: a checked expression and where its operands lie. Out: the steps to perform once a run, the steps to perform on
//! each block, and the layout of the registers. What is the same for every element (constants, parameters, inputs of
//! one element, and whatever is computed from them) is computed once a run. Dense inputs and outputs of a type that
//! needs no conversion are used where they lie. Runs of f32 operations that hand one value on become [chains](super::chains). A register is reused when its value is dead. O(operations).

use phonograph_graph::{BinaryOp, DType, Expr, Op, Scalar, ValueId, View};
use smallvec::SmallVec;

use super::chain::{self, ChainFn};
use super::chains::{self, LinkOp};
use super::layout::{Axis, Space};
use super::ops;
use super::philox::Philox;
use super::simd::{BlockFn, Level, MoveFn};
use super::storage::{is_plain, loader, register_bits, register_size, rounder, storer};
use super::tensor::Tensor;

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

/// What is known of each value before any step is chosen.
pub(super) struct Values {
    /// The value that this one is; another one for conversions that change nothing.
    pub same_as: Vec<usize>,
    /// Whether an output depends on it; never true of a value that is another one.
    pub needed: Vec<bool>,
    /// The same for every element.
    pub uniform: Vec<bool>,
    /// Position of the last operation that uses it; the number of operations if an output does.
    last_use: Vec<usize>,
    /// How many operations and outputs use it.
    pub uses: Vec<u32>,
}

impl Values {
    fn new(expr: &Expr, is_repeat: impl Fn(usize) -> bool) -> Self {
        let ops = expr.ops();
        let mut same_as: Vec<usize> = (0..ops.len()).collect();
        let mut uniform = vec![false; ops.len()];
        for (at, op) in ops.iter().enumerate() {
            if let Op::Cast(to, from) = *op
                && expr.type_of(from) == to
            {
                same_as[at] = same_as[from.index()];
            }
            uniform[at] = match *op {
                Op::Const(_) | Op::Param(_) => true,
                Op::Input(input) => is_repeat(input as usize),
                Op::Index(_) => false,
                _ => op.operands().iter().flatten().all(|v| uniform[v.index()]),
            };
        }
        let (mut needed, mut last_use) = (vec![false; ops.len()], vec![0; ops.len()]);
        let mut uses = vec![0; ops.len()];
        for &(value, _) in expr.outputs() {
            let value = same_as[value.index()];
            (needed[value], last_use[value]) = (true, ops.len());
            uses[value] += 1;
        }
        for (at, op) in ops.iter().enumerate().rev() {
            if needed[at] {
                for value in op.operands().into_iter().flatten() {
                    let value = same_as[value.index()];
                    needed[value] = true;
                    last_use[value] = last_use[value].max(at);
                    uses[value] += 1;
                }
            }
        }
        Self { same_as, needed, uniform, last_use, uses }
    }
}

fn is_power_of_two(op: &Op) -> bool {
    matches!(op, Op::Const(Scalar::U32(value)) if value.is_power_of_two())
}

/// Which of the uniform values are needed as blocks, because something that is no chain uses them.
fn wide(expr: &Expr, values: &Values, chain_of: &[Option<usize>]) -> Vec<bool> {
    let mut wide = vec![false; expr.ops().len()];
    for &(value, _) in expr.outputs() {
        wide[values.same_as[value.index()]] = true;
    }
    for (at, op) in expr.ops().iter().enumerate().rev() {
        if values.needed[at] && (wide[at] || !values.uniform[at]) && chain_of[at].is_none() {
            for operand in op.operands().into_iter().flatten() {
                wide[values.same_as[operand.index()]] = true;
            }
        }
    }
    wide
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
    let (ops, inputs) = (expr.ops(), expr.inputs().len());
    let dense: Vec<bool> = tensors.iter().map(|t| space.is_dense(&t.strides)).collect();
    let is_repeat = |input: usize| tensors[input].strides[..space.rank].iter().all(|&s| s == 0);
    let mut values = Values::new(expr, is_repeat);
    let (chains, chain_of) = chains::find(expr, &values);
    for chain in &chains {
        for value in chain.operands() {
            values.last_use[value] = values.last_use[value].max(chain.last);
        }
    }
    let wide = wide(expr, &values, &chain_of);
    let stored: Vec<(usize, DType)> =
        expr.outputs().iter().map(|&(v, t)| (values.same_as[v.index()], t)).collect();
    let in_place = |output: usize| views[..inputs].contains(&views[inputs + output]);

    // An input used where it lies must stay as it is until the last output is stored. Outputs are stored after all
    // operations, so only an output that *is* an input could find it overwritten by an earlier one.
    let moves_input = stored.iter().any(|&(value, _)| matches!(ops[value], Op::Input(_)));
    let overwritten = |input: usize| views[inputs..].contains(&views[input]);
    let direct_input = |input: usize| {
        dense[input] && is_plain(views[input].dtype) && !(moves_input && overwritten(input))
    };
    // A value is computed where it is to be stored if a loop computes it for each element, and if that does not overwrite
    // an input that a later operation uses.
    let direct_output = |value: usize| {
        let computed = !matches!(ops[value], Op::Input(_) | Op::Index(_)) && !values.uniform[value];
        let mut places = stored.iter().enumerate().filter(|(_, (v, _))| *v == value);
        places
            .find(|&(output, &(_, dtype))| {
                let plain = is_plain(dtype) || dtype == DType::Bool;
                computed && plain && dense[inputs + output] && !in_place(output)
            })
            .map(|(output, _)| output)
    };

    let mut registers = Registers::default();
    let mut places = vec![Place::Unused; ops.len()];
    let (mut once, mut steps) = (Vec::new(), Vec::new());
    let mut done_in_memory = vec![false; stored.len()];
    let mut cost_ps = 0;
    for (at, op) in ops.iter().enumerate() {
        if !values.needed[at] {
            continue;
        }
        let dtype = expr.type_of(ValueId(at as u16));
        let size = register_size(dtype);
        let chain = chain_of[at].map(|chain| &chains[chain]);
        if chain.is_some_and(|chain| chain.last != at) {
            continue; // done with the last of the chain
        }
        let operands = op.operands();
        let from = operands.map(|v| v.map_or(Place::Unused, |v| places[values.same_as[v.index()]]));
        let type_of = |operand: usize| operands[operand].map_or(dtype, |v| expr.type_of(v));

        if let Op::Input(input) = *op
            && !values.uniform[at]
            && direct_input(input as usize)
        {
            places[at] = Place::Memory(input as usize);
            continue;
        }
        let to = match direct_output(at) {
            Some(output) => {
                done_in_memory[output] = true;
                Place::Memory(inputs + output)
            }
            // Written before the first block and read in every one.
            None if values.uniform[at] => Place::Register(registers.take_own(size)),
            None => Place::Register(registers.take(size)),
        };
        places[at] = to;
        let register = if let Place::Register(r) = to { r } else { 0 };
        let chained = chain.map(|chain| {
            let link = |&(op, operand): &(LinkOp, Option<usize>)| ChainLink {
                op,
                operand: operand.map_or(Place::Unused, |v| places[v]),
                uniform: operand.is_some_and(|v| values.uniform[v]),
            };
            let links: Box<[ChainLink]> = chain.links.iter().map(link).collect();
            let cost = 60 + 40 * links.len() as u64;
            (Step::Chain { run: chain::runner(level), to, start: places[chain.start], links }, cost)
        });
        let one_operation = || match *op {
            Op::Const(scalar) => {
                (Step::Constant { to: register, bits: register_bits(scalar), size }, 0)
            }
            Op::Param(scalar) => (Step::Parameter { to: register, scalar: scalar.into(), size }, 0),
            Op::Input(input) => {
                let tensor = input as usize;
                let load = loader(level, views[tensor].dtype);
                if values.uniform[at] {
                    (Step::Repeat { to: register, load, tensor }, 0)
                } else {
                    let dense = dense[tensor];
                    let cost = if dense { 100 } else { 500 };
                    (Step::Load { to: register, load, tensor, size, dense }, cost)
                }
            }
            Op::Index(axis) => (Step::Index { to: register, axis: axes[axis as usize] }, 100),
            Op::Unary(op, _) => {
                let map = ops::unary(level, op, type_of(0));
                (Step::Map { to, map, from }, ops::unary_cost_ps(op, dtype))
            }
            Op::Binary(BinaryOp::Div, _, by) if is_power_of_two(&ops[by.index()]) => {
                (Step::Map { to, map: ops::div_by_power(level), from }, 80)
            }
            Op::Binary(op, ..) => {
                let map = ops::binary(level, op, type_of(0));
                (Step::Map { to, map, from }, ops::binary_cost_ps(op, dtype))
            }
            Op::Compare(op, ..) => {
                (Step::Map { to, map: ops::compare(level, op, type_of(0)), from }, 100)
            }
            Op::Select(..) => (Step::Map { to, map: ops::select(level, dtype), from }, 100),
            Op::Cast(to_type, _) => {
                (Step::Map { to, map: ops::cast(level, type_of(0), to_type), from }, 100)
            }
            Op::Round(to_type, _) => (Step::Map { to, map: rounder(level, to_type), from }, 300),
            Op::Philox { .. } => (Step::Map { to, map: level.block::<Philox>(), from }, 3000),
        };
        let (step, cost) = chained.unwrap_or_else(one_operation);
        if values.uniform[at] {
            once.push(OnceStep { step, wide: wide[at] });
            continue;
        }
        steps.push(step);
        cost_ps += cost;
        // Free only now: a loop's destination never is one of its operands.
        let used: SmallVec<[usize; 4]> = match chain {
            Some(chain) => chain.operands().collect(),
            None => operands.iter().flatten().map(|v| values.same_as[v.index()]).collect(),
        };
        for (i, &value) in used.iter().enumerate() {
            let dead = values.last_use[value] == at && !values.uniform[value];
            if let Place::Register(r) = places[value]
                && dead
                && !used[..i].contains(&value)
            {
                registers.give_back(r, register_size(expr.type_of(ValueId(value as u16))));
            }
        }
    }
    for (output, &(value, dtype)) in stored.iter().enumerate() {
        if !done_in_memory[output] {
            let tensor = inputs + output;
            let size = register_size(dtype);
            let (store, dense) = (storer(level, dtype), dense[tensor]);
            steps.push(Step::Store { from: places[value], store, tensor, size, dense });
            cost_ps += if dense { 100 } else { 500 };
        }
    }
    // Bytes to and from memory cost more than most operations.
    let touched = views.iter().zip(tensors).filter(|(_, t)| t.strides.iter().any(|&s| s != 0));
    cost_ps += touched.map(|(v, _)| v.dtype.size() * 50).sum::<u64>();

    let fitting = REGISTER_BYTES / registers.used.max(1);
    let block = match fitting.checked_ilog2() {
        Some(log) => (1 << log).clamp(MIN_BLOCK, MAX_BLOCK),
        None => MIN_BLOCK,
    };
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
