//! A part of a region, accessed while other threads, including translated code, write it.
//!
//! Every byte is accessed by atomics of one, two, four or eight bytes. A concurrent write therefore yields old or new
//! bytes, never undefined behaviour. The memory is outside of any Rust allocation. LLVM defines what these accesses
//! compile to; it lets atomics of different sizes overlap and picks a written value for each byte (LangRef, "Memory
//! Model for Concurrent Operations"). Naturally aligned accesses are atomic, as in RISC-V; misaligned ones are not.
#![allow(unsafe_code, reason = "accesses shared memory by pointer")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

use spin_abi::map::PAGE;

use super::copy::{load, store};
use super::region::Region;
use super::reservation::Reservation;
use crate::address::{Access, Checks};

/// A part of a region: `len` bytes from an offset, and the pages that contain them. The window keeps the region and its
/// host addresses alive.
#[derive(Clone, Debug)]
pub struct Window {
    /// First byte of the first page.
    pages: NonNull<u8>,
    /// Bytes of the pages.
    pages_len: u32,
    /// Bytes before the window in its first page.
    lead: u32,
    len: u32,
    /// Maximum of `len`.
    room: u32,
    access: Access,
    /// Keeps `pages` mapped, unless they are at guest addresses.
    _region: Arc<Region>,
    /// Keeps `pages` mapped at guest addresses.
    _reservation: Option<Arc<Reservation>>,
}

