//! Guest memory that translated code reaches by plain loads and stores.
//!
//! * [`region`]: bytes that can be mapped in several places.
//! * [`window`]: a part of a region, accessed safely while others write it.
//! * [`near`]: the one that was copied from last.
//! * [`packet`]: the packet in L1 and L2, copied only for those who look at it.
//! * [`layout`]: 4 GiB of reserved addresses with regions mapped into them, and what an access outside of them means.
//! * [`space`]: a layout and the [`View`](crate::View) of the same memory.
//!
//! Guest address `a` is at `base + a`. Guards of [`GUARD_BELOW`] and [`GUARD_ABOVE`] bytes lie around the 4 GiB, and
//! neither the first nor the last guest page is ever mapped: so an access of `a` plus a signed 12-bit offset faults
//! where the wrapped 32-bit address would. Nothing is ever mapped executable.

mod budget;
pub(crate) mod layout;
mod near;
pub(crate) mod packet;
mod region;
mod space;
mod window;
mod words;

pub use layout::{GUARD_ABOVE, GUARD_BELOW, Layout};
pub(crate) use near::Near;
pub use packet::{Begun, PacketWindows, Shown};
pub(crate) use packet::{Level, Offering, keep_in_l1};
pub use region::Region;
pub use space::{DEFAULT_MAX_SPACES, Space, set_max_spaces};
pub use window::Window;
pub(crate) use words::Words;

use rustix::io::Errno;

use crate::view::{RegionKind, ViewError};

/// What a task may do with mapped memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Loads.
    Read,
    /// Loads, stores and atomics.
    Write,
}

/// Why there is no space, or a region is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpaceError {
    /// As many as the process may have.
    #[error("{0} address spaces of handlers are in use: no more are allowed")]
    TooMany(usize),
    /// A region of no bytes, or of more than guest memory has.
    #[error("a region has 1 byte to 4 GiB, not {0} bytes")]
    Length(usize),
    /// The part asked for is not in the region.
    #[error("{len} bytes at offset {offset:#x} are not within a region of {region} bytes")]
    Outside {
        /// First byte.
        offset: u32,
        /// Bytes.
        len: u32,
        /// Bytes of the region.
        region: usize,
    },
    /// Guest address and offset differ within their page, so no page can show the one at the other.
    #[error("{kind:?} at {base:#010x} cannot show offset {offset:#x} of its region: they differ within the page")]
    Misaligned {
        /// What was to be mapped.
        kind: RegionKind,
        /// Its base.
        base: u32,
        /// The offset.
        offset: u32,
    },
    /// The first and the last page stay unmapped.
    #[error("{kind:?} at {base:#010x}, {len} bytes long, reaches the first or last page of guest memory or beyond")]
    Reserved {
        /// What was to be mapped.
        kind: RegionKind,
        /// Its base.
        base: u32,
        /// Its length in bytes.
        len: u32,
    },
    /// A page shows other memory already.
    #[error("{kind:?} at {base:#010x} shares a page with {other:?}, which is other memory")]
    Shared {
        /// What was to be mapped.
        kind: RegionKind,
        /// Its base.
        base: u32,
        /// What is there.
        other: RegionKind,
    },
    /// The alias window, or the one packet window in L2, is there already.
    #[error("the {0} is mapped already")]
    Again(&'static str),
    /// No range of this kind can have this length.
    #[error("no {kind:?} can be {len} bytes long")]
    NoRoom {
        /// The kind asked for.
        kind: RegionKind,
        /// The length asked for.
        len: u32,
    },
    /// The view refused the range.
    #[error(transparent)]
    View(#[from] ViewError),
    /// So many mappings are for guests, and all are taken.
    #[error(
        "all {0} memory mappings for contexts are taken: remove some, have them ask for fewer HPUs, or raise vm.max_map_count"
    )]
    Mappings(usize),
    /// The system refused.
    #[error("cannot {what}: {errno}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Its answer.
        errno: Errno,
    },
}

fn failed(what: &'static str) -> impl Fn(Errno) -> SpaceError {
    move |errno| SpaceError::System { what, errno }
}

#[cfg(test)]
mod tests;
