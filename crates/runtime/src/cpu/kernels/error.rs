//! What can go wrong when a node is prepared and when it runs.

use phonograph_graph::DType;

/// Why a node cannot run on the CPU. Found before anything has run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrepareError {
    /// A kernel or host function that nobody registered.
    #[error("no {kind} is registered as `{name}`; register it before the graph is instantiated")]
    Unregistered {
        /// `kernel` or `host function`.
        kind: &'static str,
        /// The name that the node gives.
        name: String,
    },
    /// A kernel whose launch the graph does not tell.
    #[error("the launch configuration is not known, so the kernel cannot run")]
    UnknownLaunch,
    /// A copy or fill of which the memory is not known.
    #[error("the {0} names no declared buffer, so there is no memory to work on")]
    NoMemory(&'static str),
    /// A registered function that takes other arguments.
    #[error("takes {expected} arguments, not {given}")]
    Count {
        /// How many its signature has.
        expected: usize,
        /// How many the node gives.
        given: usize,
    },
    /// An argument that the registered function does not accept.
    #[error("argument {index} {problem}")]
    Argument {
        /// Which argument.
        index: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// Two operands that share bytes, of which one is written.
    #[error("operands {first} and {second} share bytes and one of them is written")]
    Overlap {
        /// The earlier one.
        first: usize,
        /// The later one.
        second: usize,
    },
}

/// Why a run failed. What the failed tile would have written is undefined afterwards.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// A gather or scatter of a row that does not exist. Nothing of the tile has been written.
    #[error("row number {value} at position {position} is not one of the {rows} rows")]
    Row {
        /// Where in the list of row numbers.
        position: u64,
        /// The number found there.
        value: i64,
        /// How many rows there are.
        rows: u64,
    },
    /// A registered function asked for an argument in a way that its signature does not allow.
    #[error("argument {index}: {problem}")]
    Argument {
        /// Which argument.
        index: usize,
        /// What is wrong.
        problem: ArgumentProblem,
    },
    /// A registered function reported a failure of its own.
    #[error("{0}")]
    Failed(String),
    /// A registered function panicked.
    #[error("the function panicked: {0}")]
    Panicked(String),
}

/// What is wrong with a request for an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentProblem {
    /// There is no such argument.
    #[error("there are only {0}")]
    Missing(usize),
    /// Asked for as another type.
    #[error("is of type {0}")]
    Type(DType),
    /// Asked for in a way that its access does not allow.
    #[error("cannot be asked for so: it is a {0} argument")]
    Access(&'static str),
    /// A written argument asked for a second time by one block.
    #[error("this block already holds it")]
    Taken,
}