// SAFETY: `pages` points to bytes of `_region`, which is Send and Sync; accesses are atomic.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// Makes a window. `None` when the bytes are not within the region, or do not fit its 32-bit offsets.
    #[must_use]
    pub fn new(region: &Arc<Region>, offset: u32, len: u32, access: Access) -> Option<Self> {
        let end = offset.checked_add(len)?;
        let (first, past) = (offset - offset % PAGE, end.checked_next_multiple_of(PAGE)?);
        if past as usize > region.len() {
            return None;
        }
        // SAFETY: `first <= past`, which was just checked to be within the region's mapping.
        let pages = unsafe { region.start().add(first as usize) };
        let lead = offset - first;
        let (_region, _reservation) = (region.clone(), None);
        Some(Self { pages, pages_len: past - first, lead, len, room: len, access, _region, _reservation })
    }

    /// Accesses the window's bytes at the host addresses where a guest sees them, with their first page at `base`. Some
    /// processors' caches are slow to find a line by another address than the last one. Loads by one address also wait
    /// for stores by another. Source: AMD's software optimization guides, on linear address tags of the L1 data cache.
    ///
    /// # Safety
    /// At each access the window's pages are mapped there in the reservation, writable if the window is.
    pub(super) unsafe fn at_guest(self, base: u32, reservation: &Arc<Reservation>) -> Self {
        let pages = reservation.address(base);
        Self { pages, _reservation: Some(reservation.clone()), ..self }
    }

    /// The length in bytes.
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// Changes the length, up to the one it was made with.
    #[inline]
    pub(crate) const fn set_len(&mut self, len: u32) -> Option<()> {
        if len > self.room {
            return None;
        }
        self.len = len;
        Some(())
    }

    /// The host address of `len` bytes at `offset` from the window's first byte. Bytes before it have negative offsets,
    /// at the upper end of 32 bits.
    #[inline(always)]
    fn at(&self, offset: u32, len: usize, checks: Checks) -> Option<*mut u8> {
        let in_pages = offset.wrapping_add(self.lead);
        let (from, room) = match checks {
            Checks::Exact => (offset, self.len),
            Checks::Page => (in_pages, self.pages_len),
        };
        if len > room.checked_sub(from)? as usize {
            return None;
        }
        // SAFETY: `in_pages + len` is at most `pages_len`: checked just now, or since `lead + self.len` is.
        Some(unsafe { self.pages.as_ptr().add(in_pages as usize) })
    }

    #[inline(always)]
    fn writable_at(&self, offset: u32, len: usize, checks: Checks) -> Option<*mut u8> {
        if self.access == Access::Write { self.at(offset, len, checks) } else { None }
    }

    /// Host address of the first byte; `None` for an empty window.
    pub(super) fn first(&self) -> Option<*mut u8> {
        self.at(0, 1, Checks::Exact)
    }

    /// Loads `N` bytes; 2 or 4 as a whole when they are aligned.
    #[inline(always)]
    pub(crate) fn load<const N: usize>(&self, offset: u32, checks: Checks) -> Option<[u8; N]> {
        let at = self.at(offset, N, checks)?;
        let mut bytes = [0; N];
        // SAFETY: `at` checked that the `N` bytes are in pages that stay mapped as long as `self`.
        unsafe { load(at, &mut bytes) };
        Some(bytes)
    }

    /// Stores `N` bytes, as [`Window::load`] loads them; `None` when they may not be written.
    #[inline(always)]
    pub(crate) fn store<const N: usize>(&self, offset: u32, value: [u8; N], checks: Checks) -> Option<()> {
        let at = self.writable_at(offset, N, checks)?;
        // SAFETY: as in `load`; bytes that a task may write are mapped writable.
        unsafe { store(at, &value) };
        Some(())
    }

    /// Whether `len` bytes may be written.
    pub(crate) fn writable(&self, offset: u32, len: u32, checks: Checks) -> bool {
        self.writable_at(offset, len as usize, checks).is_some()
    }

    /// Fills `to`, whose length must be within the window.
    #[inline]
    pub(crate) fn copy_out(&self, offset: u32, to: &mut [u8]) -> Option<()> {
        let at = self.at(offset, to.len(), Checks::Exact)?;
        // SAFETY: as in `Window::load`.
        unsafe { load(at, to) };
        Some(())
    }

    /// Copies `from` into the window.
    #[inline]
    pub(crate) fn copy_in(&self, offset: u32, from: &[u8]) -> Option<()> {
        let at = self.writable_at(offset, from.len(), Checks::Exact)?;
        // SAFETY: as in `Window::store`.
        unsafe { store(at, from) };
        Some(())
    }

    /// Loads a word that is aligned, in the one order of all such accesses.
    pub(crate) fn load_word(&self, offset: u32, checks: Checks) -> Option<u32> {
        let word = self.at(offset, 4, checks).and_then(aligned)?;
        // SAFETY: four aligned bytes of pages that stay mapped as long as `self`; only atomics access them.
        Some(u32::from_le(unsafe { AtomicU32::from_ptr(word) }.load(SeqCst)))
    }

    /// Replaces a word by `new` of it, as one step for all threads; returns the old word.
    pub(crate) fn update_word(&self, offset: u32, checks: Checks, new: impl Fn(u32) -> u32) -> Option<u32> {
        let word = self.writable_at(offset, 4, checks).and_then(aligned)?;
        // SAFETY: as in `load_word`.
        let word = unsafe { AtomicU32::from_ptr(word) };
        let updated = word.fetch_update(SeqCst, SeqCst, |old| Some(new(u32::from_le(old)).to_le()));
        let (Ok(old) | Err(old)) = updated;
        Some(u32::from_le(old))
    }

    /// Replaces a word by `new` if it is `expected`, as one step for all threads. Returns whether it was.
    pub(crate) fn exchange_word(&self, offset: u32, checks: Checks, expected: u32, new: u32) -> Option<bool> {
        let word = self.writable_at(offset, 4, checks).and_then(aligned)?;
        // SAFETY: as in `load_word`.
        let word = unsafe { AtomicU32::from_ptr(word) };
        Some(word.compare_exchange(expected.to_le(), new.to_le(), SeqCst, SeqCst).is_ok())
    }
}

fn aligned(at: *mut u8) -> Option<*mut u32> {
    let word = at.cast::<u32>();
    word.is_aligned().then_some(word)
}
