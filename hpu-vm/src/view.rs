//! What a task may touch: exact byte ranges, composed for each task from borrowed memory without allocation.
//!
//! Nothing but these ranges can be read or written, whatever address a handler computes. An access must lie in *one*
//! range: one that runs over a range's end is refused, even if another range begins there, as PsPIN's windows
//! are different memories. Addresses never wrap: an access that would pass 2^32 is refused.

use arrayvec::ArrayVec;
use spin_abi::map::{L1_ALIAS, PAGE};

/// Most ranges of a view: an image's segments (at most 16), packet in L1 and L2, four scratchpads, handler memory,
/// stack, task registers, and some to spare.
pub const MAX_RANGES: usize = 32;

/// What a range is, for those who decide by it (commands, counters, reports).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegionKind {
    /// Code and read-only data in program memory.
    Code,
    /// Data of the image in L2.
    Data,
    /// The packet's window in L1.
    Packet,
    /// The packet's window in L2.
    L2Packet,
    /// A cluster's scratchpad.
    Scratchpad,
    /// Handler memory: the image's own or what the context asked for.
    HandlerMemory,
    /// The stack. The page below it reports [`StackOverflow`](spin_abi::fault::Cause::StackOverflow).
    Stack,
    /// The task registers of the driver page.
    Task,
}

/// Borrowed bytes of a range.
#[derive(Debug)]
pub enum Memory<'m> {
    /// May be read.
    ReadOnly(&'m [u8]),
    /// May be read and written.
    ReadWrite(&'m mut [u8]),
}

impl Memory<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::ReadOnly(bytes) => bytes,
            Self::ReadWrite(bytes) => bytes,
        }
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::ReadOnly(_) => None,
            Self::ReadWrite(bytes) => Some(bytes),
        }
    }
}

/// Memory and the guest address of its first byte.
#[derive(Debug)]
pub struct Range<'m> {
    /// What it is.
    pub kind: RegionKind,
    /// Guest address of the first byte.
    pub base: u32,
    /// The bytes, as many as the range is long.
    pub memory: Memory<'m>,
}

/// Why a range could not be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// [`MAX_RANGES`] are there.
    #[error("a view has room for {MAX_RANGES} ranges; {kind:?} at {base:#010x} is one too many")]
    Full {
        /// The range refused.
        kind: RegionKind,
        /// Its base.
        base: u32,
    },
    /// It shares bytes with another one.
    #[error("{kind:?} at {base:#010x} overlaps {other:?} at {other_base:#010x}")]
    Overlap {
        /// The range refused.
        kind: RegionKind,
        /// Its base.
        base: u32,
        /// The range already there.
        other: RegionKind,
        /// Its base.
        other_base: u32,
    },
    /// It would end above 2^32.
    #[error("{kind:?} at {base:#010x}, {len} bytes long, ends beyond the address space")]
    Wraps {
        /// The range refused.
        kind: RegionKind,
        /// Its base.
        base: u32,
        /// Its length in bytes.
        len: usize,
    },
}

/// The memory of one task.
#[derive(Debug, Default)]
pub struct View<'m> {
    ranges: ArrayVec<Range<'m>, MAX_RANGES>,
    /// Range the last access was in: the next one is there most often.
    last: usize,
    /// L1 base of the own cluster and size of the window at [`L1_ALIAS`] that shows it; size 0 for none.
    alias: (u32, u32),
    stack_base: Option<u32>,
}

impl<'m> View<'m> {
    /// A view of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a range. Empty ones are left out.
    ///
    /// # Errors
    /// See [`ViewError`]; the view is as before then.
    pub fn push(&mut self, range: Range<'m>) -> Result<(), ViewError> {
        let Range { kind, base, ref memory } = range;
        let len = memory.bytes().len();
        let end = u64::from(base) + len as u64;
        if end > 1 << 32 {
            return Err(ViewError::Wraps { kind, base, len });
        }
        if len == 0 {
            return Ok(());
        }
        if let Some(other) = self.overlapping(base, end) {
            return Err(ViewError::Overlap { kind, base, other: other.kind, other_base: other.base });
        }
        self.ranges.try_push(range).map_err(|_| ViewError::Full { kind, base })?;
        if kind == RegionKind::Stack {
            self.stack_base = Some(base);
        }
        Ok(())
    }

