//! Memory that a task may access: exact byte ranges, borrowed for one task or part of a
//! [`Space`](crate::memory::Space).
//!
//! Only these ranges can be read or written, whatever address a handler computes. An access must lie in *one* range. An
//! access beyond a range's end is refused even if another range begins there, since PsPIN's windows are different
//! memories. Addresses never wrap: an access beyond 2^32 is refused. [`Checks::Page`] is the exception to exactness,
//! for comparison with code that relies on page protection.

use std::cell::Cell;
use std::sync::Arc;

use arrayvec::ArrayVec;
use spin_abi::map::{DRIVER_BASE, L1_ALIAS, PACKET_WINDOW, PAGE};
use spin_abi::regs::{TASK_END, TASK_FIRST};

use crate::memory::{Access, LastWindow, Level, PacketWindows, Window};

/// Maximum number of ranges of a view: an image's segments (at most 16), packet in L1 and L2, four scratchpads, handler
/// memory, stack, task registers, and a reserve.
pub const MAX_RANGES: usize = 32;

/// Kind of a range, used by commands, counters and reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegionKind {
    /// Code and read-only data in program memory.
    Code,
    /// Data of the image in L2.
    Data,
    /// Packet window in L1.
    Packet,
    /// Packet window in L2.
    L2Packet,
    /// Scratchpad of a cluster.
    Scratchpad,
    /// Handler memory: the image's own, or the size requested by the context.
    HandlerMemory,
    /// The stack. The page below it reports [`StackOverflow`](spin_abi::fault::Cause::StackOverflow).
    Stack,
    /// The task registers of the driver page.
    Task,
}

/// Granularity of checks on loads, stores and atomics. Copies and [`View::kind_of`] are always exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Checks {
    /// Exactly the bytes of a range.
    #[default]
    Exact,
    /// A range's complete pages, including accesses that cross into a neighbouring page: the accesses that page
    /// protection allows. Borrowed bytes have no pages around them.
    Page,
}

