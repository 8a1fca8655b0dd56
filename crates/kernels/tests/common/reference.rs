//! A reference evaluator: nodes in topological order, one element at a time, one vector of bytes for each buffer.
//!
//! Slow and plain on purpose. Sums are compensated f64 sums, which round about once, so that what is under test can be
//! compared with something better than itself.

use phonograph_graph::{
    Access, Arg, BinaryOp, BufferId, CompareOp, ComputeGraph, DType, Expr, FusedKernel,
    KernelConfig, KernelNode, KernelRef, LibraryKernel, MemcpyNode, MemsetNode, NodeKind, Op,
    Pitched, ReduceOp, Scalar, SlotId, Target, UnaryOp, View,
};

/// The functions that no two libraries agree on to the last bit.
pub struct Functions {
    pub f32: fn(UnaryOp, f32) -> f32,
    pub f64: fn(UnaryOp, f64) -> f64,
}

/// The memory of a graph.
pub struct Machine {
    pub functions: Functions,
    pub buffers: Vec<Vec<u8>>,
    pub slots: Vec<Scalar>,
}

/// Loads the element at `byte` as the type that expressions compute with.
pub fn load(memory: &[u8], byte: usize, dtype: DType) -> Scalar {
    let bytes = &memory[byte..byte + dtype.size() as usize];
    macro_rules! read {
        ($t:ty) => {
            <$t>::from_ne_bytes(bytes.try_into().unwrap())
        };
    }
    match dtype {
        DType::F32 => Scalar::F32(read!(f32)),
        DType::F64 => Scalar::F64(read!(f64)),
        DType::F16 => Scalar::F32(half::f16::from_bits(read!(u16)).to_f32()),
        DType::BF16 => Scalar::F32(half::bf16::from_bits(read!(u16)).to_f32()),
        DType::I32 => Scalar::I32(read!(i32)),
        DType::I64 => Scalar::I64(read!(i64)),
        DType::U32 => Scalar::U32(read!(u32)),
        DType::U8 => Scalar::U32(bytes[0].into()),
        DType::Bool => Scalar::Bool(bytes[0] != 0),
    }
}

/// Stores a computed value as `dtype`.
pub fn store(memory: &mut [u8], byte: usize, dtype: DType, value: Scalar) {
    let to = &mut memory[byte..byte + dtype.size() as usize];
    match (dtype, value) {
        (DType::F32, Scalar::F32(v)) => to.copy_from_slice(&v.to_ne_bytes()),
        (DType::F64, Scalar::F64(v)) => to.copy_from_slice(&v.to_ne_bytes()),
        (DType::F16, Scalar::F32(v)) => {
            to.copy_from_slice(&half::f16::from_f32(v).to_bits().to_ne_bytes());
        }
        (DType::BF16, Scalar::F32(v)) => {
            to.copy_from_slice(&half::bf16::from_f32(v).to_bits().to_ne_bytes());
        }
        (DType::I32, Scalar::I32(v)) => to.copy_from_slice(&v.to_ne_bytes()),
        (DType::I64, Scalar::I64(v)) => to.copy_from_slice(&v.to_ne_bytes()),
        (DType::U32, Scalar::U32(v)) => to.copy_from_slice(&v.to_ne_bytes()),
        (DType::U8, Scalar::U32(v)) => to[0] = v as u8,
        (DType::Bool, Scalar::Bool(v)) => to[0] = v.into(),
        (dtype, value) => panic!("{value} stored as {dtype}"),
    }
}

/// A number as f64; exact but for large i64.
pub fn number(value: Scalar) -> f64 {
    match value {
        Scalar::F32(v) => v.into(),
        Scalar::F64(v) => v,
        Scalar::F16(v) => v.to_f64(),
        Scalar::BF16(v) => v.to_f64(),
        Scalar::I32(v) => v.into(),
        Scalar::I64(v) => v as f64,
        Scalar::U32(v) => v.into(),
        Scalar::U8(v) => v.into(),
        Scalar::Bool(v) => f64::from(u8::from(v)),
    }
}

