//! Memory that a task may access: exact byte ranges, borrowed for one task or part of a
//! [`Space`](crate::memory::Space).
//!
//! Only these ranges can be read or written, whatever address a handler computes. An access must lie in *one* range. An
//! access beyond a range's end is refused even if another range begins there, since PsPIN's windows are different
//! memories. Addresses never wrap: an access beyond 2^32 is refused. [`Checks::Page`] is the exception to exactness,
//! for comparison with code that relies on page protection.

mod error;
mod memory;

use std::cell::Cell;

use arrayvec::ArrayVec;
use spin_abi::map::PAGE;

pub use self::error::{MAX_RANGES, ViewError};
pub use self::memory::{Memory, Packet};
use crate::address::{AddressMap, has_alias};
pub use crate::address::{Checks, RegionKind};
use crate::memory::LastWindow;

/// Memory and the guest address of its first byte.
#[derive(Debug)]
pub struct Range<'m> {
    /// Kind of the range.
    pub kind: RegionKind,
    /// Guest address of the first byte.
    pub base: u32,
    /// Bytes of the range.
    pub memory: Memory<'m>,
}

impl Range<'_> {
    /// Offset of `len` bytes at `address`, if all are in the range. For an empty access the byte at `address` must
    /// exist.
    #[inline]
    fn offset(&self, address: u32, len: u32) -> Option<u32> {
        within(self.base, self.memory.len(), address, len)
    }
}

/// Offset of `len` bytes at `address` in `room` bytes from `base` on, if all are there. For an empty access the byte at
/// `address` must exist.
#[inline]
fn within(base: u32, room: usize, address: u32, len: u32) -> Option<u32> {
    let offset = address.checked_sub(base)?;
    let left = room.checked_sub(offset as usize)?;
    (left != 0 && len as usize <= left).then_some(offset)
}

/// The memory of one task.
#[derive(Debug, Default)]
pub struct View<'m> {
    ranges: ArrayVec<Range<'m>, MAX_RANGES>,
    /// Range of the last access, which is most often that of the next one too.
    last: Cell<usize>,
    /// Window of the last copy.
    last_window: LastWindow,
    /// The range of the packet in L2, if there is one.
    l2_packet: Option<usize>,
    addresses: AddressMap,
    checks: Checks,
}

impl<'m> View<'m> {
    /// Makes an empty view.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a range; empty ones are ignored.
    ///
    /// # Errors
    /// See [`ViewError`]; the view is then unchanged.
    pub fn push(&mut self, range: Range<'m>) -> Result<(), ViewError> {
        let Range { kind, base, ref memory } = range;
        let len = memory.len();
        self.check(kind, base, len)?;
        if len == 0 {
            return Ok(());
        }
        let index = self.ranges.len();
        self.ranges.try_push(range).map_err(|_| ViewError::Full { kind, base })?;
        match kind {
            RegionKind::Stack => self.addresses.set_stack(base),
            RegionKind::L2Packet => self.l2_packet = Some(index),
            _ => {}
        }
        Ok(())
    }

    /// Whether a range could be added.
    pub(crate) fn check(&self, kind: RegionKind, base: u32, len: usize) -> Result<(), ViewError> {
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
        if self.ranges.is_full() { Err(ViewError::Full { kind, base }) } else { Ok(()) }
    }

    /// Maps `size` bytes (below 16 MiB) of the cluster's L1 at `cluster_l1_base` at [`L1_ALIAS`] too.
    pub const fn set_l1_alias(&mut self, cluster_l1_base: u32, size: u32) {
        self.addresses.set_l1(cluster_l1_base, size);
    }

    /// Maps the task registers at `task` to their addresses in the driver page too.
    pub const fn set_task_alias(&mut self, task: u32) {
        self.addresses.set_task(task);
    }

    /// Sets the granularity of checks on loads, stores and atomics.
    pub const fn set_checks(&mut self, checks: Checks) {
        self.checks = checks;
    }

    /// Sets the length of the first range of a kind that is part of a space, up to the one it was mapped with.
    #[inline]
    pub(crate) fn set_len(&mut self, kind: RegionKind, len: u32) -> Option<()> {
        let range = self.ranges.iter_mut().find(|range| range.kind == kind)?;
        self.last_window.forget(range.base);
        range.memory.set_len(len)
    }

    pub(crate) const fn addresses(&self) -> AddressMap {
        self.addresses
    }

    /// Returns the canonical address of a byte: `address` itself, unless it lies in the own cluster's alias window or
    /// is one of the task registers.
    #[must_use]
    #[inline]
    pub const fn normalise(&self, address: u32) -> u32 {
        self.addresses.canonical(address, 1)
    }

