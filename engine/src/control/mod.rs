//! The control side of spind: everything that does not touch packets.
//!
//! * [`daemon`]: spind from start to end, and the control thread.
//! * [`config`]: the configuration file and its checks; [`static_contexts`]: its contexts; [`check`]: checks it whole.
//! * [`capabilities`]: information for applications before they choose handlers.
//! * [`descriptor_process`]: the process that receives descriptors of users.
//! * `descriptors`: open files that contexts and ports may take.
//! * [`hook_process`]: the process that loads handlers as programs of the kernel's XDP hook.
//! * `host`: what the host's kernel knows, and holds for contexts.
//! * `install`: checks and prepares contexts.
//! * [`server`], [`socket_file`]: the control socket.
//! * [`shared_memory_quota`]: quota for shared memory of removed contexts that applications keep.
//! * `state`: the folder of persistent contexts.
//! * `stats_cache`: counters, read once for all clients.
//! * [`metrics`]: all counters for Prometheus; [`endpoint`]: the addresses to serve them on.
//! * [`reload`]: reads the configuration again.
//! * [`replay`]: replays a capture through the loopback NIC.
//! * [`notify`]: messages to the service manager.
//! * [`policy`]: what ordinary users may match and send.
//! * [`privileges`]: drops capabilities that are no longer needed.
//! * [`loader_process`]: the process that keeps privileges while spind runs.
//! * [`log`]: a thread that writes the log; [`audit`]: logs who changed contexts.

pub mod audit;
pub mod capabilities;
pub mod check;
pub mod config;
pub mod daemon;
pub mod descriptor_process;
pub mod descriptors;
pub mod endpoint;
pub mod hook_process;
pub mod host;
mod install;
pub mod loader_process;
pub mod log;
pub mod metrics;
pub mod notify;
pub mod policy;
pub mod privileges;
pub mod reload;
pub mod replay;
pub mod server;
pub mod shared_memory_quota;
pub mod socket_file;
mod state;
pub mod static_contexts;
mod stats_cache;
