//! The sPIN engine: packets in, handlers run in order, commands carried out.
//!
//! Start with [`pipeline`]: it is the packet's way, top to bottom.
//!
//! * [`pipeline`]: the engine and its turn, a batch from the NIC to the last handler.
//! * [`inbound`]: which context and message the frames of a batch belong to.
//! * [`messages`]: which queue a message is in.
//! * [`mpq`]: message processing queues, the order of handlers.
//! * [`schedule`]: whose tasks are next; `sharing`: in a turn; `intake`: what is taken in before they are run.
//! * [`patience`]: contexts that have others wait for room.
//! * [`toll`]: what contexts are charged for frames that they leave to the kernel.
//! * [`tasks`]: handlers run, left where they wait, gone on with; `straight`: those of packets that need not wait.
//! * [`hpu`]: a task's windows and description, and its run.
//! * [`check`]: interpreter and translation compared, task by task.
//! * [`driver`]: the device page a handler issues commands through.
//! * [`entries`]: which functions of an image are handlers; [`ip_view`]: packets as PsPIN's handlers see them.
//! * [`commands`]: the command unit; [`cluster_dma`]: that of the cluster, for copies within NIC memory.
//! * [`ecn`]: marking packets that met congestion.
//! * [`descriptor`]: what applications are told of errors.
//! * [`context`]: an installed execution context.
//! * [`memory`]: what of an image and a context lies where, and the spaces that show it.
//! * [`nic_memory`]: that memory for the context's application.
//! * [`loader`], [`translator`]: images and translations, shared between contexts.
//! * [`install`]: checking, installing and removing contexts.
//! * [`stamp`]: when a packet arrived.
//! * [`counts`], [`latency`], [`statistics`]: counters, histograms of times, and PsPIN's statistics block.
//! * [`capabilities`]: what applications can know before they choose handlers.
//! * [`config`]: configuration file and its checks.
//! * [`privileges`]: giving up what is no longer needed.
//! * [`server`], [`socket_file`]: the control socket; [`handed`]: memory that applications have descriptors of.
//! * [`metrics`]: all counters for Prometheus.
//! * [`threads`]: the engine's threads, each with its clusters and its NIC queue.
//! * [`idle`]: when a thread that finds nothing to do goes to sleep.
//! * [`fleet`]: all threads as one: contexts come and go on all of them.
//! * `overflow`: payload tasks on other threads' clusters; [`peers`]: how they get there and back.
//! * [`receiver`], [`lanes`], [`handover`]: pipeline mode, where one thread receives and others run handlers; `spread`: where it does, too.
//! * `readings`: counters, for all who ask.
//! * [`replay`]: a capture through the loopback NIC.
//! * [`daemon`]: spind from start to end; [`log`]: where its lines go; [`audit`]: those of who changed contexts.
#![forbid(unsafe_code)]

pub mod audit;
pub mod capabilities;
mod channel_quota;
pub mod check;
pub mod cluster_dma;
pub mod commands;
pub mod config;
pub mod context;
pub mod counts;
pub mod daemon;
pub mod descriptor;
pub mod driver;
pub mod ecn;
pub mod entries;
pub mod fleet;
pub mod found;
pub mod handed;
pub mod handover;
pub mod hpu;
pub mod idle;
pub mod inbound;
pub mod install;
pub(crate) mod intake;
pub mod ip_view;
pub mod lanes;
pub mod latency;
pub mod loader;
pub mod log;
pub mod memory;
pub mod messages;
pub mod metrics;
pub mod mpq;
pub mod nic_memory;
mod overflow;
pub mod patience;
pub mod peers;
pub mod pipeline;
pub mod privileges;
mod readings;
pub mod receiver;
pub mod replay;
pub mod schedule;
pub mod server;
mod sharing;
pub mod socket_file;
mod spread;
pub mod stamp;
pub mod statistics;
mod straight;
pub mod tasks;
pub mod threads;
pub mod toll;
pub mod translator;
mod vigil;
