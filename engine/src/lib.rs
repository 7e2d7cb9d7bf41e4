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
//! * [`loader`], [`translator`]: images and translations, shared between contexts; [`image_error`]: why an image cannot be loaded.
//! * [`install`]: contexts that are ready to be installed; installing and removing them.
//! * [`stamp`]: when a packet arrived.
//! * [`counts`], [`latency`], [`statistics`]: counters, histograms of times, and PsPIN's statistics block.
//! * [`settings`]: settings of threads and contexts; `niceness`: priority of threads that load and translate.
//! * `overflow`: payload tasks on other threads' clusters; [`peers`]: how they get there and back.
//! * [`receiver`], [`lanes`], [`handover`]: pipeline mode, where one thread receives and others run handlers; `spread`: where it does, too.
//! * [`cores`]: the engine's threads, each with its clusters and its NIC queue.
//! * [`control`]: everything that does not touch packets: configuration, control socket, metrics, the daemon itself.
#![forbid(unsafe_code)]

pub mod check;
pub mod cluster_dma;
pub mod commands;
pub mod context;
pub mod control;
pub mod cores;
pub mod counts;
pub mod descriptor;
pub mod driver;
pub mod ecn;
pub mod entries;
pub mod found;
pub mod handover;
pub mod hpu;
pub mod image_error;
pub mod inbound;
pub mod install;
pub(crate) mod intake;
pub mod ip_view;
pub mod lanes;
pub mod latency;
pub mod loader;
pub mod memory;
pub mod messages;
pub mod mpq;
pub mod nic_memory;
mod niceness;
mod overflow;
pub mod patience;
pub mod peers;
pub mod pipeline;
pub mod receiver;
pub mod schedule;
pub mod settings;
mod sharing;
mod spread;
pub mod stamp;
pub mod statistics;
mod straight;
pub mod tasks;
pub mod toll;
pub mod translator;
mod vigil;
