//! Lifetimes on a time line: the input of placement where the order of buffers is an interval order.
//!
//! In: for each buffer when it is live (from `lower` up to, not including, `upper`) and its size. Out: a validated list, and
//! the least memory that any placement needs, which for intervals is exact in O(n log n): the most bytes live at once.

/// When a buffer is live, and its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifetime {
    /// The first moment.
    pub lower: i64,
    /// The moment after the last.
    pub upper: i64,
    /// Size in bytes.
    pub bytes: u64,
}

impl Lifetime {
    /// Whether both need memory at some common moment.
    pub const fn meets(&self, other: &Lifetime) -> bool {
        self.lower < other.upper && other.lower < self.upper && self.bytes > 0 && other.bytes > 0
    }
}

/// Place of a lifetime in its list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LifetimeId(pub u32);

impl LifetimeId {
    /// As an index into arrays over lifetimes.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl std::fmt::Display for LifetimeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "lifetime {}", self.0)
    }
}

/// Why lifetimes cannot be placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LifetimeError {
    /// Live for no moment.
    #[error("{id} ends at {upper}, which is not after its start at {lower}")]
    Empty {
        /// Which.
        id: LifetimeId,
        /// Its start.
        lower: i64,
        /// Its end.
        upper: i64,
    },
    /// More bytes in all than there are addresses.
    #[error("up to {id} the sizes add up to more than {limit} bytes")]
    TooLarge {
        /// The one with which it became too much.
        id: LifetimeId,
        /// What they may add up to.
        limit: u64,
    },
    /// More lifetimes than are taken.
    #[error("there are {count} lifetimes; at most {limit} are taken")]
    TooMany {
        /// How many there are.
        count: usize,
        /// How many are taken.
        limit: usize,
    },
}

/// A list of lifetimes that can be placed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lifetimes {
    list: Vec<Lifetime>,
}

impl Lifetimes {
    /// The most lifetimes in a list.
    pub const MAX_COUNT: usize = 1 << 24;
    /// The most bytes of all together.
    pub const MAX_BYTES: u64 = super::MAX_POOL_BYTES;

    /// Checks each lifetime and the sum of their sizes. O(n).
    ///
    /// # Errors
    /// [`LifetimeError`] names the first lifetime that is wrong.
    pub fn new(list: Vec<Lifetime>) -> Result<Self, LifetimeError> {
        if list.len() > Self::MAX_COUNT {
            return Err(LifetimeError::TooMany { count: list.len(), limit: Self::MAX_COUNT });
        }
        let mut sum = 0u64;
        for (id, lifetime) in (0..).map(LifetimeId).zip(&list) {
            let Lifetime { lower, upper, bytes } = *lifetime;
            if lower >= upper {
                return Err(LifetimeError::Empty { id, lower, upper });
            }
            sum = sum.saturating_add(bytes);
            if sum > Self::MAX_BYTES {
                return Err(LifetimeError::TooLarge { id, limit: Self::MAX_BYTES });
            }
        }
        Ok(Self { list })
    }

    /// The lifetimes, by id.
    pub fn as_slice(&self) -> &[Lifetime] {
        &self.list
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Bytes live at the fullest moment: no placement needs less. O(n log n).
    pub fn lower_bound(&self) -> u64 {
        let mut events: Vec<(i64, bool, u64)> = Vec::with_capacity(2 * self.list.len());
        for lifetime in &self.list {
            events.push((lifetime.lower, true, lifetime.bytes));
            events.push((lifetime.upper, false, lifetime.bytes));
        }
        events.sort_unstable(); // what ends at a moment makes room for what starts then
        let (mut live, mut most) = (0u64, 0u64);
        for (_, starts, bytes) in events {
            if starts {
                live += bytes;
                most = most.max(live);
            } else {
                live -= bytes;
            }
        }
        most
    }
}

/// Two lifetimes that meet and were given common bytes, or a list of offsets of the wrong length.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlacementError {
    /// Both need the same bytes at some moment.
    #[error("{first} and {second} are live at once and share bytes")]
    Overlap {
        /// One of them.
        first: LifetimeId,
        /// The other.
        second: LifetimeId,
    },
    /// One that ends beyond all addresses.
    #[error("{id} at {offset} reaches beyond all addresses")]
    OutOfRange {
        /// Which.
        id: LifetimeId,
        /// Where it was placed.
        offset: u64,
    },
    /// Not as many offsets as lifetimes.
    #[error("{offsets} offsets for {lifetimes} lifetimes")]
    Count {
        /// Offsets given.
        offsets: usize,
        /// Lifetimes to be placed.
        lifetimes: usize,
    },
}

/// Proves a placement, sharing no code with what makes placements: its peak in bytes.
///
/// Goes along the time line with a map of the bytes in use: what starts must find its bytes free. O(n log n).
///
/// # Errors
/// [`PlacementError`] names what is wrong first.
pub fn prove(lifetimes: &Lifetimes, offsets: &[u64]) -> Result<u64, PlacementError> {
    let list = lifetimes.as_slice();
    if offsets.len() != list.len() {
        return Err(PlacementError::Count { offsets: offsets.len(), lifetimes: list.len() });
    }
    let mut events: Vec<(i64, bool, LifetimeId)> = Vec::with_capacity(2 * list.len());
    let mut peak = 0;
    for ((id, lifetime), &offset) in (0..).map(LifetimeId).zip(list).zip(offsets) {
        if lifetime.bytes == 0 {
            continue;
        }
        let end = offset.checked_add(lifetime.bytes);
        let end = end.ok_or(PlacementError::OutOfRange { id, offset })?;
        peak = peak.max(end);
        events.push((lifetime.lower, true, id));
        events.push((lifetime.upper, false, id));
    }
    events.sort_unstable();
    let mut in_use = std::collections::BTreeMap::new();
    for (_, starts, id) in events {
        let offset = offsets[id.index()];
        if !starts {
            in_use.remove(&offset);
            continue;
        }
        let end = offset + list[id.index()].bytes;
        let below = in_use.range(..end).next_back();
        if let Some((_, &(other_end, other))) = below
            && other_end > offset
        {
            return Err(PlacementError::Overlap { first: other, second: id });
        }
        in_use.insert(offset, (end, id));
    }
    Ok(peak)
}
