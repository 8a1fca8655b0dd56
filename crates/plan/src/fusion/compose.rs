//! One expression out of several.
//!
//! In: elementwise kernels of one index space, in an order in which they may run one after the other. Out: an
//! expression that gives the same bits, and its operands. A value that one kernel stores and a later one loads through
//! the same view is handed over rounded as the store would round it ([`Op::Round`]). Equal operations are done once,
//! inputs and parameters are listed once, and what no output needs is left out. O(operations).

use phonograph_graph::{
    Arg, DType, Expr, ExprError, MAX_EXPR_OPS, Op, Scalar, SlotId, ValueId, View,
};
use rustc_hash::FxHashMap;

/// An expression and the operands it is used with; what is handed over at the end is no operand.
pub(super) struct Composed {
    pub expr: Expr,
    pub inputs: Vec<View>,
    pub params: Vec<Arg>,
    pub outputs: Vec<View>,
}

/// What a view holds after the kernels so far.
struct Held {
    view: View,
    value: ValueId,
    /// Whether a kernel has loaded it since it was stored.
    loaded: bool,
}

/// Appends expressions to one another.
#[derive(Default)]
pub(super) struct Composer {
    ops: Vec<Op>,
    known: FxHashMap<(u64, u64), ValueId>,
    inputs: Vec<View>,
    input_of: FxHashMap<View, u16>,
    params: Vec<(Arg, DType)>,
    param_of: FxHashMap<(bool, u64, DType), u16>,
    held: Vec<Held>,
    held_at: FxHashMap<View, usize>,
    /// Handed over at the start: the first input, whatever is done with it.
    seeded: bool,
    /// Handed over at the end: the first output.
    element: Option<View>,
}

impl Composer {
    /// Appends a kernel: `views` are its inputs, then its outputs; `params` its scalars.
    pub fn append(&mut self, expr: &Expr, views: &[View], params: &[Arg]) {
        let (inputs, outputs) = views.split_at(expr.inputs().len());
        let mut values: Vec<ValueId> = Vec::with_capacity(expr.ops().len());
        for op in expr.ops() {
            let of = |v: ValueId| values[v.index()];
            let value = match *op {
                Op::Input(input) => self.load(inputs[input as usize]),
                Op::Param(param) => {
                    self.param(params[param as usize], expr.params()[param as usize])
                }
                Op::Round(to, a) => self.round(to, of(a)),
                other => self.push(other.map_operands(of)),
            };
            values.push(value);
        }
        // Stored only now: a kernel loads all that it loads of an element before it stores any of it.
        for (&view, &(value, _)) in outputs.iter().zip(expr.outputs()) {
            self.store(view, values[value.index()]);
        }
    }

    /// Lets `view` hold the first input of the expression, as if a kernel had stored it.
    pub fn seed(view: View) -> Self {
        let mut composer = Self { seeded: true, ..Self::default() };
        composer.inputs.push(view);
        let value = composer.push(Op::Input(0));
        composer.store(view, value);
        composer
    }

    /// Makes what `view` holds now the first output, as if another kernel loaded it.
    pub fn hand_over(&mut self, view: View) {
        let at = self.held_at.get(&view).copied();
        if let Some(held) = at.and_then(|at| self.held.get_mut(at)) {
            held.loaded = true;
            self.element = Some(view);
        }
    }

    /// The value that `view` holds now: what was stored last, or else what it held at the start.
    fn load(&mut self, view: View) -> ValueId {
        if let Some(&at) = self.held_at.get(&view) {
            self.held[at].loaded = true;
            let value = self.held[at].value;
            return match view.dtype == view.dtype.computed() {
                true => value,
                false => self.round(view.dtype, value),
            };
        }
        let next = self.inputs.len() as u16;
        let input = *self.input_of.entry(view).or_insert(next);
        if input == next {
            self.inputs.push(view);
        }
        self.push(Op::Input(input))
    }

    fn store(&mut self, view: View, value: ValueId) {
        match self.held_at.get(&view) {
            Some(&at) => self.held[at] = Held { view, value, loaded: false },
            None => {
                self.held_at.insert(view, self.held.len());
                self.held.push(Held { view, value, loaded: false });
            }
        }
    }

    fn param(&mut self, arg: Arg, dtype: DType) -> ValueId {
        let next = self.params.len() as u16;
        let param = match arg {
            Arg::Scalar(scalar) => {
                *self.param_of.entry((false, Scalar::to_bits(scalar), dtype)).or_insert(next)
            }
            Arg::Slot(SlotId(slot)) => {
                *self.param_of.entry((true, slot.into(), dtype)).or_insert(next)
            }
            Arg::View(..) | Arg::Region(..) => next, // no scalar; a valid graph has none here
        };
        if param == next {
            self.params.push((arg, dtype));
        }
        self.push(Op::Param(param))
    }

