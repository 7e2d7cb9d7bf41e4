//! Guest memory that translated code accesses by plain loads and stores.
//!
//! * [`region`]: bytes that can be mapped in several places.
//! * [`window`]: a part of a region, accessed safely while others write it.
//! * `copy`: copies while other threads access the bytes; `last_window`: the window of the last copy.
//! * [`packet`]: the packet in L1 and L2, copied only for tasks that access it.
//! * `reservation`: 4 GiB of reserved addresses; [`layout`]: the regions mapped into them, and the meaning of refused
//!   accesses.
//! * [`space`]: a layout and the [`View`](crate::View) of the same memory.
//!
//! Guest address `a` is at `base + a`. Guards of [`GUARD_BELOW`] and [`GUARD_ABOVE`] bytes surround the 4 GiB, and
//! neither the first nor the last guest page is ever mapped. An access of `a` plus a signed 12-bit offset therefore
//! faults where the wrapped 32-bit address would. Nothing is ever mapped executable.

mod budget;
mod copy;
mod error;
mod last_window;
pub(crate) mod layout;
pub(crate) mod packet;
mod region;
mod reservation;
mod space;
mod window;
mod words;

pub use budget::set_max_spaces;
pub use error::{GuestUsage, SpaceError};
pub(crate) use last_window::LastWindow;
pub use layout::Layout;
pub(crate) use packet::{Level, PacketLender, keep_in_l1};
pub use packet::{PacketSource, PacketWindows, TaskStart};
pub use region::Region;
pub use reservation::{GUARD_ABOVE, GUARD_BELOW};
pub use space::Space;
pub use window::Window;
pub(crate) use words::Words;

pub use crate::address::Access;

#[cfg(test)]
#[allow(unsafe_code, reason = "makes maps, and accesses memory as translated code does")]
mod array_map_tests;
#[cfg(test)]
mod tests;
