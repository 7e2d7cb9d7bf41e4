//! Assumptions and requirements of a translation.

use crate::view::Checks;

/// Sharing of the L1 memory that atomics access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Atomics {
    /// Not shared: the context's tasks run on their home cluster's thread, and no other cluster's L1 is mapped. Atomics
    /// on L1 are plain loads and stores; those on L2 are locked.
    Home,
    /// Shared by all clusters: all atomics are locked.
    #[default]
    Shared,
}

/// Options of a translation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// Granularity of memory checks.
    pub checks: Checks,
    /// Implementation of atomics.
    pub atomics: Atomics,
    /// Whether instructions are counted, for an instruction limit. A handler that reads a counter is counted in any case, and
    /// shared code if any code reads one.
    pub counting: bool,
    /// Whether the hart's registers are up to date at every instruction, for comparisons.
    pub observe: bool,
    /// Whether any address may be a device's.
    pub any_device: bool,
    /// Whether a0 is stored when the handler returns: see [`super::Slot::result`].
    pub result: bool,
    /// Whether tasks are [described](super::TaskDescriptor) above the start of their stack and begin with a0 pointing to
    /// their arguments there. The first argument then need not be loaded; most handlers load it first, and everything
    /// else depends on it.
    pub described: bool,
}
