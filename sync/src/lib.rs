//! How threads of the engine hand things over and wake each other.
//!
//! * [`Bell`]: wakes a thread that sleeps because there is nothing for it.
//! * [`Mailbox`]: what a thread is asked to do between two turns.
//! * [`Lane`]: frames on loan to another thread, with credit.
//! * [`Notes`]: what is to be known of them.
//! * [`Standing`]: who may be lent something, and until when.
//!
//! Each is small enough to be tried in all its interleavings, or in all that have few preemptions where these are too many: with `--cfg loom` the same code is compiled on loom's atomics, locks
//! and threads, and on rings and events made of these (`make loom`).
#![forbid(unsafe_code)]

mod bell;
mod event;
mod lane;
mod mailbox;
mod notes;
mod ring;
mod standing;

pub use bell::Bell;
pub use event::{NoEvent, Waiter};
pub use lane::{Arrivals, Ends, Lane, Returns, lane};
pub use mailbox::{Inbox, Mailbox, mailbox};
pub use notes::{Noted, Notes, notes};
pub use standing::Standing;

#[cfg(all(test, loom))]
mod models;
