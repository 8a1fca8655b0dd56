//! Shapes rounded up, so that a few graphs serve many inputs.

use crate::{Error, Result};

/// What an extent may be rounded up to.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Axis {
    /// To nothing: every extent is its own.
    Exact,
    /// To the smallest of these that is not below, in order.
    Sizes(Vec<u64>),
}

/// How the shapes of inputs become those that graphs are captured for, axis by axis.
///
/// ```
/// use phonograph::cache::Buckets;
///
/// let buckets = Buckets::new().sizes([1, 2, 4, 8]).exact();
/// assert_eq!(buckets.round(&[3, 100])?, [4, 100]);
/// assert!(buckets.round(&[9, 100]).is_err());
/// # Ok::<(), phonograph::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Buckets(Vec<Axis>);

impl Buckets {
    /// For shapes without axes; say of each what becomes of it.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next axis is taken as it is.
    pub fn exact(mut self) -> Self {
        self.0.push(Axis::Exact);
        self
    }

    /// The next axis is rounded up to one of these.
    pub fn sizes(mut self, sizes: impl Into<Vec<u64>>) -> Self {
        let mut sizes = sizes.into();
        sizes.sort_unstable();
        self.0.push(Axis::Sizes(sizes));
        self
    }

    /// The next axis is rounded up to a power of two, at most `most`.
    pub fn powers_of_two(self, most: u64) -> Self {
        let sizes = (0..u64::BITS).map(|bit| 1u64 << bit).take_while(|&size| size <= most);
        self.sizes(sizes.collect::<Vec<_>>())
    }

    /// The bucket of a shape. O(axes log sizes).
    ///
    /// # Errors
    /// [`Error::NoBucket`] for another number of axes, or an extent above all sizes.
    pub fn round(&self, extents: &[u64]) -> Result<Vec<u64>> {
        let refused = || Error::NoBucket { extents: extents.into() };
        if extents.len() != self.0.len() {
            return Err(refused());
        }
        let axes = self.0.iter().zip(extents).map(|(axis, &extent)| match axis {
            Axis::Exact => Ok(extent),
            Axis::Sizes(sizes) => {
                let at = sizes.partition_point(|&size| size < extent);
                sizes.get(at).copied().ok_or_else(refused)
            }
        });
        axes.collect()
    }
}
