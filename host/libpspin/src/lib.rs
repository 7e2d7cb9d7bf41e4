//! PsPIN's simulation driver library on top of the PsPIN core: C programs written for it relink unmodified.
//!
//! A program names an image, adds packets and runs the simulation. Callbacks report sent packets, accesses to host
//! memory and the end of each packet. Everything runs in memory on the caller's thread, in virtual time, and every run
//! is identical.
//!
//! * [`ffi`]: the functions of `include/pspinsim.h` and `include/spin.h`. The only module with `unsafe`.
//! * [`library`]: their implementation in safe Rust: one simulation per process.
//! * [`conf`], [`ec`]: configuration and execution contexts.
//! * [`trace`]: packet trace files.
//! * [`image`], [`memory`]: the program's handlers, and the NIC's memory at its own addresses.
//! * [`context_memory`]: the memory of a context's tasks.
//! * [`inbox`]: packets and accesses added by the program.
//! * [`simulation`]: events in virtual time, from a packet's arrival to its feedback; [`events`]: their order.
//! * [`runner`]: a context's HPUs; [`commands`]: requests of handlers to NIC and host.
//! * [`dispatch`], [`links`]: clusters and their capacity; the network and the host's bus.
//! * [`host`]: the program's callbacks.
//! * [`statistics`]: figures printed at the end.
//! * [`time`]: picoseconds and cycles.
#![deny(unsafe_code)]

pub mod commands;
pub mod conf;
pub mod context_memory;
pub mod dispatch;
pub mod ec;
pub mod events;
pub mod ffi;
pub mod host;
pub mod image;
pub mod inbox;
pub mod library;
pub mod links;
pub mod memory;
pub mod runner;
pub mod simulation;
pub mod statistics;
pub mod time;
pub mod trace;

use spin_abi::map::Machine;

/// The simulated machine: PsPIN's 4 clusters of 8 HPUs. The package `libpspin-fpspin` builds these sources for FPsPIN's.
pub const MACHINE: Machine = if cfg!(fpspin) { Machine::FPSPIN } else { Machine::PSPIN };
/// Number of clusters.
pub const CLUSTERS: usize = MACHINE.clusters as usize;
/// Maximum packet length in bytes: a packet window.
pub const MAX_PACKET: usize = spin_abi::map::PACKET_WINDOW as usize;
