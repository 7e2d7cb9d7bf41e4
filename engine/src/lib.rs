//! The sPIN engine: packets in, handlers run in order, commands carried out.
//!
//! Start with [`pipeline`]: its `turn` is the packet's way, top to bottom. Message queues, HPUs and the command unit are in
//! [`spin_pspin`].
//!
//! A worker and its parts:
//! * [`pipeline`]: the worker and its poll iteration; `core`: the state that running a task may change.
//! * `ingress`, [`inbound`], [`found`], `rx_catch_up`: received batches, their matches, what to receive after a long poll.
//! * `admission`, [`ecn`]: whether a packet is queued, dropped, marked, or stalls reception; [`patience`]: the stall credit.
//! * `table`, [`messages`]: open messages and their queues; `packet_rules`: what holds for all packets of a context.
//! * `sharing`, `sched`, [`schedule`]: which context runs next and for how long.
//! * `run`: the loop that runs tasks; `straight`: the fast path; [`tasks`], `task`: running a handler; `parked`, `resume`: tasks that wait.
//! * `complete`: what becomes of packets and messages; `egress`, [`pass_cost`]: frames to send, to recycle, and for the kernel.
//! * `overflow`, [`peers`]: tasks shared with other threads.
//! * `contexts`, [`context`], [`descriptor`], [`nic_memory`], [`loader`], [`translator`], [`image_error`], [`install`]: contexts, their
//!   images, and how they come and go.
//! * `telemetry`, [`latency`], [`statistics`]: counters and histograms; `vigil`: when to poll other threads' watchdogs.
//!
//! Around workers:
//! * [`receiver`], `spread`, [`packet_channels`], [`packet_channel`], `channel_quota`: pipeline mode, with and without a local share.
//! * [`cores`]: the threads, each with its clusters and its NIC queue; `niceness`: priority of threads that load and translate.
//! * [`settings`]: settings of threads and contexts.
//! * [`control`]: configuration, control socket, metrics, the daemon itself. It touches no packets.
#![forbid(unsafe_code)]

mod admission;
mod channel_quota;
mod complete;
pub mod context;
mod contexts;
pub mod control;
mod core;
pub mod cores;
pub mod descriptor;
pub mod ecn;
mod egress;
pub mod found;
pub mod image_error;
pub mod inbound;
mod ingress;
pub mod install;
pub mod latency;
pub mod loader;
pub mod messages;
pub mod nic_memory;
mod niceness;
mod overflow;
pub mod packet_channel;
pub mod packet_channels;
mod packet_rules;
mod parked;
pub mod pass_cost;
pub mod patience;
pub mod peers;
pub mod pipeline;
pub mod receiver;
mod resume;
mod run;
pub(crate) mod rx_catch_up;
mod rx_charges;
mod sched;
pub mod schedule;
pub mod settings;
mod sharing;
mod spread;
pub mod statistics;
mod straight;
mod table;
mod task;
pub mod tasks;
mod telemetry;
pub mod translator;
mod vigil;