/// Bytes of a range.
#[derive(Debug)]
pub enum Memory<'m> {
    /// Read-only bytes.
    ReadOnly(&'m [u8]),
    /// Readable and writable bytes.
    ReadWrite(&'m mut [u8]),
    /// Bytes that others may read and write at the same time.
    Shared(Window),
    /// Bytes of the packet in L1 or L2.
    Packet(Packet),
}

/// The part of a packet window that the packet occupies.
#[derive(Debug)]
pub struct Packet {
    windows: Arc<PacketWindows>,
    level: Level,
    len: u32,
}

impl Packet {
    /// The window's bytes when `len` of them at `offset` may be touched; the packet is in them from now on.
    fn touch(&self, offset: u32, len: u32, checks: Checks, access: Access) -> Option<&Window> {
        let room = if checks == Checks::Exact { self.len } else { PACKET_WINDOW };
        if len > room.checked_sub(offset)? {
            return None;
        }
        self.windows.touch(self.level, access)
    }
}

impl<'m> Memory<'m> {
    /// A packet window, in full length.
    pub(crate) const fn packet(windows: Arc<PacketWindows>, level: Level) -> Self {
        Self::Packet(Packet { windows, level, len: PACKET_WINDOW })
    }

    #[inline]
    fn len(&self) -> usize {
        match self {
            Self::ReadOnly(bytes) => bytes.len(),
            Self::ReadWrite(bytes) => bytes.len(),
            Self::Shared(window) => window.len() as usize,
            Self::Packet(packet) => packet.len as usize,
        }
    }

    /// Loads `N` bytes at `offset`, which wraps below the first byte.
    #[inline(always)]
    fn load<const N: usize>(&self, offset: u32, checks: Checks) -> Option<[u8; N]> {
        match self {
            Self::ReadOnly(bytes) => bytes.get(offset as usize..)?.first_chunk().copied(),
            Self::ReadWrite(bytes) => bytes.get(offset as usize..)?.first_chunk().copied(),
            Self::Shared(window) => window.load(offset, checks),
            Self::Packet(packet) => packet.touch(offset, N as u32, checks, Access::Read)?.load(offset, checks),
        }
    }

    #[inline(always)]
    fn store<const N: usize>(&mut self, offset: u32, value: [u8; N], checks: Checks) -> Option<()> {
        match self {
            Self::ReadOnly(_) => None,
            Self::ReadWrite(bytes) => {
                *bytes.get_mut(offset as usize..)?.first_chunk_mut()? = value;
                Some(())
            }
            Self::Shared(window) => window.store(offset, value, checks),
            Self::Packet(packet) => packet.touch(offset, N as u32, checks, Access::Write)?.store(offset, value, checks),
        }
    }

    /// Whether `len` bytes at `offset` may be written.
    fn writable(&self, offset: u32, len: u32, checks: Checks) -> bool {
        match self {
            Self::ReadOnly(_) => false,
            Self::ReadWrite(bytes) => bytes.get(offset as usize..).is_some_and(|rest| len as usize <= rest.len()),
            Self::Shared(window) => window.writable(offset, len, checks),
            Self::Packet(packet) => packet.touch(offset, len, checks, Access::Write).is_some(),
        }
    }

    fn load_word(&self, offset: u32, checks: Checks) -> Option<u32> {
        match self {
            Self::Shared(window) => window.load_word(offset, checks),
            Self::Packet(packet) => packet.touch(offset, 4, checks, Access::Read)?.load_word(offset, checks),
            _ => self.load(offset, checks).map(u32::from_le_bytes),
        }
    }

    fn update_word(&mut self, offset: u32, checks: Checks, new: &impl Fn(u32) -> u32) -> Option<u32> {
        match self {
            Self::Shared(window) => window.update_word(offset, checks, new),
            Self::Packet(packet) => packet.touch(offset, 4, checks, Access::Write)?.update_word(offset, checks, new),
            _ => {
                let old = self.load(offset, checks).map(u32::from_le_bytes)?;
                self.store(offset, new(old).to_le_bytes(), checks)?;
                Some(old)
            }
        }
    }

    fn exchange_word(&mut self, offset: u32, checks: Checks, expected: u32, new: u32) -> Option<bool> {
        match self {
            Self::Shared(window) => window.exchange_word(offset, checks, expected, new),
            Self::Packet(packet) => {
                packet.touch(offset, 4, checks, Access::Write)?.exchange_word(offset, checks, expected, new)
            }
            _ => {
                let old = self.update_word(offset, checks, &|old| if old == expected { new } else { old })?;
                Some(old == expected)
            }
        }
    }

    #[inline]
    fn copy_out(&self, offset: u32, to: &mut [u8]) -> Option<()> {
        let bytes = match self {
            Self::ReadOnly(bytes) => *bytes,
            Self::ReadWrite(bytes) => &**bytes,
            Self::Shared(window) => return window.copy_out(offset, to),
            Self::Packet(Packet { windows, level, .. }) => return windows.copy_out(*level, offset, to),
        };
        to.copy_from_slice(bytes.get(offset as usize..)?.get(..to.len())?);
        Some(())
    }

    fn copy_in(&mut self, offset: u32, from: &[u8]) -> Option<()> {
        match self {
            Self::ReadOnly(_) => return None,
            Self::ReadWrite(bytes) => {
                bytes.get_mut(offset as usize..)?.get_mut(..from.len())?.copy_from_slice(from);
            }
            Self::Shared(window) => window.copy_in(offset, from)?,
            Self::Packet(Packet { windows, level, .. }) => {
                windows.touch(*level, Access::Write)?.copy_in(offset, from)?;
            }
        }
        Some(())
    }

    /// Sets the length, up to the one it had first; borrowed bytes keep theirs.
    #[inline]
    fn set_len(&mut self, len: u32) -> Option<()> {
        match self {
            Self::ReadOnly(_) | Self::ReadWrite(_) => None,
            Self::Shared(window) => window.set_len(len),
            Self::Packet(packet) => {
                packet.len = Some(len).filter(|&len| len <= PACKET_WINDOW)?;
                Some(())
            }
        }
    }
}

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
    /// Where in it `len` bytes at `address` are, if all are. None are where one is.
    #[inline]
    fn offset(&self, address: u32, len: u32) -> Option<u32> {
        within(self.base, self.memory.len(), address, len)
    }
}

