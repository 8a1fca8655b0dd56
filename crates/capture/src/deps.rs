//! The dependency set of a stream: the nodes that the next piece of work on it has to wait for.
//!
//! In: single nodes and other sets. Out: the nodes in ascending order. Nothing is ever reduced: a node that another one implies
//! stays in, because the driver keeps it too. Up to [`FEW`] nodes lie inline, which is nearly every set of a real program, so
//! replacing, copying and comparing them allocates nothing. Larger sets are shared: a copy, such as an event's record, costs one
//! reference count, and the first change after it costs one copy.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// How many nodes a set holds inline. Five `u32` ids and a length fill the 24 bytes that a shared set's enum needs anyway.
const FEW: usize = 5;

/// A set of nodes, in ascending order.
///
/// ```
/// use phonograph_capture::DependencySet;
///
/// let mut main = DependencySet::of(3);
/// let record = main.clone();
/// main.insert(7);
/// assert!(main.iter().eq([3, 7]));
/// assert!(record.iter().eq([3]));
/// main.union(&record);
/// assert_eq!(main.len(), 2);
/// ```
#[derive(Clone)]
pub struct DependencySet<T>(Repr<T>);

#[derive(Clone)]
enum Repr<T> {
    Empty,
    // The first `len` are the set, ascending; the rest repeat an element, because an array has to be full.
    Few { len: u8, nodes: [T; FEW] },
    Many(Arc<BTreeSet<T>>),
}

impl<T: Copy + Ord> DependencySet<T> {
    /// The empty set.
    pub const fn new() -> Self {
        Self(Repr::Empty)
    }

    /// The set of one node.
    pub fn of(node: T) -> Self {
        Self(Repr::Few { len: 1, nodes: [node; FEW] })
    }

    /// How many nodes are in the set.
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Empty => 0,
            Repr::Few { len, .. } => usize::from(*len),
            Repr::Many(nodes) => nodes.len(),
        }
    }

    /// Whether there is no node in it.
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Repr::Empty)
    }

    /// Whether `node` is in the set; logarithmic.
    pub fn contains(&self, node: T) -> bool {
        match &self.0 {
            Repr::Empty => false,
            Repr::Few { len, nodes } => nodes[..usize::from(*len)].contains(&node),
            Repr::Many(nodes) => nodes.contains(&node),
        }
    }

    /// The nodes in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        let (few, many) = match &self.0 {
            Repr::Empty => (&[][..], None),
            Repr::Few { len, nodes } => (&nodes[..usize::from(*len)], None),
            Repr::Many(nodes) => (&[][..], Some(nodes.iter())),
        };
        few.iter().chain(many.into_iter().flatten()).copied()
    }

    /// Adds a node; logarithmic, and one copy of the set if a large one is shared.
    pub fn insert(&mut self, node: T) {
        match &mut self.0 {
            Repr::Empty => *self = Self::of(node),
            Repr::Few { len, nodes } => {
                let count = usize::from(*len);
                let at = nodes[..count].partition_point(|n| *n < node);
                if at < count && nodes[at] == node {
                    return;
                }
                if count == FEW {
                    let mut many: BTreeSet<T> = nodes.iter().copied().collect();
                    many.insert(node);
                    self.0 = Repr::Many(Arc::new(many));
                } else {
                    nodes.copy_within(at..count, at + 1);
                    nodes[at] = node;
                    *len += 1;
                }
            }
            Repr::Many(nodes) => {
                if !nodes.contains(&node) {
                    Arc::make_mut(nodes).insert(node);
                }
            }
        }
    }

    /// Adds every node of `other`; costs the smaller set times a logarithm.
    pub fn union(&mut self, other: &Self) {
        match (&self.0, &other.0) {
            (Repr::Many(a), Repr::Many(b)) if Arc::ptr_eq(a, b) => return,
            _ => {}
        }
        if other.len() > self.len() {
            let smaller = std::mem::replace(self, other.clone());
            smaller.iter().for_each(|node| self.insert(node));
        } else {
            other.iter().for_each(|node| self.insert(node));
        }
    }

    /// Takes the set out and leaves the empty one.
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }
}

impl<T> Default for DependencySet<T> {
    fn default() -> Self {
        Self(Repr::Empty)
    }
}

impl<T: Copy + Ord> FromIterator<T> for DependencySet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(nodes: I) -> Self {
        let mut set = Self::new();
        nodes.into_iter().for_each(|node| set.insert(node));
        set
    }
}

impl<T: Copy + Ord> PartialEq for DependencySet<T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<T: Copy + Ord> Eq for DependencySet<T> {}

impl<T: Copy + Ord + fmt::Debug> fmt::Debug for DependencySet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::DependencySet;

    #[test]
    fn any_sequence_of_changes_agrees_with_a_tree_set() {
        arbtest::arbtest(|u| {
            let mut sets = vec![(DependencySet::new(), BTreeSet::new()); 3];
            for _ in 0..u.int_in_range(0..=40)? {
                let (i, j) = (u.choose_index(3)?, u.choose_index(3)?);
                match u.int_in_range(0..=9)? {
                    0 => sets[i] = sets[j].clone(),
                    1 => sets[i] = (DependencySet::of(7), BTreeSet::from([7])),
                    2 => {
                        sets[i].0.take();
                        sets[i].1.clear();
                    }
                    3 => {
                        let (other, tree) = sets[j].clone();
                        sets[i].0.union(&other);
                        sets[i].1.extend(tree);
                    }
                    _ => {
                        let node: u32 = u.int_in_range(0..=20)?;
                        sets[i].0.insert(node);
                        sets[i].1.insert(node);
                    }
                }
                for (set, tree) in &sets {
                    assert!(set.iter().eq(tree.iter().copied()), "{set:?} {tree:?}");
                    assert_eq!((set.len(), set.is_empty()), (tree.len(), tree.is_empty()));
                    assert!((0..=20).all(|n| set.contains(n) == tree.contains(&n)));
                    assert_eq!(*set, tree.iter().copied().collect());
                }
            }
            Ok(())
        });
    }

    #[test]
    fn a_set_of_ids_is_as_small_as_a_vector() {
        assert!(size_of::<DependencySet<u32>>() <= 24, "{}", size_of::<DependencySet<u32>>());
    }
}
