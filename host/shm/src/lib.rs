//! Memory shared between spind and an application, and the passing of its descriptor.
//!
//! * [`Region`]: a sealed memory file, mapped. spind creates it, and its size cannot change. The application checks
//!   that before it maps the file.
//! * [`Attached`]: memory of an application, which spind has mapped.
//! * [`Mapping`]: the bytes of both. [`Mapping::ring`], [`Mapping::sleep`]: doorbells among them.
//! * [`EventFd`]: an eventfd for a doorbell.
//! * [`channel`]: control messages on a Unix stream.
//! * [`send_with_fds`], [`recv_with_fds`], [`unread`], [`take_no_fds`], [`take_fds`]: descriptors over a Unix socket.
//! * [`Forker`]: child processes that receive such descriptors.
//!
//! The other side may write at any time and is not trusted: nothing returns references to bytes, only copies.

mod attached;
pub mod channel;
mod copy;
mod doorbell;
mod event_fd;
mod fds;
mod forker;
mod lost_pages;
mod mapping;
mod region;

pub use attached::{AttachError, Attached};
pub use event_fd::{EventFd, without_signals};
pub use fds::{MAX_FDS, Received, recv_with_fds, send_with_fds, take_fds, take_no_fds, unread};
pub use forker::Forker;
pub use mapping::{MAX_LEN, Mapping, OutOfBounds, RegionError};
pub use region::{Held, Region};
