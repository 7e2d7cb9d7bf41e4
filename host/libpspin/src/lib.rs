//! PsPIN's simulation driver library, over the PsPIN core: C programs written for it relink unmodified.
//!
//! A program names an image, adds packets and lets the simulation run; handlers' packets, accesses to host memory and the end of each
//! packet come back by callbacks. All of it is in memory, on the caller's thread, and the same in every run: time is virtual.
//!
//! * [`ffi`]: the functions of `include/pspinsim.h` and `include/spin.h`. The only part with `unsafe`.
//! * [`library`]: what they do, in safe Rust: one simulation per process.
//! * [`conf`], [`ec`]: what programs configure, and execution contexts.
//! * [`trace`]: files of packets.
//! * [`image`], [`memory`]: the program's handlers, and the NIC's memory at its own addresses.
//! * [`context_memory`]: the memory of a context's tasks.
//! * [`inbox`]: what is added while the simulation runs or rests.
//! * [`simulation`]: events in virtual time, from a packet's arrival to its feedback; [`events`]: their order.
//! * [`runner`]: a context's HPUs; [`commands`]: what handlers ask of NIC and host.
//! * [`dispatch`], [`links`]: clusters and their room; the network and the host's bus.
//! * [`host`]: the program, as the simulation sees it.
//! * [`statistics`]: what is printed at the end.
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

/// The machine that is simulated: PsPIN's 4 clusters of 8 HPUs.
pub const MACHINE: Machine = Machine::PSPIN;
/// Longest packet: a packet window.
pub const MAX_PACKET: usize = spin_abi::map::PACKET_WINDOW as usize;