    /// Returns kind, base and length of every range, including empty ones.
    pub fn ranges(&self) -> impl Iterator<Item = (RegionKind, u32, u32)> + '_ {
        self.ranges.iter().map(|range| (range.kind, range.base, u32::try_from(range.memory.len()).unwrap_or(u32::MAX)))
    }

    /// Returns the range that contains `len` bytes at `address`, and the offset in it. For an empty access the byte at
    /// `address` must exist too.
    #[must_use]
    pub fn kind_of(&self, address: u32, len: u32) -> Option<(RegionKind, u32)> {
        let (index, offset) = self.find(address, len)?;
        match self.addresses.task_offset(address) {
            Some(offset) => Some((RegionKind::Task, offset)),
            None => Some((self.ranges[index].kind, offset)),
        }
    }

    /// Returns the offset of `len` bytes at `address` in the packet in L2, if they lie there: a faster
    /// [`View::kind_of`] for frequent calls.
    #[must_use]
    #[inline]
    pub fn in_l2_packet(&self, address: u32, len: u32) -> Option<u32> {
        let Range { base, memory, .. } = self.ranges.get(self.l2_packet?)?;
        let room = match memory {
            // The most frequent kind is tested first: a jump by a table would wait until the kind is known.
            Memory::Packet(packet) => packet.len(),
            other => other.len(),
        };
        within(*base, room, address, len)
    }

    /// Whether `len` bytes at `address` may be written. For an empty access the byte at `address` must be writable too.
    #[must_use]
    pub fn writable(&self, address: u32, len: u32) -> bool {
        let found = self.find(address, len);
        found.is_some_and(|(index, offset)| self.ranges[index].memory.writable(offset, len, Checks::Exact))
    }

    /// Fills `to` from `address`; `None` and no effect when some of it may not be read. For an empty access the byte at
    /// `address` must be readable too.
    #[must_use = "a refused copy moves nothing"]
    #[inline(always)]
    pub fn copy_out(&self, address: u32, to: &mut [u8]) -> Option<()> {
        // Most copies end here.
        if self.last_window.copy_out(address, to) { Some(()) } else { self.find_and_copy_out(address, to) }
    }

    #[inline(never)]
    fn find_and_copy_out(&self, address: u32, to: &mut [u8]) -> Option<()> {
        let (index, offset) = self.find(address, u32::try_from(to.len()).ok()?)?;
        let Range { base, memory, .. } = &self.ranges[index];
        if let Memory::Shared(window) = memory
            && !has_alias(*base, window.len())
        {
            self.last_window.note_miss(*base, window);
        }
        memory.copy_out(offset, to)
    }

    /// Calls `read` with `len` bytes at `address` in the frame, if they belong to a packet that is not copied to its
    /// window. Does not count as an access.
    #[inline]
    pub fn with_frame_bytes<R>(&self, address: u32, len: u32, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let (index, offset) = self.find(address, len)?;
        let Memory::Packet(packet) = &self.ranges[index].memory else { return None };
        packet.with_frame_bytes(offset, len, read)
    }

    /// Copies `from` to `address`; `None` and no effect when some of it may not be written. For an empty access the
    /// byte at `address` must be writable too.
    #[must_use = "a refused copy moves nothing"]
    #[inline]
    pub fn copy_in(&mut self, address: u32, from: &[u8]) -> Option<()> {
        let (index, offset) = self.find(address, u32::try_from(from.len()).ok()?)?;
        self.ranges[index].memory.copy_in(offset, from)
    }

    /// Zeroes `len` bytes at `address`, as [`View::copy_in`] does.
    #[must_use = "a refused copy moves nothing"]
    pub fn clear(&mut self, address: u32, len: u32) -> Option<()> {
        const ZEROES: [u8; PAGE as usize] = [0; PAGE as usize];
        let (index, offset) = self.find(address, len)?;
        let memory = &mut self.ranges[index].memory;
        memory.copy_in(offset, &[])?;
        (0..len).step_by(ZEROES.len()).try_for_each(|done| {
            let piece = ZEROES.len().min((len - done) as usize);
            memory.copy_in(offset + done, &ZEROES[..piece])
        })
    }

    /// Loads `N` bytes.
    #[inline]
    pub(crate) fn load<const N: usize>(&mut self, address: u32) -> Option<[u8; N]> {
        let address = self.addresses.canonical(address, N as u32);
        let load = |range: &Range<'_>| range.memory.load(address.wrapping_sub(range.base), Checks::Exact);
        if let Some(bytes) = self.ranges.get(self.last.get()).and_then(load) {
            return Some(bytes);
        }
        let found = self.ranges.iter().enumerate().find_map(|(index, range)| Some((index, load(range)?)));
        let Some((index, bytes)) = found else { return self.load_from_pages(address) };
        self.last.set(index);
        Some(bytes)
    }

    /// Stores `N` bytes; `None` and no effect when they may not be written.
    #[inline]
    pub(crate) fn store<const N: usize>(&mut self, address: u32, value: [u8; N]) -> Option<()> {
        let address = self.addresses.canonical(address, N as u32);
        let store = |range: &mut Range<'_>| range.memory.store(address.wrapping_sub(range.base), value, Checks::Exact);
        if self.ranges.get_mut(self.last.get()).and_then(store).is_some() {
            return Some(());
        }
        let Some(index) = self.ranges.iter_mut().position(|range| store(range).is_some()) else {
            return self.store_to_pages(address, value);
        };
        self.last.set(index);
        Some(())
    }

    /// As [`View::load`], where no range has all of the bytes.
    #[cold]
    fn load_from_pages<const N: usize>(&self, address: u32) -> Option<[u8; N]> {
        if self.checks == Checks::Exact {
            return None;
        }
        if !crosses_page(address, N) {
            return self.ranges.iter().find_map(|r| r.memory.load(address.wrapping_sub(r.base), Checks::Page));
        }
        let mut bytes = [0; N];
        for (byte, at) in bytes.iter_mut().zip(0..) {
            [*byte] = self.load_from_pages(address.checked_add(at)?)?;
        }
        Some(bytes)
    }

    /// As [`View::store`], where no range has all of the bytes.
    #[cold]
    fn store_to_pages<const N: usize>(&mut self, address: u32, value: [u8; N]) -> Option<()> {
        if self.checks == Checks::Exact {
            return None;
        }
        if !crosses_page(address, N) {
            let mut ranges = self.ranges.iter_mut();
            return ranges.find_map(|r| r.memory.store(address.wrapping_sub(r.base), value, Checks::Page));
        }
        // An access beyond the end of the address space is refused.
        address.checked_add(u32::try_from(N).unwrap_or(u32::MAX) - 1)?;
        let bytes = || (address..=u32::MAX).zip(value);
        let writable = |at: u32| {
            let mut ranges = self.ranges.iter();
            ranges.any(|range| range.memory.writable(at.wrapping_sub(range.base), 1, Checks::Page))
        };
        if !bytes().all(|(at, _)| writable(at)) {
            return None;
        }
        bytes().try_for_each(|(at, byte)| self.store_to_pages(at, [byte]))
    }

    /// Loads the word at `address`, which must be aligned, in the one order of all threads' atomics.
    pub(crate) fn load_word(&self, address: u32) -> Option<u32> {
        let address = self.addresses.canonical(address, 4);
        self.ranges.iter().find_map(|r| r.memory.load_word(address.wrapping_sub(r.base), self.checks))
    }

    /// Replaces the word at `address`, which must be aligned, by `new` of it, as one step for all threads that share
    /// it. Returns the old word. `None` and no effect when the word may not be written.
    pub(crate) fn update_word(&mut self, address: u32, new: impl Fn(u32) -> u32) -> Option<u32> {
        let (address, checks) = (self.addresses.canonical(address, 4), self.checks);
        self.ranges.iter_mut().find_map(|r| r.memory.update_word(address.wrapping_sub(r.base), checks, &new))
    }

    /// Replaces the word at `address`, which must be aligned, by `new` if it is `expected`, as one step for all threads
    /// that share it. Returns whether it was. `None` and no effect when the word may not be written.
    pub(crate) fn exchange_word(&mut self, address: u32, expected: u32, new: u32) -> Option<bool> {
        let (address, checks) = (self.addresses.canonical(address, 4), self.checks);
        self.ranges.iter_mut().find_map(|r| r.memory.exchange_word(address.wrapping_sub(r.base), checks, expected, new))
    }

    /// Whether `address` lies in the page below the stack, which an overflowing stack accesses first.
    #[must_use]
    pub fn below_stack(&self, address: u32) -> bool {
        self.addresses.below_stack(address)
    }

    /// Index of the range that contains `len` bytes at `address`, and the offset in it.
    #[inline]
    fn find(&self, address: u32, len: u32) -> Option<(usize, u32)> {
        let address = self.addresses.canonical(address, len);
        let last = self.last.get();
        let offset = self.ranges.get(last).and_then(|range| range.offset(address, len));
        offset.map(|offset| (last, offset)).or_else(|| self.search(address, len))
    }

    fn search(&self, address: u32, len: u32) -> Option<(usize, u32)> {
        let mut ranges = self.ranges.iter().enumerate();
        let found = ranges.find_map(|(index, range)| Some((index, range.offset(address, len)?)))?;
        self.last.set(found.0);
        Some(found)
    }

    fn overlapping(&self, base: u32, end: u64) -> Option<&Range<'m>> {
        self.ranges.iter().find(|other| {
            let other_end = u64::from(other.base) + other.memory.len() as u64;
            u64::from(base) < other_end && u64::from(other.base) < end
        })
    }
}

/// Whether `len` (1 to 4) bytes at `address` are in two pages.
const fn crosses_page(address: u32, len: usize) -> bool {
    address % PAGE + len as u32 > PAGE
}

#[cfg(test)]
mod tests;
