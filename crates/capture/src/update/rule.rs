//! The rules of an update. U1–U11 are those that were known for plain graphs; U12–U17 were found in the recordings of richer ones, U19 in
//! pairs made at random and settled by pairs made for it (`update_settled.jsonl`).
//!
//! "Decides n" counts the 7,500 recorded pairs that come out wrong without the rule; the count in parentheses is of the 3,000 rich
//! ones alone, where a rule was found in them.
//!
//! [`UpdateRule::basis`] tells the rules that the driver's manual states from those that rest on the recordings alone. The *order* of the
//! checks, and which of several differences is the one reported, are the recordings' throughout: the manual gives no order.
//!
//! Undecided: which nodes a *body* of a conditional may change (recordings give only the number of its kernels; here it is compared like
//! a child graph); allocation sizes (4 to 8 KiB and back is accepted, five pairs); functions of another context.

use std::fmt;

/// What a rule rests on: the driver's manual, recordings of a driver, or both.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Basis {
    /// The manual says so, and recordings agree.
    Both,
    /// Recordings alone. They are also what the rule was found in, so nothing independent confirms it.
    Recorded,
    /// The manual alone: no recording has such a pair.
    Documented,
}

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident $basis:ident $words:literal,)*) => {
        /// A rule of `cuGraphExecUpdate`.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum UpdateRule { $($(#[$doc])* $name,)* }

        impl UpdateRule {
            /// Every rule that can decide.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// What it says.
            pub fn words(self) -> &'static str {
                match self { $(Self::$name => $words,)* }
            }

            /// What the rule rests on.
            pub fn basis(self) -> Basis {
                match self { $(Self::$name => Basis::$basis,)* }
            }
        }
    };
}

rules! {
    /// No difference found. With U11: kernel function (of another module too: 151), grid, block, shared memory, priority (103) and cluster
    /// (104), values and offsets of memsets, host functions, events and allocation sizes are free; so are width, element and pitch (10)
    /// of a 1-D memset, and size and offset of a 1-D copy.
    U1 Both "the first difference wins; without one the update is taken",
    /// The number of nodes, before everything else. Decides 616.
    U2 Both "the graphs must have the same number of nodes",
    /// The number of sinks. Fewer: no node is named; more: the first one left over in reverse order of creation,
    /// also of several (`update_more.jsonl`). Decides 138.
    U3 Both "the graphs must have the same number of nodes that nothing depends on",
    /// The number of dependencies, before the kind (23). Decides 259.
    U6a Both "paired nodes must have the same number of dependencies",
    /// The kind. Decides 284.
    U6b Both "paired nodes must be of one kind",
    /// A dependency that is paired already with something else. Names the dependency. Decides 23.
    U7 Both "dependencies are paired by position, and a node is paired once",
    /// Memset: 1-D and 2-D do not mix. Decides 61.
    U9a Both "a memset of one row and one of several do not mix",
    /// 2-D memset: element, width, height (12 of the rich pairs) and pitch (23) are fixed, value and offset free. Decides 53 + 35.
    U9b Both "a memset of several rows keeps element size, width, height and pitch",
    /// Copy: the direction. Decides 158.
    U10 Both "a copy keeps its direction",
    /// Kernel: the cooperative attribute. ATTRIBUTES_CHANGED, the node is named. Decides 119 (119), 15 of them in a child.
    U12 Both "a kernel keeps its cooperative attribute",
    /// A copy of several rows or slices, on either side, may not change at all: shape (83), bytes (34), not even offset (46).
    U13 Recorded "a copy of more than one row keeps everything, its addresses too",
    /// An edge's port. TOPOLOGY_CHANGED, names the node and the dependency. At the dependency's turn, before U7. Decides 32 (32).
    U14 Recorded "paired dependencies must have the same port",
    /// Conditional: the kind. NOT_SUPPORTED, the node is named; before the body (1). Decides 7 (7).
    U15 Both "a conditional keeps its kind",
    /// Conditional: its place among the conditionals of its graph, in the order of creation. NOT_SUPPORTED, the node is named; after the
    /// number of dependencies, before the body (1). Decides 2 of the pairs made at random (seeds 101–103 and 201–203), and 9 of the 16 made to
    /// settle it: paired crosswise (6), one more or one less before it (3). One more or less behind it, and another place among all nodes,
    /// are free.
    U19 Recorded "a conditional keeps its place among the conditionals of its graph, in the order of creation",
    /// Copy and memset: the devices that the memory is on. PARAMETERS_CHANGED, before the rest of what the node holds. Documented, not
    /// recorded: all recorded memory is on one device.
    U18 Documented "the memory of a copy or memset stays on its devices",
}

/// U8 and U16, U17 are about where the walk goes, not what it decides:
/// - U8, U16: a child graph is walked to its end at the child node's turn, by all of these rules (76 of the rich pairs); what is found there
///   names the node *inside* the child, not the child node (72); a number that differs names none, as at the top (U2, U3).
/// - U17: a conditional's body is treated like a child graph: another number of kernels is TOPOLOGY_CHANGED and names no node (11).
impl fmt::Display for UpdateRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