    fn round(&mut self, to: DType, value: ValueId) -> ValueId {
        match self.ops[value.index()] {
            Op::Round(already, _) if already == to => value,
            Op::Input(input) if self.inputs[input as usize].dtype == to => value,
            _ => self.push(Op::Round(to, value)),
        }
    }

    /// The operation's value; the earlier one of an equal operation.
    fn push(&mut self, op: Op) -> ValueId {
        // Past the limit ids saturate, and `finish` refuses: it is the first thing that `Expr::new` checks.
        let next = ValueId(self.ops.len().min(usize::from(u16::MAX)) as u16);
        let value = *self.known.entry(key(&op)).or_insert(next);
        if value == next {
            self.ops.push(op);
        }
        value
    }

    /// The expression, with the outputs that `keep` asks for: given a view that was stored, and whether a later kernel
    /// loaded it.
    ///
    /// # Errors
    /// More than [`MAX_EXPR_OPS`] operations and operands, or no output.
    pub fn finish(self, keep: impl Fn(&View, bool) -> bool) -> Result<Composed, ExprError> {
        if self.ops.len() > MAX_EXPR_OPS {
            return Err(ExprError::TooLarge(self.ops.len()));
        }
        let mut kept: Vec<&Held> = self.held.iter().filter(|h| keep(&h.view, h.loaded)).collect();
        let element = self.element.and_then(|view| self.held.get(*self.held_at.get(&view)?));
        let mut needed = vec![false; self.ops.len()];
        for held in kept.iter().copied().chain(element) {
            needed[held.value.index()] = true;
        }
        if self.seeded {
            needed[0] = true;
        }
        for at in (0..self.ops.len()).rev().filter(|&at| self.ops[at].operands()[0].is_some()) {
            if needed[at] {
                for operand in self.ops[at].operands().into_iter().flatten() {
                    needed[operand.index()] = true;
                }
            }
        }
        let loads = self.ops.iter().zip(&needed).any(|(op, &n)| n && matches!(op, Op::Input(_)));
        if kept.is_empty() && !loads {
            kept.extend(element); // something must tell the shape: what is handed over is stored as well
        }
        let (mut inputs, mut params, mut ops) = (Vec::new(), Vec::new(), Vec::new());
        let mut moved = vec![ValueId(0); self.ops.len()];
        for (at, op) in self.ops.iter().enumerate().filter(|&(at, _)| needed[at]) {
            let of = |v: ValueId| moved[v.index()];
            let op = match *op {
                Op::Input(input) => {
                    inputs.push(self.inputs[input as usize]);
                    Op::Input(inputs.len() as u16 - 1)
                }
                Op::Param(param) => {
                    params.push(self.params[param as usize]);
                    Op::Param(params.len() as u16 - 1)
                }
                other => other.map_operands(of),
            };
            moved[at] = ValueId(ops.len() as u16);
            ops.push(op);
        }
        let outputs = element.into_iter().chain(kept.iter().copied());
        let outputs = outputs.map(|h| (moved[h.value.index()], h.view.dtype)).collect();
        let types = inputs.iter().map(|view: &View| view.dtype).collect();
        let expr = Expr::new(types, params.iter().map(|&(_, t)| t).collect(), ops, outputs)?;
        Ok(Composed {
            expr,
            inputs,
            params: params.into_iter().map(|(arg, _)| arg).collect(),
            outputs: kept.iter().map(|h| h.view).collect(),
        })
    }
}

/// Equal for operations that give the same bits.
fn key(op: &Op) -> (u64, u64) {
    let tag = match *op {
        Op::Input(_) => 0,
        Op::Param(_) => 1,
        Op::Const(scalar) => 2 | (scalar.dtype() as u64) << 8,
        Op::Index(_) => 3,
        Op::Unary(op, _) => 4 | (op as u64) << 8,
        Op::Binary(op, ..) => 5 | (op as u64) << 8,
        Op::Compare(op, ..) => 6 | (op as u64) << 8,
        Op::Select(..) => 7,
        Op::Cast(to, _) => 8 | (to as u64) << 8,
        Op::Round(to, _) => 9 | (to as u64) << 8,
        Op::Philox { .. } => 10,
    };
    let rest = match *op {
        Op::Input(index) | Op::Param(index) => index.into(),
        Op::Index(axis) => axis.into(),
        Op::Const(scalar) => scalar.to_bits(),
        _ => op.operands().iter().flatten().fold(0, |packed, v| packed << 16 | u64::from(v.0)),
    };
    (tag, rest)
}
