//! What a translation may assume and has to do.

use crate::view::Checks;

/// Who else touches the L1 memory that atomics work on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Atomics {
    /// Nobody: the context's tasks run on their home cluster's thread, and no other cluster's L1 is mapped. Atomics on L1
    /// are plain loads and stores; those on L2 are locked.
    Home,
    /// Any cluster: all atomics are locked.
    #[default]
    Shared,
}

/// Options of a translation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// Which memory accesses are refused.
    pub checks: Checks,
    /// How atomics are carried out.
    pub atomics: Atomics,
    /// Counts instructions, for an instruction limit. Code that reads a counter is counted anyway.
    pub counting: bool,
    /// Keeps the registers of the hart up to date at every instruction, for comparisons.
    pub observe: bool,
    /// Takes any address for one that may be a device's.
    pub any_device: bool,
    /// Keeps what a0 holds when the handler returns: see [`super::Slot::result`].
    pub result: bool,
    /// Tasks are [described](super::TaskBlock) above where their stack begins, and begin with a0 pointing at their arguments there: so what
    /// the first of these is need not be loaded, which most handlers do first and everything else waits for.
    pub described: bool,
}
