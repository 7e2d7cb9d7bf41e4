//! The sPIN engine: packets in, handlers run in order, commands carried out.
//!
//! Start with [`worker`]: its [`poll`](worker::Worker::poll) is the way of a packet, top to bottom. Message queues, HPUs and the command
//! unit are in [`spin_pspin`].
//!
//! A worker and its parts:
//! * [`worker`]: the poll iteration, admission, the fast path, the loop that runs tasks, and what becomes of packets and messages.
//! * [`ingress`]: received batches, their matches, and who is charged for reception.
//! * [`message`]: open messages and their queues.
//! * [`sched`]: which context runs next and for how long.
//! * [`egress`]: frames to send, to recycle, and for the kernel.
//! * [`context`], [`install`]: contexts, their images, and how they come and go.
//! * [`telemetry`]: counters and histograms.
//!
//! Around workers:
//! * [`cores`]: the threads, each with its clusters and its NIC queue, and the channels between them.
//! * [`settings`]: settings of threads and contexts.
//! * [`control`]: configuration, control socket, metrics, the daemon itself. It touches no packets.
#![forbid(unsafe_code)]

pub mod context;
pub mod control;
pub mod cores;
pub mod egress;
pub mod hook;
pub mod ingress;
pub mod install;
pub mod message;
pub mod sched;
pub mod settings;
pub mod telemetry;
pub mod worker;
