//! Installing, changing and removing execution contexts.
//!
//! * `error`: why that fails.
//! * `prepared`: what an application asked for, checked and made off the packet path.
//! * `matching`: which packets it is to get.
//! * `link`: an engine's contexts come, change and go between two batches.
//! * `query`: what an engine tells of them.

mod built;
mod error;
mod link;
mod matching;
mod prepared;

pub use error::InstallError;
pub use matching::Matching;
pub use prepared::Prepared;

use std::fmt;

use spin_pspin::ids::Slot;

use crate::context::Context;

/// Address by which handlers name host memory until the application says where it mapped it (PsPIN's
/// `PCIE_START_ADDR`).
pub const HOST_ADDRESS: u64 = 0x1000_0000_0000_0000;

/// By what a context is known to users, and among the engine's contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its id.
    pub id: u32,
    /// Its slot.
    pub slot: Slot,
}

/// On whose behalf a context is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User(pub u32);

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}", self.0)
    }
}

impl User {
    pub(crate) fn may_change(self, context: &Context) -> bool {
        self.0 == 0 || self.0 == context.uid
    }
}

/// The NIC goes on handing over frames of contexts that are removed. They match nothing here any more and are counted as dropped,
/// until the next change of rules.
pub fn warn_of_rules(error: &InstallError) {
    tracing::warn!("the NIC keeps the rules of contexts that are removed: {error}");
}