/// Every position of a shape, last axis fastest.
pub fn positions(extents: &[u64]) -> impl Iterator<Item = Vec<u64>> + '_ {
    let count: u64 = extents.iter().product();
    (0..count).map(move |mut index| {
        let mut at = vec![0; extents.len()];
        for axis in (0..extents.len()).rev() {
            at[axis] = index % extents[axis];
            index /= extents[axis];
        }
        at
    })
}

/// Byte of an element of a view within its buffer.
pub fn byte_of(view: &View, at: &[u64]) -> usize {
    let elements: u64 = at.iter().zip(view.strides()).map(|(a, s)| a * s).sum();
    (view.offset + elements * view.dtype.size()) as usize
}

fn widened(scalar: Scalar) -> Scalar {
    match scalar {
        Scalar::F16(v) => Scalar::F32(v.to_f32()),
        Scalar::BF16(v) => Scalar::F32(v.to_f32()),
        Scalar::U8(v) => Scalar::U32(v.into()),
        other => other,
    }
}

/// The values of all outputs of an expression for one element.
pub fn evaluate(
    functions: &Functions,
    expr: &Expr,
    inputs: &[Scalar],
    params: &[Scalar],
    at: &[u64],
) -> Vec<Scalar> {
    let mut values: Vec<Scalar> = Vec::new();
    for op in expr.ops() {
        let of = |v: phonograph_graph::ValueId| values[v.index()];
        values.push(match *op {
            Op::Input(i) => inputs[i as usize],
            Op::Param(i) => widened(params[i as usize]),
            Op::Const(scalar) => scalar,
            Op::Index(axis) => Scalar::U32(at[axis as usize] as u32),
            Op::Unary(op, a) => unary(functions, op, of(a)),
            Op::Binary(op, a, b) => binary(op, of(a), of(b)),
            Op::Compare(op, a, b) => Scalar::Bool(compare(op, of(a), of(b))),
            Op::Select(c, a, b) => {
                if of(c) == Scalar::Bool(true) {
                    of(a)
                } else {
                    of(b)
                }
            }
            Op::Cast(to, a) => cast(of(a), to),
            Op::Round(to, a) => {
                let mut stored = [0; 8];
                store(&mut stored, 0, to, of(a));
                load(&stored, 0, to)
            }
            Op::Philox { index, counter, key } => {
                let word = |v| if let Scalar::U32(v) = of(v) { v } else { panic!("not u32") };
                Scalar::U32(philox(word(index), word(counter), word(key)))
            }
        });
    }
    expr.outputs().iter().map(|(v, _)| values[v.index()]).collect()
}

fn unary(functions: &Functions, op: UnaryOp, a: Scalar) -> Scalar {
    use UnaryOp::*;
    match (op, a) {
        (Neg, Scalar::F32(a)) => Scalar::F32(-a),
        (Neg, Scalar::F64(a)) => Scalar::F64(-a),
        (Neg, Scalar::I32(a)) => Scalar::I32(0i32.wrapping_sub(a)),
        (Neg, Scalar::I64(a)) => Scalar::I64(0i64.wrapping_sub(a)),
        (Abs, Scalar::F32(a)) => Scalar::F32(if a.is_sign_negative() { -a } else { a }),
        (Abs, Scalar::F64(a)) => Scalar::F64(if a.is_sign_negative() { -a } else { a }),
        (Abs, Scalar::I32(a)) => Scalar::I32(if a < 0 { 0i32.wrapping_sub(a) } else { a }),
        (Abs, Scalar::I64(a)) => Scalar::I64(if a < 0 { 0i64.wrapping_sub(a) } else { a }),
        (Not, Scalar::Bool(a)) => Scalar::Bool(!a),
        (Not, Scalar::I32(a)) => Scalar::I32(!a),
        (Not, Scalar::I64(a)) => Scalar::I64(!a),
        (Not, Scalar::U32(a)) => Scalar::U32(!a),
        (Sqrt, Scalar::F32(a)) => Scalar::F32(a.sqrt()),
        (Sqrt, Scalar::F64(a)) => Scalar::F64(a.sqrt()),
        (Floor, Scalar::F32(a)) => Scalar::F32(a.floor()),
        (Floor, Scalar::F64(a)) => Scalar::F64(a.floor()),
        (op, Scalar::F32(a)) => Scalar::F32((functions.f32)(op, a)),
        (op, Scalar::F64(a)) => Scalar::F64((functions.f64)(op, a)),
        (op, a) => panic!("{op:?} of {a}"),
    }
}

