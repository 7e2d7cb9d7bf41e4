//! The control side of spind: everything that does not touch packets.
//!
//! * [`daemon`]: spind from start to end, and the control thread.
//! * [`config`]: configuration file and its checks.
//! * [`capabilities`]: what applications can know before they choose handlers.
//! * `install`: checks and prepares contexts.
//! * [`server`], [`socket_file`]: the control socket.
//! * [`shared_memory_quota`]: shared memory that applications keep of contexts that are gone.
//! * `stats_cache`: counters, read once for all that ask.
//! * [`metrics`]: all counters for Prometheus; [`endpoint`]: where they are served.
//! * [`replay`]: a capture through the loopback NIC.
//! * [`privileges`]: drops capabilities that are no longer needed.
//! * [`log`]: a thread that writes the log; [`audit`]: logs who changed contexts.

pub mod audit;
pub mod capabilities;
pub mod config;
pub mod daemon;
pub mod endpoint;
mod install;
pub mod log;
pub mod metrics;
pub mod privileges;
pub mod replay;
pub mod server;
pub mod shared_memory_quota;
pub mod socket_file;
mod stats_cache;
