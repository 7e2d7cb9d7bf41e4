//! Guest memory that translated code accesses by plain loads and stores.
//!
//! * [`region`]: bytes that can be mapped in several places.
//! * [`window`]: a part of a region, accessed safely while others write it.
//! * [`near`]: the window of the last copy.
//! * [`packet`]: the packet in L1 and L2, copied only for tasks that access it.
//! * [`layout`]: 4 GiB of reserved addresses with regions mapped into them, and the meaning of accesses outside of
//!   these.
//! * [`space`]: a layout and the [`View`](crate::View) of the same memory.
//!
//! Guest address `a` is at `base + a`. Guards of [`GUARD_BELOW`] and [`GUARD_ABOVE`] bytes surround the 4 GiB, and
//! neither the first nor the last guest page is ever mapped. An access of `a` plus a signed 12-bit offset therefore
//! faults where the wrapped 32-bit address would. Nothing is ever mapped executable.

mod budget;
mod last_window;
pub(crate) mod layout;
pub(crate) mod packet;
mod region;
mod space;
mod window;
mod words;

pub use budget::{GuestUsage, set_max_spaces};
pub(crate) use last_window::LastWindow;
pub use layout::{GUARD_ABOVE, GUARD_BELOW, Layout};
pub(crate) use packet::{Level, PacketLender, keep_in_l1};
pub use packet::{PacketSource, PacketWindows, TaskStart};
pub use region::Region;
pub use space::Space;
pub use window::Window;
pub(crate) use words::Words;

use rustix::io::Errno;

use crate::view::{RegionKind, ViewError};

/// Permissions of a task on mapped memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Loads.
    Read,
    /// Loads, stores and atomics.
    Write,
}

/// Reason why a space cannot be made, or a region cannot be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpaceError {
    /// The process has no address space, or no memory mapping, left for guests.
    #[error(
        "handlers have {} of {} address spaces of 4 GiB (the process's addresses, ulimit -v) and {} of {} memory mappings \
         (vm.max_map_count): remove contexts, have them ask for fewer HPUs, or raise the limit",
        used.spaces, limit.spaces, used.mappings, limit.mappings
    )]
    Full {
        /// What guests have.
        used: GuestUsage,
        /// What they may have.
        limit: GuestUsage,
    },
    /// The region is empty, or larger than guest memory.
    #[error("a region has 1 byte to 4 GiB, not {0} bytes")]
    Length(usize),
    /// The requested part is not in the region.
    #[error("{len} bytes at offset {offset:#x} are not within a region of {region} bytes")]
    Outside {
        /// Offset of the first byte.
        offset: u32,
        /// Size in bytes.
        len: u32,
        /// Size of the region in bytes.
        region: usize,
    },
    /// Guest address and offset differ modulo the page size, so the pages cannot be mapped.
    #[error("{kind:?} at {base:#010x} cannot show offset {offset:#x} of its region: they differ within the page")]
    Misaligned {
        /// Kind of the range.
        kind: RegionKind,
        /// Base of the range.
        base: u32,
        /// Offset in the region.
        offset: u32,
    },
    /// The first and the last page stay unmapped.
    #[error("{kind:?} at {base:#010x}, {len} bytes long, reaches the first or last page of guest memory or beyond")]
    Reserved {
        /// Kind of the range.
        kind: RegionKind,
        /// Base of the range.
        base: u32,
        /// Length of the range in bytes.
        len: u32,
    },
    /// A page is already mapped to other memory.
    #[error("{kind:?} at {base:#010x} shares a page with {other:?}, which is other memory")]
    Shared {
        /// Kind of the range.
        kind: RegionKind,
        /// Base of the range.
        base: u32,
        /// Kind of the mapped range.
        other: RegionKind,
    },
    /// The alias window, or the L2 packet window, exists already.
    #[error("the {0} is mapped already")]
    AlreadyMapped(&'static str),
    /// The length is not possible for any range of this kind.
    #[error("no {kind:?} can be {len} bytes long")]
    NoRoom {
        /// Kind requested.
        kind: RegionKind,
        /// Length requested in bytes.
        len: u32,
    },
    /// The view refused the range.
    #[error(transparent)]
    View(#[from] ViewError),
    /// A system call failed.
    #[error("cannot {what}: {errno}")]
    System {
        /// Operation attempted.
        what: &'static str,
        /// Error of the system.
        errno: Errno,
    },
}

fn failed(what: &'static str) -> impl Fn(Errno) -> SpaceError {
    move |errno| SpaceError::System { what, errno }
}

#[cfg(test)]
mod tests;
