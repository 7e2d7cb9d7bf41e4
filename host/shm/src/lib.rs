//! Memory shared between spind and an application, and how its descriptor travels.
//!
//! * [`Region`]: a sealed memory file, mapped. spind creates it, so that its size cannot change under either side; the
//!   application maps what it was handed after checking that.
//! * [`Region::ring`], [`Region::sleep`]: doorbells in it.
//! * [`channel`]: control messages on a Unix stream.
//! * [`send_with_fds`], [`recv_with_fds`], [`unread`], [`take_no_fds`]: descriptors over a Unix socket.
//!
//! The other side may write at any moment and is not trusted: a region never hands out references, only copies.

pub mod channel;
mod copy;
mod doorbell;
mod fds;
mod region;

pub use fds::{MAX_FDS, Received, recv_with_fds, send_with_fds, take_no_fds, unread};
pub use region::{MAX_LEN, OutOfBounds, Region, RegionError};