/// Where in `room` bytes from `base` on `len` bytes at `address` are, if all are. None are where one is.
#[inline]
fn within(base: u32, room: usize, address: u32, len: u32) -> Option<u32> {
    let offset = address.checked_sub(base)?;
    let left = room.checked_sub(offset as usize)?;
    (left != 0 && len as usize <= left).then_some(offset)
}

/// Reason why a range could not be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// The view has [`MAX_RANGES`] ranges already.
    #[error("a view has room for {MAX_RANGES} ranges; {kind:?} at {base:#010x} is one too many")]
    Full {
        /// Kind of the refused range.
        kind: RegionKind,
        /// Base of the refused range.
        base: u32,
    },
    /// The range overlaps another one.
    #[error("{kind:?} at {base:#010x} overlaps {other:?} at {other_base:#010x}")]
    Overlap {
        /// Kind of the refused range.
        kind: RegionKind,
        /// Base of the refused range.
        base: u32,
        /// Kind of the existing range.
        other: RegionKind,
        /// Base of the existing range.
        other_base: u32,
    },
    /// The range would end above 2^32.
    #[error("{kind:?} at {base:#010x}, {len} bytes long, ends beyond the address space")]
    Wraps {
        /// Kind of the refused range.
        kind: RegionKind,
        /// Base of the refused range.
        base: u32,
        /// Length of the refused range in bytes.
        len: usize,
    },
}

/// Addresses that stand for others, and where the stack is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AddressMap {
    /// L1 base of the own cluster and size of the window at [`L1_ALIAS`] that shows it; size 0 for none.
    l1: (u32, u32),
    /// Where the task registers lie, if they are shown at their addresses in the driver page.
    task: Option<u32>,
    stack: Option<u32>,
}

/// Both aliases are among the addresses with these upper bits, so all others are told apart by one comparison.
const ALIASES: u32 = L1_ALIAS >> 24;
const TASK: u32 = DRIVER_BASE + TASK_FIRST;
const TASK_LEN: u32 = TASK_END - TASK_FIRST;
const _: () = assert!(TASK >> 24 == ALIASES && (TASK + TASK_LEN) >> 24 == ALIASES);

/// Whether some of `len` addresses from `base` on may stand for others, and are to be looked for each time.
const fn stand_for_others(base: u32, len: u32) -> bool {
    base >> 24 <= ALIASES && base.saturating_add(len) >> 24 >= ALIASES
}

impl AddressMap {
    pub(crate) const fn set_l1(&mut self, base: u32, size: u32) {
        self.l1 = (base, size);
    }

    pub(crate) const fn l1_base(&self) -> u32 {
        self.l1.0
    }

    pub(crate) const fn l1_size(&self) -> u32 {
        self.l1.1
    }

    /// Where the task registers lie; 0 when they are shown nowhere else.
    pub(crate) fn task_base(&self) -> u32 {
        self.task.unwrap_or(0)
    }

    /// Where an access of `len` bytes at `address` goes.
    #[inline(always)]
    pub(crate) const fn canonical(&self, address: u32, len: u32) -> u32 {
        if address >> 24 == ALIASES { self.aliased(address, len) } else { address }
    }

    /// Where in the alias of L1 an address is shown too, if it is.
    pub(crate) fn in_l1_alias(&self, address: u32) -> Option<u32> {
        let (base, size) = self.l1;
        let in_l1 = address.wrapping_sub(base);
        (in_l1 < size).then(|| L1_ALIAS + in_l1)
    }

    const fn aliased(&self, address: u32, len: u32) -> u32 {
        let (base, size) = self.l1;
        let (in_l1, in_task) = (address.wrapping_sub(L1_ALIAS), address.wrapping_sub(TASK));
        match self.task {
            _ if in_l1 < size => base.wrapping_add(in_l1),
            // One that goes on into the device's registers is an access to them.
            Some(task) if in_task < TASK_LEN && len <= TASK_LEN - in_task => task.wrapping_add(in_task),
            _ => address,
        }
    }

    /// See [`View::below_stack`].
    pub(crate) fn below_stack(&self, address: u32) -> bool {
        let address = self.canonical(address, 1);
        self.stack.is_some_and(|base| (1..=PAGE).contains(&base.wrapping_sub(address)))
    }
}

