//! Copies of the packet to host memory that the device is not asked for: that takes longer than such a copy. It is told later how many
//! there were.
//!
//! Only what most of them are: of the packet in L1, which is in its window or still in the frame; to within host memory. What else there is
//! to be said of one the device says. Translated code itself makes those of a few bytes, as many as it knew when it was made, to aligned
//! places.
#![allow(unsafe_code, reason = "follows the pointer to host memory that was lent for a row of tasks")]

use std::ffi::c_void;
use std::ops::RangeInclusive;
use std::ptr;
use std::slice;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use super::state::State;
use crate::host::{self, HostBytes, Memcpy};

/// Bytes of a copy that translated code makes.
pub(super) const LENGTHS: RangeInclusive<u32> = 4..=64;

/// Where those begin in host memory, so that no word there is written in halves.
pub(super) const ALIGNMENT: usize = 8;

/// State of translated code about host memory and the packet, and the copies made. Part of the [state](super::State).
#[derive(Debug)]
#[repr(C)]
pub struct Direct {
    /// Number of copies that the device has not been told of. Kept apart from their bytes: a value that is written in
    /// two pieces and read in one takes longer.
    pub copies: u64,
    /// Address of the first byte of host memory in this process.
    pub host: *mut u8,
    /// Length of host memory in bytes.
    pub len: usize,
    /// Address of host memory in commands.
    pub address: u64,
    /// Number of multiples of [`ALIGNMENT`] from there on at which a copy of any length may begin.
    pub places: u64,
    /// Number of bytes of those copies.
    pub bytes: u64,
    /// What copies most of each.
    memcpy: Memcpy,
}

impl Direct {
    /// Nowhere to copy to.
    pub(super) const fn nowhere() -> Self {
        Self { host: ptr::dangling_mut(), len: 0, address: 0, places: 0, copies: 0, bytes: 0, memcpy: libc::memcpy }
    }

    /// Has copies go to `host`.
    pub(super) fn aim(&mut self, host: Option<HostBytes<'_>>) {
        let Some(host) = host else {
            (self.len, self.places) = (0, 0);
            return;
        };
        let bytes = host.bytes();
        // An AtomicU8 may be written by a shared reference.
        self.host = bytes.as_ptr().cast_mut().cast();
        (self.address, self.len) = (host.address(), bytes.len());
        let is_aligned = self.host.addr().is_multiple_of(ALIGNMENT);
        let most = bytes.len().checked_sub(*LENGTHS.end() as usize).filter(|_| is_aligned);
        self.places = most.map_or(0, |most| (most / ALIGNMENT + 1) as u64);
    }

    /// Copies `len` bytes from `from` on to the host's `address`, if all is as most often; returns what [`host::copy`] does then.
    ///
    /// # Safety
    /// The host memory that was aimed at last is there still, and [`host::copy`] says what it asks of `from`.
    #[inline(always)]
    pub(super) unsafe fn copy(&mut self, from: *const u8, address: u64, len: u32) -> Option<*mut c_void> {
        // SAFETY: as the caller says.
        let bytes = unsafe { slice::from_raw_parts(self.host.cast::<AtomicU8>().cast_const(), self.len) };
        let to = HostBytes::new(self.address, bytes).part(address, len)?;
        self.copies += 1;
        self.bytes += u64::from(len);
        // SAFETY: as the caller says.
        Some(unsafe { host::copy(from, to, self.memcpy) })
    }
}

impl State {
    /// Host address of `len` bytes of the packet in L1 at guest address `nic`, if all are.
    #[inline(always)]
    pub(super) fn in_packet(&self, nic: u32, len: u32) -> Option<*const u8> {
        let place = (i64::from(nic) + self.packet) as u32;
        let is_there = len > 0 && u64::from(place) + u64::from(len) <= self.shown.len.load(Relaxed) as u64;
        is_there.then(|| self.shown.base.load(Relaxed).wrapping_add(nic as usize).cast_const())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU8;

    use super::{ALIGNMENT, Direct, HostBytes, LENGTHS};

    #[test]
    fn the_longest_copy_fits_at_every_place_and_at_no_other_one() {
        #[repr(align(8))]
        struct Memory([AtomicU8; 200]);
        let memory = Memory([const { AtomicU8::new(0) }; 200]);
        let (longest, mut direct) = (*LENGTHS.end() as usize, Direct::nowhere());
        for len in 0..=200 {
            direct.aim(Some(HostBytes::new(0, &memory.0[..len])));
            let places = (0..len).step_by(ALIGNMENT).filter(|at| at + longest <= len).count();
            assert_eq!(direct.places, places as u64, "{len} bytes");
        }
        direct.aim(Some(HostBytes::new(0, &memory.0[4..])));
        assert_eq!(direct.places, 0, "no word would be written at once");
        direct.aim(Some(HostBytes::new(0, &memory.0)));
        direct.aim(None);
        assert_eq!(direct.places, 0);
    }
}
