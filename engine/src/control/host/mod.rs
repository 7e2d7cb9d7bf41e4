//! What the host's kernel knows, and holds for contexts.
//!
//! * `addresses`: addresses of an interface.
//! * `memory`: memory that this process may take.
//! * `port_socket`: sockets that hold ports; `owners`: users of sockets.

pub mod addresses;
pub mod memory;
pub mod owners;
pub mod port_socket;