/// The memory of one task.
#[derive(Debug, Default)]
pub struct View<'m> {
    ranges: ArrayVec<Range<'m>, MAX_RANGES>,
    /// Range the last access was in: the next one is there most often.
    last: Cell<usize>,
    /// Memory that was copied from last.
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
            RegionKind::Stack => self.addresses.stack = Some(base),
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
        self.addresses.task = Some(task);
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
        if self.addresses.task.is_some() && address.wrapping_sub(TASK) < TASK_LEN {
            return Some((RegionKind::Task, address - TASK));
        }
        Some((self.ranges[index].kind, offset))
    }

    /// Returns the offset of `len` bytes at `address` in the packet in L2, if they lie there: a faster
    /// [`View::kind_of`] for frequent calls.
    #[must_use]
    #[inline]
    pub fn in_l2_packet(&self, address: u32, len: u32) -> Option<u32> {
        let Range { base, memory, .. } = self.ranges.get(self.l2_packet?)?;
        let room = match memory {
            // Looked at by itself: mostly it is that, and a jump by a table would wait for what kind it is.
            Memory::Packet(packet) => packet.len as usize,
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
        // Of most copies, this is all.
        if self.last_window.copy_out(address, to) { Some(()) } else { self.find_and_copy_out(address, to) }
    }

    #[inline(never)]
    fn find_and_copy_out(&self, address: u32, to: &mut [u8]) -> Option<()> {
        let (index, offset) = self.find(address, u32::try_from(to.len()).ok()?)?;
        let Range { base, memory, .. } = &self.ranges[index];
        if let Memory::Shared(window) = memory
            && !stand_for_others(*base, window.len())
        {
            self.last_window.note(*base, window);
        }
        memory.copy_out(offset, to)
    }

    /// Calls `look` with `len` bytes at `address` in the frame, if they belong to a packet that is not copied to its
    /// window. Does not count as an access.
    #[inline]
    pub fn with_frame_bytes<R>(&self, address: u32, len: u32, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let (index, offset) = self.find(address, len)?;
        let Memory::Packet(Packet { windows, level, .. }) = &self.ranges[index].memory else { return None };
        windows.look(*level, offset, len as usize, look)
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
        // Up to the end of the address space: what would pass it is refused.
        address.checked_add(u32::try_from(N).unwrap_or(u32::MAX) - 1)?;
        let places = || (address..=u32::MAX).zip(value);
        let writable = |at: u32| {
            let mut ranges = self.ranges.iter();
            ranges.any(|range| range.memory.writable(at.wrapping_sub(range.base), 1, Checks::Page))
        };
        if !places().all(|(at, _)| writable(at)) {
            return None;
        }
        places().try_for_each(|(at, byte)| self.store_to_pages(at, [byte]))
    }

    /// Loads the word at `address`, which must be aligned, in the one order of all threads' atomics.
    pub(crate) fn load_word(&self, address: u32) -> Option<u32> {
        let address = self.addresses.canonical(address, 4);
        self.ranges.iter().find_map(|r| r.memory.load_word(address.wrapping_sub(r.base), self.checks))
    }

    /// Replaces the word at `address`, which must be aligned, by what `new` makes of it, as one step for all threads
    /// that share it; returns the old one. `None` and no effect when it may not be written.
    pub(crate) fn update_word(&mut self, address: u32, new: impl Fn(u32) -> u32) -> Option<u32> {
        let (address, checks) = (self.addresses.canonical(address, 4), self.checks);
        self.ranges.iter_mut().find_map(|r| r.memory.update_word(address.wrapping_sub(r.base), checks, &new))
    }

    /// Replaces the word at `address`, which must be aligned, by `new` if it is `expected`, as one step for all threads
    /// that share it; says whether it was. `None` and no effect when it may not be written.
    pub(crate) fn exchange_word(&mut self, address: u32, expected: u32, new: u32) -> Option<bool> {
        let (address, checks) = (self.addresses.canonical(address, 4), self.checks);
        self.ranges.iter_mut().find_map(|r| r.memory.exchange_word(address.wrapping_sub(r.base), checks, expected, new))
    }

    /// Whether `address` lies in the page below the stack, which an overflowing stack accesses first.
    #[must_use]
    pub fn below_stack(&self, address: u32) -> bool {
        self.addresses.below_stack(address)
    }

    /// Index of the range that holds `len` bytes at `address`, and where in it.
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
