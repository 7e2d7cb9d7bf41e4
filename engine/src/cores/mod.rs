//! The engine's threads: each polls a share of the machine's clusters, or a receiver.
//!
//! * `thread`: a thread from start to end, and requests of the control thread to it.
//! * `poller`: what a thread polls.
//! * `links`: where the packets of a cluster thread come from.
//! * [`idle`]: when a thread that finds nothing to do goes to sleep.
//! * `group`: all threads together; contexts are changed on all of them.
//! * `transaction`: changes of contexts that are carried out together; `slot_allocator`: ids and slots of contexts.

mod channel_quota;
pub(crate) mod distributor;
mod error;
mod group;
pub mod helpers;
pub mod idle;
mod links;
pub(crate) mod local_share;
pub mod packet_channel;
pub mod packet_channels;
mod poller;
pub mod receive_only;
mod slot_allocator;
mod thread;
mod transaction;

pub use error::ThreadError;
pub use group::{ClusterThread, Receiving, WorkerGroup};
pub use links::WorkerLinks;
pub use poller::Poller;
pub use thread::{PendingReply, PollThread, SharedConfig};
pub use transaction::{ChangeResult, Transaction};
