//! The uniform block of a kernel: words of 32 bits, some known when the kernel is made, some only when it is placed.

use phonograph_graph::DType;

/// A word of a kernel's block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Word {
    /// A number.
    Value(u32),
    /// Where an operand in memory starts in its binding, in elements of its type.
    Offset(usize),
    /// The bits of a scalar argument of the node: its number among the arguments, and its type.
    Scalar(usize, DType),
    /// The number under which the node notes faults.
    Node,
}

/// A block that is being laid out.
#[derive(Default)]
pub(super) struct Block {
    words: Vec<Word>,
}

impl Block {
    /// Adds a word and returns the expression that reads it.
    pub fn word(&mut self, word: Word) -> String {
        let at = self.words.len();
        self.words.push(word);
        format!("block.words[{}].{}", at / 4, ["x", "y", "z", "w"][at % 4])
    }

    /// Adds a number that fits 32 bits, which whoever checked the views has seen.
    pub fn value(&mut self, value: u64) -> String {
        self.word(Word::Value(u32::try_from(value).expect("views reach less than 2^31 elements")))
    }

    fn vectors(&self) -> usize {
        self.words.len().div_ceil(4).max(1)
    }

    pub fn declaration(&self) -> String {
        format!(
            "struct Block {{ words: array<vec4<u32>, {}> }}\n@group(1) @binding(0) var<uniform> block: Block;\n",
            self.vectors()
        )
    }

    /// All words, padded to whole vectors.
    pub fn words(mut self) -> Vec<Word> {
        let whole = self.vectors() * 4;
        self.words.resize(whole, Word::Value(0));
        self.words
    }
}
