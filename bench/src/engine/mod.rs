//! What a packet costs the engine, from the NIC's queue to the NIC's queue, in memory.
//!
//! * [`case`]: which handlers on which frames.
//! * [`lab`]: engines with one case's context, and rounds of them.

pub mod case;
pub mod lab;
