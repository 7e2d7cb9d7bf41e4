//! The PsPIN core: orders the handlers of messages, runs them on HPUs and executes their commands. It needs no NIC and no daemon.
//!
//! * [`ids`]: value types that other modules and crates share.
//! * [`mpq`]: message processing queues, the order of handlers.
//! * [`hpu`]: HPUs, their memory and devices, and the command unit.
//! * [`host_memory`]: host memory of a context.
//! * [`counts`]: counter values.
#![forbid(unsafe_code)]

pub mod counts;
pub mod host_memory;
pub mod hpu;
pub mod ids;
pub mod mpq;
