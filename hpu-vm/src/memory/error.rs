//! Reasons why guest memory cannot be made or mapped.

use rustix::io::Errno;

use crate::address::RegionKind;
use crate::view::ViewError;

/// Address spaces and memory mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestUsage {
    /// Address spaces of 4 GiB.
    pub spaces: usize,
    /// Memory mappings.
    pub mappings: usize,
}

/// Reason why a space cannot be made, or a region cannot be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpaceError {
    /// The process has no address space, or no memory mapping, left for guests.
    #[error(
        "handlers have {} of {} address spaces of 4 GiB (the process's addresses, ulimit -v) and {} of {} memory mappings \
         (vm.max_map_count): remove contexts, have them ask for fewer HPUs or units, or raise the limit (sysctl vm.max_map_count=N)",
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

pub(super) fn failed(what: &'static str) -> impl Fn(Errno) -> SpaceError {
    move |errno| SpaceError::System { what, errno }
}
