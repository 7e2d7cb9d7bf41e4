//! The engine's threads: each polls the worker of some of the machine's clusters, or a distributor.
//!
//! * `thread`: a thread from start to end, and requests of the control thread to it.
//! * `poller`: the object that a thread polls.
//! * `links`: the source of a worker's packets.
//! * `distributor`, `local_share`, `receive_only`: reception for several workers; `packet_channel` and `packet_channels` lead to
//!   these.
//! * `hand_over`: packets that arrive at one worker and run on another.
//! * `helpers`: work sharing between workers.
//! * [`idle`]: when a thread without work goes to sleep.
//! * `group`: all threads as a group. Contexts are changed on all of them.
//! * `hooks`: programs in the XDP hook. `hook_monitor` looks after them, `hook_shares` divides processors between users.
//! * `units`: the division of cores into units.
//! * `placements`: the units of each context.
//! * `transaction`: changes of contexts that are carried out together; `slot_allocator`: ids and slots of contexts.

mod channel_quota;
pub(crate) mod distributor;
mod error;
mod group;
pub mod hand_over;
pub mod helpers;
mod hook_monitor;
mod hook_shares;
mod hooks;
pub mod idle;
mod links;
pub(crate) mod local_share;
pub mod packet_channel;
pub mod packet_channels;
pub(crate) mod packet_meta;
mod placements;
mod poller;
pub mod receive_only;
mod slot_allocator;
mod thread;
mod transaction;
pub mod units;

pub use error::ThreadError;
pub use group::{ClusterThread, Receiving, WorkerGroup};
pub use hook_monitor::HookMonitor;
pub use links::WorkerLinks;
pub use poller::Poller;
pub use thread::{PendingReply, PollThread, SharedConfig};
pub use transaction::{ChangeResult, Transaction};
