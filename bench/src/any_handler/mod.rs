//! A bench for any handler image: cost per packet in memory, and rates and round trips on a wire.
//!
//! * [`context`]: the image, its rules, and the packets that arrive for it.
//! * [`memory`]: the cost per packet in memory.
//! * [`budget`]: the line rates that a cost per packet sustains.
//! * [`wire`]: the highest rate without loss, and round trips.

pub mod budget;
pub mod context;
pub mod memory;
pub mod wire;