fn binary(op: BinaryOp, a: Scalar, b: Scalar) -> Scalar {
    use BinaryOp::*;
    macro_rules! float {
        ($a:expr, $b:expr) => {
            match op {
                Add => $a + $b,
                Sub => $a - $b,
                Mul => $a * $b,
                Div => $a / $b,
                Rem => $a % $b,
                Min if $a.is_nan() => $b,
                Max if $a.is_nan() => $b,
                Min if $b.is_nan() || $a < $b => $a,
                Max if $b.is_nan() || $a > $b => $a,
                Min | Max => $b,
                And | Or | Xor => panic!("{op:?} of floats"),
            }
        };
    }
    // In 128 bits nothing overflows; the conversion back keeps the low bits.
    macro_rules! integer {
        ($a:expr, $b:expr, $t:ty) => {{
            let (a, b) = (i128::from($a), i128::from($b));
            (match op {
                Add => a + b,
                Sub => a - b,
                Mul => a * b,
                Div => a.checked_div(b).unwrap_or(0),
                Rem => a.checked_rem(b).unwrap_or(0),
                Min => a.min(b),
                Max => a.max(b),
                And => a & b,
                Or => a | b,
                Xor => a ^ b,
            }) as $t
        }};
    }
    match (a, b) {
        (Scalar::F32(a), Scalar::F32(b)) => Scalar::F32(float!(a, b)),
        (Scalar::F64(a), Scalar::F64(b)) => Scalar::F64(float!(a, b)),
        (Scalar::I32(a), Scalar::I32(b)) => Scalar::I32(integer!(a, b, i32)),
        (Scalar::I64(a), Scalar::I64(b)) => Scalar::I64(integer!(a, b, i64)),
        (Scalar::U32(a), Scalar::U32(b)) => Scalar::U32(integer!(a, b, u32)),
        (Scalar::Bool(a), Scalar::Bool(b)) => Scalar::Bool(match op {
            And => a && b,
            Or => a || b,
            Xor => a != b,
            op => panic!("{op:?} of bools"),
        }),
        (a, b) => panic!("{op:?} of {a} and {b}"),
    }
}

fn compare(op: CompareOp, a: Scalar, b: Scalar) -> bool {
    let order = match (a, b) {
        (Scalar::F32(a), Scalar::F32(b)) => a.partial_cmp(&b),
        (Scalar::F64(a), Scalar::F64(b)) => a.partial_cmp(&b),
        (Scalar::I32(a), Scalar::I32(b)) => a.partial_cmp(&b),
        (Scalar::I64(a), Scalar::I64(b)) => a.partial_cmp(&b),
        (Scalar::U32(a), Scalar::U32(b)) => a.partial_cmp(&b),
        (Scalar::Bool(a), Scalar::Bool(b)) => a.partial_cmp(&b),
        (a, b) => panic!("{op:?} of {a} and {b}"),
    };
    match op {
        CompareOp::Eq => order.is_some_and(|o| o.is_eq()),
        CompareOp::Ne => order.is_none_or(|o| o.is_ne()),
        CompareOp::Lt => order.is_some_and(|o| o.is_lt()),
        CompareOp::Le => order.is_some_and(|o| o.is_le()),
        CompareOp::Gt => order.is_some_and(|o| o.is_gt()),
        CompareOp::Ge => order.is_some_and(|o| o.is_ge()),
    }
}