    /// Shows `size` bytes of the cluster's L1 at `cluster_l1_base` at [`L1_ALIAS`] too.
    pub const fn set_l1_alias(&mut self, cluster_l1_base: u32, size: u32) {
        self.alias = (cluster_l1_base, size);
    }

    /// The address that `address` stands for: itself, unless it lies in the own cluster's alias window.
    #[must_use]
    #[inline]
    pub const fn normalise(&self, address: u32) -> u32 {
        let offset = address.wrapping_sub(L1_ALIAS);
        let (base, size) = self.alias;
        if offset < size { base.wrapping_add(offset) } else { address }
    }

    /// `len` readable bytes at `address`. An empty access needs a readable byte there too.
    #[must_use]
    pub fn read(&self, address: u32, len: u32) -> Option<&[u8]> {
        let (index, offset) = self.find(self.normalise(address), len)?;
        self.ranges[index].memory.bytes().get(offset..offset + len as usize)
    }

    /// `len` writable bytes at `address`. An empty access needs a writable byte there too.
    #[must_use]
    pub fn write(&mut self, address: u32, len: u32) -> Option<&mut [u8]> {
        let (index, offset) = self.find(self.normalise(address), len)?;
        self.ranges[index].memory.bytes_mut()?.get_mut(offset..offset + len as usize)
    }

    /// The range that holds `len` bytes at `address` and the offset in it.
    #[must_use]
    pub fn kind_of(&self, address: u32, len: u32) -> Option<(RegionKind, u32)> {
        let (index, _) = self.find(self.normalise(address), len)?;
        let range = &self.ranges[index];
        Some((range.kind, self.normalise(address) - range.base))
    }

    /// Loads `N` bytes.
    #[inline]
    pub(crate) fn load<const N: usize>(&mut self, address: u32) -> Option<[u8; N]> {
        let address = self.normalise(address);
        if let Some(bytes) = self.ranges.get(self.last).and_then(|range| array_at(range, address)) {
            return Some(bytes);
        }
        let (index, bytes) = self.ranges.iter().enumerate().find_map(|(i, r)| Some((i, array_at(r, address)?)))?;
        self.last = index;
        Some(bytes)
    }

    /// Stores `N` bytes; `None` and no effect when they may not be written.
    #[inline]
    pub(crate) fn store<const N: usize>(&mut self, address: u32, value: [u8; N]) -> Option<()> {
        let address = self.normalise(address);
        if let Some(place) = self.ranges.get_mut(self.last).and_then(|range| array_at_mut(range, address)) {
            *place = value;
            return Some(());
        }
        let mut ranges = self.ranges.iter_mut().enumerate();
        let (index, place) = ranges.find_map(|(i, r)| Some((i, array_at_mut(r, address)?)))?;
        *place = value;
        self.last = index;
        Some(())
    }

    /// Whether `address` lies in the page below the stack, where an overflowing stack arrives.
    #[must_use]
    pub fn below_stack(&self, address: u32) -> bool {
        let address = self.normalise(address);
        self.stack_base.is_some_and(|base| (1..=PAGE).contains(&base.wrapping_sub(address)))
    }

    /// Index of the range that holds `len` bytes at the normalised `address`, and where in it.
    fn find(&self, address: u32, len: u32) -> Option<(usize, usize)> {
        self.ranges.iter().enumerate().find_map(|(index, range)| {
            let offset = address.checked_sub(range.base)? as usize;
            let room = range.memory.bytes().len().checked_sub(offset)?;
            (room != 0 && len as usize <= room).then_some((index, offset))
        })
    }

    fn overlapping(&self, base: u32, end: u64) -> Option<&Range<'m>> {
        self.ranges.iter().find(|other| {
            let other_end = u64::from(other.base) + other.memory.bytes().len() as u64;
            u64::from(base) < other_end && u64::from(other.base) < end
        })
    }
}

#[inline]
fn array_at<const N: usize>(range: &Range<'_>, address: u32) -> Option<[u8; N]> {
    let offset = address.wrapping_sub(range.base) as usize;
    range.memory.bytes().get(offset..)?.first_chunk().copied()
}

#[inline]
fn array_at_mut<'a, const N: usize>(range: &'a mut Range<'_>, address: u32) -> Option<&'a mut [u8; N]> {
    let offset = address.wrapping_sub(range.base) as usize;
    range.memory.bytes_mut()?.get_mut(offset..)?.first_chunk_mut()
}

#[cfg(test)]
mod tests;
