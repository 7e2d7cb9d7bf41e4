//! The sPIN engine: packets in, handlers run in order, commands carried out.
//!
//! Start with [`pipeline`]: its `turn` is the packet's way, top to bottom. Message queues, HPUs and the command unit are in
//! [`spin_pspin`].
//!
//! * [`pipeline`]: the engine and its turn, a batch from the NIC to the last handler.
//! * [`inbound`]: which context and message the frames of a batch belong to.
//! * [`messages`]: which queue a message is in.
//! * [`schedule`]: whose tasks are next; `sharing`: in a turn; `rx_catch_up`: what is taken in before they are run.
//! * [`patience`]: contexts that have others wait for room.
//! * [`pass_cost`]: what contexts are charged for frames that they leave to the kernel.
//! * [`tasks`]: handlers run, left where they wait, gone on with; `straight`: those of packets that need not wait.
//! * [`ecn`]: marking packets that met congestion.
//! * [`descriptor`]: what applications are told of errors.
//! * [`context`]: an installed execution context.
//! * [`nic_memory`]: that memory for the context's application.
//! * [`loader`], [`translator`]: images and translations, shared between contexts.
//! * [`install`]: contexts that are ready to be installed; installing and removing them.
//! * [`latency`], [`statistics`]: histograms of times, and PsPIN's statistics block.
//! * [`settings`]: settings of threads and contexts; `niceness`: priority of threads that load and translate.
//! * `overflow`: payload tasks on other threads' clusters; [`peers`]: how they get there and back.
//! * [`receiver`], [`packet_channels`], [`packet_channel`]: pipeline mode, where one thread receives and others run handlers; `spread`: where it does, too.
//! * [`cores`]: the engine's threads, each with its clusters and its NIC queue.
//! * [`control`]: everything that does not touch packets: configuration, control socket, metrics, the daemon itself.
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