fn cast(a: Scalar, to: DType) -> Scalar {
    let whole = match a {
        Scalar::I32(a) => Some(i128::from(a)),
        Scalar::I64(a) => Some(i128::from(a)),
        Scalar::U32(a) => Some(i128::from(a)),
        Scalar::Bool(a) => Some(i128::from(a)),
        _ => None,
    };
    // Truncated; NaN is 0; saturated below, by the bounds of the type.
    let float = number(a);
    let bounded = |low: i128, high: i128| match float {
        f if f.is_nan() => 0,
        f if f <= low as f64 => low,
        f if f >= high as f64 => high,
        f => f.trunc() as i128,
    };
    match (to, whole) {
        (DType::Bool, Some(v)) => Scalar::Bool(v != 0),
        (DType::Bool, None) => Scalar::Bool(float != 0.0),
        (DType::I32, Some(v)) => Scalar::I32(v as i32),
        (DType::I32, None) => Scalar::I32(bounded(i32::MIN.into(), i32::MAX.into()) as i32),
        (DType::I64, Some(v)) => Scalar::I64(v as i64),
        (DType::I64, None) => Scalar::I64(bounded(i64::MIN.into(), i64::MAX.into()) as i64),
        (DType::U32, Some(v)) => Scalar::U32(v as u32),
        (DType::U32, None) => Scalar::U32(bounded(0, u32::MAX.into()) as u32),
        (DType::F32, Some(v)) => Scalar::F32(v as f32),
        (DType::F32, None) => Scalar::F32(float as f32),
        (DType::F64, Some(v)) => Scalar::F64(v as f64),
        (DType::F64, None) => Scalar::F64(float),
        (to, _) => panic!("cast to {to}"),
    }
}

/// Word `index % 4` of Philox4x32-10, as its authors define it.
fn philox(index: u32, counter: u32, key: u32) -> u32 {
    let [mut a, mut b, mut c, mut d] = [index / 4, counter, 0, 0];
    let [mut k, mut l] = [key, 0u32];
    for _ in 0..10 {
        let p = u64::from(a) * 0xD251_1F53;
        let q = u64::from(c) * 0xCD9E_8D57;
        [a, b, c, d] = [(q >> 32) as u32 ^ b ^ k, q as u32, (p >> 32) as u32 ^ d ^ l, p as u32];
        [k, l] = [k.wrapping_add(0x9E37_79B9), l.wrapping_add(0xBB67_AE85)];
    }
    [a, b, c, d][index as usize % 4]
}

impl Machine {
    /// All buffers of the graph, zeroed, and all slots at their defaults.
    pub fn new(graph: &ComputeGraph, functions: Functions) -> Self {
        let buffers = graph.buffers().iter().map(|b| vec![0; b.bytes as usize]).collect();
        let slots = graph.slots().iter().map(|s| s.default).collect();
        Self { functions, buffers, slots }
    }

    /// An element of a view.
    pub fn get(&self, view: &View, at: &[u64]) -> Scalar {
        load(&self.buffers[view.buffer.index()], byte_of(view, at), view.dtype)
    }

    /// Sets an element of a view.
    pub fn set(&mut self, view: &View, at: &[u64], value: Scalar) {
        store(&mut self.buffers[view.buffer.index()], byte_of(view, at), view.dtype, value);
    }

    /// All elements of a view as f64, last axis fastest.
    pub fn numbers(&self, view: &View) -> Vec<f64> {
        let shape = view.shape();
        positions(shape.extents()).map(|at| number(self.get(view, &at))).collect()
    }

    /// Runs all nodes.
    pub fn run(&mut self, graph: &ComputeGraph) {
        for &id in graph.topological_order() {
            match &graph.node(id).kind {
                NodeKind::Kernel(kernel) => self.kernel(kernel),
                NodeKind::Memcpy(copy) => self.copy(copy),
                NodeKind::Memset(fill) => self.fill(fill),
                NodeKind::Empty => {}
                other => panic!("{} nodes are not evaluated here", other.name()),
            }
        }
    }

