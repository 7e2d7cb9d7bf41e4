//! Channels and wake-ups between threads of the engine.
//!
//! * [`Wakeup`]: wakes a thread that sleeps because it has no work.
//! * [`RequestTx`], [`RequestRx`]: requests that a thread carries out between two polls.
//! * [`CreditTx`], [`CreditRx`], [`ReturnTx`]: a channel bounded by credit, whose items return to the sender.
//! * [`SidebandTx`], [`SidebandRx`]: metadata of those items.
//! * [`PeerStatus`]: whether a thread accepts tasks of others, and may still send some.
//!
//! Each is small enough for loom to try all interleavings, or all with few preemptions. With `--cfg loom` the code is compiled with
//! loom's atomics and locks, and with rings and events made of these (`make loom`).
#![forbid(unsafe_code)]

mod credit;
mod event;
mod peer_status;
mod request;
mod ring;
mod sideband;
mod wakeup;

pub use credit::{CreditRx, CreditTx, Ends, ReturnTx, credit_channel};
pub use event::{NoEvent, Waiter};
pub use peer_status::PeerStatus;
pub use request::{RequestRx, RequestTx, request_queue};
pub use sideband::{SidebandRx, SidebandTx, sideband};
pub use wakeup::Wakeup;

#[cfg(all(test, loom))]
mod models;
