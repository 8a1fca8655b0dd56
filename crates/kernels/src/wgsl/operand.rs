//! Operands in memory: the bindings they lie in, and a function for each that loads or stores an element.

use std::fmt::Write;

use phonograph_graph::{DType, View};

use super::block::{Block, Word};
use super::value;

/// The operands of a kernel.
pub(super) struct Operands<'a> {
    views: &'a [View],
    written: &'a [bool],
    bindings: &'a [u32],
}

impl<'a> Operands<'a> {
    pub fn new(views: &'a [View], written: &'a [bool], bindings: &'a [u32]) -> Self {
        Self { views, written, bindings: &bindings[..views.len()] }
    }

    fn count(&self) -> u32 {
        self.bindings.iter().max().map_or(0, |most| most + 1)
    }

    fn of(&self, binding: u32) -> impl Iterator<Item = usize> + '_ {
        (0..self.views.len()).filter(move |&at| self.bindings[at] == binding)
    }

    /// For each binding whether something in it is written.
    pub fn writes(&self) -> Vec<bool> {
        (0..self.count()).map(|binding| self.of(binding).any(|at| self.written[at])).collect()
    }

    /// Whether threads may store parts of one word.
    fn is_atomic(&self, binding: u32) -> bool {
        self.of(binding).any(|at| self.written[at] && self.views[at].dtype.size() < 4)
    }

    pub fn declarations(&self, fault: bool) -> String {
        let mut text = String::new();
        for (binding, writes) in (0..).zip(self.writes()) {
            let access = if writes { "read_write" } else { "read" };
            let word = if self.is_atomic(binding) { "atomic<u32>" } else { "u32" };
            writeln!(
                text,
                "@group(0) @binding({binding}) var<storage, {access}> b{binding}: array<{word}>;"
            )
            .expect("a string takes all");
        }
        if fault {
            let binding = self.count();
            writeln!(
                text,
                "@group(0) @binding({binding}) var<storage, read_write> fault_record: array<atomic<u32>>;"
            )
            .expect("a string takes all");
        }
        text
    }

    /// `load0(i)` and `store0(i, value)`, …: the element so many elements after an operand's first, as a value of its
    /// computed type. `store` is there for what is written.
    pub fn functions(&self, block: &mut Block) -> String {
        let mut text = String::new();
        for (at, view) in self.views.iter().enumerate() {
            let (binding, dtype) = (self.bindings[at], view.dtype);
            let value = value(dtype).expect("checked when the kernel was asked for");
            let offset = block.word(Word::Offset(at));
            let atomic = self.is_atomic(binding);
            let word = |index: &str| match atomic {
                true => format!("atomicLoad(&b{binding}[{index}])"),
                false => format!("b{binding}[{index}]"),
            };
            let load = match dtype.size() {
                4 => from_bits(dtype, &word("e")),
                2 => from_bits(
                    dtype,
                    &format!("({} >> ((e & 1u) << 4u)) & 0xffffu", word("e >> 1u")),
                ),
                _ => {
                    from_bits(dtype, &format!("({} >> ((e & 3u) << 3u)) & 0xffu", word("e >> 2u")))
                }
            };
            writeln!(
                text,
                "fn load{at}(i: u32) -> {value} {{\n    let e = {offset} + i;\n    return {load};\n}}"
            )
            .expect("a string takes all");
            if !self.written[at] {
                continue;
            }
            let bits = to_bits(dtype, "v");
            let store = match (dtype.size(), atomic) {
                (4, false) => format!("b{binding}[e] = {bits};"),
                (4, true) => format!("atomicStore(&b{binding}[e], {bits});"),
                (2, _) => part(binding, "e >> 1u", "(e & 1u) << 4u", "0xffffu", &bits),
                _ => part(binding, "e >> 2u", "(e & 3u) << 3u", "0xffu", &bits),
            };
            writeln!(
                text,
                "fn store{at}(i: u32, v: {value}) {{\n    let e = {offset} + i;\n    {store}\n}}"
            )
            .expect("a string takes all");
        }
        text
    }
}

/// Stores a part of a word. Nobody else stores these bits, so it does not matter that they are 0 for a moment.
fn part(binding: u32, word: &str, shift: &str, mask: &str, bits: &str) -> String {
    format!(
        "let shift = {shift};
    atomicAnd(&b{binding}[{word}], ~({mask} << shift));
    atomicOr(&b{binding}[{word}], ({bits}) << shift);"
    )
}

/// The value of what memory holds: `bits` is a u32 with nothing but the element in it.
pub(super) fn from_bits(dtype: DType, bits: &str) -> String {
    match dtype {
        DType::F32 => format!("bitcast<f32>({bits})"),
        DType::I32 => format!("bitcast<i32>({bits})"),
        DType::F16 => format!("f32_from_f16({bits})"),
        DType::BF16 => format!("bitcast<f32>(({bits}) << 16u)"),
        DType::Bool => format!("({bits}) != 0u"),
        _ => bits.to_owned(),
    }
}

/// What memory holds of a value, as a u32.
pub(super) fn to_bits(dtype: DType, value: &str) -> String {
    match dtype {
        DType::F32 | DType::I32 => format!("bitcast<u32>({value})"),
        DType::F16 => format!("f16_from_f32({value})"),
        DType::BF16 => format!("bf16_from_f32({value})"),
        DType::Bool => format!("select(0u, 1u, {value})"),
        DType::U8 => format!("({value}) & 0xffu"),
        _ => value.to_owned(),
    }
}
