//! Size classes: how a request for bytes is rounded, and how large a page for it is.

/// The largest allocation: 1 TiB.
pub const MAX_ALLOCATION: u64 = 1 << 40;

/// Slices start at multiples of this in their page, which is what device allocators align to.
const GRAIN: u64 = 256;
/// Pages of small classes are about this large.
const PAGE: u64 = 1 << 20;
const MOST_SLICES: u64 = 64;

/// Where a page lies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Place {
    /// Memory of the device.
    #[default]
    Device,
    /// Page-locked memory of the host, which functions of the host can be given.
    Host,
}

/// Bytes of a slice: multiples of 256 up to 1 KiB, then four steps for each doubling; and where its page lies.
///
/// ```
/// use phonograph_runtime::pool::SizeClass;
///
/// let bytes = |n| SizeClass::of(n).unwrap().bytes();
/// assert_eq!([bytes(0), bytes(257), bytes(1025), bytes(1 << 20)], [256, 512, 1280, 1 << 20]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SizeClass {
    bytes: u64,
    place: Place,
    alone: bool,
}

impl SizeClass {
    /// The smallest class of device memory that holds `bytes`; `None` above [`MAX_ALLOCATION`].
    pub fn of(bytes: u64) -> Option<Self> {
        if bytes > MAX_ALLOCATION {
            return None;
        }
        let bytes = bytes.max(1);
        let step = if bytes <= 4 * GRAIN { GRAIN } else { 1 << (bytes.ilog2() - 2) };
        let bytes = bytes.next_multiple_of(step);
        Some(Self { bytes, place: Place::Device, alone: false })
    }

    /// The class of a page that is one slice, of just so many bytes of device memory. Nobody asks for it, so that what comes
    /// back is not handed out again.
    pub const fn alone(bytes: u64) -> Self {
        Self { bytes, place: Place::Device, alone: true }
    }

    /// Whether its pages are of one use.
    pub const fn is_alone(self) -> bool {
        self.alone
    }

    /// The class of the same size elsewhere.
    pub const fn at(self, place: Place) -> Self {
        Self { place, ..self }
    }

    /// Where its pages lie.
    pub const fn place(self) -> Place {
        self.place
    }

    /// Bytes of a slice.
    pub const fn bytes(self) -> u64 {
        self.bytes
    }

    /// Slices of a page: as many as fit a megabyte, between 1 and 64.
    pub fn slices(self) -> u64 {
        if self.alone { 1 } else { (PAGE / self.bytes).clamp(1, MOST_SLICES) }
    }

    /// Bytes of a page.
    pub fn page_bytes(self) -> u64 {
        self.slices() * self.bytes
    }
}