    fn scalar(&self, slot: SlotId) -> Scalar {
        self.slots[slot.index()]
    }

    /// Runs the parts of a fused kernel one after the other, through buffers of their own.
    fn fused(&mut self, fused: &FusedKernel, views: &[View], scalars: &[Arg]) {
        let at = fused.operands();
        let own = self.buffers.len();
        let mut library = fused.library_operands(views).unwrap();
        for (i, view) in library.iter_mut().enumerate() {
            if view.buffer == BufferId(u32::MAX) {
                *view = view.in_buffer(BufferId::from_index(own + i));
            }
            self.buffers.push(vec![0; view.region().bytes as usize]);
        }
        let mut run = |kernel: KernelRef, views: Vec<View>, scalars: &[Arg]| {
            let tensors = views.into_iter().map(|view| Arg::View(view, Access::ReadWrite));
            let args = tensors.chain(scalars.iter().copied()).collect();
            let config = KernelConfig::unknown();
            self.kernel(&KernelNode { kernel, config, args, fusible: false });
        };
        let part = |range: std::ops::Range<usize>| views[range].to_vec();
        let of_before = fused.before.as_ref().map_or(0, |expr| expr.params().len());
        if let Some(expr) = &fused.before {
            let operands = [part(at.before_inputs), vec![library[0]], part(at.before_outputs)];
            run(
                KernelRef::Elementwise(expr.clone().into()),
                operands.concat(),
                &scalars[..of_before],
            );
        }
        run(KernelRef::Library(fused.library), library.clone(), &[]);
        if let Some(expr) = &fused.after {
            let result = library[library.len() - 1];
            let operands = [vec![result], part(at.after_inputs), part(at.after_outputs)];
            run(
                KernelRef::Elementwise(expr.clone().into()),
                operands.concat(),
                &scalars[of_before..],
            );
        }
        self.buffers.truncate(own);
    }

    /// Runs one kernel.
    pub fn kernel(&mut self, kernel: &KernelNode) {
        let views: Vec<View> = kernel.args.iter().filter_map(Arg::view).copied().collect();
        let shape = views.last().expect("a kernel has operands").shape();
        match &kernel.kernel {
            KernelRef::Elementwise(expr) => {
                let params: Vec<Scalar> = kernel
                    .args
                    .iter()
                    .filter_map(|arg| match *arg {
                        Arg::Scalar(value) => Some(value),
                        Arg::Slot(slot) => Some(self.scalar(slot)),
                        _ => None,
                    })
                    .collect();
                let (inputs, outputs) = views.split_at(expr.inputs().len());
                for at in positions(shape.extents()) {
                    let inputs: Vec<Scalar> = inputs.iter().map(|v| self.get(v, &at)).collect();
                    let values = evaluate(&self.functions, expr, &inputs, &params, &at);
                    for (view, value) in outputs.iter().zip(values) {
                        self.set(view, &at, value);
                    }
                }
            }
            KernelRef::Library(LibraryKernel::Reduce { op, axis }) => {
                self.reduce(*op, usize::from(*axis), &views[0], &views[1]);
            }
            KernelRef::Library(LibraryKernel::MatMul) => {
                let (a, b, c) = (&views[0], &views[1], &views[2]);
                let inner = *a.shape().extents().last().unwrap();
                for at in positions(shape.extents()) {
                    let rank = at.len();
                    let term = |k: u64| {
                        let (mut of_a, mut of_b) = (at.clone(), at.clone());
                        (of_a[rank - 1], of_b[rank - 2]) = (k, k);
                        number(self.get(a, &of_a)) * number(self.get(b, &of_b))
                    };
                    self.set(c, &at, rounded(compensated_sum((0..inner).map(term)), c.dtype));
                }
            }
            KernelRef::Library(LibraryKernel::Gather) => {
                let (table, rows, out) = (&views[0], &views[1], &views[2]);
                for at in positions(shape.extents()) {
                    let row = number(self.get(rows, &at[..1])) as u64;
                    let from: Vec<u64> = [&[row], &at[1..]].concat();
                    let value = self.get(table, &from);
                    self.set(out, &at, value);
                }
            }
            KernelRef::Library(LibraryKernel::ScatterAdd) => {
                let (source, rows, sum) = (&views[0], &views[1], &views[2]);
                for at in positions(source.shape().extents()) {
                    let row = number(self.get(rows, &at[..1])) as u64;
                    let to: Vec<u64> = [&[row], &at[1..]].concat();
                    let value = binary(BinaryOp::Add, self.get(sum, &to), self.get(source, &at));
                    self.set(sum, &to, value);
                }
            }
            KernelRef::Fused(fused) => {
                let scalars: Vec<Arg> =
                    kernel.args.iter().filter(|a| !matches!(a, Arg::View(..))).copied().collect();
                self.fused(fused, &views, &scalars);
            }
            KernelRef::Named(name) => panic!("kernel `{name}` is known by name only"),
        }
    }

