//! Which operations of an expression form chains: each on the result of the one before, which nothing else uses.
//!
//! In: an expression. Out: chains of f32 operations, which run faster than one loop after another
//! ([`chain`](super::chain)). Greedy, in the order of the operations. O(operations).

use phonograph_graph::{BinaryOp, DType, Expr, Op, UnaryOp, ValueId};

use super::values::Values;

/// The most links of a chain; longer ones are cut.
pub(super) const MAX_LINKS: usize = 16;

/// What a link does to the result so far (`r`), with its operand (`x`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LinkOp {
    /// r + x
    Add,
    /// r − x
    Sub,
    /// x − r
    SubFrom,
    /// r · x
    Mul,
    /// r / x
    Div,
    /// x / r
    DivFrom,
    /// The smaller of r and x, in this order; see [`BinaryOp::Min`].
    Min,
    /// The smaller of x and r, in this order.
    MinFrom,
    /// The larger of r and x, in this order.
    Max,
    /// The larger of x and r, in this order.
    MaxFrom,
    /// −r
    Neg,
    /// ⎸r⎸
    Abs,
    /// √r
    Sqrt,
}

impl LinkOp {
    /// The link that does `op`, whose operand r is the first one if `first`, else the second.
    pub fn of(op: &Op, dtype: DType, first: bool) -> Option<Self> {
        if dtype != DType::F32 {
            return None;
        }
        Some(match (*op, first) {
            (Op::Binary(BinaryOp::Add, ..), _) => LinkOp::Add,
            (Op::Binary(BinaryOp::Mul, ..), _) => LinkOp::Mul,
            (Op::Binary(BinaryOp::Sub, ..), true) => LinkOp::Sub,
            (Op::Binary(BinaryOp::Sub, ..), false) => LinkOp::SubFrom,
            (Op::Binary(BinaryOp::Div, ..), true) => LinkOp::Div,
            (Op::Binary(BinaryOp::Div, ..), false) => LinkOp::DivFrom,
            (Op::Binary(BinaryOp::Min, ..), true) => LinkOp::Min,
            (Op::Binary(BinaryOp::Min, ..), false) => LinkOp::MinFrom,
            (Op::Binary(BinaryOp::Max, ..), true) => LinkOp::Max,
            (Op::Binary(BinaryOp::Max, ..), false) => LinkOp::MaxFrom,
            (Op::Unary(UnaryOp::Neg, _), _) => LinkOp::Neg,
            (Op::Unary(UnaryOp::Abs, _), _) => LinkOp::Abs,
            (Op::Unary(UnaryOp::Sqrt, _), _) => LinkOp::Sqrt,
            _ => return None,
        })
    }
}

/// A chain of at least two links, or of one with a uniform operand.
pub(super) struct Chain {
    /// The value that it starts with.
    pub start: usize,
    /// What is done to it, with which other value.
    pub links: Vec<(LinkOp, Option<usize>)>,
    /// Position of its last operation.
    pub last: usize,
}

impl Chain {
    /// Every value that it reads.
    pub fn operands(&self) -> impl Iterator<Item = usize> + '_ {
        [self.start].into_iter().chain(self.links.iter().filter_map(|(_, operand)| *operand))
    }
}

/// The chains, and for each operation the one that it is part of.
pub(super) fn find(expr: &Expr, values: &Values) -> (Vec<Chain>, Vec<Option<usize>>) {
    let ops = expr.ops();
    let mut chain_of: Vec<Option<usize>> = vec![None; ops.len()];
    let mut chains: Vec<Chain> = Vec::new();
    for (at, op) in ops.iter().enumerate() {
        if !values.needed[at] || values.uniform[at] {
            continue;
        }
        let dtype = expr.type_of(ValueId(at as u16));
        let [a, b, _] = op.operands().map(|v| v.map(|v| values.same_as[v.index()]));
        let (Some(a), Some(_)) = (a, LinkOp::of(op, dtype, true)) else { continue };
        let chain_at = |value: usize| {
            let chain: usize = chain_of[value]?;
            let open = values.uses[value] == 1 && chains[chain].links.len() < MAX_LINKS;
            open.then_some(chain)
        };
        let (known, first) = match (chain_at(a), b.and_then(chain_at)) {
            (Some(chain), _) => (Some(chain), true),
            (None, Some(chain)) => (Some(chain), false),
            (None, None) => (None, !values.uniform[a]),
        };
        let Some(link) = LinkOp::of(op, dtype, first) else { continue };
        let (start, other) = match b {
            Some(b) if first => (a, Some(b)),
            Some(b) => (b, Some(a)),
            None => (a, None),
        };
        let chain = known.unwrap_or(chains.len());
        match known {
            Some(chain) => {
                chains[chain].links.push((link, other));
                chains[chain].last = at;
            }
            None => chains.push(Chain { start, links: vec![(link, other)], last: at }),
        }
        chain_of[at] = Some(chain);
    }
    for chain in &mut chain_of {
        let worthwhile = |chain: &Chain| {
            chain.links.len() > 1 || chain.links[0].1.is_some_and(|other| values.uniform[other])
        };
        *chain = chain.filter(|&chain| worthwhile(&chains[chain]));
    }
    (chains, chain_of)
}
