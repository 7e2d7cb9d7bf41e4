//! The sPIN engine: packets in, handlers run in order, commands carried out.
//!
//! Start with [`pipeline`]: it is the packet's way, top to bottom.
//!
//! * [`pipeline`]: the engine and its turn, a batch from the NIC to the last handler.
//! * [`messages`]: which queue a message is in.
//! * [`mpq`]: message processing queues, the order of handlers.
//! * [`hpu`]: a task's windows and description, and its run.
//! * [`check`]: interpreter and translation compared, task by task.
//! * [`driver`]: the device page a handler issues commands through.
//! * [`commands`]: the command unit.
//! * [`context`]: an installed execution context.
//! * [`memory`]: what of an image and a context lies where, and the spaces that show it.
//! * [`loader`], [`translator`]: images and translations, shared between contexts.
//! * [`install`]: checking, installing and removing contexts.
//! * [`counts`], [`latency`], [`statistics`]: counters, histograms of times, and PsPIN's statistics block.
//! * [`capabilities`]: what applications can know before they choose handlers.
//! * [`config`]: configuration file and its checks.
//! * [`privileges`]: giving up what is no longer needed.
//! * [`server`], [`socket_file`]: the control socket.
//! * [`metrics`]: all counters for Prometheus.
//! * [`threads`]: the engine's threads, each with its clusters and its NIC queue.
//! * [`replay`]: a capture through the loopback NIC.
//! * [`daemon`]: spind from start to end.
#![forbid(unsafe_code)]

pub mod capabilities;
pub mod check;
pub mod commands;
pub mod config;
pub mod context;
pub mod counts;
pub mod daemon;
pub mod driver;
pub mod hpu;
pub mod install;
pub mod latency;
pub mod loader;
pub mod memory;
pub mod messages;
pub mod metrics;
pub mod mpq;
pub mod pipeline;
pub mod privileges;
pub mod replay;
pub mod server;
pub mod socket_file;
pub mod statistics;
pub mod threads;
pub mod translator;