    fn reduce(&mut self, op: ReduceOp, axis: usize, input: &View, output: &View) {
        let len = input.shape().extents()[axis];
        for at in positions(output.shape().extents()) {
            let element = |i: u64| {
                let mut from = at.clone();
                from.insert(axis, i);
                self.get(input, &from)
            };
            let above = |a: Scalar, b: Scalar| {
                let nan = |s: Scalar| number(s).is_nan();
                compare(CompareOp::Gt, a, b) || (nan(b) && !nan(a))
            };
            let result = match op {
                ReduceOp::Sum if input.dtype.is_float() => {
                    rounded(compensated_sum((0..len).map(|i| number(element(i)))), output.dtype)
                }
                ReduceOp::Sum => (0..len)
                    .map(element)
                    .fold(Scalar::zero(output.dtype), |a, b| binary(BinaryOp::Add, a, b)),
                ReduceOp::Max | ReduceOp::ArgMax => {
                    let best = (1..len)
                        .fold(0, |best, i| if above(element(i), element(best)) { i } else { best });
                    if op == ReduceOp::Max { element(best) } else { Scalar::I32(best as i32) }
                }
            };
            self.set(output, &at, result);
        }
    }

    fn copy(&mut self, copy: &MemcpyNode) {
        let rows = |end: &Pitched| end.pitch * end.slice_rows;
        for at in positions(&[copy.extent.depth, copy.extent.height, copy.extent.width]) {
            let byte = |end: &Pitched| {
                (end.offset + at[0] * rows(end) + at[1] * end.pitch + at[2]) as usize
            };
            let (Target::Buffer(from), Target::Buffer(to)) = (copy.src.target, copy.dst.target)
            else {
                panic!("a copy without memory");
            };
            self.buffers[to.index()][byte(&copy.dst)] = self.buffers[from.index()][byte(&copy.src)];
        }
    }

    fn fill(&mut self, fill: &MemsetNode) {
        let dst = &fill.dst;
        let Target::Buffer(to) = dst.target else { panic!("a fill without memory") };
        for at in positions(&[fill.extent.depth, fill.extent.height, fill.extent.width]) {
            let byte = dst.offset + at[0] * dst.pitch * dst.slice_rows + at[1] * dst.pitch + at[2];
            let place = at[2] as usize % usize::from(fill.element_size);
            self.buffers[to.index()][byte as usize] = fill.value.to_le_bytes()[place];
        }
    }
}

/// Neumaier's sum: what each addition loses is added at the end.
fn compensated_sum(terms: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0f64);
    for term in terms {
        let next = sum + term;
        let (large, small) = if sum.abs() >= term.abs() { (sum, term) } else { (term, sum) };
        lost += (large - next) + small;
        sum = next;
    }
    // Once a sum is not finite, nothing that was lost matters.
    if sum.is_finite() { sum + lost } else { sum }
}

fn rounded(value: f64, dtype: DType) -> Scalar {
    match dtype {
        DType::F32 => Scalar::F32(value as f32),
        DType::F64 => Scalar::F64(value),
        other => panic!("a float as {other}"),
    }
}
