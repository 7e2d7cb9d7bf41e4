//! 4 GiB of reserved addresses, and pages of regions mapped into them.
#![allow(unsafe_code, reason = "maps memory")]

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use spin_abi::map::PAGE;

use super::budget::Mappings;
use super::error::{SpaceError, failed};
use super::region::Region;

/// Unmapped bytes below guest address 0, for negative offsets.
pub const GUARD_BELOW: usize = PAGE as usize;
/// Unmapped bytes above the last guest address.
pub const GUARD_ABOVE: usize = 1 << 16;
/// Bytes of guest memory.
const GUEST: usize = 1 << 32;
const RESERVED: usize = GUARD_BELOW + GUEST + GUARD_ABOVE;

/// The reserved addresses. Mappings over them end with the reservation.
#[derive(Debug)]
pub(super) struct Reservation {
    start: NonNull<u8>,
    /// A failed system call may have left a hole, which others may have used for a mapping. Nothing is unmapped then.
    may_have_hole: AtomicBool,
    mappings: Mappings,
}

// SAFETY: addresses are bound to no thread, and the bytes at them are accessed by pointer only.
unsafe impl Send for Reservation {}
// SAFETY: as above.
unsafe impl Sync for Reservation {}

impl Reservation {
    pub(super) fn new() -> Result<Self, SpaceError> {
        // One for the addresses, and one for their table of bounds.
        let mappings = Mappings::take(2)?;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            rustix::mm::mmap_anonymous(null_mut(), RESERVED, ProtFlags::empty(), flags)
        };
        let what = "reserve 4 GiB of addresses";
        let start = NonNull::new(start.map_err(failed(what))?.cast()).ok_or_else(|| failed(what)(Errno::NOMEM))?;
        Ok(Self { start, may_have_hole: AtomicBool::new(false), mappings })
    }

    /// The host address of a guest address.
    pub(super) fn address(&self, address: u32) -> NonNull<u8> {
        // SAFETY: every guest address is within the reservation.
        unsafe { self.start.add(GUARD_BELOW + address as usize) }
    }

    pub(super) fn at(&self, address: u32) -> *mut c_void {
        self.address(address).as_ptr().cast()
    }

    /// The guest address that translated code computed when it accessed `host`; `None` outside of the reservation.
    pub(super) fn guest_address(&self, host: usize) -> Option<u32> {
        let offset = host.checked_sub(self.start.as_ptr().addr())?;
        #[allow(clippy::cast_possible_truncation, reason = "guest addresses wrap around, guards are their other ends")]
        (offset < RESERVED).then_some(offset.wrapping_sub(GUARD_BELOW) as u32)
    }

    /// Maps `pages` at guest address `base`, to whole pages below 2^32.
    pub(super) fn map(&self, base: u32, pages: &Pages, protection: ProtFlags) -> Result<(), SpaceError> {
        let len = pages.len as usize;
        assert!(base as usize + len <= GUEST);
        // The mapping around it is split in two.
        self.mappings.add(2)?;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // An array map that is mapped without write access never gets it (bpf_map_mmap, kernel/bpf/syscall.c). Closed
        // pages will need it.
        let is_closed = protection.is_empty();
        let initial = if is_closed { ProtFlags::READ | ProtFlags::WRITE } else { protection };
        // SAFETY: the addresses are of this reservation, and no Rust reference leads there. Accesses are by pointer,
        // and expect faults.
        let mapped = unsafe {
            rustix::mm::mmap(self.at(base), len, initial, flags, pages.region.file(), u64::from(pages.offset))
        };
        let close = |_| if is_closed { self.protect(base, pages.len, MprotectFlags::empty()) } else { Ok(()) };
        let Err(errno) = mapped.and_then(close) else { return Ok(()) };
        // SAFETY: as above. The former mapping may be gone already.
        let closed = unsafe {
            rustix::mm::mmap_anonymous(self.at(base), len, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::FIXED)
        };
        self.may_have_hole.fetch_or(closed.is_err(), Relaxed);
        Err(failed("map guest memory")(errno))
    }

    /// Async-signal-safe.
    pub(super) fn protect(&self, base: u32, len: u32, protection: MprotectFlags) -> Result<(), Errno> {
        // SAFETY: as in `map`; more access to a mapping of this reservation's own does no harm.
        unsafe { rustix::mm::mprotect(self.at(base), len as usize, protection) }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !*self.may_have_hole.get_mut() {
            // SAFETY: the reservation owns these addresses and all mappings over them. Only pointers lead there, whose
            // users know that they are valid as long as the reservation.
            let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), RESERVED) };
        }
    }
}

/// Whole pages of a region.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    pub(super) region: Arc<Region>,
    pub(super) offset: u32,
    pub(super) len: u32,
}
