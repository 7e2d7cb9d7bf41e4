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

pub mod context;
pub mod control;
pub mod cores;
pub mod egress;
pub mod ingress;
pub mod install;
pub mod message;
pub mod sched;
pub mod settings;
pub mod telemetry;
pub mod worker;
