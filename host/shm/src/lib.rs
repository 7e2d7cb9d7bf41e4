//! Memory shared between spind and an application, and the passing of its descriptor.
//!
//! * [`Region`]: a sealed memory file, mapped. spind creates it, and its size cannot change. The application checks
//!   that before it maps the file.
//! * [`Region::ring`], [`Region::sleep`]: doorbells in a region.
//! * [`EventFd`]: an eventfd for a doorbell.
//! * [`channel`]: control messages on a Unix stream.
//! * [`send_with_fds`], [`recv_with_fds`], [`unread`], [`take_no_fds`]: descriptors over a Unix socket.
//!
//! The other side may write at any time and is not trusted: a region never returns references, only copies.

pub mod channel;
mod copy;
mod doorbell;
mod event_fd;
mod fds;
mod region;

pub use event_fd::EventFd;
pub use fds::{MAX_FDS, Received, recv_with_fds, send_with_fds, take_no_fds, unread};
pub use region::{Held, MAX_LEN, OutOfBounds, Region, RegionError};
