//! Reasons why a view refuses a range.

use crate::address::RegionKind;

/// Maximum number of ranges of a view: an image's segments (at most 16), packet in L1 and L2, four scratchpads, handler
/// memory, stack, task registers, and a reserve.
pub const MAX_RANGES: usize = 32;

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
