//! Impairments of a wire: loss, duplication, delay, reordering, corruption, ECN marks, a rate and a queue.
//!
//! * [`settings`]: what is asked for.
//! * [`decision`]: what happens to a frame. It follows from the seed, the direction and the frame's number alone, so that two runs with one
//!   seed impair alike.
//! * [`queue`]: frames on their way, by the time when they leave.
//! * [`relay`]: the loop between two interfaces.

pub mod decision;
pub mod queue;
pub mod relay;
pub mod settings;
