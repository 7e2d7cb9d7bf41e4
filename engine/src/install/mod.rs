//! Installing, changing and removing execution contexts.
//!
//! * `error`: the reasons why that fails.
//! * `handle`: handles of contexts, and users.
//! * `match_spec`: the packets that a context gets.
//! * `ports`: ports that contexts take.
//! * `placement`: the units and workers that run a context.
//! * `prepared`: a context that is ready to be installed; `control::install` makes it, off the packet path.
//! * `ledger`: the memory that each user takes.
//! * `link`: attaching, changing and detaching contexts of a worker, between two polls; `plan` says how, `attach` makes the worker's
//!   context.

mod attach;
pub(crate) mod error;
mod handle;
pub mod ledger;
mod link;
pub(crate) mod match_spec;
mod placement;
mod plan;
pub mod ports;
mod prepared;

pub use error::InstallError;
pub use handle::{ContextHandle, User};
pub use match_spec::MatchSpec;
pub use placement::{Home, UnitRange, WorkerRange};
pub use prepared::{Assigned, Prepared, UnitMemory};
pub use spin_pspin::hpu::send_rights::SendRights;

/// The address by which handlers name host memory until the application reports where it mapped that (PsPIN's `PCIE_START_ADDR`).
pub const HOST_ADDRESS: u64 = 0x1000_0000_0000_0000;

/// Logs that the NIC refused rules without those of removed contexts. It continues to hand over their frames until the next
/// change of rules. These frames match nothing here and are counted as dropped.
pub fn warn_of_rules(error: &InstallError) {
    tracing::warn!("the NIC keeps the rules of contexts that are removed: {error}");
}
