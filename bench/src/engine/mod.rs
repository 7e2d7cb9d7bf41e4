//! Cost of a packet in the engine, from the NIC's receive queue to its transmit queue, in memory.
//!
//! * [`case`]: handlers and frames.
//! * [`lab`]: engines with one case's context, and rounds of them.
//! * [`latency`]: one packet at a time.
//! * [`idle`]: a packet after a pause.
//! * [`events`]: from a HostDirect command to the application.
//! * [`stages`]: cost of each stage of a poll.
//! * [`shares`]: shares of contexts on one thread.
//! * [`xdp_rules`]: the XDP program's decision.
//! * [`overflow`]: a busy thread and an idle one.
//! * `cores`: cores of the threads.
//! * [`clock`], [`distance`]: cost of reading the clock, and latency between two cores.
//! * [`measured`]: all measurements in rounds, with their tables and rows.

pub mod case;
pub mod clock;
mod cores;
pub mod crowd;
pub mod distance;
pub mod events;
pub mod idle;
pub mod lab;
pub mod latency;
pub mod measured;
pub mod overflow;
pub mod shares;
pub mod stages;
pub mod xdp_rules;

#[cfg(test)]
mod tests;
