//! The order in which elements are visited, and where each operand has them.
//!
//! In: views of one shape. Out: the shape with axes of extent 1 dropped, axes sorted so that the first view's
//! strides fall, and axes merged that all views step through as if they were one. Visiting a block of elements then
//! costs one address computation and a few runs, for any strides.

use phonograph_graph::{MAX_RANK, View};

/// A merged, sorted index space and the strides of each view in it.
#[derive(Clone, Debug)]
pub(super) struct Space {
    pub rank: usize,
    pub extents: [usize; MAX_RANK],
    pub elements: usize,
}

/// The strides of one view along the axes of a [`Space`], in elements.
pub(super) type Strides = [usize; MAX_RANK];

/// Where an axis of the original shape went: the position of an element along it is `(index / after) % extent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    pub after: usize,
    pub extent: usize,
}

impl Space {
    /// Sorts by the strides of `views[0]` and merges. All views have one shape.
    pub(super) fn new(views: &[View]) -> (Self, Vec<Strides>, Vec<Axis>) {
        let shape = views[0].shape();
        let extents: Vec<usize> = shape.extents().iter().map(|&e| e as usize).collect();
        let elements = extents.iter().product();
        let mut order: Vec<usize> = (0..extents.len()).filter(|&a| extents[a] != 1).collect();
        order.sort_by_key(|&a| std::cmp::Reverse(views[0].strides()[a]));

        let mut axes = vec![Axis { after: 1, extent: 1 }; extents.len()];
        let mut after = 1;
        for &axis in order.iter().rev() {
            axes[axis] = Axis { after, extent: extents[axis] };
            after *= extents[axis].max(1);
        }

        let mut space = Self { rank: 0, extents: [1; MAX_RANK], elements };
        let mut strides = vec![[0; MAX_RANK]; views.len()];
        for &axis in &order {
            let step = |v: &View| v.strides()[axis] as usize;
            let merges = space.rank > 0
                && views
                    .iter()
                    .zip(&strides)
                    .all(|(v, s)| s[space.rank - 1] == step(v) * extents[axis]);
            if merges {
                space.extents[space.rank - 1] *= extents[axis];
            } else {
                space.extents[space.rank] = extents[axis];
                space.rank += 1;
            }
            for (view, strides) in views.iter().zip(&mut strides) {
                strides[space.rank - 1] = step(view);
            }
        }
        (space, strides, axes)
    }

    /// Whether a view with these strides has element `i` at position `i`.
    pub(super) fn is_dense(&self, strides: &Strides) -> bool {
        let mut expected = 1;
        (0..self.rank).rev().all(|axis| {
            let fits = strides[axis] == expected;
            expected *= self.extents[axis];
            fits
        })
    }

    /// Position of element `index` along each axis.
    pub(super) fn position(&self, mut index: usize) -> [usize; MAX_RANK] {
        let mut position = [0; MAX_RANK];
        for axis in (1..self.rank).rev() {
            position[axis] = index % self.extents[axis];
            index /= self.extents[axis];
        }
        position[0] = index;
        position
    }

    /// Visits `n` elements from `position` on as runs along the last axis: `run(offsets, elements done, elements)`, an
    /// offset for each of the views whose strides are given.
    #[inline(always)]
    pub(super) fn runs<const N: usize>(
        &self,
        mut position: [usize; MAX_RANK],
        n: usize,
        strides: [&Strides; N],
        mut run: impl FnMut([usize; N], usize, usize),
    ) {
        let Some(last) = self.rank.checked_sub(1) else {
            if n > 0 {
                run([0; N], 0, n);
            }
            return;
        };
        let mut offsets = strides.map(|s| dot(&position, s));
        let mut done = 0;
        while done < n {
            let len = (self.extents[last] - position[last]).min(n - done);
            run(offsets, done, len);
            done += len;
            position[last] += len;
            for (offset, s) in offsets.iter_mut().zip(strides) {
                *offset += len * s[last];
            }
            // Carries, like an odometer.
            let mut axis = last;
            while position[axis] == self.extents[axis] && axis > 0 {
                for (offset, s) in offsets.iter_mut().zip(strides) {
                    *offset = *offset + s[axis - 1] - position[axis] * s[axis];
                }
                position[axis] = 0;
                axis -= 1;
                position[axis] += 1;
            }
        }
    }

    /// The stride along the last axis; any, where there is no axis.
    pub(super) fn inner(&self, strides: &Strides) -> usize {
        self.rank.checked_sub(1).map_or(1, |last| strides[last])
    }
}

/// Where the element at a position lies.
#[inline(always)]
pub(super) fn dot(position: &[usize; MAX_RANK], strides: &Strides) -> usize {
    position.iter().zip(strides).map(|(p, s)| p * s).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use phonograph_graph::{BufferId, DType};

    #[test]
    fn every_element_is_visited_once_where_the_view_has_it() {
        arbtest::arbtest(|u| {
            let rank = u.int_in_range(0..=MAX_RANK)?;
            let extents: Vec<u64> =
                (0..rank).map(|_| u.int_in_range(1..=4)).collect::<Result<_, _>>()?;
            let mut view = View::contiguous(BufferId(0), DType::F32, &extents).unwrap();
            let mut strides: Vec<u64> = view.strides().to_vec();
            for s in &mut strides {
                if u.ratio(1, 4)? {
                    *s = u.int_in_range(0..=9)?;
                }
            }
            let other = View::strided(BufferId(1), DType::F32, 0, &extents, &strides).unwrap();
            let mut order: Vec<usize> = (0..rank).collect();
            if rank > 1 {
                let (a, b) = (u.choose_index(rank)?, u.choose_index(rank)?);
                view = view.transpose(a, b).unwrap();
                order.swap(a, b);
            }
            let other = if order.is_sorted() {
                other
            } else {
                let at = order.iter().position(|&a| order[a] != a).unwrap();
                other.transpose(at, order[at]).unwrap()
            };
            let (space, strides, axes) = Space::new(&[view, other]);
            let extents = view.shape();
            let extents = extents.extents();
            let start = u.choose_index(space.elements + 1)?;
            for (view, strides) in [view, other].iter().zip(&strides) {
                let mut found = Vec::new();
                space.runs(
                    space.position(start),
                    space.elements - start,
                    [strides],
                    |[offset], done, n| {
                        assert_eq!(done, found.len());
                        let step = space.inner(strides);
                        found.extend((0..n).map(|i| offset + i * step));
                    },
                );
                let expected: Vec<usize> = (start..space.elements)
                    .map(|index| {
                        let along = |a: usize| index / axes[a].after % axes[a].extent;
                        (0..extents.len()).map(|a| along(a) * view.strides()[a] as usize).sum()
                    })
                    .collect();
                assert_eq!(found, expected);
            }
            Ok(())
        })
        .budget_ms(500);
    }
}
