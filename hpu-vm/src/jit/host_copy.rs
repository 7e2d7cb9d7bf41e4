//! Copies of the packet to host memory without a call of the device, since a call takes longer than such a copy. The
//! device is told later how many copies there were.
//!
//! The source is the packet in L1, in its window or still in the frame; the destination lies within host memory. The
//! device decides about all other copies. Translated code itself makes copies to aligned addresses whose length is
//! short and known at translation.

use std::ops::RangeInclusive;
use std::ptr;

use crate::device::Device;
use crate::host::{HostBytes, Memcpy};

/// Lengths in bytes of copies that translated code makes itself.
pub(super) const LENGTHS: RangeInclusive<u32> = 4..=64;

/// Alignment of these copies in host memory: no word there is written in two parts.
pub(super) const ALIGNMENT: usize = 8;

/// Destination of copies to host memory, and the copies made. Part of the [state](super::State).
#[derive(Debug)]
#[repr(C)]
pub struct HostCopy {
    /// Number of copies that were not reported to the device yet. Not adjacent to `bytes`: translated code writes them
    /// with two stores, and the host would read both with one load, which store forwarding cannot serve.
    pub copies: u64,
    /// Address of the first byte of host memory in this process.
    pub host: *mut u8,
    /// Length of host memory in bytes.
    pub len: usize,
    /// Address of host memory in commands.
    pub address: u64,
    /// Number of offsets in host memory, in steps of [`ALIGNMENT`], at which copies of all [`LENGTHS`] fit.
    pub places: u64,
    /// Number of bytes of the copies that `copies` counts.
    pub bytes: u64,
    /// Function for copies that are not short: see [`Memcpy`].
    pub(super) memcpy: Memcpy,
}

impl HostCopy {
    /// No host memory: every copy goes to the device.
    pub(super) const fn none() -> Self {
        Self { host: ptr::dangling_mut(), len: 0, address: 0, places: 0, copies: 0, bytes: 0, memcpy: libc::memcpy }
    }

    /// Sets the host memory that copies may go to.
    pub(super) fn set_target(&mut self, host: Option<HostBytes<'_>>) {
        let Some(host) = host else {
            (self.len, self.places) = (0, 0);
            return;
        };
        let bytes = host.bytes();
        // Atomics may be written through a shared reference.
        self.host = bytes.as_ptr().cast_mut().cast();
        (self.address, self.len) = (host.address(), bytes.len());
        let is_aligned = self.host.addr().is_multiple_of(ALIGNMENT);
        let last = bytes.len().checked_sub(*LENGTHS.end() as usize).filter(|_| is_aligned);
        self.places = last.map_or(0, |last| (last / ALIGNMENT + 1) as u64);
    }

    /// Reports copies that the device was not called for.
    #[inline]
    pub(super) fn report(&mut self, device: &mut impl Device) {
        if self.copies > 0 {
            device.copied(self.copies, self.bytes);
            (self.copies, self.bytes) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU8;

    use super::{ALIGNMENT, HostBytes, HostCopy, LENGTHS};

    #[test]
    fn longest_copy_fits_at_every_counted_place_only() {
        #[repr(align(8))]
        struct Memory([AtomicU8; 200]);
        let memory = Memory([const { AtomicU8::new(0) }; 200]);
        let (longest, mut copies) = (*LENGTHS.end() as usize, HostCopy::none());
        for len in 0..=200 {
            copies.set_target(Some(HostBytes::new(0, &memory.0[..len])));
            let places = (0..len).step_by(ALIGNMENT).filter(|at| at + longest <= len).count();
            assert_eq!(copies.places, places as u64, "{len} bytes");
        }
        copies.set_target(Some(HostBytes::new(0, &memory.0[4..])));
        assert_eq!(copies.places, 0, "words would be written in two parts");
        copies.set_target(Some(HostBytes::new(0, &memory.0)));
        copies.set_target(None);
        assert_eq!(copies.places, 0);
    }
}
