//! The engine's threads.
//!
//! * [`thread`]: a thread that polls a share of the machine's clusters, or a receiver.
//! * [`idle`]: when a thread that finds nothing to do goes to sleep.
//! * [`group`]: all threads together; contexts are changed on all of them.

mod error;
pub mod group;
pub mod idle;
pub mod thread;

pub use error::ThreadError;
