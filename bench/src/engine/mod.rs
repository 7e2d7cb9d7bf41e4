//! What a packet costs the engine, from the NIC's queue to the NIC's queue, in memory.
//!
//! * [`case`]: which handlers on which frames.
//! * [`lab`]: engines with one case's context, and rounds of them.
//! * [`latency`]: one packet at a time.
//! * [`idle`]: a packet after a pause.
//! * [`stages`]: what each stage of a turn costs.
//! * [`shares`]: what tenants get of a thread that they share.
//! * [`overflow`]: a thread with packets and one without.
//! * `cores`: where each thread runs.
//! * [`clock`], [`distance`]: what reading the clock costs, and from one core to another.
//! * [`measured`]: all of these in rounds, their tables and rows.

pub mod case;
pub mod clock;
mod cores;
pub mod crowd;
pub mod distance;
pub mod idle;
pub mod lab;
pub mod latency;
pub mod measured;
pub mod overflow;
pub mod shares;
pub mod stages;

#[cfg(test)]
mod tests;
